"""A quick answer: the tightest domain that holds what is left, and best fit inside it.

Not always the best and, for several roles, not always found; what it gives is where the other
methods start from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import attrs
import numpy as np

from gpusched.arrays.columns import Bools, Ints, how_many_fit
from gpusched.base.classes import define
from gpusched.placement.model.bounds import (
    candidate_domains,
    members_that_fit,
    members_that_fit_by_domain,
)
from gpusched.placement.model.problem import (
    DomainLevel,
    Problem,
    SubGroupHolder,
    SubGroupMinimum,
)
from gpusched.placement.model.role_mixes import UNLIMITED


def members_of_each_role(problem: Problem) -> tuple[int, ...] | None:
    """Members of each role: what minima and sub-groups ask, then as many as are needed.

    Returns:
        By role, together ``members``; None where these rules find no such numbers.
    """
    share = [0] * len(problem.roles)
    most = [min(role.most, int(role.fits.sum())) for role in problem.roles]

    def give(roles: Iterable[int], count: int) -> None:
        for role in roles:
            more = min(max(0, count), most[role] - share[role])
            share[role] += more
            count -= more

    def given(roles: Iterable[int]) -> int:
        return sum(share[role] for role in roles)

    for roles, needed in sorted(problem.minima, key=lambda each: len(each[0])):
        give(roles, needed - given(roles))
    parts = [
        [role for role, each in enumerate(problem.roles) if each.part == part]
        for part in range(len(problem.parts))
    ]
    started = [index for index, roles in enumerate(parts) if given(roles)]
    for index in started:
        give(parts[index], problem.parts[index].least - given(parts[index]))
    completed = sum(bool(problem.parts[index].least) for index in started)
    for index, part in enumerate(problem.parts):
        room = sum(most[role] for role in parts[index])
        left = problem.members - sum(share)
        if index in started or not part.least or room < part.least:
            continue
        if completed < problem.parts_least or part.least <= left:
            give(parts[index], part.least)
            started.append(index)
            completed += 1
    # What is left goes to those who have some already, and to nobody's.
    complete = {-1, *started, *(i for i, part in enumerate(problem.parts) if part.least <= 1)}
    able = [role for role, each in enumerate(problem.roles) if each.part in complete]
    give(able, problem.members - sum(share))
    return tuple(share) if _rules_hold(problem, share) else None


def _rules_hold(problem: Problem, share: list[int]) -> bool:
    """Whether these numbers are what the hard rules allow."""
    if sum(share) != problem.members:
        return False
    if any(sum(share[role] for role in roles) < needed for roles, needed in problem.minima):
        return False
    completed = 0
    for index, part in enumerate(problem.parts):
        got = sum(share[role] for role, each in enumerate(problem.roles) if each.part == index)
        if 0 < got < part.least:
            return False
        completed += bool(part.least and got)
    return completed >= problem.parts_least


_TRIES: Final = 4
"""Domains of one level that are tried, where roles may get into each other's way."""


def place_greedily(problem: Problem) -> Ints | None:
    """Counts that may be an answer, shape (roles, nodes); None when this way finds none.

    It obeys every hard rule; what it misses is no proof of anything.
    """
    if problem.holders:
        return _place_nested(problem)
    share = members_of_each_role(problem)
    if share is None:
        return None
    for within in _candidate_sets(problem):
        for rows in _candidate_areas(problem, within, share):
            counts = _Filling(problem).fill_all(share, rows)
            if counts is not None:
                return counts
    return None


def _place_nested(problem: Problem) -> Ints | None:
    """The same for sub-groups in sub-groups."""
    for within in _candidate_sets(problem)[:_TRIES]:
        for large_first in (True, False):
            counts = _NestedFilling(problem, large_first=large_first).fill_all(within)
            if counts is not None:
                return counts
    return None


def place_around(problem: Problem, role: int, row: Ints, share: tuple[int, ...]) -> Ints | None:
    """Counts of all roles when one has its places: the others on its nodes, or in its domains.

    Args:
        problem: without sub-groups.
        role: that has its places.
        row: its members by node.
        share: members of each role.
    """
    used = (row > 0) | problem.open_rows
    areas = [row > 0]
    if problem.levels:
        domain = problem.levels[-1].domain
        areas.append(np.isin(domain, np.unique(domain[used])))
    for rows in areas:
        filling = _Filling(problem)
        filling.add_members(role, row)
        counts = filling.fill_all(share, rows, placed=role)
        if counts is not None:
            return counts
    return None


