"""One amount of one resource divided among siblings: exact, in integers, in any order of input.

Three steps. Everyone gets what it deserves as far as it asks for it. What is left goes to those
that still request, class by class of queue priority from the highest, in rounds: in proportion to
their weights, bent by how much they used of late, and rounded down to whole units. The units
that rounding left over go one each to the queues that lost the largest fractions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

import attrs

USAGE_ONE = 10**9
"""Decayed use of the whole capacity; a stake's ``usage`` is a part of it."""
BEND_ONE = 1000
"""A ``bend`` of one: thousandths."""


@attrs.frozen(slots=True, kw_only=True)
class Stake:
    """What one sibling brings to the division of one resource. Amounts in base units.

    Attributes:
        created, uid: the older queue gets the last unit, then the one with the smaller UID.
        guarantee: its share is never less, whatever it asks for.
        deserved: its share before any surplus is divided, as far as it asks for it.
        wants: what it holds and waits for, within its limits.
        weight: its part of the surplus, 0 for none.
        priority: surplus goes to larger numbers first.
        usage: decayed use of late, 0 to ``USAGE_ONE``.
    """

    uid: str
    created: float = 0.0
    guarantee: int = 0
    deserved: int = 0
    wants: int = 0
    weight: int = 1
    priority: int = 0
    usage: int = 0


def divide_fairly(
    total: int, stakes: Sequence[Stake], *, unit: int = 1, bend: int = 0, by_class: bool = False
) -> list[int]:
    """The share of each stake, in the order of the stakes.

    Args:
        total: what there is; shares may sum to more where what is deserved does.
        stakes: of siblings, each with its own UID.
        unit: surplus is dealt out in multiples of it, except to queues that need less.
        bend: how much ``usage`` counts, in thousandths; 0 for not at all.
        by_class: deal each class's leftover units before the next class gets anything. False
            lets a lower class take what an upper class only lost by rounding, as KAI does.
    """
    shares = [max(each.guarantee, min(each.deserved, each.wants)) for each in stakes]
    left = total - sum(shares)
    if left <= 0:
        return shares
    lost: list[list[tuple[Fraction, int]]] = []
    for members in _priority_classes(stakes):
        left, rest = _divide_in_rounds(left, stakes, shares, members=members, unit=unit, bend=bend)
        lost.append(rest)
        if by_class:
            left = _deal_leftovers(left, stakes, shares, rest=lost.pop(), unit=unit)
        if left <= 0:
            break
    for rest in lost:
        left = _deal_leftovers(left, stakes, shares, rest=rest, unit=unit)
    return shares


def _priority_classes(stakes: Sequence[Stake]) -> Iterable[list[int]]:
    classes: dict[int, list[int]] = {}
    for index, stake in enumerate(stakes):
        classes.setdefault(stake.priority, []).append(index)
    return [classes[priority] for priority in sorted(classes, reverse=True)]


def _divide_in_rounds(
    left: int,
    stakes: Sequence[Stake],
    shares: list[int],
    *,
    members: list[int],
    unit: int,
    bend: int,
) -> tuple[int, list[tuple[Fraction, int]]]:
    """Divide among stakes of one priority until none asks for less than its part.

    Returns:
        What is left, and the fraction of a unit that each member lost, by its index.
    """
    lost: dict[int, Fraction] = {}
    while left > 0:
        asking = [index for index in members if stakes[index].wants > shares[index]]
        parts = _surplus_weights([stakes[index] for index in asking], bend)
        whole = sum(parts)
        if whole == 0:
            break
        amount, again = left, False
        for index, part in zip(asking, parts, strict=True):
            need = stakes[index].wants - shares[index]
            if need * whole <= amount * part:
                given = need
                again = again or need * whole < amount * part
                lost.pop(index, None)
            else:
                units, remainder = divmod(amount * part, whole * unit)
                given = units * unit
                if remainder:
                    lost[index] = Fraction(remainder, whole * unit)
            shares[index] += given
            left -= given
        if not again:
            break
    return left, [(fraction, index) for index, fraction in lost.items()]


def _surplus_weights(asking: Sequence[Stake], bend: int) -> list[int]:
    """Integers in the proportion in which the stakes get surplus.

    With n = weight / sum of weights and k = bend: max(0, n + k * (n - usage)), brought to one
    denominator.
    """
    if not bend or not any(each.usage for each in asking):
        return [each.weight for each in asking]
    weights = sum(each.weight for each in asking)
    return [
        max(0, each.weight * (BEND_ONE + bend) * USAGE_ONE - bend * each.usage * weights)
        for each in asking
    ]


def _deal_leftovers(
    left: int,
    stakes: Sequence[Stake],
    shares: list[int],
    *,
    rest: list[tuple[Fraction, int]],
    unit: int,
) -> int:
    """Give one unit each to the stakes that lost most by rounding; what is still left."""
    rest.sort(key=lambda each: (-each[0], stakes[each[1]].created, stakes[each[1]].uid))
    for _, index in rest:
        given = min(unit, left, stakes[index].wants - shares[index])
        shares[index] += given
        left -= given
    return left
