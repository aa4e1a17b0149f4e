"""What it costs the cluster that a gang gets one type of GPUs and not another.

Throughput is measured as in Gavel (Narayanan et al., OSDI 2020): a gang that runs on a type works as
fast as it would on its fastest one, times the ratio of its speeds there. The sum over the gang and
those that wait beside it, weighted by GPUs, is made greatest: who gains little from the fast type
leaves it to those that gain much. What is free is counted by amounts, so that this is a price, and
no promise that all of them fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from gpusched.api.devices.gpu_types import FULL_SPEED

COMPETITORS_MAX: Final = 12
"""Waiting gangs that count beside one: those first in line; each multiplies what is compared."""
STATES_MAX: Final = 512
"""Amounts of free GPUs that are told apart after each of them; with more, the best are kept."""


@attrs.frozen(slots=True)
class TypeDemand:
    """A gang that may run on some types of GPUs.

    Attributes:
        gpus: that it starts with, in thousandths of one.
        speeds: pairs of type and speed relative to its fastest type, in thousandths.
    """

    gpus: int
    speeds: tuple[tuple[int, int], ...]


def lost_throughput(
    gang: TypeDemand, others: Sequence[TypeDemand], free: Sequence[int]
) -> tuple[int, ...]:
    """For each type of the gang what is lost by it against the best one, in thousandths of a GPU.

    Args:
        gang: that is to be placed now.
        others: that wait as well, first in line first; at most ``COMPETITORS_MAX`` of them count.
        free: GPUs of each type, in thousandths of one.

    Returns:
        In the order of the gang's speeds; the least is zero.
    """
    totals = []
    for number, speed in gang.speeds:
        left = list(free)
        left[number] = max(0, left[number] - gang.gpus)
        own = gang.gpus * speed // FULL_SPEED
        totals.append(own + greatest_throughput(others[:COMPETITORS_MAX], tuple(left)))
    best = max(totals, default=0)
    return tuple(best - total for total in totals)


def greatest_throughput(demands: Sequence[TypeDemand], free: tuple[int, ...]) -> int:
    """The most that gangs together can do on what is free, each whole on one type or not at all."""
    known: dict[tuple[int, ...], int] = {free: 0}
    for demand in demands:
        after = dict(known)
        for left, total in known.items():
            for number, speed in demand.speeds:
                if left[number] < demand.gpus:
                    continue
                then = (*left[:number], left[number] - demand.gpus, *left[number + 1 :])
                value = total + demand.gpus * speed // FULL_SPEED
                if value > after.get(then, -1):
                    after[then] = value
        if len(after) > STATES_MAX:
            # Most done first, then most left; the same for any order of the states.
            ranked = sorted(after.items(), key=lambda each: (-each[1], -sum(each[0]), each[0]))
            after = dict(ranked[:STATES_MAX])
        known = after
    return max(known.values())