def _candidate_sets(problem: Problem) -> list[Bools]:
    """Sets of nodes to try, each in one domain of the required level; tightest first."""
    if problem.required < 0:
        return [np.ones(problem.nodes, dtype=np.bool_)]
    every = range(len(problem.roles))
    domain = problem.levels[problem.required].domain
    wanted = max(problem.hope, problem.members)
    found = []
    for number in candidate_domains(problem):
        rows = domain == number
        there = members_that_fit(problem, every, rows)
        if there >= problem.members:
            found.append((max(0, wanted - there), there, number, rows))
    return [each[-1] for each in sorted(found, key=lambda each: each[:3])]


def _candidate_areas(problem: Problem, within: Bools, share: tuple[int, ...]) -> Iterator[Bools]:
    """Parts of these nodes that may hold all roles, the narrowest and tightest first."""
    if len(problem.roles) > 1:
        for level in reversed(problem.levels[problem.required + 1 :]):
            opened = np.unique(level.domain[problem.open_rows])
            able = np.ones(int(level.domain.max(initial=-1)) + 1, dtype=np.bool_)
            total = np.zeros(len(able), dtype=np.int64)
            for role, count in enumerate(share):
                there = members_that_fit_by_domain(problem, (role,), level)[: len(able)]
                able &= there >= count
                total += there
            able &= np.bincount(level.domain[within], minlength=len(able)) > 0
            new = np.ones(len(able), dtype=np.bool_)
            new[opened] = False
            numbers = np.flatnonzero(able)
            for number in numbers[np.lexsort((total[numbers], new[numbers]))][:_TRIES]:
                yield within & (level.domain == number)
    yield within


