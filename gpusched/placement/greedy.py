"""A quick answer: the tightest domain that holds what is left, and best fit inside it.

Not always the best and, for several roles, not always found; what it gives is where the other
methods start from.
"""

from __future__ import annotations

import attrs
import numpy as np

from gpusched.arrays.columns import Bools, Ints, how_many_fit
from gpusched.placement.bounds import demands, homes, room
from gpusched.placement.problem import Problem, Role


def greedy(problem: Problem) -> Ints | None:
    """Counts that may be an answer, shape (roles, nodes); None when this way finds none.

    Sub-groups are not looked at: the verifier tells whether the answer is good for them.
    """
    share = _shares(problem)
    if share is None:
        return None
    for rows in _candidates(problem):
        counts = _Filling(problem, rows).all(share)
        if counts is not None:
            return counts
    return None


def _shares(problem: Problem) -> tuple[int, ...] | None:
    """How many members of each role: what minima ask, then as many as are needed."""
    share = [0] * len(problem.roles)
    most = [min(role.most, int(role.fits.sum())) for role in problem.roles]
    for roles, needed in (*problem.minima, demands(problem)[0]):
        left = needed - sum(share[role] for role in roles)
        for role in roles:
            more = min(max(0, left), most[role] - share[role])
            share[role] += more
            left -= more
    return tuple(share) if sum(share) == problem.members else None


def _candidates(problem: Problem) -> list[Bools]:
    """Sets of nodes to try, each in one domain of the required level; tightest first."""
    if problem.required < 0:
        return [np.ones(problem.nodes, dtype=np.bool_)]
    every = range(len(problem.roles))
    domain = problem.levels[problem.required].domain
    wanted = max(problem.hope, problem.members)
    found = []
    for number in homes(problem):
        rows = domain == number
        there = room(problem, every, rows)
        if there >= problem.members:
            found.append((max(0, wanted - there), there, number, rows))
    return [each[-1] for each in sorted(found, key=lambda each: each[:3])]


@attrs.define(eq=False)
class _Filling:
    """Nodes that are being filled, role after role."""

    problem: Problem
    rows: Bools
    free: Ints = attrs.field(init=False)
    used: Bools = attrs.field(init=False)
    fits: Ints = attrs.field(init=False)
    taken: Ints = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.free = self.problem.free.copy()
        self.used = self.problem.open_rows.copy()

    def all(self, share: tuple[int, ...]) -> Ints | None:
        """Counts of all roles, the largest members first; None when one does not fit."""
        counts = np.zeros((len(self.problem.roles), self.problem.nodes), dtype=np.int64)
        order = sorted(
            range(len(share)),
            key=lambda role: (-self.problem.roles[role].gpus, -int(self._weight(role)), role),
        )
        for role in order:
            if not self._one(self.problem.roles[role], share[role]):
                return None
            counts[role] = self.taken
        return counts

    def _weight(self, role: int) -> int:
        return int(self.problem.roles[role].ask.max(initial=0))

    def _one(self, role: Role, count: int) -> bool:
        wanted = np.flatnonzero(role.ask)
        alone = how_many_fit(self.free[:, wanted], role.ask[wanted])
        self.fits = np.where(self.rows, np.minimum(alone, role.fits), 0)
        self.taken = np.zeros(self.problem.nodes, dtype=np.int64)
        if int(self.fits.sum()) < count:
            return False
        self._descend(np.flatnonzero(self.fits), 0, count)
        self.free -= self.taken[:, None] * role.ask[None, :]
        self.used |= self.taken > 0
        return True

    def _descend(self, rows: Ints, depth: int, count: int) -> None:
        """Take ``count`` from these nodes, which hold so many."""
        levels = self.problem.levels
        for level in reversed(range(depth, len(levels))):
            domain, rooms, opened = self._domains(rows, level)
            holding = np.flatnonzero(rooms >= count)
            if len(holding):
                # Of the narrowest domains that hold them all, the tightest.
                best = holding[np.lexsort((rooms[holding], ~opened[holding]))[0]]
                self._descend(rows[domain == best], level + 1, count)
                return
        if depth == len(levels):
            for row, take in _spread(self.fits[rows], self.used[rows], count):
                self.taken[rows[row]] += take
            return
        domain, rooms, opened = self._domains(rows, depth)
        for child, take in _spread(rooms, opened, count):
            self._descend(rows[domain == child], depth + 1, take)

    def _domains(self, rows: Ints, level: int) -> tuple[Ints, Ints, Bools]:
        """Of each row its domain, counted from 0; of each domain its room, and if it is used."""
        numbers, domain = np.unique(self.problem.levels[level].domain[rows], return_inverse=True)
        rooms = np.zeros(len(numbers), dtype=np.int64)
        np.add.at(rooms, domain, self.fits[rows])
        opened = np.zeros(len(numbers), dtype=np.bool_)
        opened[domain[self.used[rows]]] = True
        return domain, rooms, opened


def _spread(rooms: Ints, opened: Bools, count: int) -> list[tuple[int, int]]:
    """Which of these take how many: the tightest that holds the rest, else the roomiest."""
    found = []
    left = count
    free = np.ones(len(rooms), dtype=np.bool_)
    while left:
        among = free & opened if (free & opened & (rooms > 0)).any() else free
        holds = among & (rooms >= left)
        chosen = (
            int(np.where(holds, rooms, np.iinfo(np.int64).max).argmin())
            if holds.any()
            else int(np.where(among, rooms, -1).argmax())
        )
        take = min(left, int(rooms[chosen]))
        found.append((chosen, take))
        left -= take
        free[chosen] = False
    return found
