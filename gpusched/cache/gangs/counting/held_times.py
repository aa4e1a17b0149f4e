"""Since when gangs hold GPUs, and how long those held them that do not any more: what budgets are charged.

What gangs hold follows from their pods, whose bindings have times in the API, and so does what members held
that are over, as long as they are there. What was held by pods that are gone is remembered here until every
budget that pays for it has it in its record in the API.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import attrs

from gpusched.api.devices.gpu_types import gpu_price_of
from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.api.meta.identity import UID, GangKey
from gpusched.api.meta.units import DEVICE
from gpusched.api.node.node import Node
from gpusched.api.pod.pod import Pod, PodClass
from gpusched.api.queue.budget import GpuHold
from gpusched.api.queue.queue import Queue
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.gangs.gang_builder import EndedMember
from gpusched.cache.ledger import Ledger

PAST_HOLDS_MAX: Final = 100_000
"""Holds that have ended and are not in the record of a budget yet; of more the oldest are lost."""
_SEVENTHS: Final = 7


class HeldTimes:
    """Follows gangs as they are counted, while some queue has a budget.

    Args:
        ledger: what pods hold.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.find_node: Callable[[str], Node | None] = lambda _name: None
        """The node of a name, by whose labels its GPUs have their price."""
        self._now = 0
        self._queues: dict[str, Queue] = {}
        self._members: dict[GangKey, dict[UID, GpuHold]] = {}
        self._held: dict[GangKey, tuple[GpuHold, ...]] = {}
        self._past: dict[tuple[UID, int], GpuHold] = {}
        self.since = 0
        """From when on all is known that was held and ended, seconds since the epoch."""
        self.follows = False
        """Whether some queue has a budget, so that what gangs hold is followed."""

    def begin_snapshot(self, queues: Iterable[Queue], now: float) -> bool:
        """Take the time, and forget what is in the records of all budgets that pay for it.

        Returns:
            Whether all gangs must be counted anew, as nothing was followed before.
        """
        self._now = int(now)
        self._queues = {each.name: each for each in queues}
        if all(each.budget is None for each in self._queues.values()):
            self.follows = False
            self._members, self._held, self._past = {}, {}, {}
            return False
        left = [(key, each) for key, each in self._past.items() if self._is_unrecorded(each)]
        self._past = dict(left[-PAST_HOLDS_MAX:])
        starts = not self.follows
        if starts:
            self.since = self._now
        self.follows = True
        return starts

    def note_counted(
        self, key: GangKey, family: Sequence[Gang], over: Iterable[EndedMember]
    ) -> None:
        """All gangs of one key, as they were counted just now; none when they are gone.

        Args:
            key: of the gangs.
            family: all of them.
            over: their members that have ended and are there.
        """
        if not self.follows:
            return
        before = self._members.pop(key, {})
        after = {uid: hold for gang in family for uid, hold in self._holds_of(gang) if hold.weight}
        self._held.pop(key, None)
        if after:
            self._held[key] = _add_up(after.values())
        for member in over:
            uid, known = member.pod.uid, before.get(member.pod.uid)
            hold = known or self._hold_of(member.pod, member.queue, member.user)
            told = int(member.pod.ended)
            if hold.end:
                after[uid] = hold
            elif hold.start <= told <= self._now:
                before.pop(uid, None)
                self._note_ended(uid, attrs.evolve(hold, end=told))
            elif known is not None:  # as it is not said again when, this is not to be forgotten
                after[uid] = attrs.evolve(hold, end=max(self._now, hold.start))
                self._note_ended(uid, after[uid])
        for uid, hold in before.items():
            if uid not in after and self._ledger.get(uid) is None:
                self._note_ended(
                    uid, attrs.evolve(hold, end=hold.end or max(self._now, hold.start))
                )
        if after:
            self._members[key] = after

    def _note_ended(self, uid: UID, hold: GpuHold) -> None:
        if hold.weight and self._is_unrecorded(hold):
            self._past.setdefault((uid, hold.start), hold)

    def _is_unrecorded(self, hold: GpuHold) -> bool:
        """Whether a budget pays for GPUs that are held no more, and may not have all of it in its record."""
        passed: set[str] = set()
        queue = self._queues.get(hold.queue)
        while queue is not None and queue.name not in passed:
            if queue.budget is not None and hold.end > (queue.budget_record.as_of or self._now):
                return True
            passed.add(queue.name)
            queue = self._queues.get(queue.parent)
        return False

    def all_holds(self) -> tuple[GpuHold, ...]:
        """What gangs hold, and held before that; in any order."""
        if not self.follows:
            return ()
        return (*self._past.values(), *(hold for holds in self._held.values() for hold in holds))

    def _holds_of(self, gang: Gang) -> Iterable[tuple[UID, GpuHold]]:
        for member in (*gang.placed, *gang.leaving_placed):
            if member.confirmed and member.pod.scheduled:
                pod = member.pod
                yield pod.uid, self._hold_of(pod, gang.queue, gang.creator.user, node=member.node)

    def _hold_of(self, pod: Pod, queue: str, user: str, *, node: str = "") -> GpuHold:
        found = self.find_node(node or pod.node)
        price = gpu_price_of(found.labels if found is not None else {}, gpu_resources())
        return GpuHold(queue, user, charged_thousandths(pod.pod_class) * price, int(pod.scheduled))


def charged_thousandths(pod_class: PodClass) -> int:
    """Thousandths of GPUs that a pod holds: a share is its part, a slice its sevenths of a GPU, rounded up."""
    sevenths = gpu_resources().sevenths(pod_class.gpu) if pod_class.gpus else 0
    if not sevenths:
        return pod_class.gpu_thousandths
    slices = pod_class.gpus * DEVICE
    return pod_class.gpu_thousandths - slices - (-slices * sevenths // _SEVENTHS)


def _add_up(holds: Iterable[GpuHold]) -> tuple[GpuHold, ...]:
    """Holds of one user in one queue since one moment as one."""
    sums: dict[tuple[str, str, int], int] = {}
    for each in holds:
        key = (each.queue, each.user, each.start)
        sums[key] = sums.get(key, 0) + each.weight
    return tuple(
        GpuHold(queue, user, weight, start) for (queue, user, start), weight in sorted(sums.items())
    )
