"""The search for a gang of several roles or of sub-groups, as one job of the solver process.

With a required level every domain of it is searched on its own, those first that have room for
more of the hoped-for members, then those that may use fewer narrower domains.
"""

from __future__ import annotations

import attrs
import numpy as np

from gpusched.arrays.columns import Ints
from gpusched.placement.bounds import homes, lower_bounds
from gpusched.placement.cpsat_area import solve_area
from gpusched.placement.cpsat_exact import Area, Found, missing
from gpusched.placement.cpsat_patterns import EXACT_MAX, Book, size
from gpusched.placement.demand import (
    fewest_domains,
    fewest_for_parts,
    fewest_nodes,
    rooms,
    shortfall,
    sure_parts,
)
from gpusched.placement.patterns import field
from gpusched.placement.problem import Certificate, Effort, Outcome, Problem
from gpusched.placement.streams import streams
from gpusched.placement.verify import names, objective

_TIES_MAX = 8
"""Domains that are searched after one was found that is as good: for nodes and fragmentation."""
_MISSING_SHARE = 0.2
"""Of the budget, on top of it: how many are missing is told where it is quickly known."""
_SHARE = 0.5
"""Of what is left, for one domain."""


@attrs.frozen(eq=False, kw_only=True)
class Answer:
    """What the search says; nothing of it was counted again.

    Attributes:
        outcome: OPTIMAL when all terms of domains are proven.
        counts: members by role and node, None without an answer.
        bounds: by the terms of ``verify.names``.
        certificate: for INFEASIBLE.
        method: ``master`` or ``patterns``.
        seconds, work: in the solver, as it measured them, and deterministic.
    """

    outcome: Outcome
    counts: Ints | None = None
    bounds: tuple[int, ...] = ()
    certificate: Certificate | None = None
    method: str = "patterns"
    seconds: float = 0.0
    work: float = 0.0


@attrs.frozen(eq=False, kw_only=True)
class SeveralJob:
    """See ``problem.Job``.

    Attributes:
        problem: with members to place.
        effort: how hard to try.
        start: members by role and node, an answer that is known already.
    """

    problem: Problem
    effort: Effort
    start: Ints | None = None

    def run(self) -> Answer:
        """The answer, by one worker the same each time."""
        problem = self.problem
        book = Book(effort=self.effort)
        found = field(problem)
        every = tuple(range(len(problem.roles)))
        if not found.rows:
            short = Certificate("role", -1, -1, every, problem.members, 0)
            return Answer(outcome=Outcome.INFEASIBLE, certificate=short)
        area = Area(
            field=found,
            flows=streams(found),
            rooms=rooms(found),
            cells=tuple(range(len(found.rows))),
            start=self.start,
        )
        answer = _whole(area, book) if problem.required < 0 else _by_domain(area, book)
        return attrs.evolve(answer, seconds=book.seconds, work=book.work)


def _whole(area: Area, book: Book) -> Answer:
    short = shortfall(area.field, area.rooms, area.cells)
    if short is not None:
        roles, needed, room = short
        proof = Certificate("role", -1, -1, roles, needed, room)
        return Answer(outcome=Outcome.INFEASIBLE, certificate=proof)
    lower = _lower(area, lower_bounds(area.field.problem))
    if area.start is not None and _met(area, lower):
        return Answer(outcome=Outcome.OPTIMAL, bounds=tuple(lower.values()), method="greedy")
    found = solve_area(area, book, known=area.start is not None)
    if found.outcome is Outcome.INFEASIBLE:
        return Answer(
            outcome=Outcome.INFEASIBLE, certificate=_searched(area, book), method=found.method
        )
    bounds = tuple(max(least, found.bounds.get(name, least)) for name, least in lower.items())
    return Answer(outcome=found.outcome, counts=found.counts, bounds=bounds, method=found.method)


def _met(area: Area, lower: dict[str, int]) -> bool:
    """Whether counting shows that the known answer has the fewest domains and nodes."""
    assert area.start is not None
    values = objective(area.field.problem, area.start)
    until = list(lower).index("nodes") + 1
    return list(values[:until]) == list(lower.values())[:until]


def _lower(area: Area, bounds: tuple[int, ...]) -> dict[str, int]:
    """Of each term a value that no answer in the area is below, in order; bounds hold anywhere."""
    problem = area.field.problem
    least = dict(zip(names(problem), bounds, strict=True))
    for level, each in enumerate(problem.levels):
        name = f"domains:{each.name}"
        fewest = fewest_domains(area.field, area.rooms, level, area.cells)
        least[name] = max(least[name], fewest)
    least["nodes"] = max(least["nodes"], fewest_nodes(area.field, area.rooms, area.cells))
    if "parts" in least:
        fewest_of = fewest_for_parts(area.field, area.rooms, area.cells)
        least["parts"] = sum(fewest_of.get(part, 0) for part in sure_parts(area.field))
    return least


def _searched(
    area: Area, book: Book, *, level: int = -1, domain: int = -1, breaches: _Breaches = ()
) -> Certificate:
    """Of an area that a search proved too small."""
    problem = area.field.problem
    every = tuple(range(len(problem.roles)))
    short = 1
    if size(area.field, area.cells) <= EXACT_MAX:
        share = Book(
            effort=attrs.evolve(book.effort, budget_s=_MISSING_SHARE * book.effort.budget_s)
        )
        short = max(1, missing(area, share))
        book.take(share)
    room = problem.members - short
    return Certificate("search", level, domain, every, problem.members, room, breaches=breaches)


_Breaches = tuple[tuple[int, tuple[int, ...], int, int], ...]


