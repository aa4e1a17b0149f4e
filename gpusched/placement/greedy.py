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
from gpusched.placement.model.bounds import (
    candidate_domains,
    members_that_fit,
    members_that_fit_by_domain,
)
from gpusched.placement.model.problem import Problem, Role, SubGroupMinimum


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
    return tuple(share) if _right(problem, share) else None


def _right(problem: Problem, share: list[int]) -> bool:
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
    share = members_of_each_role(problem)
    if share is None:
        return None
    for within in _candidates(problem):
        for rows in _areas(problem, within, share):
            counts = _Filling(problem).all(share, rows)
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
        filling.put(role, row)
        counts = filling.all(share, rows, placed=role)
        if counts is not None:
            return counts
    return None


def _candidates(problem: Problem) -> list[Bools]:
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


def _areas(problem: Problem, within: Bools, share: tuple[int, ...]) -> Iterator[Bools]:
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


@attrs.define(eq=False)
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

    def put(self, role: int, row: Ints) -> None:
        """Members of a role on these nodes."""
        self.counts[role] += row
        self.free -= row[:, None] * self.problem.roles[role].request[None, :]
        self.used |= row > 0

    def all(self, share: tuple[int, ...], rows: Bools, *, placed: int = -1) -> Ints | None:
        """Counts of all roles on these nodes, largest members first; None when one fits not.

        Args:
            share: members of each role.
            rows: nodes to use, shape (nodes,).
            placed: the role that has its places, -1 for none.
        """
        parts = self.problem.parts
        pinned = [index for index, part in enumerate(parts) if part.level >= 0]
        waiting = [index for index in range(len(share)) if index != placed]
        alone = [[index] for index in waiting if self._part(index) not in pinned]
        together = [[index for index in waiting if self._part(index) == part] for part in pinned]
        groups = sorted(filter(None, together), key=self._rank) + sorted(alone, key=self._rank)
        for group in groups:
            part = self._part(group[0])
            if part in pinned:
                done = self._in_one(parts[part], group, share, rows)
            else:
                done = self._one(group[0], share[group[0]], rows)
            if not done:
                return None
        return self.counts

    def _part(self, role: int) -> int:
        return self.problem.roles[role].part

    def _rank(self, group: Sequence[int]) -> tuple[int, int, int]:
        """Roles with the largest members first."""
        roles = [self.problem.roles[index] for index in group]
        return (
            -max(role.gpus for role in roles),
            -max(int(role.request.max(initial=0)) for role in roles),
            group[0],
        )

    def _in_one(
        self, part: SubGroupMinimum, group: list[int], share: tuple[int, ...], rows: Bools
    ) -> bool:
        """A sub-group in one domain of its level: the tightest that takes it."""
        group = sorted((each for each in group if share[each]), key=lambda each: self._rank([each]))
        if not group:
            return True
        level = self.problem.levels[part.level]
        able = np.ones(level.real, dtype=np.bool_)
        total = np.zeros(level.real, dtype=np.int64)
        for index in group:
            there = np.zeros(int(level.domain.max(initial=-1)) + 1, dtype=np.int64)
            np.add.at(there, level.domain, self._fits(self.problem.roles[index], rows))
            able &= there[: level.real] >= share[index]
            total += there[: level.real]
        for home in part.homes:
            able &= np.arange(level.real) == home
        numbers = np.flatnonzero(able)
        for number in numbers[np.argsort(total[numbers], kind="stable")][:_TRIES]:
            before = self.free.copy(), self.used.copy(), self.counts.copy()
            inside = rows & (level.domain == number)
            if all(self._one(index, share[index], inside) for index in group):
                return True
            self.free, self.used, self.counts = before
        return False

    def _fits(self, role: Role, rows: Bools) -> Ints:
        wanted = np.flatnonzero(role.request)
        alone = how_many_fit(self.free[:, wanted], role.request[wanted])
        return np.where(rows, np.minimum(alone, role.fits), 0)

    def _one(self, index: int, count: int, rows: Bools) -> bool:
        self.fits = self._fits(self.problem.roles[index], rows)
        if int(self.fits.sum()) < count:
            return False
        self.taken = np.zeros(self.problem.nodes, dtype=np.int64)
        self._descend(np.flatnonzero(self.fits), 0, count)
        self.put(index, self.taken)
        return True

    def _descend(self, rows: Ints, depth: int, count: int) -> None:
        """Take ``count`` from these nodes, which hold so many."""
        levels = self.problem.levels
        for level in reversed(range(depth, len(levels))):
            domain, there, opened = self._domains(rows, level)
            holding = np.flatnonzero(there >= count)
            if len(holding):
                # Of the narrowest domains that hold them all, the tightest.
                best = holding[np.lexsort((there[holding], ~opened[holding]))[0]]
                self._descend(rows[domain == best], level + 1, count)
                return
        if depth == len(levels):
            for row, take in _spread(self.fits[rows], self.used[rows], count):
                self.taken[rows[row]] += take
            return
        domain, there, opened = self._domains(rows, depth)
        for child, take in _spread(there, opened, count):
            self._descend(rows[domain == child], depth + 1, take)

    def _domains(self, rows: Ints, level: int) -> tuple[Ints, Ints, Bools]:
        """Of each row its domain, counted from 0; of each domain its room, and if it is used."""
        numbers, domain = np.unique(self.problem.levels[level].domain[rows], return_inverse=True)
        there = np.zeros(len(numbers), dtype=np.int64)
        np.add.at(there, domain, self.fits[rows])
        opened = np.zeros(len(numbers), dtype=np.bool_)
        opened[domain[self.used[rows]]] = True
        return domain, there, opened


def _spread(there: Ints, opened: Bools, count: int) -> list[tuple[int, int]]:
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
