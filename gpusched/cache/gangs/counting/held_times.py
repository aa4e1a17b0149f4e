"""Since when gangs hold GPUs, and how long those held them that do not any more: what budgets are charged.

What gangs hold now follows from their pods, whose bindings have times in the API. What they held is
remembered here until every budget has it in its record in the API: a restart loses no more than
GPUs of pods that nobody saw leave, from the last record on.
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
from gpusched.api.pod.pod import PodClass
from gpusched.api.queue.budget import GpuHold
from gpusched.api.queue.queue import Queue
from gpusched.cache.gangs.gang import Gang
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
        self._members: dict[GangKey, dict[UID, GpuHold]] = {}
        self._held: dict[GangKey, tuple[GpuHold, ...]] = {}
        self._past: list[GpuHold] = []
        self.since = 0
        """From when on all is known that was held and ended, seconds since the epoch."""
        self.follows = False
        """Whether some queue has a budget, so that what gangs hold is followed."""

    def begin_snapshot(self, queues: Iterable[Queue], now: float) -> bool:
        """Take the time, and forget what is in the records of all budgets.

        Returns:
            Whether all gangs must be counted anew, as nothing was followed before.
        """
        self._now = int(now)
        records = [each.budget_record.as_of for each in queues if each.budget is not None]
        if not records:
            self.follows = False
            self._members, self._held, self._past = {}, {}, []
            return False
        recorded = min(records)
        if self._past:
            self._past = [each for each in self._past if each.end > recorded][-PAST_HOLDS_MAX:]
        starts = not self.follows
        if starts:
            self.since = self._now
        self.follows = True
        return starts

    def note_counted(self, key: GangKey, family: Sequence[Gang]) -> None:
        """All gangs of one key, as they were counted just now; none when they are gone."""
        if not self.follows:
            return
        before = self._members.pop(key, {})
        after = {uid: hold for gang in family for uid, hold in self._holds_of(gang) if hold.weight}
        self._past += [
            attrs.evolve(hold, end=max(self._now, hold.start))
            for uid, hold in before.items()
            if uid not in after and self._ledger.get(uid) is None
        ]
        self._held.pop(key, None)
        if after:
            self._members[key] = after
            self._held[key] = _add_up(after.values())

    def all_holds(self) -> tuple[GpuHold, ...]:
        """What gangs hold, and held before that; in any order."""
        if not self.follows:
            return ()
        return (*self._past, *(hold for holds in self._held.values() for hold in holds))

    def _holds_of(self, gang: Gang) -> Iterable[tuple[UID, GpuHold]]:
        for member in (*gang.placed, *gang.leaving_placed):
            if member.confirmed and member.pod.scheduled:
                node = self.find_node(member.node)
                price = gpu_price_of(node.labels if node is not None else {}, gpu_resources())
                weight = charged_thousandths(member.pod.pod_class) * price
                yield (
                    member.pod.uid,
                    GpuHold(gang.queue, gang.creator.user, weight, int(member.pod.scheduled)),
                )


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
