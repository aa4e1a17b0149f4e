"""The search for a gang of several roles or of sub-groups, as one job of the solver process.

With a required level every domain of it is searched on its own, those first that have room for
more of the hoped-for members, then those that may use fewer narrower domains.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import attrs
import numpy as np

from gpusched.arrays.columns import Ints
from gpusched.base.classes import define, frozen
from gpusched.placement.cpsat.demand import (
    build_hosting_bounds,
    demand_shortfall,
    fewest_domains,
    fewest_domains_for_sub_groups,
    fewest_nodes,
    least_spread,
)
from gpusched.placement.cpsat.exact_search import (
    AreaResult,
    SearchArea,
    members_that_do_not_fit,
    partial_result,
    roomiest_cells,
    solve_as_one_pool,
    solve_exactly,
)
from gpusched.placement.cpsat.flows import build_member_flows
from gpusched.placement.cpsat.pattern_model import EXACT_MAX, SolverBudget, pattern_model_size
from gpusched.placement.cpsat.patterns import build_cell_patterns
from gpusched.placement.cpsat.rack_search import solve_by_racks
from gpusched.placement.model.bounds import candidate_domains, lower_bounds
from gpusched.placement.model.problem import (
    Certificate,
    Effort,
    Problem,
    SearchOutcome,
    SubGroupHolder,
    SubGroupMinimum,
)
from gpusched.placement.model.verify import objective_names, objective_values

WHOLE_MAX: Final = 1_200
"""Up to so many variables the pattern model is searched whole."""
_APART_MAX: Final = 200
"""The same where sub-groups prefer a level of their own: each is named, and equal ones are alike."""
_FLOWS_MAX: Final = 4_000
"""With more flows times cells only the roomiest cells are looked at, and nothing is proven."""
_ANY_SHARE: Final = 0.4
_COARSE_SHARE: Final = 0.5


def solve_area(area: SearchArea, book: SolverBudget, *, known: bool) -> AreaResult:
    """The best answer in an area: whole if it is small, else racks first.

    Args:
        area: to be searched.
        book: what it may cost.
        known: whether there is an answer already; otherwise any is found first.
    """
    if not area.cells:
        return AreaResult(outcome=SearchOutcome.INFEASIBLE)
    any_one = AreaResult(outcome=SearchOutcome.UNKNOWN)
    if not known:
        share = book.split_share(_ANY_SHARE)
        any_one = solve_as_one_pool(area, share)
        book.add_spent(share)
        if any_one.outcome is SearchOutcome.INFEASIBLE:
            return any_one
        area = attrs.evolve(area, start=any_one.counts)
    found = _search_within_limits(area, book)
    if found.outcome is SearchOutcome.UNKNOWN and any_one.counts is not None:
        return attrs.evolve(any_one, bounds=found.bounds)
    return found


def _search_within_limits(area: SearchArea, book: SolverBudget) -> AreaResult:
    problem = area.field.problem
    apart = any(holder.preferred >= 0 for holder in problem.holders) or any(
        member_flow.part >= 0 and problem.parts[member_flow.part].preferred >= 0
        for member_flow in area.flows.items
    )
    many = pattern_model_size(area.field, area.cells) + len(area.flows.items) * len(area.cells)
    if many <= (_APART_MAX if apart else WHOLE_MAX) or len(area.cells) == 1:
        found = solve_exactly(area, book)
        if found.counts is not None or found.outcome is SearchOutcome.INFEASIBLE:
            return found
        return solve_exactly(area, book, quick=True)
    if apart:
        return _smaller_areas(area, book)
    less = roomiest_cells(area, len(area.flows.items), _FLOWS_MAX)
    return (
        solve_by_racks(area, book) if less is area else partial_result(solve_by_racks(less, book))
    )


def _smaller_areas(area: SearchArea, book: SolverBudget) -> AreaResult:
    """The gang's own domains first, then those of sub-groups.

    What sub-groups prefer comes after all levels of the gang and forbids nothing: without it
    equal sub-groups are counted instead of named, and the levels are proven all the same. Where
    an answer with each sub-group in one domain of what it prefers uses no more of them, nothing
    is better; else the sub-groups are arranged in the cells that were chosen.
    """
    problem = area.field.problem
    levels = [f"domains:{level.name}" for level in problem.levels]
    found = _with_other_sub_group_terms(area, book, _without_preferences)
    if found.counts is None:
        return found
    bounds = {name: found.bounds[name] for name in levels if name in found.bounds}
    values = dict(
        zip(objective_names(problem), objective_values(problem, found.counts), strict=True)
    )
    unknown = attrs.evolve(area, start=None)  # what is known may not be strict
    strict = _with_other_sub_group_terms(unknown, book, _with_preference_required)
    if strict.counts is not None:
        reached = dict(
            zip(objective_names(problem), objective_values(problem, strict.counts), strict=True)
        )
        if [reached[name] for name in levels] <= [values[name] for name in levels]:
            return attrs.evolve(found, counts=strict.counts, bounds=bounds)
    used = np.unique(area.field.cell[found.counts.any(axis=0)])
    inside = attrs.evolve(area.restricted_to(tuple(used.tolist())), start=found.counts)
    fine = solve_exactly(inside, book, caps={name: values[name] for name in levels})
    counts = found.counts if fine.counts is None else fine.counts
    return attrs.evolve(found, counts=counts, bounds=bounds)


_SubGroup = TypeVar("_SubGroup", SubGroupMinimum, SubGroupHolder)


def _with_other_sub_group_terms(
    area: SearchArea, book: SolverBudget, change: Callable[[Any], Any]
) -> AreaResult:
    """The best answer for other wishes of the sub-groups; an answer for the gang all the same."""
    problem = area.field.problem
    changed = attrs.evolve(
        problem,
        parts=tuple(map(change, problem.parts)),
        holders=tuple(map(change, problem.holders)),
    )
    other = attrs.evolve(area.field, problem=changed)
    share = book.split_share(_COARSE_SHARE)
    found = _search_within_limits(
        attrs.evolve(area, field=other, flows=build_member_flows(other)), share
    )
    book.add_spent(share)
    return found


def _without_preferences(part: _SubGroup) -> _SubGroup:
    return attrs.evolve(part, preferred=-1, near=())


def _with_preference_required(part: _SubGroup) -> _SubGroup:
    """It prefers nothing, but needs one domain of the level that it preferred."""
    if part.preferred <= part.level or part.homes or part.near:
        return _without_preferences(part)
    return attrs.evolve(part, level=part.preferred, preferred=-1)


_TIES_MAX = 8
"""Domains that are searched after one was found that is as good: for nodes and fragmentation."""
_MISSING_SHARE = 0.2
"""Of the budget, on top of it: how many are missing is told where it is quickly known."""
_SHARE = 0.5
"""Of what is left, for one domain."""


@frozen(eq=False, kw_only=True)
class GangSearchResult:
    """What the search says; nothing of it was counted again.

    Attributes:
        outcome: OPTIMAL when all terms of domains are proven.
        counts: members by role and node, None without an answer.
        bounds: by the terms of ``verify.names``.
        certificate: for INFEASIBLE.
        method: ``master`` or ``patterns``.
        seconds, work: in the solver, as it measured them, and deterministic.
    """

    outcome: SearchOutcome
    counts: Ints | None = None
    bounds: tuple[int, ...] = ()
    certificate: Certificate | None = None
    method: str = "patterns"
    seconds: float = 0.0
    work: float = 0.0


@frozen(eq=False, kw_only=True)
class GangSearchJob:
    """See ``problem.Job``.

    Attributes:
        problem: with members to place.
        effort: how hard to try.
        start: members by role and node, an answer that is known already.
    """

    problem: Problem
    effort: Effort
    start: Ints | None = None

    def run(self) -> GangSearchResult:
        """The answer, by one worker the same each time."""
        problem = self.problem
        book = SolverBudget(effort=self.effort)
        found = build_cell_patterns(problem)
        every = tuple(range(len(problem.roles)))
        if not found.rows:
            short = Certificate("role", -1, -1, every, problem.members, 0)
            return GangSearchResult(outcome=SearchOutcome.INFEASIBLE, certificate=short)
        area = SearchArea(
            field=found,
            flows=build_member_flows(found),
            rooms=build_hosting_bounds(found),
            cells=tuple(range(len(found.rows))),
            start=self.start,
        )
        answer = _search_whole_area(area, book) if problem.required < 0 else _by_domain(area, book)
        return attrs.evolve(answer, seconds=book.seconds, work=book.work)


def _search_whole_area(area: SearchArea, book: SolverBudget) -> GangSearchResult:
    short = demand_shortfall(area.field, area.rooms, area.cells)
    if short is not None:
        proof = _counting_certificate(area.field.problem, short)
        return GangSearchResult(outcome=SearchOutcome.INFEASIBLE, certificate=proof)
    lower = _lower_bounds(area, lower_bounds(area.field.problem))
    if area.start is not None and _fewest_domains_shown(area, lower):
        return GangSearchResult(
            outcome=SearchOutcome.OPTIMAL, bounds=tuple(lower.values()), method="greedy"
        )
    found = solve_area(area, book, known=area.start is not None)
    if found.outcome is SearchOutcome.INFEASIBLE:
        return GangSearchResult(
            outcome=SearchOutcome.INFEASIBLE,
            certificate=_search_certificate(area, book),
            method=found.method,
        )
    bounds = tuple(max(least, found.bounds.get(name, least)) for name, least in lower.items())
    return GangSearchResult(
        outcome=found.outcome, counts=found.counts, bounds=bounds, method=found.method
    )


def _counting_certificate(problem: Problem, short: tuple[tuple[int, ...], int, int]) -> Certificate:
    """Of the whole cluster, where sums over nodes tell that some members do not fit.

    Sums of what roles that compete can have together cannot be counted again from amounts.
    """
    roles, needed, room = short
    if problem.mixes is None:
        return Certificate("role", -1, -1, roles, needed, room)
    every = tuple(range(len(problem.roles)))
    return Certificate("search", -1, -1, every, problem.members, problem.members - (needed - room))


def _fewest_domains_shown(area: SearchArea, lower: dict[str, int]) -> bool:
    """Whether counting shows that the known answer has the fewest domains and nodes."""
    assert area.start is not None
    values = objective_values(area.field.problem, area.start)
    until = list(lower).index("nodes") + 1
    return list(values[:until]) == list(lower.values())[:until]


def _lower_bounds(area: SearchArea, bounds: tuple[int, ...]) -> dict[str, int]:
    """Of each term a value that no answer in the area is below, in order; bounds hold anywhere."""
    problem = area.field.problem
    least = dict(zip(objective_names(problem), bounds, strict=True))
    for level, each in enumerate(problem.levels):
        name = f"domains:{each.name}"
        fewest = fewest_domains(area.field, area.rooms, level, area.cells)
        least[name] = max(least[name], fewest)
    least["nodes"] = max(least["nodes"], fewest_nodes(area.field, area.rooms, area.cells))
    if "parts" in least:
        fewest_of = fewest_domains_for_sub_groups(area.field, area.rooms, area.cells)
        least["parts"] = least_spread(problem, fewest_of)
    return least


def _search_certificate(
    area: SearchArea,
    book: SolverBudget,
    *,
    level: int = -1,
    domain: int = -1,
    breaches: _Breaches = (),
) -> Certificate:
    """Of an area that a search proved too small."""
    problem = area.field.problem
    every = tuple(range(len(problem.roles)))
    short = 1
    if pattern_model_size(area.field, area.cells) <= EXACT_MAX:
        share = SolverBudget(
            effort=attrs.evolve(book.effort, budget_s=_MISSING_SHARE * book.effort.budget_s)
        )
        short = max(1, members_that_do_not_fit(area, share))
        book.add_spent(share)
    room = problem.members - short
    return Certificate("search", level, domain, every, problem.members, room, breaches=breaches)


_Breaches = tuple[tuple[int, tuple[int, ...], int, int], ...]


# -- a required level ------------------------------------------------------------------------
@frozen(eq=False, kw_only=True)
class _DomainCandidate:
    """A domain of the required level.

    Attributes:
        domain: its number.
        area: its cells.
        lower: of each term of ``verify.names`` a value that no answer in it is below.
        room: members of all roles that fit, each role alone; the tightest is tried first.
    """

    domain: int
    area: SearchArea
    lower: tuple[int, ...]
    room: int


@define(eq=False, kw_only=True)
class _DomainSearch:
    """Domains that are searched one after another.

    Attributes:
        best: objective of the best answer so far.
        lower: of each domain that is not proven impossible.
        proven: of domains whose answer has proven domain terms.
    """

    best: tuple[int, ...] | None = None
    found: AreaResult | None = None
    lower: dict[int, tuple[int, ...]] = attrs.field(factory=dict)
    breaches: list[tuple[int, tuple[int, ...], int, int]] = attrs.field(factory=list)


def _by_domain(area: SearchArea, book: SolverBudget) -> GangSearchResult:
    problem = area.field.problem
    race = _DomainSearch()
    known = area.start is not None
    candidates = _domain_candidates(area, race)
    race.lower = {each.domain: each.lower for each in candidates}
    prefix = sum(
        1 for name in objective_names(problem) if name == "hope" or name.startswith("domains:")
    )
    ties = 0
    impossible: list[_DomainCandidate] = []
    for each in candidates:
        if race.best is not None:
            ties += 1
            if each.lower[:prefix] > race.best[:prefix] or ties > _TIES_MAX:
                break
            if each.lower >= race.best:
                continue
        if book.seconds_left <= 0:
            break
        part = book.split_share(1.0 if len(candidates) == 1 else _SHARE)
        found = solve_area(each.area, part, known=known or race.best is not None)
        book.add_spent(part)
        if found.outcome is SearchOutcome.INFEASIBLE:
            impossible.append(each)
            del race.lower[each.domain]
        elif found.counts is not None:
            _enter_result(race, each, found, problem)
    if race.found is None or race.best is None:
        return _no_domain_result(area, race, candidates, impossible, book)
    bounds = _lowest_bounds(race.best, tuple(race.lower[domain] for domain in sorted(race.lower)))
    until = prefix + any(name == "parts" for name in objective_names(problem))
    proven = race.best[:until] == bounds[:until]
    return GangSearchResult(
        outcome=SearchOutcome.OPTIMAL if proven else SearchOutcome.FEASIBLE,
        counts=race.found.counts,
        bounds=bounds,
        method=race.found.method,
    )


def _enter_result(
    race: _DomainSearch, each: _DomainCandidate, found: AreaResult, problem: Problem
) -> None:
    assert found.counts is not None
    value = objective_values(problem, found.counts)
    race.lower[each.domain] = tuple(
        max(least, found.bounds.get(name, least))
        for name, least in zip(objective_names(problem), each.lower, strict=True)
    )
    if race.best is None or value < race.best:
        race.best, race.found = value, found


def _lowest_bounds(value: tuple[int, ...], lower: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    """Bounds over all domains: those that cannot reach a term drop out for the later ones."""
    alive = list(lower)
    bounds = []
    for term, reached in enumerate(value):
        bounds.append(min([reached, *(each[term] for each in alive)]))
        alive = [each for each in alive if each[term] <= reached]
    return tuple(bounds)


def _no_domain_result(
    area: SearchArea,
    race: _DomainSearch,
    candidates: list[_DomainCandidate],
    impossible: list[_DomainCandidate],
    book: SolverBudget,
) -> GangSearchResult:
    """No domain gave an answer: a proof when each is proven impossible."""
    problem = area.field.problem
    if len(impossible) < len(candidates):
        return GangSearchResult(outcome=SearchOutcome.UNKNOWN, bounds=lower_bounds(problem))
    level = problem.required
    breaches = tuple(sorted(race.breaches))
    if impossible:
        best = max(impossible, key=lambda each: (each.room, -each.domain))
        proof = _search_certificate(
            best.area, book, level=level, domain=best.domain, breaches=breaches
        )
        return GangSearchResult(outcome=SearchOutcome.INFEASIBLE, certificate=proof)
    if not breaches:
        every = tuple(range(len(problem.roles)))
        proof = Certificate("domain", level, -1, every, problem.members, 0)
        return GangSearchResult(outcome=SearchOutcome.INFEASIBLE, certificate=proof)
    domain, roles, needed, room = max(breaches, key=lambda each: (each[3] / each[2], -each[0]))
    kind = "domain" if problem.mixes is None else "search"
    proof = Certificate(kind, level, domain, roles, needed, room, breaches=breaches)
    return GangSearchResult(outcome=SearchOutcome.INFEASIBLE, certificate=proof)


def _domain_candidates(area: SearchArea, race: _DomainSearch) -> list[_DomainCandidate]:
    """Domains that counting does not rule out, the most promising first."""
    problem, each = area.field.problem, area.field
    at = problem.required
    bounds, room = lower_bounds(problem), _domain_rooms(problem)
    wanted = max(problem.hope, problem.members)
    found = []
    for domain in candidate_domains(problem):
        cells = tuple(np.flatnonzero(each.at[at] == domain).tolist())
        short = demand_shortfall(each, area.rooms, cells)
        if short is not None:
            race.breaches.append((domain, *short))
            continue
        least = _lower_bounds(area.restricted_to(cells), bounds)
        least["hope"] = max(0, wanted - int(room[domain]))
        found.append(
            _DomainCandidate(
                domain=domain,
                area=area.restricted_to(cells),
                lower=tuple(least[name] for name in objective_names(problem)),
                room=int(room[domain]),
            )
        )
    until = objective_names(problem).index("nodes") + 1
    return sorted(found, key=lambda one: (one.lower[:until], one.room, one.domain))


def _domain_rooms(problem: Problem) -> Ints:
    """Members that fit each domain of the required level, each role counted alone."""
    level = problem.levels[problem.required]
    size = max(int(level.domain.max(initial=-1)) + 1, level.real)
    total: Ints = np.zeros(size, dtype=np.int64)
    for role in problem.roles:
        held: Ints = np.zeros(size, dtype=np.int64)
        np.add.at(held, level.domain, role.fits)
        total += np.minimum(held, role.most)
    return total
