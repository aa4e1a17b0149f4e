"""Pods of a queue that may leave, in the order in which they would: put in line once a session, for all claimants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from gpusched.api.meta.identity import UID
from gpusched.api.pod.pod import PodClass
from gpusched.cache.gangs.gang import Gang
from gpusched.session.preempt.victims import CandidateVictim, name_order

LineKey = tuple[int, float, tuple[int, ...]]
"""What a pod costs, then the youngest first, then the last name."""


class LinePod(NamedTuple):
    """A pod in its line.

    Attributes:
        place: among those of its block.
        cost: of its leaving.
    """

    gang: Gang
    seat: CandidateVictim
    place: int
    cost: int


class PodLine:
    """Pods of one queue, one class and one priority, those that leave first in front.

    Args:
        pods: all of them.
    """

    def __init__(self, pods: Sequence[LinePod]) -> None:
        first = pods[0].gang
        self.pods = pods
        self.queue = first.queue
        self.priority = first.priority
        self.pod_class: PodClass = pods[0].seat.member.pod.pod_class
        self._head = 0
        self._keys: dict[int, LineKey] = {}

    def key_at(self, number: int) -> LineKey:
        """Where a pod stands among those of its priority; most are never asked about."""
        known = self._keys.get(number)
        if known is None:
            pod = self.pods[number]
            known = (pod.cost, -pod.gang.created, name_order(pod.gang))
            self._keys[number] = known
        return known

    def first_standing(self, has_left: Callable[[UID], bool]) -> int:
        """Number of the first pod that has not left; who has left does not come back."""
        pods, head = self.pods, self._head
        while head < len(pods) and has_left(pods[head].seat.member.pod.uid):
            head += 1
        self._head = head
        return head


def lines_of(
    gangs: Sequence[Gang],
    seats: Sequence[CandidateVictim],
    *,
    costs: Sequence[int],
    ranks: Sequence[int],
) -> list[PodLine]:
    """Gangs of one queue that are a pod each, in lines.

    Args:
        gangs: of the queue.
        seats: their pods.
        costs: of their leaving.
        ranks: places among those that cost the same.
    """
    lines: dict[tuple[int, str], list[LinePod]] = {}
    order = sorted(range(len(gangs)), key=ranks.__getitem__)
    order.sort(key=costs.__getitem__)  # equal ones stay as they are
    for place in order:
        gang, seat = gangs[place], seats[place]
        about = (gang.priority, seat.member.pod.pod_class.digest)
        lines.setdefault(about, []).append(LinePod(gang, seat, place, costs[place]))
    return [PodLine(pods) for pods in lines.values()]
