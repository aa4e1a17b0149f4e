"""What it costs the cluster that a gang gets one type of GPUs and not another.

Throughput is measured as in Gavel (Narayanan et al., OSDI 2020): a gang on a type works as fast as
on its fastest one, times the ratio of its speeds there. The sum over all gangs, weighted by GPUs, is
made greatest; gangs may be divided over types for that, which makes it a problem of transport. It is
solved exactly by shortest augmenting paths (Jewell 1958; Busacker and Gowen 1960).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from gpusched.api.devices.gpu_types import FULL_SPEED
from gpusched.base.classes import frozen

DEMANDS_MAX: Final = 24
"""Kinds of gangs, by their speeds, that are told apart; of more, those with most GPUs count."""
_NEVER: Final = 2**62


@frozen(slots=True)
class TypeDemand:
    """Gangs that run equally well on types of GPUs.

    Attributes:
        gpus: that they have or start with, in thousandths of one.
        speeds: pairs of type and speed relative to their fastest type, in thousandths.
    """

    gpus: int
    speeds: tuple[tuple[int, int], ...]


def lost_throughput(
    gang: TypeDemand, others: Sequence[TypeDemand], capacity: Sequence[int]
) -> tuple[int, ...]:
    """For each type of the gang what is lost by it against the best one, in thousandths of a GPU.

    Args:
        gang: that is to be placed now.
        others: that run or wait as well.
        capacity: GPUs of each type, in thousandths of one.

    Returns:
        In the order of the gang's speeds; the least is zero.
    """
    totals = []
    for number, speed in gang.speeds:
        left = list(capacity)
        left[number] = max(0, left[number] - gang.gpus)
        own = gang.gpus * speed
        totals.append((own + _greatest_work(others, left)) // FULL_SPEED)
    best = max(totals, default=0)
    return tuple(best - total for total in totals)


def _greatest_work(demands: Sequence[TypeDemand], capacity: Sequence[int]) -> int:
    """The most that gangs can do on so many GPUs of each type: GPUs times speed, summed."""
    waiting = [demand.gpus for demand in demands]
    left = list(capacity)
    given = [[0] * len(left) for _ in demands]
    total = 0
    while True:
        found = _best_path(demands, waiting, left, given)
        if found is None:
            return total
        gain, path = found
        amount = min(waiting[path[0][0]], left[path[-1][1]])
        for (_, number), (demand, _) in pairwise(path):
            amount = min(amount, given[demand][number])
        for (demand, number), (after, _) in pairwise(path):
            given[demand][number] += amount
            given[after][number] -= amount
        last, number = path[-1]
        given[last][number] += amount
        waiting[path[0][0]] -= amount
        left[number] -= amount
        total += gain * amount


def _best_path(
    demands: Sequence[TypeDemand],
    waiting: Sequence[int],
    left: Sequence[int],
    given: Sequence[Sequence[int]],
) -> tuple[int, list[tuple[int, int]]] | None:
    """The most that one more GPU adds, and which demands change their types for it.

    Returns:
        The gain, and pairs of demand and the type that it gets; each but the first gives up the
        type of the pair before. None where nothing is gained any more.
    """
    value = [-_NEVER] * len(left)
    reached: list[tuple[int, int] | None] = [None] * len(left)
    for demand, each in enumerate(demands):
        if waiting[demand]:
            for number, speed in each.speeds:
                if speed > value[number]:
                    value[number], reached[number] = speed, (demand, -1)
    while _improve_assignment(demands, given, value, reached):
        pass
    free = [number for number, amount in enumerate(left) if amount and value[number] > 0]
    if not free:
        return None
    number = max(free, key=lambda each: (value[each], -each))
    gain, path = value[number], []
    while number >= 0:
        step = reached[number]
        assert step is not None, "a type that has a value was reached"
        path.append((step[0], number))
        number = step[1]
    return gain, path[::-1]


def _improve_assignment(
    demands: Sequence[TypeDemand],
    given: Sequence[Sequence[int]],
    value: list[int],
    reached: list[tuple[int, int] | None],
) -> bool:
    """Reach types from those reached already, by demands that change theirs; whether that gained anything."""
    changed = False
    for demand, each in enumerate(demands):
        for number, speed in each.speeds:
            if not given[demand][number] or value[number] == -_NEVER:
                continue
            for other, then in each.speeds:
                gain = value[number] - speed + then
                if other != number and gain > value[other]:
                    value[other], reached[other] = gain, (demand, number)
                    changed = True
    return changed