@define(eq=False)
class _Filling:
    """Nodes that are being filled, role after role."""

    problem: Problem
    free: Ints = attrs.field(init=False)
    used: Bools = attrs.field(init=False)
    counts: Ints = attrs.field(init=False)
    fits: Ints = attrs.field(init=False)
    taken: Ints = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        problem = self.problem
        self.free = problem.free.copy()
        self.used = problem.open_rows.copy()
        self.counts = np.zeros((len(problem.roles), problem.nodes), dtype=np.int64)

    def add_members(self, role: int, row: Ints) -> None:
        """Members of a role on these nodes."""
        self.counts[role] += row
        self.free -= row[:, None] * self.problem.roles[role].request[None, :]
        self.used |= row > 0

    def fill_all(self, share: tuple[int, ...], rows: Bools, *, placed: int = -1) -> Ints | None:
        """Counts of all roles on these nodes, largest members first; None when one fits not.

        Args:
            share: members of each role.
            rows: nodes to use, shape (nodes,).
            placed: the role that has its places, -1 for none.
        """
        parts = self.problem.parts
        pinned = [index for index, part in enumerate(parts) if part.level >= 0]
        waiting = [index for index in range(len(share)) if index != placed]
        alone = [[index] for index in waiting if self._part_of_role(index) not in pinned]
        together = [
            [index for index in waiting if self._part_of_role(index) == part] for part in pinned
        ]
        groups = sorted(filter(None, together), key=self._role_rank) + sorted(
            alone, key=self._role_rank
        )
        for group in groups:
            part = self._part_of_role(group[0])
            if part in pinned:
                done = self._in_one(parts[part], group, share, rows)
            else:
                done = self.fill_role(group[0], share[group[0]], rows)
            if not done:
                return None
        return self.counts

    def _part_of_role(self, role: int) -> int:
        return self.problem.roles[role].part

    def _role_rank(self, group: Sequence[int]) -> tuple[int, int, int, int]:
        """Roles with the largest members first."""
        roles = [self.problem.roles[index] for index in group]
        return (
            -max(role.gpus for role in roles),
            min(self._most_by_devices(index) for index in group),
            -max(int(role.request.max(initial=0)) for role in roles),
            group[0],
        )

    def _most_by_devices(self, role: int) -> int:
        """Members that the roomiest node takes where devices are competed for: few are large."""
        mixes = self.problem.mixes
        place = -1 if mixes is None else mixes.place_of(role)
        if mixes is None or place < 0:
            return UNLIMITED
        return max((vector[place] for table in mixes.tables for vector in table), default=0)

    def _in_one(
        self, part: SubGroupMinimum, group: list[int], share: tuple[int, ...], rows: Bools
    ) -> bool:
        """A sub-group in one domain of its level: the tightest that takes it."""
        group = sorted(
            (each for each in group if share[each]), key=lambda each: self._role_rank([each])
        )
        if not group:
            return True
        level = self.problem.levels[part.level]
        able = np.ones(level.real, dtype=np.bool_)
        total = np.zeros(level.real, dtype=np.int64)
        for index in group:
            there = np.zeros(int(level.domain.max(initial=-1)) + 1, dtype=np.int64)
            np.add.at(there, level.domain, self.fits_now(index, rows))
            able &= there[: level.real] >= share[index]
            total += there[: level.real]
        for home in part.homes:
            able &= np.arange(level.real) == home
        numbers = np.flatnonzero(able)
        for number in numbers[np.argsort(total[numbers], kind="stable")][:_TRIES]:
            before = self.free.copy(), self.used.copy(), self.counts.copy()
            inside = rows & (level.domain == number)
            if all(self.fill_role(index, share[index], inside) for index in group):
                return True
            self.free, self.used, self.counts = before
        return False

    def fits_now(self, index: int, rows: Bools) -> Ints:
        """Members of a role that each of these nodes takes beside those it was given."""
        role = self.problem.roles[index]
        wanted = np.flatnonzero(role.request)
        alone = how_many_fit(self.free[:, wanted], role.request[wanted])
        more = np.minimum(alone, role.fits - self.counts[index])
        mixes = self.problem.mixes
        place = -1 if mixes is None else mixes.place_of(index)
        if mixes is not None and place >= 0:
            held = np.stack([self.counts[list(roles)].sum(axis=0) for roles in mixes.roles])
            more = np.minimum(more, mixes.room_beside(place, held))
        return np.where(rows, more, 0)

    def fill_role(self, index: int, count: int, rows: Bools) -> bool:
        """Place so many members of a role on these nodes, or none."""
        self.fits = self.fits_now(index, rows)
        if int(self.fits.sum()) < count:
            return False
        self.taken = np.zeros(self.problem.nodes, dtype=np.int64)
        self._fill_domains(np.flatnonzero(self.fits), 0, count)
        self.add_members(index, self.taken)
        return True

    def _fill_domains(self, rows: Ints, depth: int, count: int) -> None:
        """Take ``count`` from these nodes, which hold so many."""
        levels = self.problem.levels
        for level in reversed(range(depth, len(levels))):
            domain, there, opened = self._row_domains(rows, level)
            holding = np.flatnonzero(there >= count)
            if len(holding):
                # Of the narrowest domains that hold them all, the tightest.
                best = holding[np.lexsort((there[holding], ~opened[holding]))[0]]
                self._fill_domains(rows[domain == best], level + 1, count)
                return
        if depth == len(levels):
            for row, take in _spread_members(self.fits[rows], self.used[rows], count):
                self.taken[rows[row]] += take
            return
        domain, there, opened = self._row_domains(rows, depth)
        for child, take in _spread_members(there, opened, count):
            self._fill_domains(rows[domain == child], depth + 1, take)

    def _row_domains(self, rows: Ints, level: int) -> tuple[Ints, Ints, Bools]:
        """Of each row its domain, counted from 0; of each domain its room, and if it is used."""
        numbers, domain = np.unique(self.problem.levels[level].domain[rows], return_inverse=True)
        there = np.zeros(len(numbers), dtype=np.int64)
        np.add.at(there, domain, self.fits[rows])
        opened = np.zeros(len(numbers), dtype=np.bool_)
        opened[domain[self.used[rows]]] = True
        return domain, there, opened


_NESTED_TRIES: Final = 60
"""Places of one sub-group that are tried for a gang with sub-groups in sub-groups."""


