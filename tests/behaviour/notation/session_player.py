"""Play a case by sessions alone: decide, carry out at once, decide again until nothing happens.

Objects go through the real decoding into a real cache; what is missing is the API, its delays
and its errors. A pod that is told to go is gone before the next session.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs
import msgspec

from gpusched.api.devices.slots import format_slots
from gpusched.api.meta.identity import UID, ObjectKey, Rejected, ResourceVersion, format_time
from gpusched.api.meta.status import Condition
from gpusched.api.serializer.codecs import CODECS
from gpusched.config.model import DEFAULT, Config
from gpusched.session.framework.reasons import Reason
from gpusched.session.state.plan import GangStop, Plan
from gpusched.testing.given import Given
from tests.behaviour.notation import objects
from tests.behaviour.notation.model import Case, CaseGang, Seen
from tests.behaviour.notation.objects import NAMESPACE, Member

Obj = dict[str, Any]
_SESSIONS_MAX: Final = 30
_STEP_S: Final = 2.0
_QUIET_S: Final = 20.0
"""Time until the next session when the last one did nothing."""
_LET_GO_AFTER: Final = 2
"""Sessions after which pods that are being deleted are gone."""


def play_in_sessions(case: Case, *, config: Config = DEFAULT) -> dict[str, Seen]:
    """What came of each gang of the case.

    Raises:
        AssertionError: it never came to rest, or an object of the case was refused.
    """
    return _SessionPlayer(case, Given(config=case.config(config))).run()


@attrs.define
class _SessionPlayer:
    """One run of one case.

    Attributes:
        alive: the pods that are there, by name.
        bodies: its API object, by name.
        evicted: how many pods of each gang were told to go.
    """

    case: Case
    given: Given
    alive: dict[str, Member] = attrs.Factory(dict)
    bodies: dict[str, Obj] = attrs.Factory(dict)
    evicted: dict[str, int] = attrs.Factory(dict)
    born: float = 0.0
    made: int = 0

    def run(self) -> dict[str, Seen]:
        self._begin()
        end = self.given.now + self.case.seconds
        for number in range(_SESSIONS_MAX + self.case.seconds):
            self.given.now += _STEP_S
            happened = self._carry_out(self.given.when.one_session())
            if number == _LET_GO_AFTER:
                self._let_go()
            elif not happened and number > _LET_GO_AFTER:
                if self.given.now >= end:
                    return {gang.name: self._seen(gang) for gang in self.case.gangs}
                self.given.now = min(end, self.given.now + _QUIET_S)
        raise AssertionError(f"{self.case.title} never comes to rest")

    def _begin(self) -> None:
        case = self.case
        self.born = self.given.now - 60.0 - len(case.gangs)
        for node in case.nodes:
            body = objects.node(node)
            body["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
            self._put("nodes", body)
        for priority in objects.priorities(case):
            self._put("priorityclasses", priority)
        if case.levels:
            self._put("topologies", objects.topology(case))
        for queue in case.queues:
            self.born += 0.001
            self._put("queues", objects.queue(queue))
        for gang in case.gangs:
            self.born += 1.0
            self._put("podgroups", objects.group(gang))
            if gang.keep is not None:
                self._put_budget(gang)
            for member in objects.members(gang):
                self._add(member, objects.pod(member, owned=case.moves))

    def _add(self, member: Member, body: Obj) -> None:
        gang, kind = member.gang, member.kind
        name = body["metadata"]["name"]
        self.alive[name] = member
        self.bodies[name] = body
        priority = gang.priority if kind.priority is None else kind.priority
        body["spec"]["priority"] = priority
        body["spec"]["preemptionPolicy"] = (
            "Never" if gang.never_preempts or kind.never_preempts else "PreemptLowerPriority"
        )
        if kind.node:
            self._started(body)
        if kind.leaving:
            body["metadata"]["deletionTimestamp"] = format_time(self.given.now)
        self._put("pods", body)

    def _started(self, body: Obj) -> None:
        since = format_time(self.born)
        body["status"] = {
            "phase": "Running",
            "startTime": since,
            "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": since}],
        }

    def _put_budget(self, gang: CaseGang) -> None:
        """As the disruption controller would have counted it."""
        body = objects.budget(gang)
        running = sum(pods.count for pods in gang.pods if pods.node)
        body["status"] = {
            "disruptionsAllowed": max(0, running - (gang.keep or 0)),
            "currentHealthy": running,
            "desiredHealthy": gang.keep,
            "expectedPods": running,
            "observedGeneration": 1,
        }
        self._put("poddisruptionbudgets", body)

    def _put(self, kind: str, body: Obj) -> None:
        cache, meta = self.given.cache, body["metadata"]
        meta.setdefault("uid", f"{kind}/{meta['name']}")
        meta.setdefault("creationTimestamp", format_time(self.born))
        meta.setdefault("generation", 1)
        self.made += 1
        meta["resourceVersion"] = str(self.made)
        line = msgspec.json.encode({"type": "ADDED", "object": body})
        item: Any = CODECS[kind].decode_event(line).item
        assert not isinstance(item, Rejected), f"{kind} {meta['name']}: {item}"
        key = ObjectKey(meta.get("namespace", ""), meta["name"])
        if kind in {"pods", "nodes"}:
            (cache.put_pod if kind == "pods" else cache.put_node)(item)
        else:
            puts = {
                "queues": cache.put_queue,
                "podgroups": cache.put_group,
                "topologies": cache.topologies.put,
                "reservations": cache.reservations.put,
                "priorityclasses": cache.put_priority,
                "poddisruptionbudgets": cache.budgets.put,
            }
            puts[kind](key, item)

    def _carry_out(self, plan: Plan) -> bool:
        """Do what the plan says; False when it says nothing."""
        for gang in plan.binds:
            self.given.when.accept(gang)
        nominated = {uid: node for status in plan.gangs for uid, node in status.nominated}
        for claim in plan.preemptions:
            nominated |= {uid: node for _, uid, node in claim.nominations}
        for order in (each for claim in plan.preemptions for each in claim.moves):
            key = ObjectKey(order.gang.namespace, order.gang.name)
            group = self.given.cache.groups.items[key]
            self.given.cache.put_group(key, attrs.evolve(group, move=order.move))
        self._nominate(nominated)
        leaving: list[GangStop] = [*plan.stops, *(s for c in plan.preemptions for s in c.stops)]
        names = [each.key.name for stop in leaving for each in stop.evictions]
        names += [key.name for undo in plan.undos for key, _ in undo.pods]
        for name in names:
            self._evict(name)
        moved = self._phases(plan)
        return bool(moved or plan.binds or plan.preemptions or names)

    def _phases(self, plan: Plan) -> bool:
        """Write phases of PodGroups as the status writer would; True when one changed.

        And since when they are scheduled, or not: a broken gang's time counts from there.
        """
        changed = False
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
                changed = True
        return changed

    def _nominate(self, nominated: Mapping[UID, str]) -> None:
        """Each waiting pod is told its node, or that it has none any more."""
        for name in self.alive:
            pod = self.given.cache.pods[ObjectKey(NAMESPACE, name)]
            node = nominated.get(pod.uid, "")
            if pod.node or pod.nominated == node:
                continue
            self.made += 1
            self.given.cache.put_pod(
                msgspec.structs.replace(
                    pod,
                    nominated=node,
                    unschedulable_reason=str(Reason.PREEMPTION_IN_PROGRESS) if node else "",
                    unschedulable_since=self.given.now,
                    resource_version=ResourceVersion(str(self.made)),
                )
            )

    def _evict(self, name: str) -> None:
        member = self.alive.pop(name)
        gang = member.gang
        self.given.gone(name)
        self.evicted[gang.name] = self.evicted.get(gang.name, 0) + 1
        if self.case.again:
            again = member.again()
            name = f"{gang.name}-again-{self.made}"
            self._add(again, objects.pod(again, name=name, owned=self.case.moves))

    def _let_go(self) -> None:
        for name, member in list(self.alive.items()):
            if member.kind.leaving:
                self.given.gone(name)
                del self.alive[name]

    def _seen(self, gang: CaseGang) -> Seen:
        pods = [
            self.given.cache.pods[ObjectKey(NAMESPACE, name)]
            for name, member in self.alive.items()
            if member.gang is gang
        ]
        return Seen(
            nodes={pod.name: pod.node for pod in pods if pod.node and not pod.deleting},
            evicted=self.evicted.get(gang.name, 0),
            told=self._told(gang),
            slots={
                pod.name: (pod.node, format_slots(pod.slots))
                for pod in pods
                if pod.node and not pod.deleting
            },
        )

    def _told(self, gang: CaseGang) -> tuple[tuple[str, str], ...]:
        asks = [
            ask
            for status in self.given.then.plan.gangs
            if status.gang.name == gang.name
            for ask in (status.admitted, status.scheduled, status.pending_reason)
            if ask is not None
        ]
        return tuple((ask.reason, ask.message) for ask in asks)