# -- a required level ------------------------------------------------------------------------
@attrs.frozen(eq=False, kw_only=True)
class _Candidate:
    """A domain of the required level.

    Attributes:
        domain: its number.
        area: its cells.
        lower: of each term of ``verify.names`` a value that no answer in it is below.
        room: members of all roles that fit, each role alone; the tightest is tried first.
    """

    domain: int
    area: Area
    lower: tuple[int, ...]
    room: int


@attrs.define(eq=False, kw_only=True)
class _Race:
    """Domains that are searched one after another.

    Attributes:
        best: objective of the best answer so far.
        lower: of each domain that is not proven impossible.
        proven: of domains whose answer has proven domain terms.
    """

    best: tuple[int, ...] | None = None
    found: Found | None = None
    lower: dict[int, tuple[int, ...]] = attrs.field(factory=dict)
    breaches: list[tuple[int, tuple[int, ...], int, int]] = attrs.field(factory=list)


def _by_domain(area: Area, book: Book) -> Answer:
    problem = area.field.problem
    race = _Race()
    known = area.start is not None
    candidates = _candidates(area, race)
    race.lower = {each.domain: each.lower for each in candidates}
    prefix = sum(1 for name in names(problem) if name == "hope" or name.startswith("domains:"))
    ties = 0
    impossible: list[_Candidate] = []
    for each in candidates:
        if race.best is not None:
            ties += 1
            if each.lower[:prefix] > race.best[:prefix] or ties > _TIES_MAX:
                break
            if each.lower >= race.best:
                continue
        if book.left <= 0:
            break
        part = book.part(1.0 if len(candidates) == 1 else _SHARE)
        found = solve_area(each.area, part, known=known or race.best is not None)
        book.take(part)
        if found.outcome is Outcome.INFEASIBLE:
            impossible.append(each)
            del race.lower[each.domain]
        elif found.counts is not None:
            _entered(race, each, found, problem)
    if race.found is None or race.best is None:
        return _none(area, race, candidates, impossible, book)
    bounds = _lowest(race.best, tuple(race.lower[domain] for domain in sorted(race.lower)))
    until = prefix + any(name == "parts" for name in names(problem))
    proven = race.best[:until] == bounds[:until]
    return Answer(
        outcome=Outcome.OPTIMAL if proven else Outcome.FEASIBLE,
        counts=race.found.counts,
        bounds=bounds,
        method=race.found.method,
    )


def _entered(race: _Race, each: _Candidate, found: Found, problem: Problem) -> None:
    assert found.counts is not None
    value = objective(problem, found.counts)
    race.lower[each.domain] = tuple(
        max(least, found.bounds.get(name, least))
        for name, least in zip(names(problem), each.lower, strict=True)
    )
    if race.best is None or value < race.best:
        race.best, race.found = value, found


def _lowest(value: tuple[int, ...], lower: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    """Bounds over all domains: those that cannot reach a term drop out for the later ones."""
    alive = list(lower)
    bounds = []
    for term, reached in enumerate(value):
        bounds.append(min([reached, *(each[term] for each in alive)]))
        alive = [each for each in alive if each[term] <= reached]
    return tuple(bounds)


def _none(
    area: Area,
    race: _Race,
    candidates: list[_Candidate],
    impossible: list[_Candidate],
    book: Book,
) -> Answer:
    """No domain gave an answer: a proof when each is proven impossible."""
    problem = area.field.problem
    if len(impossible) < len(candidates):
        return Answer(outcome=Outcome.UNKNOWN, bounds=lower_bounds(problem))
    level = problem.required
    breaches = tuple(sorted(race.breaches))
    if impossible:
        best = max(impossible, key=lambda each: (each.room, -each.domain))
        proof = _searched(best.area, book, level=level, domain=best.domain, breaches=breaches)
        return Answer(outcome=Outcome.INFEASIBLE, certificate=proof)
    if not breaches:
        every = tuple(range(len(problem.roles)))
        proof = Certificate("domain", level, -1, every, problem.members, 0)
        return Answer(outcome=Outcome.INFEASIBLE, certificate=proof)
    domain, roles, needed, room = max(breaches, key=lambda each: (each[3] / each[2], -each[0]))
    proof = Certificate("domain", level, domain, roles, needed, room, breaches=breaches)
    return Answer(outcome=Outcome.INFEASIBLE, certificate=proof)


def _candidates(area: Area, race: _Race) -> list[_Candidate]:
    """Domains that counting does not rule out, the most promising first."""
    problem, each = area.field.problem, area.field
    at = problem.required
    bounds, room = lower_bounds(problem), _rooms(problem)
    wanted = max(problem.hope, problem.members)
    found = []
    for domain in homes(problem):
        cells = tuple(np.flatnonzero(each.at[at] == domain).tolist())
        short = shortfall(each, area.rooms, cells)
        if short is not None:
            race.breaches.append((domain, *short))
            continue
        least = _lower(area.of(cells), bounds)
        least["hope"] = max(0, wanted - int(room[domain]))
        found.append(
            _Candidate(
                domain=domain,
                area=area.of(cells),
                lower=tuple(least[name] for name in names(problem)),
                room=int(room[domain]),
            )
        )
    until = names(problem).index("nodes") + 1
    return sorted(found, key=lambda one: (one.lower[:until], one.room, one.domain))


def _rooms(problem: Problem) -> Ints:
    """Members that fit each domain of the required level, each role counted alone."""
    level = problem.levels[problem.required]
    size = max(int(level.domain.max(initial=-1)) + 1, level.real)
    total: Ints = np.zeros(size, dtype=np.int64)
    for role in problem.roles:
        held: Ints = np.zeros(size, dtype=np.int64)
        np.add.at(held, level.domain, role.fits)
        total += np.minimum(held, role.most)
    return total
