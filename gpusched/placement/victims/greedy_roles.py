"""A first choice of victims for newcomers of several roles and sub-groups: member by member.

Each member goes where the bundles that must leave for it cost least; each sub-group goes to the domain
where its members together cost least. What is not needed in the end is given back. The solver
betters the answer or proves it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs

from gpusched.base.classes import define, frozen
from gpusched.placement.victims.loss_limits import (
    add_loss,
    is_freed,
    limits_hold,
    may_go_next,
)
from gpusched.placement.victims.model import COST_RATIO
from gpusched.placement.victims.solver_model import IncomingPart, VictimModel, fitting


@frozen(slots=True)
class GreedyVictims:
    """Bundles that leave, newcomers by row and role, and what is lost."""

    picked: tuple[int, ...]
    counts: tuple[tuple[int, ...], ...]
    cost: int


@frozen(slots=True)
class _Way:
    """A member on a row: what that costs, what stays free there, and the bundles that leave."""

    cost: int
    spare: int
    row: int
    bundles: tuple[int, ...]


@define(eq=False)
class _State:
    """What was done so far.

    Attributes:
        free: of rows that were touched.
        drawn: from each limit.
        lost: of each account.
        counts: members by row and role.
    """

    picked: dict[int, None] = attrs.Factory(dict)
    free: dict[int, list[int]] = attrs.Factory(dict)
    drawn: dict[int, int] = attrs.Factory(dict)
    lost: dict[int, list[int]] = attrs.Factory(dict)
    counts: dict[tuple[int, int], int] = attrs.Factory(dict)

    def copy(self) -> _State:
        """The same, to go on from."""
        return _State(
            dict(self.picked),
            {row: list(free) for row, free in self.free.items()},
            dict(self.drawn),
            {account: list(amounts) for account, amounts in self.lost.items()},
            dict(self.counts),
        )


def greedy_victims(model: VictimModel) -> GreedyVictims | None:
    """The choice; None where this way finds none, which proves nothing."""
    if model.holders:
        return None  # it knows no sub-groups in sub-groups
    search = _RoleSearch(model)
    state = search.with_parts(_State())
    state = None if state is None else search.with_rest(state)
    if state is None or not search.free_accounts(state):
        return None
    search.give_back(state)
    picked = frozenset(state.picked)
    if not search.keeps_limits(state) or any(picked.issuperset(each) for each in model.forbidden):
        return None
    counts = [[0] * len(model.requests) for _ in model.rows]
    for (row, role), count in state.counts.items():
        counts[row][role] = count
    groups = sum(1 for each in model.groups if not picked.isdisjoint(each))
    cost = sum(model.costs[each] for each in picked) + groups * model.group_cost
    return GreedyVictims(tuple(sorted(picked)), tuple(map(tuple, counts)), cost)


class _RoleSearch:
    def __init__(self, model: VictimModel) -> None:
        self._model = model
        self._on_row = [dict(row.freed) for row in model.rows]
        self._rows_of: dict[int, list[int]] = {}
        for number, row in enumerate(model.rows):
            for bundle, _ in row.freed:
                self._rows_of.setdefault(bundle, []).append(number)
        self._draws: dict[int, list[tuple[int, int]]] = {}
        for limit, (terms, _) in enumerate(model.limits):
            for bundle, count in terms:
                self._draws.setdefault(bundle, []).append((limit, count))
        self._partners = model.partners
        self._untouched: dict[tuple[int, int], _Way | None] = {}

    # -- members -----------------------------------------------------------------------------
    def with_parts(self, state: _State) -> _State | None:
        """As many sub-groups complete as are needed, the largest first."""
        model = self._model
        left = {number: part.count for number, part in enumerate(model.parts) if part.counted}
        ordered = sorted(left, key=lambda n: (-self._part_size(model.parts[n]), n))
        missing = model.parts_least
        while missing:
            number = next((n for n in ordered if left[n]), None)
            if number is None:
                return None
            better = self._with_part(state, model.parts[number])
            if better is None:
                left[number] = 0
                continue
            state, missing = better, missing - 1
            left[number] -= 1
        return state

    def _part_size(self, part: IncomingPart) -> int:
        requests = self._model.requests
        return sum(
            max(requests[role], default=0) * most
            for role, most in zip(part.roles, part.most, strict=True)
        )

    def _with_part(self, state: _State, part: IncomingPart) -> _State | None:
        rows: dict[int, list[int]] = {}
        for row, domain in enumerate(part.domain):
            if domain >= 0:
                rows.setdefault(domain, []).append(row)
        wanted: list[int] = []
        for role, most in zip(part.roles, part.most, strict=True):
            wanted += [role] * min(most, part.least - len(wanted))
        best: tuple[int, _State] | None = None
        for _, inside in sorted(rows.items()):
            tried = state.copy()
            cost = self._place_members(tried, wanted, inside)
            if cost is not None and (best is None or cost < best[0]):
                best = cost, tried
        return None if best is None else best[1]

    def with_rest(self, state: _State) -> _State | None:
        """Members outside of sub-groups, or beyond what these need."""
        model = self._model
        bound = {role for part in model.parts for role in part.roles}
        placed = [0] * len(model.requests)
        for (_, role), count in state.counts.items():
            placed[role] += count
        wanted: list[int] = []
        for roles, least in model.minima:
            missing = least - sum(placed[role] for role in roles)
            missing -= sum(1 for role in wanted if role in roles)
            wanted += self._smallest_members(roles, missing, placed, wanted, bound)
        missing = model.members - sum(placed) - len(wanted)
        wanted += self._smallest_members(range(len(placed)), missing, placed, wanted, bound)
        if sum(placed) + len(wanted) < model.members:
            return None
        return None if self._place_members(state, wanted, range(len(model.rows))) is None else state

    def _smallest_members(
        self,
        roles: Iterable[int],
        missing: int,
        placed: Sequence[int],
        wanted: Sequence[int],
        bound: set[int],
    ) -> list[int]:
        """So many members of these roles that are bound to no sub-group, the smallest first."""
        found: list[int] = []
        for role in sorted(roles, key=lambda r: (max(self._model.requests[r], default=0), r)):
            if role in bound:
                continue
            left = self._model.most[role] - placed[role] - wanted.count(role)
            found += [role] * max(0, min(left, missing - len(found)))
        return found

    def _place_members(
        self, state: _State, wanted: Sequence[int], inside: Sequence[int]
    ) -> int | None:
        """Place members, the largest first; what is lost by that, or None."""
        requests = self._model.requests
        cost = 0
        for role in sorted(wanted, key=lambda r: (-max(requests[r], default=0), r)):
            best: _Way | None = None
            for row in inside:
                way = self._cheapest_way(state, row, role)
                if way is not None and (
                    best is None or (way.cost, way.spare) < (best.cost, best.spare)
                ):
                    best = way
            if best is None:
                return None
            for bundle in best.bundles:
                self._pick_bundle(state, bundle)
            free = self._touch_row(state, best.row)
            state.free[best.row] = [a - b for a, b in zip(free, requests[role], strict=True)]
            key = (best.row, role)
            state.counts[key] = state.counts.get(key, 0) + 1
            cost += best.cost
        return cost

    # -- bundles -----------------------------------------------------------------------------
    def _touch_row(self, state: _State, row: int) -> list[int]:
        return state.free.setdefault(row, list(self._model.rows[row].free))

    def _cheapest_way(self, state: _State, row: int, role: int) -> _Way | None:
        if row in state.free:
            return self._find_bundles(state, row, role)
        key = (row, role)
        if key not in self._untouched:
            self._untouched[key] = self._find_bundles(state, row, role)
        way = self._untouched[key]
        if way is not None and all(self._is_possible(state, each) for each in way.bundles):
            return way
        return self._find_bundles(state, row, role)

    def _find_bundles(self, state: _State, row: int, role: int) -> _Way | None:
        """The bundles that cost least for what they free, until the member fits."""
        model = self._model
        if not model.rows[row].most[role]:
            return None
        request = model.requests[role]
        free = list(state.free.get(row) or model.rows[row].free)
        if fitting(free, request):
            return _Way(0, free[0] - request[0], row, ())
        columns = [column for column, amount in enumerate(request) if amount]
        keyed = []
        for bundle, freed in self._on_row[row].items():
            if not self._is_possible(state, bundle):
                continue
            share = sum(
                min(freed[c], max(0, request[c] - free[c])) * COST_RATIO // request[c]
                for c in columns
            )
            if share:
                keyed.append((model.costs[bundle] * COST_RATIO // share, bundle))
        taken: list[int] = []
        for _, bundle in sorted(keyed):
            if not self._partners.get(bundle, frozenset()).isdisjoint(taken):
                continue
            taken.append(bundle)
            free = [a + b for a, b in zip(free, self._on_row[row][bundle], strict=True)]
            if fitting(free, request):
                break
        else:
            return None
        for bundle in sorted(taken, key=lambda each: (-model.costs[each], each)):
            less = [a - b for a, b in zip(free, self._on_row[row][bundle], strict=True)]
            if fitting(less, request):
                taken.remove(bundle)
                free = less
        cost = sum(model.costs[bundle] for bundle in taken)
        return _Way(cost, free[0] - request[0], row, tuple(taken))

    def _is_possible(self, state: _State, bundle: int) -> bool:
        model = self._model
        if bundle in state.picked:
            return False
        if not self._partners.get(bundle, frozenset()).isdisjoint(state.picked):
            return False
        for limit, count in self._draws.get(bundle, ()):
            if state.drawn.get(limit, 0) + count > model.limits[limit][1]:
                return False
        return model.loss_limits.empty or may_go_next(
            model.loss_limits, state.lost, model.losses[bundle]
        )

    def _pick_bundle(self, state: _State, bundle: int, sign: int = 1) -> None:
        if sign > 0:
            state.picked[bundle] = None
        else:
            del state.picked[bundle]
        for limit, count in self._draws.get(bundle, ()):
            state.drawn[limit] = state.drawn.get(limit, 0) + sign * count
        if not self._model.loss_limits.empty:
            loss = self._model.losses[bundle]
            add_loss(state.lost, loss.accounts, loss.taken, sign)
        for row in self._rows_of.get(bundle, ()):
            freed = self._on_row[row][bundle]
            free = self._touch_row(state, row)
            state.free[row] = [a + sign * b for a, b in zip(free, freed, strict=True)]

    # -- in the end --------------------------------------------------------------------------
    def free_accounts(self, state: _State) -> bool:
        """Make leave what quotas want freed beside the room; whether that is possible."""
        model = self._model
        for account, column, amount in model.loss_limits.frees:
            inside = [
                n
                for n, each in enumerate(model.losses)
                if account in each.accounts and each.taken[column]
            ]
            inside.sort(key=lambda n: (model.costs[n] // model.losses[n].taken[column], n))
            for bundle in inside:
                if is_freed([(account, column, amount)], state.lost):
                    break
                if self._is_possible(state, bundle):
                    self._pick_bundle(state, bundle)
            if not is_freed([(account, column, amount)], state.lost):
                return False
        return True

    def give_back(self, state: _State) -> None:
        """Let stay who is not needed, the dearest first."""
        held = self.keeps_limits(state)
        for bundle in sorted(state.picked, key=lambda each: (-self._model.costs[each], each)):
            self._pick_bundle(state, bundle, -1)
            short = any(
                min(state.free[row], default=0) < 0 for row in self._rows_of.get(bundle, ())
            )
            if short or (held and not self.keeps_limits(state)):
                self._pick_bundle(state, bundle)
            elif not held:
                held = self.keeps_limits(state)

    def keeps_limits(self, state: _State) -> bool:
        """Whether queues may lose what is picked, as a whole."""
        limits = self._model.loss_limits
        return limits.empty or limits_hold(limits, [self._model.losses[n] for n in state.picked])