class _NestedFilling:
    """Sub-groups of a tree that are completed one after another, with a few ways back.

    Args:
        problem: with sub-groups in sub-groups.
        large_first: whether those that lack many members come first.
    """

    def __init__(self, problem: Problem, *, large_first: bool) -> None:
        self._problem = problem
        self._filling = _Filling(problem)
        self._sign = -1 if large_first else 1
        self._tries = 0
        self._roles: dict[int, list[int]] = {}
        for number, role in enumerate(problem.roles):
            self._roles.setdefault(role.part, []).append(number)

    def fill_all(self, rows: Bools) -> Ints | None:
        """Counts of all roles on these nodes; None when a sub-group finds no place."""
        for _ in self._complete_groups(self._lacking_groups(-1), self._problem.parts_least, rows):
            if self._fill_up(rows):
                return self._filling.counts
        return None

    def _lacking_groups(self, holder: int) -> list[_SubGroup]:
        """Sub-groups in a sub-group that lack members, in the order in which they are tried."""
        problem = self._problem
        parts = [each for each in enumerate(problem.parts) if each[1].parent == holder]
        holders = [each for each in enumerate(problem.holders) if each[1].parent == holder]
        found = [
            (self._least_of_part(number), number, 0) for number, each in parts if each.least
        ] + [(self._least_of_holder(number), number, 1) for number, each in holders if each.least]
        found.sort(key=lambda each: (self._sign * each[0], each[1:]))
        return [(bool(kind), number) for _, number, kind in found]

    def _least_of_part(self, number: int) -> int:
        return self._problem.parts[number].least

    def _least_of_holder(self, number: int) -> int:
        sizes = [
            self._least_of_holder(each) if is_holder else self._least_of_part(each)
            for is_holder, each in self._groups_inside(number)
        ]
        return sum(sorted(sizes)[: self._problem.holders[number].least])

    def _groups_inside(self, holder: int) -> list[_SubGroup]:
        problem = self._problem
        parts = [(False, n) for n, each in enumerate(problem.parts) if each.parent == holder]
        holders = [(True, n) for n, each in enumerate(problem.holders) if each.parent == holder]
        return [
            (is_holder, n)
            for is_holder, n in (*parts, *holders)
            if (problem.holders if is_holder else problem.parts)[n].least
        ]

    def _complete_groups(
        self, groups: Sequence[_SubGroup], needed: int, rows: Bools
    ) -> Iterator[None]:
        """Each way in which so many of these are completed; it is undone for the next one."""
        if needed <= 0:
            yield
            return
        for place, (is_holder, number) in enumerate(groups[: len(groups) - needed + 1]):
            ways = (
                self._complete_holder(number, rows)
                if is_holder
                else self._complete_part(number, rows)
            )
            for _ in ways:
                yield from self._complete_groups(groups[place + 1 :], needed - 1, rows)

    def _complete_holder(self, number: int, rows: Bools) -> Iterator[None]:
        holder = self._problem.holders[number]
        roles = [
            role for part in self._problem.parts_in_holder(number) for role in self._roles_of(part)
        ]
        for inside in self._candidate_domains(holder, roles, self._least_of_holder(number), rows):
            yield from self._complete_groups(self._lacking_groups(number), holder.least, inside)

    def _roles_of(self, part: int) -> list[int]:
        return self._roles.get(part, [])

    def _complete_part(self, number: int, rows: Bools) -> Iterator[None]:
        part, filling = self._problem.parts[number], self._filling
        for inside in self._candidate_domains(part, self._roles_of(number), part.least, rows):
            self._tries += 1
            if self._tries > _NESTED_TRIES:
                return
            before = filling.free.copy(), filling.used.copy(), filling.counts.copy()
            if self._place_members(self._roles_of(number), part.least, inside) == 0:
                yield
            filling.free, filling.used, filling.counts = before

    def _candidate_domains(
        self,
        group: SubGroupMinimum | SubGroupHolder,
        roles: Sequence[int],
        count: int,
        rows: Bools,
    ) -> Iterator[Bools]:
        """Nodes of each domain that may take so many members, the tightest first."""
        if group.level < 0:
            yield rows
            return
        level = self._problem.levels[group.level]
        total = np.zeros(level.count, dtype=np.int64)
        for role in roles:
            total += level.sum_by_domain(self._filling.fits_now(role, rows))
        able = (total >= max(1, count)) & (np.arange(level.count) < level.real)
        for home in group.homes:
            able &= np.arange(level.count) == home
        numbers = np.flatnonzero(able)
        for number in numbers[np.argsort(total[numbers], kind="stable")][:_TRIES]:
            yield rows & (level.domain == number)

    def _place_members(self, roles: Sequence[int], count: int, rows: Bools) -> int:
        """Place so many members of these roles, those with minima first; how many are left."""
        filling, problem = self._filling, self._problem
        for wanted, needed in (*problem.minima, (tuple(range(len(problem.roles))), count)):
            short = needed - int(filling.counts[list(wanted)].sum())
            if len(wanted) == len(problem.roles):
                short = count
            for role in roles if short > 0 else ():
                if role not in wanted or not count:
                    continue
                left = problem.roles[role].most - int(filling.counts[role].sum())
                more = min(left, short, count, int(filling.fits_now(role, rows).sum()))
                if more > 0 and filling.fill_role(role, more, rows):
                    count, short = count - more, short - more
        return count

    def _fill_up(self, rows: Bools) -> bool:
        """Members beyond what sub-groups need: what minima ask first, then any."""
        problem, filling = self._problem, self._filling
        missing = problem.members - int(filling.counts.sum())
        if missing < 0:
            return False
        for wanted, needed in problem.minima:
            short = needed - int(filling.counts[list(wanted)].sum())
            short = min(short, missing)
            for role in wanted:
                if short > 0:
                    left = self._add(role, short, rows)
                    missing, short = missing - (short - left), left
        for role in range(len(problem.roles)):
            if missing:
                missing = self._add(role, missing, rows)
        for is_holder, number in self._lacking_groups(-1) if missing else ():
            size = (self._least_of_holder if is_holder else self._least_of_part)(number)
            given = int(filling.counts.sum())
            if 0 < size <= missing and not self._has_started(is_holder, number):
                ways = (
                    self._complete_holder(number, rows)
                    if is_holder
                    else self._complete_part(number, rows)
                )
                for _ in ways:
                    break
                missing -= int(filling.counts.sum()) - given
        for role in range(len(problem.roles)):
            if missing > 0:
                missing = self._add(role, missing, rows)
        return not missing and all(
            int(filling.counts[list(wanted)].sum()) >= needed for wanted, needed in problem.minima
        )

    def _has_started(self, is_holder: bool, number: int) -> bool:
        parts = self._problem.parts_in_holder(number) if is_holder else (number,)
        return any(self._filling.counts[self._roles_of(part)].any() for part in parts)

    def _add(self, role: int, count: int, rows: Bools) -> int:
        """Place so many more of a role where its sub-groups are; how many are left."""
        problem, filling = self._problem, self._filling
        part = problem.roles[role].part
        if part >= 0:
            numbers = problem.holders_of_part(part)
            members = [(part,), *(problem.parts_in_holder(n) for n in numbers)]
            for group, inside in zip(problem.groups_around(part), members, strict=True):
                row = filling.counts[[each for n in inside for each in self._roles_of(n)]].sum(
                    axis=0
                )
                if group.least and not row.any():
                    return count
                if group.level < 0:
                    continue
                domain = problem.levels[group.level].domain
                homes = {*np.unique(domain[row > 0]).tolist(), *group.homes}
                if len(homes) > 1 or any(h >= problem.levels[group.level].real for h in homes):
                    return count
                if not homes:
                    homes = set(self._roomiest_rows(role, problem.levels[group.level], rows))
                rows = rows & np.isin(domain, sorted(homes))
        return self._place_members([role], count, rows)

    def _roomiest_rows(self, role: int, level: DomainLevel, rows: Bools) -> list[int]:
        held = level.sum_by_domain(self._filling.fits_now(role, rows))[: level.real]
        return [int(held.argmax())] if held.size and held.max() > 0 else []


_SubGroup = tuple[bool, int]
"""Whether it holds sub-groups, and its number."""


def _spread_members(there: Ints, opened: Bools, count: int) -> list[tuple[int, int]]:
    """Which of these take how many: the tightest that holds the rest, else the roomiest."""
    found = []
    left = count
    free = np.ones(len(there), dtype=np.bool_)
    while left:
        among = free & opened if (free & opened & (there > 0)).any() else free
        holds = among & (there >= left)
        chosen = (
            int(np.where(holds, there, np.iinfo(np.int64).max).argmin())
            if holds.any()
            else int(np.where(among, there, -1).argmax())
        )
        take = min(left, int(there[chosen]))
        found.append((chosen, take))
        left -= take
        free[chosen] = False
    return found
