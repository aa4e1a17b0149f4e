"""Pods that leave so that a number of equal pods fit: cheapest first for what it frees, none in vain.

Integers in, a choice out. A field has rows (nodes) with free amounts, members (pods that run
there and could leave) and bundles (members that leave together or not at all). A choice grows by
the move that costs least for each place it gains; afterwards the dearest that are not needed
are spared.

A field is kept for many claims of one class: a choice is undone at once, and a caller that carries it
out tells the field the new free amounts of the rows it touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from heapq import heappop, heappush
from typing import Any

from gpusched.placement.victims.loss_limits import (
    NO_LIMITS,
    Amount,
    LossLimits,
    is_freed,
    is_stricter,
    limits_hold,
    looser_parts,
)
from gpusched.placement.victims.model import (
    BundleEntry,
    BundleIndex,
    BundleSlot,
    ChosenBundle,
    EvictablePod,
    EvictionOption,
    VictimBundle,
    VictimChoice,
    VictimRank,
    plain_rows,
    rows_of_losses,
)
from gpusched.placement.victims.row_moves import MIXED, RowMoves

_MOVES_HELD_MAX = 64
"""Moves compared exactly where a smaller need makes their order by ratio inexact."""


class VictimSearchState(RowMoves):
    """See the module.

    Args:
        ask, free, members, bundles, limits, index: as ``FreeAmounts`` has them.
        source_key: where a source stands now; smaller keys are exhausted first.
    """

    def __init__(
        self,
        ask: Sequence[int],
        free: Mapping[int, Sequence[int]],
        members: Sequence[EvictablePod],
        bundles: Sequence[VictimBundle],
        *,
        limits: Sequence[int] = (),
        source_key: Callable[[int], Any] = lambda _source: 0,
        index: BundleIndex | None = None,
    ) -> None:
        super().__init__(ask, free, members, bundles, limits=limits, index=index)
        self._source_key = source_key
        self.reach = self.room
        """How many would have fitted when the last choice gave up."""
        self._ascending = list(self._index.dearest_first)
        self._stamps: dict[BundleSlot, int] = {}
        self._again: set[BundleSlot] = set()  # whose moves were worked out anew in a choice
        self._heaps: dict[int, list[BundleEntry]] = {}
        self._offered = False
        self._not_entered: list[int] = []
        """Plain rows of which nothing was offered yet, the cheapest last."""
        self._worked_out: set[int] = set()
        """Plain rows whose move was worked out, and not put off again."""
        self._outdated: set[int] = set()
        """Rows whose moves are known to be wrong, until limits become looser."""
        self._refresh_moves()

    def set_free(self, row: int, free: Sequence[int]) -> None:
        """What is free on a row now, without what a choice would free."""
        if row not in self.free or self.free[row] == list(free):
            return
        self.free[row] = free
        self._known_gains.clear()
        self._recount_row(row)
        if row not in self._plain_rows:
            self._offer_moves(row)
            self._outdate_others(self._of_row.get(row, ()))
        elif (
            row in self._worked_out or self._most_gained == 1
        ):  # else its pods cost at least the same
            self._put_off(row, self._plain_rows[row])

    @property
    def only_plain_rows(self) -> bool:
        """Whether each bundle is a pod, all of one source: a row has to be told of only where another amount is free."""
        return self._index.only_pods and len(self._sources) == 1

    def remove_evicted(self, members: Iterable[int]) -> None:
        """These members have left for good; ``set_free`` tells what came of their rooms."""
        left = list(members)
        self._gone |= dict.fromkeys(left, -1)
        self._forget_known()
        if self._index.only_pods and not self._index.bundles_draw:
            return
        touched = sorted({n for m in left for n in self._index.of_member.get(m, ())})
        self._lower_limits(left, touched)
        self._outdate_others(touched)

    def drop_bundles(self, bundles: Iterable[int]) -> None:
        """These bundles are out of the question from now on."""
        rows: set[int] = set()
        for number in bundles:
            if number not in self.dead:
                self.dead.add(number)
                rows.update(self.rows_of(number))
        for row in sorted(rows):
            self._offer_moves(row)

    def set_loss_limits(self, limits: LossLimits) -> None:
        """Take over what queues may lose now."""
        known, self.loss_limits = self.loss_limits, limits
        self._losable.clear()
        if not self._offered or known == limits or is_stricter(limits, known):
            return
        for row in self._rows_with_more_allowed(known):
            self._offer_moves(row)
        self._outdated.clear()

    def _rows_with_more_allowed(self, known: LossLimits) -> list[int]:
        """Rows on which other moves may be found than under known limits."""
        parts = looser_parts(self.loss_limits, known, self._reach) if self._reach else None
        if parts is None:
            return sorted(self._of_row)
        rows = set(self._outdated)
        if parts.sides or parts.accounts:
            for (side, accounts), some in self._rows_of_losses.items():
                if side in parts.sides or any(
                    (-1, account) in parts.accounts or (side, account) in parts.accounts
                    for account in accounts
                ):
                    rows |= some
        return sorted(rows.intersection(self._of_row))

    @cached_property
    def _reach(self) -> tuple[int, ...]:
        """No more than this is lost by all bundles of one row together, by column."""
        most, amounts = self.most_on_a_row, self._index.amounts_lost
        return tuple(most * max(column) for column in zip(*amounts, strict=True))

    @property
    def most_on_a_row(self) -> int:
        """How many bundles there are on one row at most."""
        return max(map(len, self._of_row.values()), default=0)

    @cached_property
    def _rows_of_losses(self) -> dict[tuple[int, tuple[int, ...]], set[int]]:
        """Rows with bundles of a side that are charged to some accounts."""
        return rows_of_losses(self._of_row, self._index)

    @cached_property
    def _plain_rows(self) -> dict[int, int]:
        """Rows whose bundles are single pods of one source, and that source."""
        if self.only_plain_rows:
            return dict.fromkeys(self._of_row, self._sources[0])
        return plain_rows(self._of_row, self.bundles)

    def _outdate_others(self, numbers: Iterable[int]) -> None:
        """Bundles of several rows cost or free something else now, wherever they are."""
        for number in numbers:
            rows = self._index.rows_of[number]
            if len(rows) > 1:
                self._outdated.update(rows)

    def bundles_of(self, group: int) -> Sequence[int]:
        """Bundles of one group."""
        return self._index.of_group.get(group, ())

    def choose_bundles(
        self, need: int, taken: Callable[[Sequence[int]], None] = lambda _members: None
    ) -> VictimChoice | None:
        """The members that leave so that ``need`` claimants fit; None when no choice does.

        The field is afterwards as before. ``reach`` tells how far it got.

        Args:
            need: claimants.
            taken: told the members of each step, before sources are asked for their keys again.
        """
        self._refresh_moves()
        self._forget_losses()
        self._offer_all()
        first = self._best_move(need - self.room) if self.room < need else None
        if first is not None and len(first.bundles) == 1:
            reach = self.room + self._count_gained(first.bundles)
            if reach >= need:
                self._again.clear()
                self.reach = reach
                return self._only_choice(first.bundles[0])
        return self._choose_in_steps(need, taken)

    def _only_choice(self, number: int) -> VictimChoice | None:
        """The choice of one bundle that suffices, as for most claims; None where limits forbid it."""
        bundle, limits = self.bundles[number], self.loss_limits
        if not limits.empty and not limits_hold(limits, [self.loss_of_gang(number)]):
            return None
        leaving = tuple(sorted(m for m in bundle.members if m not in self._gone))
        cost = self.cost_of(number) + (self.part_cost if bundle.part else 0)
        return VictimChoice((ChosenBundle(number, leaving),), cost, self.rank_of(number))

    def _choose_in_steps(
        self, need: int, taken: Callable[[Sequence[int]], None]
    ) -> VictimChoice | None:
        """Bundles by the moves that cost least, one after another, and none in vain."""
        touched: set[int] = set()
        rights = self._rights_to_open()
        freed = self._which_are_freed(rights)
        while self.room < need and (move := self._best_move(need - self.room)) is not None:
            for number in move.bundles:
                self._take_bundle(number)
                touched.update(self.rows_of(number))
                if len(self._sources) > 1:
                    taken(self._picks[number].members)
            if len(self._sources) > 1 and self.room < need:
                self._refresh_moves()
            if freed != (freed := self._which_are_freed(rights)):
                # What was freed inside a department lets it take elsewhere.
                for row in sorted(self._of_row):
                    self._offer_moves(row)
                self._outdated.update(self._of_row)
            for row in sorted({r for number in move.bundles for r in self.rows_of(number)}):
                self._offer_moves(row)
        self.reach = self.room
        chosen = self._give_back_unneeded(need) if self.room >= need else None
        if chosen is not None and not self._limits_hold():
            chosen = None
        for number in sorted(self._picks):
            self._put_back(number)
        for row in sorted(touched):
            self._offer_moves(row)
        for slot in sorted(self._again):
            self._offer_slot(slot)
        self._again.clear()
        return chosen

    def weigh_choice(
        self, picked: Iterable[int], need: int, holds: Callable[[], bool] | None = None
    ) -> VictimChoice | None:
        """The choice of these bundles, less those that are not needed; None where it is none.

        Args:
            picked: bundles.
            need: claimants that must fit.
            holds: asked instead, with the amounts as they would be; then none is spared.
        """
        possible = True
        self._forget_losses()
        limits, self.loss_limits = self.loss_limits, NO_LIMITS  # they are about all together
        for number in picked:
            possible = possible and self._is_possible(number, {})
            if not possible:
                break
            self._take_bundle(number)
        self.loss_limits = limits
        possible = possible and self._limits_hold()
        if holds is not None:
            chosen = self._build_choice() if possible and holds() else None
        else:
            chosen = self._give_back_unneeded(need) if possible and self.room >= need else None
        for number in sorted(self._picks):
            self._put_back(number)
        return chosen

    @property
    def sources(self) -> int:
        """How many sources there are."""
        return len(self._sources)

    def cheapest_cost(self) -> int:
        """What the cheapest bundle costs that may be chosen, whatever its rank; 0 for none."""
        while self._ascending:
            number = self._ascending[-1]
            gone = all(m in self._gone for m in self.bundles[number].members)
            if not gone and number not in self.dead:
                return self.cost_of(number)
            self._ascending.pop()
        return 0

    def costs_least(self, choice: VictimChoice, need: int) -> bool:
        """Whether a choice is seen at a glance to be of the smallest rank and the least cost.

        Where each bundle is of one pod, as many must leave as there are places missing, each giving
        the most that one gives, and no such number costs less than the cheapest together.
        """
        if not choice.picks or not self._index.only_pods:
            return False
        if choice.rank != min((self._keys[source], rank) for source, rank in self._index.kinds):
            return False
        fewest = -(-(need - self.room) // self._most_gained)
        cheapest: list[int] = []
        for number in reversed(self._ascending):
            if len(cheapest) >= fewest:
                break
            if number not in self.dead and self.bundles[number].members[0] not in self._gone:
                cheapest.append(self._index.costs[number])
        return len(cheapest) >= fewest and choice.cost <= sum(cheapest)

    def possible_ranks(self) -> list[VictimRank]:
        """Where bundles stand that may be chosen, smallest first."""
        return sorted({self.rank_of(number) for number in self.possible_bundles()})

    def only_parts_up_to(self, rank: VictimRank) -> bool:
        """Whether each bundle that may be chosen up to a rank, on any row, leaves others of its group."""
        return not any(
            number not in self.dead and self.rank_of(number) <= rank
            for number in self._index.wholes
        )

    def bundles_up_to(self, rank: VictimRank) -> list[int]:
        """Bundles that may be chosen, of this rank and smaller ones."""
        return [n for n in self.possible_bundles() if self.rank_of(n) <= rank]

    def _forget_losses(self) -> None:
        self._lost.clear()
        self._losable.clear()

    def _rights_to_open(self) -> list[tuple[Amount, ...]]:
        """What must be freed for rights that need anything freed."""
        return [
            right.frees
            for side in self.loss_limits.sides
            for right in side
            if any(amount > 0 for _, _, amount in right.frees)
        ]

    def _which_are_freed(self, rights: Sequence[tuple[Amount, ...]]) -> list[bool]:
        """Of each of these, whether it is freed by what is picked."""
        return [is_freed(frees, self._lost) for frees in rights]

    def _offer_all(self) -> None:
        """Enter every move; put off until a choice is asked for, as most fields are never asked."""
        if self._offered:
            return
        self._offered = True
        if self.only_plain_rows:
            self._offer_pods(self._sources[0])
            return
        for row, numbers in self._of_row.items():
            self._of_row[row] = sorted(numbers, key=self._by_cost)
        for row in sorted(self._of_row):
            self._offer_row(row)
        for number, bundle in enumerate(self.bundles):
            if len(bundle.members) > 1:
                self._push_move((-1 - number, 0), self._own_move(number))

    def _offer_pods(self, source: int) -> None:
        """The same where each bundle is a pod, all of one source: thousands are put in order at once."""
        self._heaps[source] = []
        if self._index.rows_by_cost:
            rows = [row for row in self._index.of_row if row in self._of_row]
        else:
            for row, numbers in self._of_row.items():
                self._of_row[row] = sorted(numbers, key=self._key_of_pod)
            rows = sorted(self._of_row, key=lambda row: self._key_of_pod(self._of_row[row][0]))
        self._not_entered = rows[::-1]

    def _has_entry(self, heap: list[BundleEntry]) -> bool:
        """Whether there is an entry, once rows are entered whose cheapest pods may come before all that are.

        Whether such a pod may go is asked when its turn comes: a move of the row costs no less.
        """
        while self._not_entered:
            row = self._not_entered[-1]
            key = self._key_of_pod(self._of_row[row][0])
            if heap and heap[0][0] <= key:
                return True
            self._not_entered.pop()
            slot = (row, self._sources[0])
            if slot not in self._stamps:  # else something was offered meanwhile
                self._stamps[slot] = 1
                heappush(heap, (key, slot, 1, None))
        return bool(heap)

    def _refresh_moves(self) -> None:
        before = self._keys
        self._keys = {source: self._source_key(source) for source in self._sources}
        if self._offered and self._keys != before:
            self._outdated.update(self._of_row)

    def _push_move(self, slot: BundleSlot, move: EvictionOption | None) -> None:
        """Enter the move of a row, or of a bundle as ``-1 - bundle``; older ones become stale."""
        stamp = self._stamps.get(slot, 0) + 1
        self._stamps[slot] = stamp
        if move is not None:
            heap = self._heaps.setdefault(move.source, [])
            heappush(heap, (move.sort_key(2**30, self.bundles), slot, stamp, move))

    def _put_off(self, row: int, source: int) -> None:
        """Enter what a move of a plain row costs at least: it is worked out when it may be the cheapest."""
        slot = (row, source)
        self._worked_out.discard(row)
        stamp = self._stamps[slot] = self._stamps.get(slot, 0) + 1
        key = self._least_key(row, self._of_row[row])
        if key is not None:
            heappush(self._heaps.setdefault(source, []), (key, slot, stamp, None))

    def _offer_moves(self, row: int) -> None:
        """Work out again what a row and the bundles on it offer."""
        if not self._offered:
            return
        self._offer_row(row)
        if row in self._plain_rows:
            return
        for number in self._of_row.get(row, ()):
            if len(self.bundles[number].members) > 1:
                self._push_move((-1 - number, 0), self._own_move(number))

    def _best_move(self, need: int) -> EvictionOption | None:
        """The move that costs least for each place that is needed."""
        pure = sorted(
            (source for source in self._heaps if source != MIXED),
            key=lambda source: (self._keys[source], source),
        )
        for source in (*pure, MIXED):
            move = self._best_of(self._heaps.get(source, []), need)
            if move is not None:
                return move
        return None

    def _best_of(self, heap: list[BundleEntry], need: int) -> EvictionOption | None:
        held: list[tuple[tuple[Any, ...], BundleEntry]] = []
        best: tuple[Any, ...] | None = None
        found: EvictionOption | None = None
        while len(held) < _MOVES_HELD_MAX and self._has_entry(heap):
            entry = heap[0]
            _, slot, stamp, move = entry
            if best is not None and best <= entry[0]:
                break
            heappop(heap)
            if self._stamps[slot] != stamp:
                continue
            if move is None:
                if self._picks:  # it may be another one when these are put back
                    self._again.add(slot)
                least = self._least_key(slot[0], self._of_row[slot[0]])
                if least == entry[0]:
                    self._worked_out.add(slot[0])
                    self._push_move(slot, self._row_move(*slot))
                elif least is not None:  # more is lost than when it was put off
                    heappush(heap, (least, slot, stamp, None))
                continue
            if not all(self._is_possible(number, {}) for number in move.bundles):
                self._again.add(slot)
                self._offer_slot(slot)
                continue
            exact = move.sort_key(need, self.bundles)
            held.append((exact, entry))
            if best is None or exact < best:
                best, found = exact, move
        for _, entry in held:
            heappush(heap, entry)
        return found

    def _offer_row(self, row: int) -> None:
        """A move of each source that has bundles on a row, and one of all of them together."""
        plain = self._plain_rows.get(row)
        if plain is not None:
            self._put_off(row, plain)
            return
        sources = sorted({self.bundles[number].source for number in self._of_row.get(row, ())})
        for source in sources:
            self._push_move((row, source), self._row_move(row, source))
        if len(sources) > 1:
            self._push_move((row, MIXED), self._row_move(row, MIXED))

    def _offer_slot(self, slot: BundleSlot) -> None:
        """Work out again what one slot offers."""
        place, source = slot
        if place in self._plain_rows:
            self._put_off(place, source)
        else:
            move = self._row_move(place, source) if place >= 0 else self._own_move(-1 - place)
            self._push_move(slot, move)

    def _give_back_unneeded(self, need: int) -> VictimChoice:
        """Give back, dearest first, bundles that are not needed."""

        def dearest(number: int) -> tuple[Any, ...]:
            return (self.rank_of(number), self._cost_of_pick(number), self.bundles[number].order)

        held = self._limits_hold()
        for number in sorted(self._picks, key=dearest, reverse=True):
            if len(self._picks) == 1 and need > 0:
                break
            pick = self._picks[number]
            self._put_back(number)
            if self.room < need or (held and not self._limits_hold()):
                self._shift_amounts(pick.members, number)
                self._picks[number] = pick
                for limit, count in self._draws_of(pick).items():
                    self.left[limit] -= count
            elif not held:
                held = self._limits_hold()
        return self._build_choice()

    def _build_choice(self) -> VictimChoice:
        picks = tuple(pick for _, pick in sorted(self._picks.items()))
        cost = sum(self._cost_of_pick(pick.bundle) for pick in picks)
        parts = {each.group for pick in picks if (each := self.bundles[pick.bundle]).part}
        cost += len(parts) * self.part_cost
        rank = max((self.rank_of(pick.bundle) for pick in picks), default=())
        return VictimChoice(picks, cost, rank)

    def _cost_of_pick(self, number: int) -> int:
        lost = sum(self.members[m].cost for m in self._picks[number].members)
        return lost + self.bundles[number].extra
