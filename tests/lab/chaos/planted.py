"""Protections of the daemon, each taken away by one patch, and which invariant notices.

``python tests/lab/chaos/planted.py`` plays on each the script of its name in ``planted_scripts/``, if there
is one, and then seeds, until something breaks that holds when the protection is there. It prints
the table that docs/chaos.md has.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import attrs
import gpusched_plugins.queues.quota as quota_plugin
import msgspec

from gpusched.actions import preempt
from gpusched.api.devices.gpu_share import GpuShare
from gpusched.api.gang.pod_group import TopologyRequest
from gpusched.api.meta.identity import Rejected
from gpusched.api.pod.pod import Pod
from gpusched.app.candidate import LeaseCandidate
from gpusched.base import limits
from gpusched.cache import ledger
from gpusched.cache.cache import Cache
from gpusched.cache.claimable.device_stores import ClaimStore, DeviceObjectStores
from gpusched.cache.ledger import HoldingState
from gpusched.commit import machine
from gpusched.commit.machine import CommitStep
from gpusched.commit.model import BindCreated, BindUnknown, CommitPhase
from gpusched.devices.usage import DeviceUsage
from gpusched.io.client.server_clock import ServerClock
from gpusched.io.cycle import session_cycle
from gpusched.io.leader.elector import Elector
from gpusched.io.watch.cache_comparer import CacheComparer
from gpusched.io.watch.informer_factory import InformerFactory
from gpusched.io.watch.informers import KindEventHandler
from gpusched.io.watch.reflector import Reflector
from gpusched.io.write import bind_calls, evictor
from gpusched.io.write.bind_calls import BindCalls
from gpusched.io.write.claims.unbound_claims import UnboundClaims
from gpusched.io.write.claims.volume_binder import VolumeBinder
from gpusched.io.write.evictor import Evictor
from gpusched.io.write.preemption_executor import PreemptionExecutor
from gpusched.io.write.status.status_queue import StatusQueue
from gpusched.lab.chaos.invariant_checker import TimedFinding
from gpusched.lab.chaos.play import play_script
from gpusched.lab.chaos.scripts.generator import draw_script
from gpusched.lab.chaos.scripts.script import ChaosScript, read_script
from gpusched.leader.lease_machine import LEADER, LeaseMachine
from gpusched.leader.lease_state import ClockReading
from gpusched.session.framework.hooks import Hooks
from gpusched.session.framework.proposal import EvictionLimits
from gpusched.session.preempt.claims import claimants
from gpusched.session.status import gang_status

PLANTS = {}
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
SEEDS = 40
"""So many are played on each before it counts as not found."""
SCRIPTS = Path(__file__).parent / "planted_scripts"


def plant(function):
    """A function that says what to put in place of what: ``(owner, name, replacement)``."""
    PLANTS[function.__name__] = function
    return function


def other(item, **fields):
    """The same entity with other fields."""
    if isinstance(item, Rejected):
        return item
    if isinstance(item, msgspec.Struct):
        return msgspec.structs.replace(item, **fields)
    return attrs.evolve(item, **fields)


def unless_it_is(name, **fields):
    """A cache that is told something else of a kind."""
    original = getattr(Cache, name)

    def put(self, *args):
        return original(self, *args[:-1], other(args[-1], **fields))

    return (Cache, name, put)


# -- commit ------------------------------------------------------------------------------------
@plant
def plans_are_not_checked_again():
    """A plan is carried out whatever changed since it was decided."""
    yield (session_cycle, "recheck_placements", lambda *_args, **_how: "")


@plant
def bindings_name_no_uid():
    """A binding is for whatever has the pod's name by now."""
    original = bind_calls.requests.binding_body

    def binding(*args, **how):
        body = json.loads(original(*args, **how))
        body["metadata"].pop("uid", None)
        return json.dumps(body).encode()

    yield (bind_calls.requests, "binding_body", binding)


@plant
def timeouts_are_forgotten():
    """A binding without an answer counts as not done."""

    def doubted(d, event):
        if d.end_call(event.index, machine.BIND_CALL) is machine.PodStage.SENT:
            d.forget(event.index, event.why)

    yield (machine, "_HANDLERS", {**machine._HANDLERS, BindUnknown: doubted})


@plant
def conflicts_are_successes():
    """A 409 is read as: bound already, so it is ours."""
    original = BindCalls._read_refusal

    def refusal(self, index, answer, *, doing):
        found = original(self, index, answer, doing=doing)
        return BindCreated(index) if isinstance(found, BindUnknown) else found

    yield (BindCalls, "_read_refusal", refusal)


