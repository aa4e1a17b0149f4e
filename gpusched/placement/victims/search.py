"""Cheaper victims than the best known: from a field to a model for the solver, and back.

Nothing that the solver says is believed before it is counted again on the field. Where the
bound by counting shows already that nothing is cheaper, the solver is not asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from gpusched.base.classes import frozen
from gpusched.base.errors import SolverFault
from gpusched.placement.model.problem import (
    Effort,
    SearchOutcome,
    SearchRunner,
    search_in_process,
)
from gpusched.placement.victims.greedy_choice import VictimSearchState
from gpusched.placement.victims.greedy_roles import greedy_victims
from gpusched.placement.victims.lower_bound import VictimLowerBound, victim_lower_bound
from gpusched.placement.victims.model import VictimChoice, VictimRank
from gpusched.placement.victims.solver_model import (
    CandidateRow,
    IncomingHolder,
    IncomingPart,
    VictimModel,
    VictimModelResult,
    fitting,
    roles_in_holder,
)

BUNDLES_MAX: Final = 4_000
COUNTS_MAX: Final = 16_000
"""Larger models take longer to build than their answer is worth."""
_SHARE: Final = 0.8
"""Of what is left of the budget, what one rank may use while others may follow."""


RoleMinimum = tuple[tuple[int, ...], int]
"""Numbers of roles, and how many of these together must fit."""


@frozen(slots=True, eq=False)
class VictimSearchResult:
    """How a search ended.

    Attributes:
        outcome: INFEASIBLE proves that nothing is cheaper; FEASIBLE comes with ``choice``.
        proven: whether ``choice`` is the cheapest.
        seconds: in the solver, for metrics only.
        spent: deterministic seconds.
    """

    outcome: SearchOutcome
    choice: VictimChoice | None = None
    proven: bool = False
    seconds: float = 0.0
    spent: float = 0.0


@frozen(slots=True, eq=False)
class IncomingMembers:
    """Members of one role that need room.

    Attributes:
        request: of one, amounts by column of the field.
        most: how many there are.
        rows: where they may run; None for all rows of the field.
    """

    request: tuple[int, ...]
    most: int
    rows: frozenset[int] | None = None


@frozen(slots=True, eq=False)
class IncomingSubGroups:
    """Equal sub-groups of the newcomers; see ``IncomingPart`` for what has the same name there.

    Attributes:
        domain: domain of each row; rows that it does not name are in none. None where the
            sub-groups may be anywhere.
    """

    roles: tuple[int, ...]
    count: int
    least: int
    most: tuple[int, ...]
    domain: Mapping[int, int] | None = None
    counted: bool = True
    parent: int = -1


@frozen(slots=True, eq=False)
class IncomingHolderGroup:
    """A sub-group of sub-groups of the newcomers; see ``IncomingHolder``, and ``domain`` above."""

    least: int
    domain: Mapping[int, int] | None = None
    parent: int = -1


@frozen(slots=True, eq=False)
class IncomingRoles:
    """Newcomers of several roles.

    Attributes:
        members: how many must fit in all.
        minima: pairs of role numbers and how many of these together must fit.
        parts: their sub-groups.
        parts_least: how many of these must be complete, of those at the top.
        holders: sub-groups that hold others, each after the one that it is in.
    """

    roles: tuple[IncomingMembers, ...]
    members: int
    minima: tuple[RoleMinimum, ...] = ()
    parts: tuple[IncomingSubGroups, ...] = ()
    parts_least: int = 0
    holders: tuple[IncomingHolderGroup, ...] = ()

    @property
    def is_one_role(self) -> bool:
        """Whether all are equal, so that where they fit without evictions is counted apart."""
        return len(self.roles) == 1 and not self.parts


def find_cheaper_victims(
    field: VictimSearchState,
    need: int,
    incumbent: VictimChoice | None,
    effort: Effort,
    *,
    search: SearchRunner = search_in_process,
    bound: VictimLowerBound | None = None,
) -> VictimSearchResult:
    """Search for a choice of a smaller rank, or that costs less in the same.

    Args:
        field: as it stands, without any choice applied.
        need: claimants that must fit.
        incumbent: the best choice known, if any.
        effort: how hard; most of what is left of its budget goes to each rank, all to the last.
        search: runs the solver, here or in another process.
        bound: what any choice costs at least, where it is known.

    Raises:
        SolverFault: the solver failed, or its answer does not hold.
    """
    bound = bound or victim_lower_bound(field, need)
    known = None if incumbent is None else (incumbent.rank, incumbent.cost)
    if bound is None:
        return VictimSearchResult(SearchOutcome.INFEASIBLE)
    wanted = IncomingRoles((IncomingMembers(field.request, need),), need)
    return find_cheaper_victims_for_roles(field, wanted, known, effort, bound=bound, search=search)


def find_cheaper_victims_for_roles(
    field: VictimSearchState,
    wanted: IncomingRoles,
    incumbent: tuple[VictimRank, int] | None,
    effort: Effort,
    *,
    bound: VictimLowerBound,
    search: SearchRunner = search_in_process,
    forbidden: Sequence[frozenset[int]] = (),
) -> VictimSearchResult:
    """The same for newcomers of several roles; rows of the field are where any of them may run.

    Args:
        field: its own ``ask`` does not count where there are several roles.
        wanted: members that need room.
        incumbent: rank and cost of the best choice known, if any.
        effort: how hard.
        bound: what any choice costs at least.
        search: runs the solver.
        forbidden: sets of bundles that may not be picked together: policies refused them.

    Raises:
        SolverFault: as above.
    """
    if incumbent is not None and not bound.allows_better(*incumbent):
        return VictimSearchResult(SearchOutcome.INFEASIBLE)
    seconds = spent = 0.0
    outcome = SearchOutcome.INFEASIBLE
    ranks = [
        rank
        for rank in field.possible_ranks()
        if rank >= bound.rank and (incumbent is None or rank <= incumbent[0])
    ]
    for rank in ranks:
        left = effort.budget_s - spent
        if left <= 0:
            return VictimSearchResult(SearchOutcome.UNKNOWN, seconds=seconds, spent=spent)
        effort_now = attrs.evolve(effort, budget_s=left * (1 if rank == ranks[-1] else _SHARE))
        cost = incumbent[1] if incumbent is not None and rank == incumbent[0] else None
        answer = _cheapest_up_to_rank(
            field, wanted, (rank, cost), effort_now, search=search, forbidden=forbidden
        )
        seconds, spent = seconds + answer.seconds, spent + answer.spent
        if answer.choice is not None:
            proven = answer.proven and outcome is SearchOutcome.INFEASIBLE
            return attrs.evolve(answer, proven=proven, seconds=seconds, spent=spent)
        if answer.outcome is not SearchOutcome.INFEASIBLE:
            outcome = answer.outcome
    return VictimSearchResult(outcome, seconds=seconds, spent=spent)


def _cheapest_up_to_rank(
    field: VictimSearchState,
    wanted: IncomingRoles,
    below: tuple[VictimRank, int | None],
    effort: Effort,
    *,
    search: SearchRunner,
    forbidden: Sequence[frozenset[int]] = (),
) -> VictimSearchResult:
    """The cheapest choice up to a rank, below a cost."""
    rank, cost = below
    far = bool(field.loss_limits.empty)
    numbers = [
        number
        for number in field.bundles_up_to(rank)
        if (cost is None or field.cost_of(number) < cost)
        and not (far and not field.rows_of(number))
    ]
    if len(numbers) > BUNDLES_MAX:
        return VictimSearchResult(SearchOutcome.UNKNOWN)
    rows, still = _candidate_rows(field, wanted, numbers)
    if sum(len(row.most) for _, row in rows) > COUNTS_MAX:
        return VictimSearchResult(SearchOutcome.UNKNOWN)
    model = _build_model(
        field, wanted, numbers, (rows, still), cost=cost, effort=effort, forbidden=forbidden
    )

    def weighed(picked: Sequence[int], counts: Sequence[Sequence[int]]) -> VictimChoice | None:
        bundles = [numbers[number] for number in picked if number < len(numbers)]
        if wanted.is_one_role:
            return field.weigh_choice(bundles, wanted.members)
        found = [row for row, _ in rows]
        return field.weigh_choice(bundles, 0, lambda: _newcomers_fit(field, wanted, found, counts))

    first: VictimChoice | None = None
    if cost is None and (quick := greedy_victims(model)) is not None:
        first = weighed(quick.picked, quick.counts)
    if first is not None:
        model = attrs.evolve(model, cost_max=min(model.cost_max, first.cost - 1))
    answer = search(model)
    if not isinstance(answer, VictimModelResult):
        raise SolverFault("the solver did not answer with victims")
    if answer.outcome not in (SearchOutcome.OPTIMAL, SearchOutcome.FEASIBLE):
        outcome = answer.outcome if first is None else SearchOutcome.FEASIBLE
        proven = first is not None and answer.outcome is SearchOutcome.INFEASIBLE
        return VictimSearchResult(
            outcome, first, proven=proven, seconds=answer.seconds, spent=answer.spent
        )
    choice = weighed(answer.picked, answer.counts)
    if choice is None or choice.cost > model.cost_max:
        raise SolverFault("the solver's victims do not hold when they are counted again")
    return VictimSearchResult(
        SearchOutcome.FEASIBLE,
        choice,
        proven=answer.outcome is SearchOutcome.OPTIMAL,
        seconds=answer.seconds,
        spent=answer.spent,
    )


def _build_model(
    field: VictimSearchState,
    wanted: IncomingRoles,
    numbers: Sequence[int],
    found: tuple[Sequence[tuple[int, CandidateRow]], int],
    *,
    cost: int | None,
    effort: Effort,
    forbidden: Sequence[frozenset[int]],
) -> VictimModel:
    """The model of these bundles; ``found`` has the rows and how many claimants fit without them."""
    rows, still = found
    groups, lone = _bundle_groups(field, numbers)
    costs = tuple(
        field.cost_of(number) + field.part_cost * (place in lone)
        for place, number in enumerate(numbers)
    )
    limited = not field.loss_limits.empty
    return VictimModel(
        requests=tuple(role.request for role in wanted.roles),
        most=tuple(role.most for role in wanted.roles),
        members=wanted.members - still,
        minima=wanted.minima,
        rows=tuple(row for _, row in rows),
        costs=costs,
        limits=_binding_limits(field, numbers),
        exclusive=_exclusive_pairs(field, numbers),
        cost_max=cost - 1 if cost is not None else sum(costs) + field.part_cost * len(groups),
        forbidden=_forbidden_sets(numbers, forbidden),
        parts=tuple(_incoming_part(part, rows) for part in wanted.parts),
        parts_least=wanted.parts_least,
        holders=tuple(
            IncomingHolder(each.least, _row_domains(each.domain, rows), each.parent)
            for each in wanted.holders
        ),
        loss_limits=field.loss_limits,
        losses=tuple(field.loss_of_gang(number) for number in numbers) if limited else (),
        groups=groups,
        group_cost=field.part_cost,
        budget_s=effort.budget_s,
        workers=effort.workers,
        seed=effort.seed,
    )


def _candidate_rows(
    field: VictimSearchState, wanted: IncomingRoles, numbers: Sequence[int]
) -> tuple[list[tuple[int, CandidateRow]], int]:
    """Rows where claimants may fit; with one role, how many fit on rows without evictions."""
    freed: dict[int, list[tuple[int, tuple[int, ...]]]] = {}
    leaving: dict[int, dict[int, None]] = {}
    for place, number in enumerate(numbers):
        for row in field.rows_of(number):
            freed.setdefault(row, []).append((place, tuple(field.freed_amounts(number, row))))
        for m in field.bundles[number].members:
            if field.is_staying(m):
                leaving.setdefault(field.members[m].row, {})[m] = None
    if wanted.is_one_role:
        still = sum(fits for row, fits in field.fits.items() if row not in freed)
        rows = sorted(freed)
    else:
        still, rows = 0, sorted(field.free)
    found = []
    for row in rows:
        parts = freed.get(row, [])
        free = field.free[row]
        everything = list(free)
        for m in leaving.get(row, ()):
            everything = [a + b for a, b in zip(everything, field.members[m].frees, strict=True)]
        most = tuple(
            fitting(everything, role.request) if role.rows is None or row in role.rows else 0
            for role in wanted.roles
        )
        if any(most):
            found.append((row, CandidateRow(tuple(free), tuple(parts), most)))
    return found, still


def _incoming_part(
    part: IncomingSubGroups, rows: Sequence[tuple[int, CandidateRow]]
) -> IncomingPart:
    return IncomingPart(
        part.roles, part.count, part.least, part.most, _row_domains(part.domain, rows),
        counted=part.counted, parent=part.parent,
    )  # fmt: skip


def _row_domains(
    known: Mapping[int, int] | None, rows: Sequence[tuple[int, CandidateRow]]
) -> tuple[int, ...]:
    return tuple(0 if known is None else known.get(row, -1) for row, _ in rows)


def _bundle_groups(
    field: VictimSearchState, numbers: Sequence[int]
) -> tuple[tuple[tuple[int, ...], ...], frozenset[int]]:
    """Parts of one group, where there are several; and those that are the only part of theirs."""
    if not field.part_cost:
        return (), frozenset()
    parts: dict[int, list[int]] = {}
    for place, number in enumerate(numbers):
        if field.bundles[number].part:
            parts.setdefault(field.bundles[number].group, []).append(place)
    several = tuple(tuple(each) for _, each in sorted(parts.items()) if len(each) > 1)
    return several, frozenset(each[0] for each in parts.values() if len(each) == 1)


def _forbidden_sets(
    numbers: Sequence[int], forbidden: Sequence[frozenset[int]]
) -> tuple[tuple[int, ...], ...]:
    """Forbidden sets by the places of their bundles; those that cannot be picked are left out."""
    places = {number: place for place, number in enumerate(numbers)}
    return tuple(
        tuple(sorted(places[number] for number in each))
        for each in forbidden
        if each and all(number in places for number in each)
    )


def _binding_limits(
    field: VictimSearchState, numbers: Sequence[int]
) -> tuple[tuple[tuple[tuple[int, int], ...], int], ...]:
    drawn: dict[int, list[tuple[int, int]]] = {}
    for place, number in enumerate(numbers):
        for limit, count in field.drawn_limits(number).items():
            drawn.setdefault(limit, []).append((place, count))
    return tuple(
        (tuple(terms), field.left[limit])
        for limit, terms in sorted(drawn.items())
        if sum(count for _, count in terms) > field.left[limit]
    )


def _exclusive_pairs(
    field: VictimSearchState, numbers: Sequence[int]
) -> tuple[tuple[int, int], ...]:
    """Bundles that share members: one of them at most."""
    groups: dict[int, list[tuple[int, int]]] = {}
    for place, number in enumerate(numbers):
        groups.setdefault(field.bundles[number].group, []).append((place, number))
    pairs = []
    for _, each in sorted(groups.items()):
        alone: dict[int, list[int]] = {}
        for place, number in each:
            members = set(field.bundles[number].members)
            if len(members) == 1:
                # The last member of a gang may leave as a spare one, as its sub-group, as the gang.
                same = alone.setdefault(members.pop(), [])
                pairs += [(place, other) for other in same]
                same.append(place)
            else:
                pairs += [
                    (place, other)
                    for other, its in each
                    if other != place and members.intersection(field.bundles[its].members)
                ]
    return tuple(pairs)


def _newcomers_fit(
    field: VictimSearchState,
    wanted: IncomingRoles,
    rows: Sequence[int],
    counts: Sequence[Sequence[int]],
) -> bool:
    """Whether the newcomers fit as the solver says, with amounts as they would be."""
    if len(counts) != len(rows):
        return False
    totals = [0] * len(wanted.roles)
    for row, each in zip(rows, counts, strict=True):
        used = [0] * len(field.free[row])
        for number, (role, count) in enumerate(zip(wanted.roles, each, strict=True)):
            if count < 0 or (count and role.rows is not None and row not in role.rows):
                return False
            totals[number] += count
            used = [a + b * count for a, b in zip(used, role.request, strict=True)]
        if any(a > b for a, b in zip(used, field.free[row], strict=True) if a):
            return False
    if any(count > role.most for count, role in zip(totals, wanted.roles, strict=True)):
        return False
    enough = all(sum(totals[r] for r in roles) >= least for roles, least in wanted.minima)
    return enough and sum(totals) >= wanted.members and _parts_hold(wanted, rows, counts)


def _parts_hold(
    wanted: IncomingRoles, rows: Sequence[int], counts: Sequence[Sequence[int]]
) -> bool:
    """Whether sub-groups are complete in domains of theirs, as many as it takes."""
    complete: dict[int, int] = {}
    for part in wanted.parts:
        totals: dict[int, list[int]] = {}
        for row, each in zip(rows, counts, strict=True):
            here = [each[role] for role in part.roles]
            domain = 0 if part.domain is None else part.domain.get(row, -1)
            if domain < 0 and any(here):
                return False
            known = totals.setdefault(domain, [0] * len(part.roles))
            totals[domain] = [a + b for a, b in zip(known, here, strict=True)]
        least = most = 0
        for here in totals.values():
            some = max(
                (-(-n // m) if m else n for n, m in zip(here, part.most, strict=True)), default=0
            )
            room = sum(here) // part.least if part.least else part.count
            if some > room:
                return False
            least, most = least + some, most + room
        if least > part.count:
            return False
        if part.counted:
            complete[part.parent] = complete.get(part.parent, 0) + min(most, part.count)
    for number, holder in reversed(list(enumerate(wanted.holders))):
        roles = roles_in_holder(wanted.parts, wanted.holders, number)
        used = [row for row, each in zip(rows, counts, strict=True) if any(each[r] for r in roles)]
        done = complete.get(number, 0) >= holder.least
        where = holder.domain
        domains = {0 if where is None else where.get(row, -1) for row in used}
        if used and (not done or len(domains) > 1 or -1 in domains):
            return False
        if holder.least and done:
            complete[holder.parent] = complete.get(holder.parent, 0) + 1
    return complete.get(-1, 0) >= wanted.parts_least
