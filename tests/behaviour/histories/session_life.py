"""One story lived in sessions alone: decide, carry out at once, go on in virtual time.

Fast enough for a thousand lives. There is no API, so nothing is late: what happens is what
policies and actions want. Evicted pods are made again at once as waiting ones. What happened is
kept in a journal that ``stability`` reads.
"""

from __future__ import annotations

from typing import Any, Final

import attrs
import msgspec

from gpusched.api.gang.pod_group import SubGroup, TopologyRequest
from gpusched.api.meta.identity import ObjectKey, ResourceVersion
from gpusched.api.meta.status import Condition
from gpusched.api.pod.pod import PodPhase
from gpusched.config.model import DEFAULT, Config
from gpusched.session.state.plan import Plan
from gpusched.testing import entities, invariants
from gpusched.testing.given import Given
from tests.behaviour.histories.stability import Evicted, Outside, Started
from tests.behaviour.histories.starvation import StarvationCheck
from tests.behaviour.notation import objects
from tests.behaviour.notation.model import Case, CaseGang, Event

_QUIET_S: Final = 240.0
"""Longer than any gang of a story lasts: when nothing happens for so long, nothing will."""
_CHAIN_WAIT_S: Final = 600.0
"""The shipped ``chainWait`` of ``fairshare``."""
_STEPS_MAX: Final = 4000


@attrs.define
class _Pod:
    """One pod of a story: of which gang, in which part, and when it ends."""

    gang: CaseGang
    part: str
    rank: int
    ends: float = 0.0