@plant
def assumptions_expire():
    """What is assumed is free again after a second, whatever became of the binding."""
    original = Cache.assume_binding

    def assume(self, pod, node, slots):
        original(self, pod, node, slots)

        def expire():
            held = self.ledger.get(pod.uid)
            if held is not None and held.hold is HoldingState.ASSUMED:
                self.forget(pod.uid)

        asyncio.get_running_loop().call_later(1.0, expire)

    yield (Cache, "assume_binding", assume)


@plant
def half_a_gang_stays():
    """What was bound of a gang that cannot be completed is not taken back."""

    def undo(self):
        self.come_to_rest(CommitPhase.RELEASED)

    yield (CommitStep, "undo_bindings", undo)
    yield (session_cycle, "plan_recoveries", lambda *_args, **_how: [])
    yield (Hooks, "stop_check", lambda *_args, **_how: None)


@plant
def evictions_name_no_uid():
    """An eviction is for whatever has the pod's name by now."""
    original = evictor.requests.eviction_body

    def eviction(*args, **how):
        body = json.loads(original(*args, **how))
        (body.get("deleteOptions") or {}).pop("preconditions", None)
        return json.dumps(body).encode()

    yield (evictor.requests, "eviction_body", eviction)


@plant
def refused_evictions_are_given_up():
    """What a budget or a busy server refuses once is not asked for again."""

    def refused(self, victim, error):
        victim.blocked = str(error)

    yield (Evictor, "_note_refusal", refused)


@plant
def victims_go_before_the_promise():
    """Nobody is nominated before those who make room are told to go."""

    async def promise(_self, _run):
        return ""

    yield (PreemptionExecutor, "_nominate_pods", promise)
    yield (Cache, "assume_nomination", lambda *_args: None)


# -- leadership ----------------------------------------------------------------------------------
@plant
def the_lease_never_lapses():
    """A leader that was paused goes on as if no time had passed."""

    def may_act(self, *_args, **_how):
        return self._state.phase in LEADER

    yield (Elector, "may_act", may_act)
    yield (ClockReading, "seconds_left", lambda *_args: 1e9)


@plant
def the_lease_is_taken_at_once():
    """A candidate does not wait until the leader's lease is over."""
    original = LeaseMachine._on_seen

    def seen(self, state, event):
        if state.phase.name == "READING":
            state = attrs.evolve(state, record=event.record, unchanged_since=-1e9)
        return original(self, state, event)

    yield (LeaseMachine, "_on_seen", seen)


@plant
def a_new_leader_does_not_look_again():
    """It decides on what its streams have told so far."""

    async def nothing():
        return None

    yield (InformerFactory, "ask_relist", lambda _self, _least="": nothing)


@plant
def timeouts_follow_the_wall_clock():
    """A clock that is set by a day ends everything, or nothing."""
    yield (ServerClock, "monotonic", lambda self: self._machine.now())
    yield (ServerClock, "boottime", lambda self: self._machine.now())


# -- reading -------------------------------------------------------------------------------------
@plant
def silence_is_believed():
    """A watch that says nothing for ever counts as a quiet cluster."""
    yield (limits, "WATCH_GRACE_S", 1e9)


@plant
def expired_watches_go_on():
    """An ERROR event, 410 among them, is passed over."""
    original = Reflector._apply

    def apply(self, line):
        end = original(self, line)
        return None if end is not None and end.reason in {"expired", "error-event"} else end

    yield (Reflector, "_apply", apply)


@plant
def lists_delete_nothing():
    """What a list does not have any more is kept."""

    def replace(self, items):
        for item in items:
            self.apply("ADDED", item)

    async def audit(*_args, **_how):
        return None

    yield (KindEventHandler, "replace", replace)
    yield (CacheComparer, "audit", audit)


@plant
def events_count():
    """An event that is told twice is two pods."""
    original = Cache.put_pod

    def put(self, item):
        known = self.pods.get(item.key)
        original(self, item)
        if not isinstance(item, Pod) or known is None or not item.holds:
            return
        held = self.ledger.get(item.uid)
        if held is not None and known.resource_version == item.resource_version:
            self.ledger.put(attrs.evolve(held, uid=f"{item.uid}/twin", slots=0))

    yield (Cache, "put_pod", put)


@plant
def bindings_go_out_while_watches_are_cut():
    """Bindings are sent while nobody knows what became of the server."""
    yield (InformerFactory, "follows_room", lambda _self: True)


