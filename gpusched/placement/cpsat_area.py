"""The search in one area: whole where it is small, racks first where it is not."""

from __future__ import annotations

from typing import Final

import attrs
import numpy as np

from gpusched.placement.cpsat_exact import Area, Found, exact, narrowed, partial, pooled
from gpusched.placement.cpsat_master import master
from gpusched.placement.cpsat_patterns import Book, size
from gpusched.placement.problem import Outcome, Part
from gpusched.placement.streams import streams
from gpusched.placement.verify import names, objective

WHOLE_MAX: Final = 1_200
"""Up to so many variables the pattern model is searched whole."""
_APART_MAX: Final = 200
"""The same where sub-groups prefer a level of their own: each is named, and equal ones are alike."""
_FLOWS_MAX: Final = 4_000
"""With more streams times cells only the roomiest cells are looked at, and nothing is proven."""
_ANY_SHARE: Final = 0.4
_COARSE_SHARE: Final = 0.5


def solve_area(area: Area, book: Book, *, known: bool) -> Found:
    """The best answer in an area: whole if it is small, else racks first.

    Args:
        area: to be searched.
        book: what it may cost.
        known: whether there is an answer already; otherwise any is found first.
    """
    if not area.cells:
        return Found(outcome=Outcome.INFEASIBLE)
    any_one = Found(outcome=Outcome.UNKNOWN)
    if not known:
        share = book.part(_ANY_SHARE)
        any_one = pooled(area, share)
        book.take(share)
        if any_one.outcome is Outcome.INFEASIBLE:
            return any_one
        area = attrs.evolve(area, start=any_one.counts)
    found = _best(area, book)
    if found.outcome is Outcome.UNKNOWN and any_one.counts is not None:
        return attrs.evolve(any_one, bounds=found.bounds)
    return found


def _best(area: Area, book: Book) -> Found:
    apart = any(
        stream.part >= 0 and area.field.problem.parts[stream.part].preferred >= 0
        for stream in area.flows.streams
    )
    many = size(area.field, area.cells) + len(area.flows.streams) * len(area.cells)
    if many <= (_APART_MAX if apart else WHOLE_MAX) or len(area.cells) == 1:
        found = exact(area, book)
        if found.counts is not None or found.outcome is Outcome.INFEASIBLE:
            return found
        return exact(area, book, quick=True)
    if apart:
        return _finer(area, book)
    less = narrowed(area, len(area.flows.streams), _FLOWS_MAX)
    return master(area, book) if less is area else partial(master(less, book))


def _finer(area: Area, book: Book) -> Found:
    """The gang's own domains first, then those of sub-groups.

    What sub-groups prefer comes after all levels of the gang and forbids nothing: without it
    equal sub-groups are counted instead of named, and the levels are proven all the same. Where
    an answer with each sub-group in one domain of what it prefers uses no more of them, nothing
    is better; else the sub-groups are arranged in the cells that were chosen.
    """
    problem = area.field.problem
    levels = [f"domains:{level.name}" for level in problem.levels]
    found = _with_parts(area, book, tuple(_indifferent(part) for part in problem.parts))
    if found.counts is None:
        return found
    bounds = {name: found.bounds[name] for name in levels if name in found.bounds}
    values = dict(zip(names(problem), objective(problem, found.counts), strict=True))
    unknown = attrs.evolve(area, start=None)  # what is known may not be strict
    strict = _with_parts(unknown, book, tuple(_strict(part) for part in problem.parts))
    if strict.counts is not None:
        reached = dict(zip(names(problem), objective(problem, strict.counts), strict=True))
        if [reached[name] for name in levels] <= [values[name] for name in levels]:
            return attrs.evolve(found, counts=strict.counts, bounds=bounds)
    used = np.unique(area.field.cell[found.counts.any(axis=0)])
    inside = attrs.evolve(area.of(tuple(used.tolist())), start=found.counts)
    fine = exact(inside, book, caps={name: values[name] for name in levels})
    counts = found.counts if fine.counts is None else fine.counts
    return attrs.evolve(found, counts=counts, bounds=bounds)


def _with_parts(area: Area, book: Book, parts: tuple[Part, ...]) -> Found:
    """The best answer for other wishes of the sub-groups; an answer for the gang all the same."""
    problem = area.field.problem
    other = attrs.evolve(area.field, problem=attrs.evolve(problem, parts=parts))
    share = book.part(_COARSE_SHARE)
    found = _best(attrs.evolve(area, field=other, flows=streams(other)), share)
    book.take(share)
    return found


def _indifferent(part: Part) -> Part:
    return attrs.evolve(part, preferred=-1, homes=part.homes if part.level >= 0 else ())


def _strict(part: Part) -> Part:
    """It prefers nothing, but needs one domain of the level that it preferred."""
    if part.preferred <= part.level or part.homes:
        return _indifferent(part)
    return attrs.evolve(part, level=part.preferred, preferred=-1)
