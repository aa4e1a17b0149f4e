"""Problems in which all members are alike: one role, or several that only differ by name.

Such a problem is counts by node and nothing else, which is what the tree search is exact for.
Caps that count all members together are cuts of its tables.
Roles are alike when they ask, fit and cost the same; sub-groups are when each is one such role
that gets all of its members in one domain of the same level, or none: then the members of that
level's domains come in units.
"""

from __future__ import annotations

import numpy as np

from gpusched.arrays.columns import Bools, Ints, how_many_fit
from gpusched.base.classes import frozen
from gpusched.placement.model.problem import NODES, Problem, Role, SubGroupMinimum


@frozen(eq=False, kw_only=True)
class IdenticalMembers:
    """Members that are all alike.

    Attributes:
        problem: that this is a view of.
        fits: how many each node takes, of all roles together, int64, shape (nodes,).
        shares: members of each role, in the order in which they are handed out; None for units.
        unit: members of a sub-group that share a domain of ``unit_level``; 1 without units.
        unit_level: -1 without units.
        part: the sub-group that all members are in, None without one or with units.
        pin: index of the level of which one domain takes all members, -1 for none.
    """

    problem: Problem
    fits: Ints
    shares: tuple[int, ...] | None
    unit: int = 1
    unit_level: int = -1
    part: SubGroupMinimum | None = None
    pin: int = -1

    @property
    def role(self) -> Role:
        """Any of the roles."""
        return self.problem.roles[0]

    @property
    def fill_all_room(self) -> bool:
        """Whether nodes hold no more than these members, so that there is one answer, whatever it costs."""
        bound = self.pin >= 0 or self.unit > 1 or self.part is not None or self.problem.caps
        return not bound and int(self.fits.sum()) == self.problem.members

    def candidate_domains(self) -> Bools:
        """Domains of ``pin`` that may take all members, shape (domains,)."""
        problem = self.problem
        levels = problem.levels
        if self.pin == problem.required and self.part is None and not problem.placed.size:
            # No node is out of the question; a domain without any takes nobody anyway.
            return np.arange(levels[self.pin].count) < levels[self.pin].real
        able = np.ones(problem.nodes, dtype=np.bool_)
        if problem.required >= 0:
            able &= _in_opened_domain(levels[problem.required].domain, problem.open_rows)
            able &= levels[problem.required].domain < levels[problem.required].real
        if self.part is not None and self.part.level >= 0:
            level = levels[self.part.level]
            able &= level.domain < level.real
            for home in self.part.homes:
                able &= level.domain == home
        domain = levels[self.pin].domain
        found = np.zeros(levels[self.pin].count, dtype=np.bool_)
        found[domain[able]] = True
        return found

    def cap_of_level(self, level: int) -> Ints | None:
        """Members that each domain of a level takes at most, shape (domains,); None for any."""
        found = [cap.most for cap in self.problem.caps if cap.level == level]
        return np.min(found, axis=0) if found else None

    def caps_around(self) -> Ints | None:
        """Members that wider domains allow in each domain of ``pin``, shape (domains,); None for any."""
        found = None
        pinned = self.problem.levels[self.pin]
        for number in range(self.pin):
            cap = self.cap_of_level(number)
            if cap is not None:
                inside = np.zeros(pinned.count, dtype=np.int64)
                inside[pinned.domain] = cap[self.problem.levels[number].domain]
                found = inside if found is None else np.minimum(found, inside)
        return found

    def counts_by_role(self, row: Ints) -> Ints:
        """Members by role and node, from members by node."""
        roles = self.problem.roles
        counts = np.zeros((len(roles), len(row)), dtype=np.int64)
        if len(roles) == 1:
            counts[0] = row
        elif self.shares is not None:
            left = row.copy()
            for role, share in enumerate(self.shares):
                counts[role] = _take_first(left, share)
                left -= counts[role]
        else:
            self._hand_out(row, counts)
        return counts

    def _hand_out(self, row: Ints, counts: Ints) -> None:
        """Whole sub-groups to domains that hold them, those first that must get members."""
        problem = self.problem
        forced = {role for roles, needed in problem.minima if needed for role in roles}
        order = sorted(range(len(problem.roles)), key=lambda role: (role not in forced, role))
        waiting = iter(order)
        level = self.unit_level
        domain = problem.levels[level].domain if level >= 0 else np.zeros_like(row)
        for number in np.unique(domain[row > 0]).tolist():
            left = np.where(domain == number, row, 0)
            while left.any():
                role = next(waiting)
                counts[role] = _take_first(left, self.unit)
                left -= counts[role]