@plant
def a_restored_store_is_not_noticed():
    """Versions that go back are taken for a quiet cluster."""

    async def version_went_back(_self):
        return None

    async def audit(*_args, **_how):
        return None

    yield (Reflector, "_version_went_back", version_went_back)
    yield (Elector, "_is_restored_lease", lambda *_args: None)
    # Soon after a stream was cut off pods and nodes are listed: that finds it a minute later.
    yield (CacheComparer, "audit", audit)


# -- books -----------------------------------------------------------------------------------------
@plant
def who_leaves_holds_nothing():
    """The room of a pod counts as free from the moment that it is told to go."""
    yield (
        Pod,
        "holds",
        property(lambda pod: bool(pod.node) and not pod.finished and not pod.deleting),
    )


@plant
def assumed_slots_are_free():
    """GPUs of pods that are being bound can be given again."""
    original = ledger._NodeSums.add_holding

    def take(self, holding):
        if holding.hold is HoldingState.ASSUMED and holding.share is None:
            holding = attrs.evolve(holding, slots=0, gpus=0, requests=holding.requests)
        original(self, holding)

    yield (ledger._NodeSums, "add_holding", take)


@plant
def other_schedulers_pods_do_not_count():
    """Only what we bound takes room."""
    original = Cache._charge_pod

    def charge(self, pod):
        if pod.scheduler in self.schedulers:
            original(self, pod)

    yield (Cache, "_charge_pod", charge)


