"""Free amounts, members that could be evicted, and limits: the arithmetic of a victim search."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from operator import add
from typing import Any, Final

import attrs
import numpy as np

from gpusched.arrays.columns import how_many_fit
from gpusched.placement.victims.loss_limits import (
    NO_LIMITS,
    BundleLoss,
    add_loss,
    limits_hold,
    may_go_next,
)
from gpusched.placement.victims.model import (
    COST_RATIO,
    BundleIndex,
    ChosenBundle,
    EvictablePod,
    VictimBundle,
)

_MANY_ROWS: Final = 64
"""From so many rows on, claimants that fit are counted for all of them at once."""


class FreeAmounts:
    """What is free on each row, which pods are gone, and how much each limit has left.

    Args:
        request: of one claimant, by column; positive.
        free: by row, amounts by column; negative where a node is over its allocatable. Only
            rows where the claimants may run.
        members: pods that could leave.
        bundles: of these members, on rows of ``free`` or on others, where they free nothing.
        limits: how many may be drawn from each.
        index: of these members and bundles, where others use it too; made when there is none.
    """

    def __init__(
        self,
        ask: Sequence[int],
        free: Mapping[int, Sequence[int]],
        members: Sequence[EvictablePod],
        bundles: Sequence[VictimBundle],
        *,
        limits: Sequence[int] = (),
        index: BundleIndex | None = None,
    ) -> None:
        self.request = tuple(ask)
        self._nothing = (0,) * len(self.request)
        self.free: dict[int, Sequence[int]] = dict(free)
        self.members = members
        self.bundles = bundles
        self.left = list(limits)
        self.loss_limits = NO_LIMITS
        """Limits on what queues lose by a choice; they change between two claims."""
        self.part_cost = 0
        """Cost of a group that loses parts, beside that of the parts."""
        self._lost: dict[int, list[int]] = {}
        self.fits = self._count_rows()
        self.room = sum(self.fits.values())
        """How many claimants fit now."""
        self.dead: set[int] = set()  # bundles that are out of the question
        self._gone: dict[int, int] = {}
        self._known_gains: dict[int, int] = {}
        """Claimants more that fit without one bundle, as long as nothing else leaves or changes."""
        self._known_freed: dict[int, dict[int, tuple[int, ...]]] = {}
        """What a bundle of several members would free by row, as long as nothing else leaves."""
        self._picks: dict[int, ChosenBundle] = {}
        self._index = BundleIndex(members, bundles) if index is None else index
        self._losable: dict[Hashable, bool] = {}
        """Whether a bundle that takes so much may be lost next, as long as nothing else is lost."""

    @cached_property
    def _most_gained(self) -> int:
        """So many claimants more find room at most for each pod that leaves."""
        frees = {member.frees for member in self.members}
        return max(
            1,
            max(
                (
                    -(-amount // ask)
                    for freed in frees
                    for amount, ask in zip(freed, self.request, strict=True)
                ),
                default=1,
            ),
        )

    def _count_rows(self) -> dict[int, int]:
        """How many claimants each row holds."""
        if len(self.free) < _MANY_ROWS or not self.request:
            return {row: self.count_claimants(each) for row, each in self.free.items()}
        free = np.array(list(self.free.values()), dtype=np.int64)
        fits = how_many_fit(free, np.array(self.request, dtype=np.int64)).tolist()
        return dict(zip(self.free, fits, strict=True))

    def count_claimants(self, free: Sequence[int]) -> int:
        """How many claimants these amounts hold."""
        least = -1
        for amount, ask in zip(free, self.request, strict=True):
            fit = amount // ask
            if fit <= 0:
                return 0
            if fit < least or least < 0:
                least = fit
        return max(0, least)

    def _recount_row(self, row: int) -> None:
        fits = self.count_claimants(self.free[row])
        self.room += fits - self.fits[row]
        self.fits[row] = fits

    def freed_amounts(self, number: int, row: int) -> Sequence[int]:
        """What a bundle would free on a row."""
        members = self.bundles[number].members
        if len(members) == 1:
            alone = self.members[members[0]]
            stays = alone.row == row and members[0] not in self._gone
            return alone.frees if stays else self._nothing
        freed = self._known_freed.get(number)
        if freed is None:
            freed = self._known_freed[number] = {}
            for member in (self.members[m] for m in members if m not in self._gone):
                before = freed.get(member.row)
                freed[member.row] = (
                    member.frees if before is None else tuple(map(add, before, member.frees))
                )
        return freed.get(row, self._nothing)

    def drawn_limits(self, number: int) -> dict[int, int]:
        """What a bundle would take from which limits."""
        bundle = self.bundles[number]
        return self._count_draws((m for m in bundle.members if m not in self._gone), bundle.draws)

    def _draws_of(self, pick: ChosenBundle) -> dict[int, int]:
        """What a bundle that was taken drew."""
        return self._count_draws(pick.members, self.bundles[pick.bundle].draws)

    def _count_draws(self, members: Iterable[int], own: Iterable[int]) -> dict[int, int]:
        draws: dict[int, int] = {}
        for limit in own:
            draws[limit] = draws.get(limit, 0) + 1
        for m in members:
            for limit in self.members[m].draws:
                draws[limit] = draws.get(limit, 0) + 1
        return draws

    def _shift_amounts(self, members: Iterable[int], number: int) -> None:
        rows: set[int] = set()
        self._forget_known()
        self._charge_limits(members, number, 1)
        for m in members:
            self._gone[m] = number
            member = self.members[m]
            if member.row in self.free:
                free = self.free[member.row]
                self.free[member.row] = [a + b for a, b in zip(free, member.frees, strict=True)]
                rows.add(member.row)
        for row in sorted(rows):
            self._recount_row(row)

    def _forget_known(self) -> None:
        """Forget what bundles free, as some members leave, or stay again."""
        self._known_gains.clear()
        self._known_freed.clear()

    def _charge_limits(self, members: Iterable[int], number: int, sign: int) -> None:
        accounts = self.bundles[number].loss.accounts
        if accounts and not self.loss_limits.empty:
            self._losable.clear()
            for m in members:
                add_loss(self._lost, accounts, self.members[m].taken, sign)

    def _unshift_amounts(self, members: Iterable[int], number: int) -> None:
        rows: set[int] = set()
        self._forget_known()
        self._charge_limits(members, number, -1)
        for m in members:
            del self._gone[m]
            member = self.members[m]
            if member.row in self.free:
                free = self.free[member.row]
                self.free[member.row] = [a - b for a, b in zip(free, member.frees, strict=True)]
                rows.add(member.row)
        for row in sorted(rows):
            self._recount_row(row)

    def rows_of(self, number: int) -> Sequence[int]:
        """Rows on which a bundle frees anything."""
        return [row for row in self._index.rows_of[number] if row in self.free]

    def cost_of(self, bundle: int) -> int:
        """What is lost when the bundle leaves, members that leave by others not counted."""
        each = self.bundles[bundle]
        if not self._gone:
            return self._index.costs[bundle]
        if len(each.members) == 1:
            return each.extra if each.members[0] in self._gone else self._index.costs[bundle]
        lost = sum(self.members[m].cost for m in each.members if m not in self._gone)
        return lost + each.extra

    def is_staying(self, member: int) -> bool:
        """Whether the member has not left yet."""
        return member not in self._gone

    def _count_gained(self, numbers: Sequence[int]) -> int:
        """Claimants more that fit when these bundles have left."""
        if len(numbers) > 1:
            return self._count_gained_anew(numbers)
        gain = self._known_gains.get(numbers[0])
        if gain is None:
            gain = self._known_gains[numbers[0]] = self._count_gained_anew(numbers)
        return gain

    def _count_gained_anew(self, numbers: Iterable[int]) -> int:
        freed: dict[int, list[int]] = {}
        for m in dict.fromkeys(m for number in numbers for m in self.bundles[number].members):
            member = self.members[m]
            if m in self._gone or member.row not in self.free:
                continue
            known = freed.get(member.row) or self.free[member.row]
            freed[member.row] = [a + b for a, b in zip(known, member.frees, strict=True)]
        return sum(self.count_claimants(free) - self.fits[row] for row, free in freed.items())

    def possible_bundles(self) -> list[int]:
        """Bundles that may be chosen, limits not counted: not those of which nobody is left.

        What left with others frees nothing more, and what queues would lose by it is counted already.
        """
        numbers = [n for n in range(len(self.bundles)) if n not in self.dead]
        if not self._gone:
            return numbers
        gone, firsts = self._gone, self._index.firsts
        return [
            n
            for n in numbers
            if firsts[n] not in gone or any(m not in gone for m in self.bundles[n].members)
        ]

    def swapped_in_turn(self) -> list[int] | None:
        """Bundles in the order in which single claimants choose them, one after the other, each taking what a bundle frees.

        None where one may find room, or need more than that, as things stand. Loss limits are not asked.
        """
        index, free = self._index, self.free.values()
        if self.room or len(index.kinds) != 1 or not index.only_pods or any(index.draws):
            return None
        if not self.request or any(each.frees != self.request for each in self.members):
            return None
        if any(min(each) < 0 for each in free):
            return None
        there = [self.members[m].row in self.free for m in index.firsts]
        numbers = [number for number, on_row in enumerate(there) if on_row]
        if len(numbers) < len(there) and not all(0 in each for each in free):
            return None  # beside cheaper pods elsewhere, a bound does not show that a choice costs least
        costs, orders = index.costs, index.orders
        return sorted(numbers, key=lambda n: (costs[n], orders[n]))

    def bundles_on_rows(self) -> list[int]:
        """Those of them that free anything on a row, by number."""
        of_row = self._index.of_row
        numbers = {number for row in self.free for number in of_row.get(row, ())}
        return sorted(numbers - self.dead)

    def _is_possible(self, number: int, drawn: Mapping[int, int]) -> bool:
        if number in self.dead or number in self._picks:
            return False
        members = self.bundles[number].members
        if len(members) == 1:
            if members[0] in self._gone:
                return False
        elif self._gone and all(m in self._gone for m in members):
            return False
        if not self._may_be_lost(number):
            return False
        if not self._index.draws[number]:
            return True
        back = self._given_back(number)
        return all(
            self.left[limit] + back.get(limit, 0) - drawn.get(limit, 0) >= count
            for limit, count in self.drawn_limits(number).items()
        )

    def _pod_is_possible(self, number: int) -> bool:
        """The same of a bundle of one pod where nothing else is drawn: thousands are asked about."""
        if number in self.dead or number in self._picks:
            return False
        if self._index.firsts[number] in self._gone:
            return False
        losable = self._losable.get(self._index.losses[number])
        if losable is None:
            losable = self._may_be_lost(number)
        return losable and (not self._index.draws[number] or self._is_possible(number, {}))

    def _least_key(self, row: int, numbers: Sequence[int]) -> tuple[Any, ...] | None:
        """What a move of a row has no smaller key than whose bundles are single pods of one source; None where it has none.

        That is the key of the cheapest pod alone, if it gave the most that one gives, as several pods cost at least
        as much for each place. Where several must leave for one place, it is what the cheapest of so many cost.

        Args:
            row: where they run.
            numbers: of the bundles, by rank and cost.
        """
        possible = (number for number in numbers if self._pod_is_possible(number))
        first = next(possible, None)  # the cheapest of the lowest rank
        if first is None:
            return None
        if self._most_gained == 1:
            free, fits = self.free[row], self.fits[row] + 1
            short = [ask * fits - amount for ask, amount in zip(self.request, free, strict=True)]
            freed = self.members[self._index.firsts[first]].frees
            if any(lacks > amount for lacks, amount in zip(short, freed, strict=True)):
                return self._least_key_of_several([first, *possible], short)
        return self._key_of_pod(first)

    def _key_of_pod(self, number: int) -> tuple[Any, ...]:
        """The key of a pod alone, if it gave the most that one gives."""
        index, cost = self._index, self._index.costs[number]
        share = cost * COST_RATIO // self._most_gained
        return (index.ranks[number], share, cost, index.orders[number])

    def _least_key_of_several(
        self, numbers: Sequence[int], short: Sequence[int]
    ) -> tuple[Any, ...] | None:
        """The same of pods in order of rank, none of which gives more than one place, where a row is short of so much."""
        count = 1
        frees = [self.members[self.bundles[number].members[0]].frees for number in numbers]
        for column, lacks in enumerate(short):
            left, some = lacks, 0
            for amount in sorted((each[column] for each in frees), reverse=True):
                if left <= 0:
                    break
                left, some = left - amount, some + 1
            if left > 0:
                return None
            count = max(count, some)
        rank = self.bundles[numbers[count - 1]].rank
        costs = sorted(self._index.costs[n] for n in numbers if self.bundles[n].rank <= rank)
        least = sum(costs[:count])
        return (rank, least * COST_RATIO, least, -1)

    def _may_be_lost(self, number: int) -> bool:
        """Whether loss limits let a bundle go after what is gone."""
        limits, bundle = self.loss_limits, self.bundles[number]
        if limits.empty or not bundle.loss.accounts:
            return True
        whole = len(bundle.members) == 1 or self._gone.keys().isdisjoint(bundle.members)
        loss = bundle.loss if whole else self.loss_of(number)
        key: Hashable = (
            self._index.losses[number]
            if whole
            else (loss.side, loss.accounts, loss.judged, loss.taken, loss.last)
        )
        known = self._losable.get(key)
        if known is None:
            known = self._losable[key] = may_go_next(limits, self._lost, loss)
        return known

    def _may_be_lost_after(self, number: int, lost: Mapping[int, Sequence[int]]) -> bool:
        """Whether loss limits let a bundle go after so much is lost."""
        if self.loss_limits.empty or not self.bundles[number].loss.accounts:
            return True
        return may_go_next(self.loss_limits, lost, self.loss_of(number))

    def _lost_with(
        self, numbers: Iterable[int], *, but: Sequence[int] = ()
    ) -> dict[int, list[int]]:
        """What is lost by account when some bundles have left, but for some of these."""
        if self.loss_limits.empty:
            return {}
        lost = {account: list(amounts) for account, amounts in self._lost.items()}
        for number in numbers:
            if number not in but:
                self._add_loss_of(number, lost)
        return lost

    def _add_loss_of(self, number: int, lost: dict[int, list[int]]) -> None:
        """Add what a bundle takes to what is lost."""
        if not self.loss_limits.empty:
            loss = self.loss_of(number)
            add_loss(lost, loss.accounts, loss.taken)

    def loss_of_gang(self, number: int) -> BundleLoss:
        """What a bundle takes of its gang, members that are gone not counted."""
        return self.loss_of(number).of_gang(self.bundles[number].group)

    def loss_of(self, number: int) -> BundleLoss:
        """The same, whatever gang it is of."""
        bundle = self.bundles[number]
        if self._gone.keys().isdisjoint(bundle.members):
            return bundle.loss
        staying = [self.members[m].taken for m in bundle.members if m not in self._gone]
        taken = tuple(map(sum, zip(*staying, strict=True))) or bundle.loss.taken
        last = tuple(map(min, zip(taken, bundle.loss.last, strict=True)))
        return attrs.evolve(bundle.loss, taken=taken, last=last)

    def _limits_hold(self) -> bool:
        """Whether loss limits allow what is picked, as a whole."""
        if self.loss_limits.empty:
            return True
        losses = []
        for number, pick in sorted(self._picks.items()):
            if not pick.members:
                continue  # all of it had left with other bundles before
            loss = self.bundles[number].loss
            if len(pick.members) < len(self.bundles[number].members):
                all_of = [self.members[m].taken for m in pick.members]
                taken = tuple(map(sum, zip(*all_of, strict=True)))
                last = tuple(map(min, zip(taken, loss.last, strict=True)))
                loss = attrs.evolve(loss, taken=taken, last=last)
            losses.append(loss.of_gang(self.bundles[number].group))
        return limits_hold(self.loss_limits, losses)

    def _absorbed_picks(self, number: int) -> list[int]:
        """Picks that a bundle would take over: they stand and fall with it then."""
        if len(self.bundles[number].members) == 1:
            return []
        group = self._index.of_group[self.bundles[number].group]
        picks = [other for other in group if other != number and other in self._picks]
        return [other for other in picks if self._covers_bundle(number, other)]

    def _given_back(self, number: int) -> dict[int, int]:
        """What these drew for themselves."""
        if not self.bundles[number].draws:
            return {}
        return self._count_draws(
            (), (n for o in self._absorbed_picks(number) for n in self.bundles[o].draws)
        )

    def _take_bundle(self, number: int) -> None:
        bundle = self.bundles[number]
        for limit, count in self.drawn_limits(number).items():
            self.left[limit] -= count
        leaving = [m for m in bundle.members if m not in self._gone]
        self._shift_amounts(leaving, number)
        for other in self._absorbed_picks(number):
            leaving += self._picks.pop(other).members
            for limit in self.bundles[other].draws:
                self.left[limit] += 1
        self._picks[number] = ChosenBundle(number, tuple(sorted(leaving)))

    def _put_back(self, number: int) -> None:
        pick = self._picks.pop(number)
        self._unshift_amounts(pick.members, number)
        for limit, count in self._draws_of(pick).items():
            self.left[limit] += count

    def _share_member(self, one: int, other: int) -> bool:
        """Whether two bundles have a member in common."""
        a, b = self.bundles[one], self.bundles[other]
        if a.group != b.group:
            return False
        if len(a.members) == 1 and len(b.members) == 1:
            return a.members == b.members
        return not set(a.members).isdisjoint(b.members)

    def _covers_bundle(self, one: int, other: int) -> bool:
        """Whether a bundle has every member of another."""
        return set(self.bundles[one].members).issuperset(self.bundles[other].members)

    def _lower_limits(self, members: Iterable[int], bundles: Iterable[int]) -> None:
        """Members left for good: limits of bundles that went with them allow less."""
        left = set(members)
        for number in bundles:
            bundle = self.bundles[number]
            if len(bundle.members) == 1:
                lessened: Iterable[int] = bundle.draws
            elif bundle.draws and not left.isdisjoint(bundle.members):
                # A part that is gone now; what its members draw was taken off by theirs.
                gone = all(m in self._gone for m in bundle.members)
                lessened = bundle.draws[:1] if gone else ()
            else:
                continue
            for limit in lessened:
                self.left[limit] = max(0, self.left[limit] - 1)

    def cost_density(self, number: int, row: int) -> tuple[int, int]:
        """What a bundle costs for what it frees on a row, in parts of ``RATIO``; then its order."""
        freed = self.freed_amounts(number, row)
        share = sum(
            amount * COST_RATIO // ask for amount, ask in zip(freed, self.request, strict=True)
        )
        return self.cost_of(number) * COST_RATIO // max(1, share), self.bundles[number].order