def as_identical_members(problem: Problem) -> IdenticalMembers | None:
    """The problem as one of members that are all alike; None when they are not."""
    if problem.holders or problem.mixes is not None:
        return None  # members that compete in different ways are not alike
    every = tuple(range(len(problem.roles)))
    if any(cap.roles != every for cap in problem.caps) or (problem.caps and problem.parts):
        return None
    if len(problem.roles) == 1:
        return _as_one_class(problem)
    fits = _common_fits(problem)
    if fits is None:
        return None
    if problem.parts:
        return _identical_units(problem, fits)
    if any(role.part >= 0 for role in problem.roles):
        return None
    shares = _role_shares(problem)
    if shares is None:
        return None
    return IdenticalMembers(problem=problem, fits=fits, shares=shares, pin=problem.required)


def _in_opened_domain(domain: Ints, opened: Bools) -> Bools:
    """Nodes that are in the same domain as all opened ones."""
    numbers = np.unique(domain[opened])
    if not len(numbers):
        return np.ones(len(domain), dtype=np.bool_)
    same: Bools = domain == numbers[0]
    return same & (len(numbers) == 1)


def _take_first(left: Ints, count: int) -> Ints:
    """The first so many of these, by node."""
    before = np.cumsum(left) - left
    first: Ints = np.clip(count - before, 0, left)
    return first


def _as_one_class(problem: Problem) -> IdenticalMembers | None:
    (role,) = problem.roles
    fits = _cap_fits(problem, np.minimum(role.fits, problem.members))
    if any(needed > problem.members for _, needed in problem.minima):
        return None
    if role.part < 0:
        if problem.parts_least:
            return None
        return IdenticalMembers(problem=problem, fits=fits, shares=None, pin=problem.required)
    part = problem.parts[role.part]
    if problem.members < part.least or problem.parts_least > bool(part.least):
        return None
    pin = max(problem.required, part.level)
    return IdenticalMembers(problem=problem, fits=fits, shares=None, part=part, pin=pin)


def _common_fits(problem: Problem) -> Ints | None:
    """How many members each node takes of roles that are alike; None when they are not."""
    first = problem.roles[0]
    asked = np.flatnonzero(first.request)
    alone = how_many_fit(problem.free[:, asked], first.request[asked])
    able = first.fits > 0
    for role in problem.roles:
        same = (
            role.gpus == first.gpus
            and np.array_equal(role.request, first.request)
            and _same_price(role, first)
            # A cap of its own, such as one a node, would bind each role and not their sum.
            and np.array_equal(role.fits, np.where(able, np.minimum(alone, role.most), 0))
        )
        if not same:
            return None
    return _cap_fits(problem, np.where(able, np.minimum(alone, problem.members), 0))


def _cap_fits(problem: Problem, fits: Ints) -> Ints:
    """What nodes take of all members together, caps of single nodes counted."""
    for cap in problem.caps:
        if cap.level == NODES:
            fits = np.minimum(fits, cap.most)
    return fits


def _same_price(one: Role, other: Role) -> bool:
    if one.price is None or other.price is None:
        return one.price is other.price
    return np.array_equal(one.price, other.price)


def _role_shares(problem: Problem) -> tuple[int, ...] | None:
    """Members of each role that satisfy the minima; None when this is not plain to see."""
    share = [0] * len(problem.roles)
    groups = sorted(((frozenset(r), n) for r, n in problem.minima), key=lambda each: len(each[0]))
    nested = all(
        one <= other or other <= one or not one & other for one, _ in groups for other, _ in groups
    )
    if not nested:
        return None
    every = frozenset(range(len(share)))
    for roles, needed in (*groups, (every, problem.members)):
        left = needed - sum(share[role] for role in roles)
        for role in sorted(roles):
            more = min(max(0, left), problem.roles[role].most - share[role])
            share[role] += more
            left -= more
        if left > 0:
            return None
    return tuple(share) if sum(share) == problem.members else None


def _identical_units(problem: Problem, fits: Ints) -> IdenticalMembers | None:
    """Roles alike, each a sub-group of its own that is complete or absent."""
    parts = problem.parts
    unit, level = parts[0].least, parts[0].level
    alike = all(
        part.least == unit and part.level == level and part.preferred < 0 and not part.homes
        for part in parts
    )
    own = sorted(role.part for role in problem.roles) == list(range(len(parts)))
    forced = {role for roles, needed in problem.minima if needed for role in roles}
    plain = all(len(roles) == 1 and needed <= unit for roles, needed in problem.minima)
    if not (alike and own and plain and unit > 0 and level >= 0):
        return None
    whole, rest = divmod(problem.members, unit)
    if rest or any(role.most != unit for role in problem.roles):
        return None
    if not max(len(forced), problem.parts_least) <= whole <= len(parts):
        return None
    return IdenticalMembers(
        problem=problem,
        fits=fits,
        shares=None,
        unit=unit,
        unit_level=level if problem.required < level else -1,
        pin=problem.required,
    )
