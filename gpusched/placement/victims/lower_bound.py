"""What victims cost at least: a bound by counting, which most domains need no search to be left out by.

The cost of a bundle is shared out among its members on rows of the field. A row then has a least
cost for each claimant more that it is to take: for every resource its members give in the order
of cost for what they free, the last one in part. No choice costs less than the cheapest such
steps over all rows, each row's taken along its lower envelope.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from gpusched.base.classes import frozen
from gpusched.placement.victims.greedy_choice import VictimSearchState
from gpusched.placement.victims.model import COST_RATIO, VictimRank

_Part = tuple[int, tuple[int, ...]]
"""A member's share of what is lost, in parts of ``RATIO``, and what it frees."""


@frozen(slots=True)
class VictimLowerBound:
    """No choice has a smaller rank; of those with this rank, none costs less.

    Attributes:
        rank: the largest that a leaving pod must have; () where none needs to leave.
    """

    rank: VictimRank
    cost: int

    def allows_better(self, rank: VictimRank, cost: int) -> bool:
        """Whether something better than this rank and cost may exist."""
        return (self.rank, self.cost) < (rank, cost)


def victim_lower_bound(field: VictimSearchState, need: int) -> VictimLowerBound | None:
    """The bound; None when ``need`` claimants would not fit if all left.

    Args:
        field: as it stands, without any choice applied.
        need: claimants.
    """
    if field.room >= need:
        return VictimLowerBound((), 0)
    by_rank: dict[VictimRank, list[int]] = {}
    for number in field.bundles_on_rows():
        by_rank.setdefault(field.rank_of(number), []).append(number)
    numbers: list[int] = []
    gone: dict[int, None] = {}
    free = {row: list(amounts) for row, amounts in field.free.items()}
    fits = dict(field.fits)
    room = field.room
    for rank, more in sorted(by_rank.items()):
        numbers += more
        leaving = dict.fromkeys(m for n in more for m in field.bundles[n].members if m not in gone)
        gone |= leaving
        room += _fits_gained(field, leaving, free, fits)
        if room >= need:
            least = _least_cost(field, numbers, need, fits)
            return VictimLowerBound(rank, least + field.part_cost * field.only_parts_up_to(rank))
    return None


def claimants_that_fit_at_most(field: VictimSearchState) -> int:
    """Number of claimants that would fit if every possible victim left, limits not counted."""
    free = {row: list(amounts) for row, amounts in field.free.items()}
    leaving = dict.fromkeys(m for n in field.bundles_on_rows() for m in field.bundles[n].members)
    return field.room + _fits_gained(field, leaving, free, dict(field.fits))


def _fits_gained(
    field: VictimSearchState,
    leaving: Iterable[int],
    free: dict[int, list[int]],
    fits: dict[int, int],
) -> int:
    """Take members away from rows; how many claimants more fit then."""
    rows: dict[int, None] = {}
    for m in leaving:
        member = field.members[m]
        if member.row in free and field.is_staying(m):
            free[member.row] = [a + b for a, b in zip(free[member.row], member.frees, strict=True)]
            rows[member.row] = None
    gained = 0
    for row in rows:
        count = field.count_claimants(free[row])
        gained += count - fits[row]
        fits[row] = count
    return gained


def _least_cost(
    field: VictimSearchState, numbers: Iterable[int], need: int, most: dict[int, int]
) -> int:
    of_row: dict[int, list[_Part]] = {}
    for m, share in _leaving_costs(field, numbers).items():
        member = field.members[m]
        of_row.setdefault(member.row, []).append((share, member.frees))
    missing = need - field.room
    steps: list[int] = []
    for row, parts in of_row.items():
        more = min(most[row] - field.fits[row], missing)
        if more > 0:
            steps += _convex_envelope(_row_costs(field, row, parts, more))
    steps.sort()
    return -(-sum(steps[:missing]) // COST_RATIO)


def _leaving_costs(field: VictimSearchState, numbers: Iterable[int]) -> dict[int, int]:
    """What the leaving of each member costs at least, in parts of ``RATIO``."""
    shares: dict[int, int] = {}
    for number in numbers:
        inside = [
            m
            for m in field.bundles[number].members
            if field.is_staying(m) and field.members[m].row in field.free
        ]
        if not inside:
            continue
        own = sum(field.members[m].cost for m in inside)
        rest = (field.cost_of(number) - own) * COST_RATIO // len(inside)
        for m in inside:
            share = field.members[m].cost * COST_RATIO + rest
            shares[m] = min(share, shares.get(m, share))
    return shares


def _row_costs(field: VictimSearchState, row: int, parts: list[_Part], more: int) -> list[int]:
    """The least cost of 1, 2 .. ``more`` claimants more on a row: of the resource that costs most."""
    costs = [0] * more
    fits = field.fits[row]
    for column, ask in enumerate(field.request):
        short = ask * (fits + more) - field.free[row][column]
        if short <= 0:
            continue
        giving = sorted(
            (share * COST_RATIO // frees[column], frees[column], share)
            for share, frees in parts
            if frees[column]
        )
        given = paid = at = 0
        for number in range(more):
            wanted = ask * (fits + number + 1) - field.free[row][column]
            while at < len(giving) and given + giving[at][1] <= wanted:
                given += giving[at][1]
                paid += giving[at][2]
                at += 1
            part = 0
            if given < wanted and at < len(giving):
                part = giving[at][2] * (wanted - given) // giving[at][1]
            costs[number] = max(costs[number], paid + part)
    return costs


def _convex_envelope(costs: list[int]) -> list[int]:
    """Steps of the lower convex envelope of costs, from nothing on, rounded down."""
    hull = [(0, 0)]
    for count, cost in enumerate(costs, 1):
        while len(hull) > 1 and _lies_on_or_above(hull[-2], hull[-1], (count, cost)):
            hull.pop()
        hull.append((count, cost))
    steps: list[int] = []
    for (one, low), (other, high) in pairwise(hull):
        steps += [(high - low) // (other - one)] * (other - one)
    return steps


def _lies_on_or_above(
    one: tuple[int, int], middle: tuple[int, int], other: tuple[int, int]
) -> bool:
    """Whether the middle point lies on or above the line from one to the other."""
    rise = (middle[1] - one[1]) * (other[0] - middle[0])
    return rise >= (other[1] - middle[1]) * (middle[0] - one[0])