@plant
def shares_are_half_as_large():
    """Two shares of 0.75 fit on one GPU."""
    original = GpuShare.thousandths_of
    yield (GpuShare, "thousandths_of", lambda self, memory: original(self, memory) // 2)


# -- policies ----------------------------------------------------------------------------------------
@plant
def capability_is_not_asked():
    """Queues get whatever fits."""
    yield (quota_plugin, "_caps_on_path", lambda *_args: [])


@plant
def reclaim_needs_no_right():
    """Whoever waits takes from whom it likes."""
    yield (Hooks, "reclaim_gate", lambda self, _check: self.reclaim_gates.append(_allowed))
    yield (Hooks, "reclaim_check", lambda self, _check: self.reclaim_checks.append(_allowed))
    yield (Hooks, "victim_filter", lambda *_args, **_how: None)
    # The same rights once more, as amounts by which victims are searched.
    yield (Hooks, "eviction_limits", lambda self, _limits: self.limits_of.append(_no_limits))


def _allowed(*_args):
    return quota_plugin.ALLOW


def _no_limits(*_args):
    return EvictionLimits()


@plant
def equals_are_preempted():
    """Victims of the same priority."""
    original = claimants.VictimRules

    def rules(**how):
        how["may_be_victim"] = lambda claimant, victim: victim.key != claimant.key
        return original(**how)

    yield (claimants, "VictimRules", rules)
    found = preempt.preemption_claimants
    yield (preempt, "preemption_claimants", lambda session, _has_victims=None: found(session))


@plant
def preemptible_false_is_not_read():
    """Who said that it must not be evicted is evicted."""
    original = Cache.put_group

    def put(self, key, item):
        if not isinstance(item, Rejected):
            item = other(item, terms=other(item.terms, preemptible=True))
        original(self, key, item)

    yield (Cache, "put_group", put)


@plant
def topology_is_not_read():
    """Gangs that require one rack are placed anywhere."""
    yield unless_it_is("put_group", topology=TopologyRequest())


@plant
def minimum_is_not_read():
    """Every gang may start with one pod."""
    yield unless_it_is("put_group", min_member=1)


@plant
def cordons_are_not_read():
    """Nodes take pods whatever is said of them."""
    original = Cache.put_node

    def put(self, node):
        if not isinstance(node, Rejected):
            taints = tuple(each for each in node.taints if each.key != UNSCHEDULABLE)
            node = other(node, unschedulable=False, taints=taints)
        return original(self, node)

    yield (Cache, "put_node", put)


@plant
def gates_are_not_read():
    """Pods are bound through their gates."""
    yield unless_it_is("put_pod", gated=False)


# -- status and liveness -----------------------------------------------------------------------------
@plant
def scheduled_is_said_early():
    """A gang is said to run as soon as somebody of it waits."""
    original = gang_status._gang_status

    def said(session, gang, **told):
        found = original(session, gang, **told)
        if found.is_scheduled or not gang.pending:
            return found
        return attrs.evolve(found, is_scheduled=True, phase="Running")

    yield (gang_status, "_gang_status", said)


@plant
def room_is_held_for_ever():
    """What is kept for lost members is never given up."""
    original = Cache.use_limits

    def use_limits(self, chosen):
        original(
            self,
            attrs.evolve(
                chosen, repair_timeout_s=1e9, pod_arrival_timeout_s=1e9, nomination_timeout_s=1e9
            ),
        )

    yield (Cache, "use_limits", use_limits)


@plant
def status_is_written_once():
    """A status that was not accepted is not said again."""
    original = StatusQueue.submit

    def submit(self, uid, want, *, settle_s=0.0):
        if uid not in self._objects:
            original(self, uid, want, settle_s=settle_s)

    yield (StatusQueue, "submit", submit)


@plant
def sessions_end_with_the_first_exception():
    """One gang that cannot be looked at ends the process."""
    original = gang_status._gang_status

    def said(session, gang, **told):
        if len(gang.pod_sets) > 1:
            raise ZeroDivisionError("planted")
        return original(session, gang, **told)

    yield (gang_status, "_gang_status", said)


@plant
def nobody_leads_after_a_loss():
    """Who lost the lease never stands for it again."""
    original = LeaseCandidate._stand
    begun = set()

    async def stand(self, api, term):
        if id(self) in begun:
            await asyncio.get_running_loop().create_future()
        begun.add(id(self))
        await original(self, api, term)

    yield (LeaseCandidate, "_stand", stand)


# -- claims for devices ------------------------------------------------------------------------
@plant
def devices_in_use_are_free():
    """Devices that claims hold count as free."""
    yield (DeviceUsage, "add", lambda *_args, **_how: None)


@plant
def claims_on_their_way_are_free():
    """Devices that are being given, or were just now, can be given again before the watch shows them."""
    yield (DeviceObjectStores, "assume_claim", lambda *_args: None)
    yield (ClaimStore, "record_answer", lambda *_args: None)


@plant
def pods_are_bound_before_their_claims():
    """Pods are bound while their claims are still to be written."""

    async def give_none(*_args, **_how):
        return ""

    yield (VolumeBinder, "_give_devices", give_none)


@plant
def devices_of_lost_pods_are_kept():
    """Devices of claims whose pods were not bound after all are never released."""
    yield (UnboundClaims, "release_unbound", lambda *_args, **_how: None)


# -- playing -----------------------------------------------------------------------------------------
@attrs.frozen
class Found:
    """What told that a protection is gone.

    Attributes:
        by: number of the seed, or ``script``.
        seen: the first thing that did not hold.
    """

    by: int | str
    seen: TimedFinding

    def __str__(self) -> str:
        where = self.by if self.by == "script" else f"seed {self.by}"
        told = self.seen.finding.sentence[:110].replace("|", "/")
        return f"{self.seen.finding.invariant} | {where} | {told}"


class Plain:
    """Runs in which every protection is there, each played once and when it is asked for."""

    def __init__(self) -> None:
        self._held: dict[int | str, bool] = {}

    def holds(self, name: int | str, script: ChaosScript) -> bool:
        """Whether nothing is found in the run of a script."""
        if name not in self._held:
            self._held[name] = play_script(script, until_first=True).ok
        return self._held[name]


def broken(name: str, script: ChaosScript) -> TimedFinding | None:
    """What is found first in the run of a script without one of the protections."""
    with ExitStack() as stack:
        for owner, attribute, replacement in PLANTS[name]():
            stack.enter_context(patch.object(owner, attribute, replacement))
        return next(iter(play_script(script, until_first=True).seen), None)


def found_by(name: str, seeds: Iterable[int], plain: Plain) -> Found | None:
    """What tells it from a run with every protection: its script, or the first seed that does."""
    for by, script in runs_of(name, seeds):
        seen = broken(name, script)
        if seen is not None and plain.holds(by, script):
            return Found("script" if isinstance(by, str) else by, seen)
    return None


def runs_of(name: str, seeds: Iterable[int]) -> Iterator[tuple[int | str, ChaosScript]]:
    """Its script where it has one, and then seeds."""
    directed = SCRIPTS / f"{name}.yaml"
    if directed.exists():
        yield name, read_script(directed)
    for seed in seeds:
        yield seed, draw_script(seed)


def tell(line: str) -> None:
    """One line, at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """The table."""
    logging.disable(logging.CRITICAL)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="faults; all unless told")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="so many are played on each")
    asked = parser.parse_args()
    plain = Plain()
    tell("| taken away | found by | in | the first thing said |\n|---|---|---|---|")
    for name in asked.names or PLANTS:
        found = found_by(name, range(asked.seeds), plain)
        about = (PLANTS[name].__doc__ or "").strip()
        tell(f"| {about} | {found or 'nothing | | '} |")


if __name__ == "__main__":
    main()