@attrs.define
class SessionLife:
    """See the module.

    Attributes:
        journal: what happened, times in seconds since the beginning.
        wrong: invariants that did not hold.
        moves: by claimant, the nodes that moves were to free for it; until it starts.
    """

    case: Case
    config: Config = DEFAULT
    given: Given = attrs.Factory(Given)
    alive: dict[str, _Pod] = attrs.Factory(dict)
    journal: list[Outside | Started | Evicted] = attrs.Factory(list)
    wrong: list[str] = attrs.Factory(list)
    promised: dict[str, list[str]] = attrs.Factory(dict)
    whole: set[str] = attrs.Factory(set)
    made: int = 0
    sessions: int = 0

    def run(self) -> SessionLife:
        """From the beginning until nothing happens any more."""
        self.given = Given(config=self.case.config(self.config))
        self._began = self.given.now
        self._begin()
        self._go_on(0.0)
        return self

    def _go_on(self, now: float) -> None:
        begin = self._began
        pending = sorted({g.at_s for g in self.case.gangs} | {e.at_s for e in self.case.events})
        quiet_since, step = now, 1.0
        for _ in range(_STEPS_MAX):
            if self._happen(now):
                self.journal.append(Outside(now))
                step, quiet_since = 1.0, now
            if self._session(now):
                step, quiet_since = 1.0, now
            else:
                step = min(step * 2, 30.0)
            later = [at for at in pending if at > now]
            if not later and now - quiet_since > _QUIET_S and not self._ends():
                self._look(now)
                self._rests_at = now
                return
            soonest = min([now + step, *later[:1], *(end for end in self._ends() if end > now)])
            now = max(now + 1.0, float(int(soonest)))
            self.given.now = begin + now
        self.wrong.append("never at rest")

    def starving(self) -> list[str]:
        """I7 in the end: who waits though it could run.

        A gang waits for ten minutes rather than have one evicted that would evict others in turn. So
        where one starves the life goes on for that long, and who waits then is told.
        """
        if not self._starving_now():
            return []
        journal, self.journal = self.journal, []
        self.given.now += _CHAIN_WAIT_S
        self._go_on(self._rests_at + _CHAIN_WAIT_S)
        self.journal = journal
        return self._starving_now()

    def _starving_now(self) -> list[str]:
        found = self.given.objects()
        queues = {queue.name: objects.queue(queue)["spec"] for queue in self._queues.values()}
        groups = [
            {
                "metadata": {"name": status.gang.name},
                "status": {
                    "conditions": [{"type": "Scheduled", "reason": status.scheduled.reason}]
                },
            }
            for status in self.given.then.plan.gangs
        ]
        said = StarvationCheck(self.case, found["pods"], found["nodes"], groups, queues).starving()
        in_parts = {gang.name for gang in self.case.gangs if gang.sub_groups}  # it knows none
        return [each for each in said if each.split()[1] not in in_parts]

    # -- the story ---------------------------------------------------------------------------
    _began: float = 0.0
    _rests_at: float = 0.0
    _queues: dict[str, Any] = attrs.Factory(dict)

    def _begin(self) -> None:
        for node in self.case.nodes:
            self._node(node)
        for queue in self.case.queues:
            self._queue(queue)

    def _node(self, node: Any) -> None:
        labels = {"gpusched.io/rack": node.labels["rack"], "rack": node.labels["rack"]}
        self.given.node(node.name, gpus=node.offers.gpus or 0, labels=labels)

    def _queue(self, queue: Any) -> None:
        known = self._queues.get(queue.name)
        if known is not None:
            queue = attrs.evolve(known, deserved=queue.deserved)
        self._queues[queue.name] = queue
        limits = {
            kind: {entities.GPU: amount.gpus}
            for kind, amount in (
                ("guarantee", queue.guarantee),
                ("deserved", queue.deserved),
                ("capability", queue.capability),
            )
            if amount.gpus is not None
        }
        fields = {
            key: value
            for key, value in (
                ("weight", queue.weight),
                ("priority", queue.priority),
                ("reclaimable", queue.reclaimable),
            )
            if value is not None
        }
        if queue.parent:
            fields["parent"] = queue.parent
        self.given.queue(queue.name, limits=limits, **fields)

    def _happen(self, now: float) -> bool:
        """What the story has for this moment; whether anything was."""
        happened = False
        for name, pod in list(self.alive.items()):
            if pod.ends and pod.ends <= now:
                self._end(name)
                happened = True
        for gang in self.case.gangs:
            if gang.at_s == now:
                self._come(gang)
                happened = True
        for event in self.case.events:
            if event.at_s == now:
                self._event(event)
                happened = True
        return happened

    def _come(self, gang: CaseGang) -> None:
        wish = TopologyRequest(required=gang.required) if gang.required else TopologyRequest()
        parts = [SubGroup(name, n, TopologyRequest()) for name, n in gang.sub_groups.items()]
        self.given.group(
            gang.name,
            queue=gang.queue,
            min_member=gang.needed,
            topology=wish,
            sub_groups=parts,
            min_sub_groups=gang.min_sub_groups or 0,
            roles=dict(gang.roles),
            preemptible=gang.may_be_evicted,
            min_runtime_ns=gang.min_runtime_s * 10**9,
            created=self.given.now,
        )
        rank = 0
        for kind in gang.pods:
            for _ in range(kind.count):
                self._pod(_Pod(gang, kind.part, rank), f"{gang.name}-{rank}")
                rank += 1

    def _pod(self, pod: _Pod, name: str) -> None:
        gang = pod.gang
        part = {("role" if gang.roles else "sub_group"): pod.part} if pod.part else {}
        self.given.pod(
            name,
            group=gang.name,
            gpus=gang.asks.gpus or 0,
            rank=pod.rank,
            priority=gang.priority,
            created=self.given.now,
            **part,
        )
        self.alive[name] = pod

    def _event(self, event: Event) -> None:
        if event.verb == "node":
            for node in event.nodes:
                self._node(node)
        elif event.verb == "lose":
            for name in [n for n, pod in self.alive.items() if self._of(n).node == event.name]:
                self._again(name)
            self.given.cache.drop_node(event.name)
        elif event.verb == "kill":
            mine = [n for n, pod in self.alive.items() if pod.gang.name == event.name]
            for name in [n for n in mine if self._of(n).node][-event.count :]:
                self._again(name)
        elif event.verb == "queue" and event.queue is not None:
            self._queue(event.queue)

    def _end(self, name: str) -> None:
        """The pod succeeds."""
        self._change(name, phase=PodPhase.SUCCEEDED)
        self.whole.discard(self.alive.pop(name).gang.name)

    def _again(self, name: str) -> None:
        """The pod is gone, and its owner makes it again under another name."""
        pod = self.alive.pop(name)
        self.given.gone(name)
        self.made += 1
        self._pod(attrs.evolve(pod, ends=0.0), f"{pod.gang.name}-again-{self.made}")
        if len(self._bound(pod.gang)) < pod.gang.needed:
            self.whole.discard(pod.gang.name)

    def _ends(self) -> list[float]:
        return [pod.ends for pod in self.alive.values() if pod.ends]

    # -- one session -------------------------------------------------------------------------
    def _session(self, now: float) -> bool:
        """Decide and carry out; whether anything came of it."""
        self.sessions += 1
        plan = self.given.when.carried_out()
        decision = self.given.decision
        assert decision is not None
        for each in (*decision.faults, *(a.fault.says for a in decision.contained)):
            self.wrong.append(f"{now:g}: {each}")
        self._phases(plan)
        self._evictions(plan, now)
        for gang in plan.binds:
            self._started(gang.gang.name, [bind.key.name for bind in gang.binds], now)
        if plan.binds or plan.preemptions or plan.stops:
            self._look(now)
        return bool(plan.binds or plan.preemptions or plan.stops or plan.job_changes)

    def _started(self, gang: str, pods: list[str], now: float) -> None:
        story = self._gang(gang)
        for name in pods:
            pod = self.alive[name]
            pod.ends = now + story.lasts_s if story.lasts_s else 0.0
            self._change(name, phase=PodPhase.RUNNING)
        whole = gang not in self.whole
        self.whole.add(gang)
        self.journal.append(Started(now, gang, story.queue, tuple(pods), whole))

    def _evictions(self, plan: Plan, now: float) -> None:
        told = [
            (claim.gang.name, claim, stop) for claim in plan.preemptions for stop in claim.stops
        ]
        for claimant, claim, stop in [*told, *(("", None, stop) for stop in plan.stops)]:
            names = tuple(each.key.name for each in stop.evictions)
            gang = self.alive[names[0]].gang
            moved = claim is not None and any(m.gang == stop.gang for m in claim.moves)
            for name in names:
                pod = self.alive.pop(name)
                self.made += 1
                self._pod(attrs.evolve(pod, ends=0.0), f"{gang.name}-again-{self.made}")
            ends = gang.name in self.whole and len(self._bound(gang)) < gang.needed
            if ends:
                self.whole.discard(gang.name)
            queue = self._gang(claimant).queue if claimant else ""
            self.journal.append(
                Evicted(now, gang.name, gang.queue, names, claimant, queue, ends, moved)
            )

    def _phases(self, plan: Plan) -> None:
        """Write the phase of each PodGroup and its condition, as the status writer would."""
        for status in plan.gangs:
            key = ObjectKey(status.gang.namespace, status.gang.name)
            group = self.given.cache.groups.items.get(key)
            if group is None:
                continue
            holds = str(status.is_scheduled)
            told = group.condition("Scheduled")
            if group.phase != status.phase or told is None or told.status != holds:
                says = Condition("Scheduled", holds, "", "", 1, self.given.now)
                group = attrs.evolve(group, phase=status.phase, conditions=(says,))
                self.given.cache.put_group(key, group)

    # -- looking -----------------------------------------------------------------------------
    def _look(self, now: float) -> None:
        for each in invariants.check(self.given.objects(), now=self.given.now):
            if not each.startswith("I15"):
                self.wrong.append(f"{now:g}: {each}")

    def _bound(self, gang: CaseGang) -> list[str]:
        known = self.given.cache.pods
        return [
            name
            for name, pod in self.alive.items()
            if pod.gang is gang
            and ObjectKey("default", name) in known  # else told to go, and not made again yet
            and self._of(name).node
        ]

    def _gang(self, name: str) -> CaseGang:
        return next(gang for gang in self.case.gangs if gang.name == name)

    def _of(self, name: str) -> Any:
        return self.given.cache.pods[ObjectKey("default", name)]

    def _change(self, name: str, **fields: Any) -> None:
        self.made += 1
        version = ResourceVersion(f"life-{self.made}")
        pod = msgspec.structs.replace(self._of(name), resource_version=version, **fields)
        self.given.cache.put_pod(pod)
