"""Random histories of one cluster under every shipped policy, for what sessions keep from one another."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Final

import attrs
from msgspec import structs

from gpusched.api.gang.pod_group import TopologyRequest
from gpusched.api.meta.identity import format_time
from gpusched.api.pod.pod import GangAnnotations, PodPhase
from gpusched.api.queue.queue import QueueUsage
from gpusched.api.queue.start_errors import RATIO_EDGES, StartErrors, StartTally
from gpusched.base.clock import SystemClock
from gpusched.cache.snapshot import Snapshot
from gpusched.config.model import DEFAULT, DEFAULT_LIMITS, Config, PlacementConfig, PluginChoice
from gpusched.pluginhost.guard import PluginGuard
from gpusched.session.decide import Decision, decide
from gpusched.session.state.session_cache import SessionCache
from gpusched.testing import entities
from gpusched.testing.apply_plan import PlanApplication
from gpusched.testing.given import Given

SECOND: Final = 10**9
ACTIONS: Final = ("enqueue", "allocate", "preempt", "reclaim", "consolidate", "backfill")
GREEDY: Final = PlacementConfig(solver="greedy")
DECIDED: Final = ("plan", "waiting", "rounds", "reserved", "expected_starts")
QUEUES: Final = ("a", "b", "c")
CHANGES: Final = 3
LOOKS: Final = 4


EVICTING: Final = ("preempt", "reclaim", "consolidate")


def config(*, usage: bool, evicts: bool) -> Config:
    """Every shipped policy and action; those that read the clock itself only if asked for.

    Decayed usage does, and what an eviction would cost.
    """
    tiers = list(DEFAULT.tiers)
    known = {each.name for tier in tiers for each in tier.plugins}
    others = sorted(each.name for each in entry_points(group="gpusched.plugins"))
    more = [name for name in others if name not in known and (usage or name != "usage")]
    plugins = (*tiers[-1].plugins, *map(PluginChoice, more))
    tiers[-1] = attrs.evolve(tiers[-1], plugins=plugins)
    actions = tuple(name for name in ACTIONS if evicts or name not in EVICTING)
    return attrs.evolve(DEFAULT, actions=actions, placement=GREEDY, tiers=tuple(tiers))


class KeptHistory:
    """A small cluster on which gangs run, wait, come and go.

    Args:
        seed: from which everything follows.
    """

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.c = Given(config=config(usage=rng.random() < 0.1, evicts=rng.random() < 0.3))
        work = rng.choice([DEFAULT_LIMITS.session_work, 3000, 9000])
        window_s = rng.choice([DEFAULT_LIMITS.reservation_window_s, 300.0, 2000.0])
        self.c.cache.use_limits(
            attrs.evolve(DEFAULT_LIMITS, session_work=work, reservation_window_s=window_s)
        )
        self.c.search = _no_search
        self.made = 0
        self.errors: Mapping[str, StartErrors] = MappingProxyType({})
        if rng.random() < 0.4:
            tally = StartTally(
                known_by="Announced", ratios=((RATIO_EDGES[2], 30), (RATIO_EDGES[5], 40))
            )
            self.errors = {"a": StartErrors(tallies=(tally,))}
        self.nodes = [(f"n{number}", rng.choice([4, 8])) for number in range(rng.randint(2, 5))]
        for number, (name, gpus) in enumerate(self.nodes):
            rack = {"topology.gpusched.io/rack": f"r{number % 2}"}
            self.c.node(name, gpus=gpus, labels=rack)
        for name in QUEUES:
            self.queue(name)
        for name, gpus in self.nodes:
            for slot in range(gpus):
                if rng.random() < 0.8:
                    self.runs(name, slot)
        for _ in range(rng.randint(3, 14)):
            self.waits()

    # -- what happens ------------------------------------------------------------------------
    def queue(self, name: str) -> None:
        """A queue with some of the times that a queue can have."""
        rng, limits = self.rng, {}
        if rng.random() < 0.4:
            limits["capability"] = {entities.GPU: rng.choice([3, 6, 12])}
        if rng.random() < 0.4:
            limits["deserved"] = {entities.GPU: rng.choice([2, 5])}
        self.c.queue(
            name, limits=limits, ordering=rng.choice(["Priority", "Priority", "Fifo", "StrictFifo"]),
            max_wait_ns=rng.choice([0, 0, 50, 4000]) * SECOND,
            max_runtime_ns=rng.choice([0, 0, 1000, 3000]) * SECOND,
            min_runtime_ns=rng.choice([0, 0, 100, 900]) * SECOND,
            usage=QueueUsage(),
        )  # fmt: skip

    def runs(self, node: str, slot: int) -> None:
        """A gang of one pod that runs; some are late, some end at a time that nobody knows."""
        rng, name = self.rng, f"r{self.made}"
        self.made += 1
        lasts = rng.choice([0, 300, 1000, 1500, 5000, 20_000, 40_000])
        self.c.pod(
            name, queue=rng.choice(QUEUES), node=node, slots=1 << slot, gpus=1, cpu=100, plan="p",
            phase=PodPhase.RUNNING, scheduled=self.c.now - rng.choice([5, 50, 250, 290]),
            priority=rng.choice([0, 0, 5]),
            hints=GangAnnotations(
                expected_duration_ns=lasts * SECOND, preemptible=rng.choice([None, False])
            ),
        )  # fmt: skip

    def waits(self) -> None:
        """A gang that waits."""
        rng, name = self.rng, f"w{self.made}"
        self.made += 1
        created = self.c.now - rng.choice([0, 3, 20, 400, 3000]) - self.made / 1000
        wish = TopologyRequest()
        if rng.random() < 0.2:
            wish = TopologyRequest(preferred="rack", max_wait_ns=rng.choice([20, 500]) * SECOND)
        status = b"{}"
        if rng.random() < 0.3:
            start = format_time(self.c.now + rng.choice([-5, 40, 700]))
            status = b'{"estimatedStartTime":"%s"}' % start.encode()
        pods = rng.choice([1, 1, 1, 2, 3])
        self.c.group(
            name, queue=rng.choice(QUEUES), min_member=pods, created=created, topology=wish,
            expected_duration_ns=rng.choice([0, 100, 600, 2000]) * SECOND, status=status,
        )  # fmt: skip
        self.c.pods(
            name, pods, group=name, created=created, priority=rng.choice([0, 0, 3, 8]),
            gpus=rng.choice([1, 1, 2, 4, 8]), cpu=rng.choice([100, 200]),
        )  # fmt: skip

    def change(self) -> None:
        """One thing in the cluster becomes another."""
        rng = self.rng
        match rng.randrange(6):
            case 0:
                self.queue(rng.choice(QUEUES))
            case 1:
                name, gpus = rng.choice(self.nodes)
                self.c.node(name, gpus=gpus, unschedulable=rng.random() < 0.5)
            case 2 | 3:
                self.waits()
            case _:
                pods = sorted(pod.name for pod in self.c.cache.pods.values())
                self.c.gone(rng.choice(pods)) if pods else None

    def carry_out(self, decision: Decision) -> None:
        """All of a plan is done; of some, pods are still ending."""
        versions = (f"9{self.made}{number}" for number in range(10**6))
        carrying = PlanApplication(
            cache=self.c.cache, now=self.c.now, version=lambda: next(versions)
        )
        carrying.plan(decision.plan, gone=self.rng.random() < 0.8)
        self.made += 1
        for pod in [*self.c.cache.pods.values()]:
            if pod.node and not pod.scheduled:
                runs = structs.replace(pod, phase=PodPhase.RUNNING, scheduled=self.c.now)
                self.c.cache.put_pod(structs.replace(runs, resource_version=next(versions)))

    def settle(self) -> Decision:
        """Most gangs that are late end; then decide until nothing more is to be done, a few times at most."""
        placed = self.c.cache.take_snapshot(self.c.now).placed_gangs
        for _, gang in sorted(placed.items()):  # no order of it is promised
            ends = gang.started_at + (gang.terms.expected_duration_ns or 10**6 * SECOND) / SECOND
            if ends <= self.c.now and self.rng.random() < 0.9:
                for member in gang.placed:
                    self.c.gone(member.pod.name)
        for _ in range(4):
            decision = self.decide()
            if not decision.plan.has_effects:
                break
            self.carry_out(decision)
        return decision

    def pass_time(self, decision: Decision) -> None:
        """Go to some later moment, most often to one before which the decision says that it stays."""
        left_s = decision.stays_until - self.c.now
        if left_s > 0 and self.rng.random() < 0.7:
            self.c.now += min(left_s, 10.0 ** self.rng.randrange(6)) * self.rng.random()
        else:
            self.c.now += self.rng.choice([0.3, 1.0, 11.0, 130.0, 2000.0])

    def play(self) -> Iterator[Decision]:
        """Sessions at some moments between changes, each as soon as it was held."""
        for _ in range(CHANGES):
            decision = self.settle()
            for _ in range(LOOKS):
                self.pass_time(decision)
                decision = self.decide()
                yield decision
            self.change()

    # -- sessions ----------------------------------------------------------------------------
    def decide(self) -> Decision:
        """A session that uses what earlier ones left."""
        snapshot = self.snapshot = attrs.evolve(
            self.c.cache.take_snapshot(self.c.now), start_errors=self.errors
        )
        decision = self.c.decision = decide(
            snapshot, self.c.policy, guard=self.c.guard, session_cache=self.c.session_cache,
            placement=GREEDY, containment=self.c.containment,
        )  # fmt: skip
        self.c.cache.rounds = decision.rounds
        self.c.cache.expected_starts = decision.expected_starts
        self.c.cache.spare_room = decision.spare_room
        return decision

    def decide_anew(self, snapshot: Snapshot) -> Decision:
        """The same session if there had been none before."""
        return decide(
            snapshot, self.c.policy, guard=PluginGuard(SystemClock()),
            session_cache=SessionCache(), placement=GREEDY,
        )  # fmt: skip

    def differences(self, decision: Decision) -> list[str]:
        """Parts of a decision in which it is another than it would be anew."""
        anew = self.decide_anew(self.snapshot)
        return [name for name in DECIDED if getattr(decision, name) != getattr(anew, name)]


def _no_search(_job: object) -> object:
    raise AssertionError("the greedy way searches nothing")
