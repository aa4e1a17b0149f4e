"""I7 in the end of a life: who waits though it could run, worked out by brute force.

Nothing of the scheduler is used: objects as the API lists them, and what the case says of its
gangs, which ask for GPUs alone. A gang starves when it is the first of those of its queue that
could start, its queues may hold it, and there is room for its whole minimum

* as things are, and nobody else waits who may have been given that room; or
* without members of lower priority of its own queue that may be evicted; or
* without surplus of queues that hold more than they deserve, taken only as long as every queue
  on the line stays at or above it, while every queue above the gang stays within its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from gpusched.testing import invariants
from tests.behaviour.notation.model import GPU, Case, CaseGang
from tests.behaviour.notation.objects import GROUP_LABEL

Obj = Mapping[str, Any]
_OVER = ("Succeeded", "Failed")


@attrs.frozen
class Member:
    """A pod that holds a node."""

    name: str
    node: str
    gpus: int


@attrs.define
class StarvationCheck:
    """One moment of a cluster.

    Args:
        case: whose gangs are there.
        pods, nodes: as the API lists them.
        groups: the same.
        queues: the spec of each, by name.
    """

    case: Case
    pods: Sequence[Obj]
    nodes: Sequence[Obj]
    groups: Sequence[Obj]
    queues: Mapping[str, Obj]

    def starving(self) -> list[str]:
        """A sentence for each gang that waits though it could run."""
        found = []
        seen: Counter[str] = Counter()
        waiting = [gang for gang in self._in_order() if self._need(gang)]
        for gang in waiting:
            others = any(self._rivals(gang, other) for other in waiting if other is not gang)
            how = self._could_run(gang, alone=not others)
            if not how:
                continue
            seen[gang.queue] += 1
            if seen[gang.queue] == 1:
                found.append(f"I7: {gang.name} waits, and {how}")
        return found

    def _could_run(self, gang: CaseGang, *, alone: bool) -> str:
        free = self._free()
        if alone and self._allowed(gang, {}) and self._fits(gang, free):
            return "there is room"
        less, gone = dict(free), Counter[str]()
        for victim in self._lower(gang):
            for member in self._members(victim.name):
                less[member.node] += member.gpus
                gone[gang.queue] += member.gpus
        if gone and self._allowed(gang, gone) and self._fits(gang, less):
            return "its queue's gangs of lower priority hold the room"
        if gang.may_be_evicted and self._within(gang) and self._allowed(gang, {}):
            for number, room in enumerate(self._surplus(gang)):
                if self._fits(gang, room):
                    return f"{number + 1} pods of others' surplus are in the way"
        return ""

    # -- the gang ------------------------------------------------------------------------------
    def _in_order(self) -> list[CaseGang]:
        """Higher priority first, then as they came."""
        return sorted(self.case.gangs, key=lambda gang: (-gang.priority, gang.at_s))

    def _need(self, gang: CaseGang) -> int:
        """Members it must be given at once; 0 when it runs or has nobody that waits."""
        mine = [pod for pod in self.pods if _gang_of(pod) == gang.name]
        waiting = sum(1 for pod in mine if not pod["spec"].get("nodeName") and not _over(pod))
        over = sum(1 for pod in mine if (pod.get("status") or {}).get("phase") == "Succeeded")
        placed = len(self._members(gang.name))
        need = gang.needed - over - placed
        if need <= 0 and not placed:
            need = 1
        return need if 0 < need <= waiting else 0

    def _members(self, gang: str) -> list[Member]:
        return [
            Member(
                pod["metadata"]["name"],
                pod["spec"]["nodeName"],
                invariants.pod_requests(pod).get(GPU, 0),
            )
            for pod in self.pods
            if _gang_of(pod) == gang and pod["spec"].get("nodeName") and not _over(pod)
        ]

    def _asks(self, gang: CaseGang) -> int:
        return gang.asks.gpus or 0

    def _fits(self, gang: CaseGang, free: Mapping[str, int]) -> bool:
        """Whether its minimum fits, in one domain where it must; members are equal."""
        each, need = self._asks(gang), self._need(gang)
        if not each:
            return False
        return any(sum(free[name] // each for name in names) >= need for names in self._areas(gang))

    def _areas(self, gang: CaseGang) -> Iterator[list[str]]:
        if not gang.required:
            yield [node["metadata"]["name"] for node in self.nodes]
            return
        labels = {
            node["metadata"]["name"]: node["metadata"]["labels"].get(gang.required)
            for node in self.nodes
        }
        home = {labels.get(member.node) for member in self._members(gang.name)}
        for domain in sorted({each for each in labels.values() if each}):
            if not home or home == {domain}:
                yield [name for name, label in labels.items() if label == domain]

    # -- nodes and queues ----------------------------------------------------------------------
    def _sizes(self) -> dict[str, int]:
        return {
            node["metadata"]["name"]: int(node["status"]["allocatable"].get(GPU, 0))
            for node in self.nodes
        }

    def _free(self) -> dict[str, int]:
        free = self._sizes()
        for gang in self.case.gangs:
            for member in self._members(gang.name):
                if member.node in free:
                    free[member.node] -= member.gpus
        return free

    def held(self) -> Counter[str]:
        """GPUs held by each queue, subtrees included."""
        total: Counter[str] = Counter()
        for gang in self.case.gangs:
            gpus = sum(member.gpus for member in self._members(gang.name))
            for name in queue_and_ancestors(gang.queue, self.queues):
                total[name] += gpus
        return total

    def _allowed(self, gang: CaseGang, gone: Mapping[str, int]) -> bool:
        """Whether no queue above it would hold more than it may."""
        held, asks = self.held(), self._asks(gang) * self._need(gang)
        freed = sum(gone.values())
        for name in queue_and_ancestors(gang.queue, self.queues):
            cap = (self.queues[name].get("capability") or {}).get(GPU)
            if cap is not None and held[name] - freed + asks > int(cap):
                return False
        return gang.queue in self.queues and (gang.may_be_evicted or self._may_stay(gang, asks))

    def _may_stay(self, gang: CaseGang, asks: int) -> bool:
        """Whether what can never be evicted stays within what every queue above it deserves."""
        lasting: Counter[str] = Counter()
        for other in self.case.gangs:
            if not other.may_be_evicted:
                for name in queue_and_ancestors(other.queue, self.queues):
                    lasting[name] += sum(member.gpus for member in self._members(other.name))
        limits = [
            (lasting[name], self._deserved(name))
            for name in queue_and_ancestors(gang.queue, self.queues)
        ]
        return all(limit is not None and held + asks <= limit for held, limit in limits)

    def _rivals(self, gang: CaseGang, other: CaseGang) -> bool:
        """Whether the room may be kept for the other: it would fit on empty nodes."""
        shared = set(queue_and_ancestors(gang.queue, self.queues)) & set(
            queue_and_ancestors(other.queue, self.queues)
        )
        capped = any(GPU in (self.queues[name].get("capability") or {}) for name in shared)
        return (capped or self._told(gang) == "Reserved") and self._fits(other, self._sizes())

    def _told(self, gang: CaseGang) -> str:
        """The reason why it is not scheduled."""
        for group in self.groups:
            if group["metadata"]["name"] == gang.name:
                for each in (group.get("status") or {}).get("conditions") or ():
                    if each["type"] == "Scheduled":
                        return str(each["reason"])
        return ""

    def _lower(self, gang: CaseGang) -> Iterable[CaseGang]:
        return (
            other
            for other in self.case.gangs
            if other.queue == gang.queue and other.priority < gang.priority and _may_go(other)
        )

    def _deserved(self, queue: str) -> int | None:
        amount = (self.queues[queue].get("deserved") or {}).get(GPU)
        return None if amount is None else int(amount)

    def _within(self, gang: CaseGang) -> bool:
        """Whether its queues deserve what it asks for, at each level, and all say so."""
        held, asks = self.held(), self._asks(gang) * self._need(gang)
        for name in queue_and_ancestors(gang.queue, self.queues):
            deserved = self._deserved(name)
            if deserved is None or held[name] + asks > deserved:
                return False
        return True

    def _surplus(self, gang: CaseGang) -> Iterator[dict[str, int]]:
        """What is free after one more member of others has left, as long as it is surplus."""
        room, held = self._free(), self.held()
        own = set(queue_and_ancestors(gang.queue, self.queues))
        for victim in sorted(self.case.gangs, key=lambda each: (each.priority, each.name)):
            theirs = [
                name for name in queue_and_ancestors(victim.queue, self.queues) if name not in own
            ]
            if victim.queue == gang.queue or not theirs or not _may_go(victim):
                continue
            members = self._members(victim.name)
            spare = max(0, len(members) - victim.needed)
            if self._is_surplus(theirs, held, sum(member.gpus for member in members)):
                spare = len(members)
            for member in members[:spare]:
                if not self._is_surplus(theirs, held, member.gpus):
                    break
                room[member.node] += member.gpus
                for name in queue_and_ancestors(victim.queue, self.queues):
                    held[name] -= member.gpus
                yield dict(room)

    def _is_surplus(self, queues: Sequence[str], held: Mapping[str, int], gpus: int) -> bool:
        """Whether each of them would still hold what it deserves without so many."""
        left = [(held[name] - gpus, self._deserved(name)) for name in queues]
        return all(deserved is not None and rest >= deserved for rest, deserved in left)


def queue_and_ancestors(queue: str, queues: Mapping[str, Obj]) -> Iterator[str]:
    """The queue and all above it."""
    while queue in queues:
        yield queue
        queue = queues[queue].get("parent", "")


def _may_go(gang: CaseGang) -> bool:
    return gang.may_be_evicted and gang.keep is None and not gang.min_runtime_s


def _gang_of(pod: Obj) -> str:
    text: str = (pod["metadata"].get("labels") or {}).get(GROUP_LABEL, "")
    return text


def _over(pod: Obj) -> bool:
    return (pod.get("status") or {}).get("phase") in _OVER
