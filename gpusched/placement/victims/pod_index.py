"""Bundles of one pod each, in columns: what a bundle is made of is put together when somebody looks at it.

Tables of thousands of victims are made for dozens of claimants, of which a choice looks at a few victims.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, overload

from gpusched.placement.victims.loss_limits import BundleLoss
from gpusched.placement.victims.model import BundleIndex, EvictablePod, VictimBundle, VictimRank


class PodKind(NamedTuple):
    """What bundles of some pods have in common.

    Attributes:
        source, rank, loss: as ``VictimBundle`` has them.
    """

    source: int
    rank: VictimRank
    loss: BundleLoss


class VictimColumns(NamedTuple):
    """What tells bundles apart, by number.

    Attributes:
        rows: of the node of each, as ``BundleIndex.rows_of`` has them.
        costs, draws: as ``BundleIndex`` has them.
        orders: places among equals.
        kinds: numbers of kinds.
    """

    rows: list[tuple[int, ...]]
    costs: list[int]
    draws: list[bool]
    orders: list[int]
    kinds: list[int]


class PodBundles(Sequence[VictimBundle]):
    """Bundles of one pod each; each bundle, its group and its member have the same number.

    Args:
        orders, kinds: as ``VictimColumns`` has them.
        of_kind: what those of a kind have in common.
        extra: cost of each beside that of its pod.
    """

    def __init__(
        self, orders: Sequence[int], kinds: Sequence[int], of_kind: Sequence[PodKind], extra: int
    ) -> None:
        self._orders = orders
        self._kinds = kinds
        self._of_kind = of_kind
        self._extra = extra
        self._made: dict[int, VictimBundle] = {}

    def __len__(self) -> int:
        return len(self._orders)

    @overload
    def __getitem__(self, number: int) -> VictimBundle: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[VictimBundle]: ...
    def __getitem__(self, number: int | slice) -> VictimBundle | Sequence[VictimBundle]:
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(len(self)))]
        made = self._made.get(number)
        if made is None:
            place = range(len(self))[number]
            source, rank, loss = self._of_kind[self._kinds[place]]
            made = self._made[place] = VictimBundle(
                (place,), self._orders[place], place, self._extra, (), source, rank, loss
            )
        return made


class PodIndex(BundleIndex):
    """A ``BundleIndex`` where each bundle, each group and each member is one pod, all with the same number.

    Args:
        members: that could leave, each on a node.
        columns: of their bundles.
        of_kind: what bundles of a kind have in common.
        extra: cost of each bundle beside that of its pod, which ``costs`` contain.
    """

    rows_by_cost = True

    def __init__(
        self,
        members: Sequence[EvictablePod],
        columns: VictimColumns,
        of_kind: Sequence[PodKind],
        extra: int,
    ) -> None:
        self.members = members
        rows, self.costs, self.draws, self.orders, kinds = columns
        self.bundles = PodBundles(self.orders, kinds, of_kind, extra)
        self.rows_of = rows
        self.of_group = self.of_member = _Itself(len(members))
        self.firsts = self.wholes = list(range(len(members)))
        self.only_pods, self.bundles_draw = True, False
        found = dict.fromkeys(kinds)
        self.kinds = {of_kind[kind][:2] for kind in found}
        self.ranks = [of_kind[kind].rank for kind in kinds]
        self._number_losses(kinds, found, of_kind)
        by_cost = self._sort_by_cost()
        of_row: dict[int, list[int]] = {}
        for number in by_cost:
            (row,) = rows[number]
            there = of_row.get(row)
            if there is None:
                of_row[row] = [number]
            else:
                there.append(number)
        self.of_row = of_row
        one_rank = len({rank for _, rank in self.kinds}) == 1
        self.dearest_first = by_cost[::-1] if one_rank else self._sort_dearest_first()

    def _sort_by_cost(self) -> list[int]:
        """Numbers by rank, cost and order: ints are compared several times as fast as tuples of them."""
        found = sorted(self.firsts, key=self.orders.__getitem__)
        found.sort(key=self.costs.__getitem__)
        if len({rank for _, rank in self.kinds}) > 1:
            found.sort(key=self.ranks.__getitem__)
        return found

    def _number_losses(
        self, kinds: Sequence[int], found: Mapping[int, object], of_kind: Sequence[PodKind]
    ) -> None:
        numbers: dict[BundleLoss, int] = {}  # of no gang, so that equal ones are alike
        of: dict[int, int] = {}
        for kind in found:
            of[kind] = numbers.setdefault(of_kind[kind].loss, len(numbers))
        self.losses, self.loss_kinds = [of[kind] for kind in kinds], list(numbers)


class _Itself(Mapping[int, Sequence[int]]):
    """Numbers, each of itself alone."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __getitem__(self, number: int) -> Sequence[int]:
        if not 0 <= number < self._count:
            raise KeyError(number)
        return (number,)

    def __iter__(self) -> Iterator[int]:
        return iter(range(self._count))

    def __len__(self) -> int:
        return self._count
