"""The search in one area: whole where it is small, racks first where it is not."""

from __future__ import annotations

from typing import Final

import attrs
import numpy as np

from gpusched.placement.cpsat_exact import Area, Found, exact, narrowed, partial, pooled
from gpusched.placement.cpsat_master import master
from gpusched.placement.cpsat_patterns import Book, size
from gpusched.placement.problem import Outcome
from gpusched.placement.streams import streams
from gpusched.placement.verify import names, objective

WHOLE_MAX: Final = 1_200
"""Up to so many variables the pattern model is searched whole."""
_FLOWS_MAX: Final = 4_000
"""With more streams times cells only the roomiest cells are looked at, and nothing is proven."""
_ANY_SHARE: Final = 0.4
_COARSE_SHARE: Final = 0.6


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
    less = narrowed(area, len(area.flows.streams), _FLOWS_MAX)
    return _known_small(area, book) if less is area else partial(_known_small(less, book))


def _known_small(area: Area, book: Book) -> Found:
    """The best answer in an area that is small enough for one model."""
    flows = len(area.flows.streams) * len(area.cells)
    if len(area.cells) == 1 or size(area.field, area.cells) + flows <= WHOLE_MAX:
        found = exact(area, book)
        if found.counts is not None or found.outcome is Outcome.INFEASIBLE:
            return found
        return exact(area, book, quick=True)
    if any(
        stream.part >= 0 and area.field.problem.parts[stream.part].preferred >= 0
        for stream in area.flows.streams
    ):
        return _finer(area, book)
    return master(area, book)


def _finer(area: Area, book: Book) -> Found:
    """The gang's own domains first, then, in the cells that were chosen, those of sub-groups.

    What sub-groups prefer comes after all levels of the gang and forbids nothing: without it
    equal sub-groups are counted instead of named, and the levels are proven all the same.
    """
    problem = area.field.problem
    parts = tuple(
        attrs.evolve(part, preferred=-1, homes=part.homes if part.level >= 0 else ())
        for part in problem.parts
    )
    coarse = attrs.evolve(area.field, problem=attrs.evolve(problem, parts=parts))
    share = book.part(_COARSE_SHARE)
    found = _best(attrs.evolve(area, field=coarse, flows=streams(coarse)), share)
    book.take(share)
    if found.counts is None:
        return found
    levels = [f"domains:{level.name}" for level in problem.levels]
    values = dict(zip(names(problem), objective(problem, found.counts), strict=True))
    used = area.field.cell[found.counts.any(axis=0)]
    inside = attrs.evolve(area.of(tuple(np.unique(used).tolist())), start=found.counts)
    fine = exact(inside, book, caps={name: values[name] for name in levels})
    counts = found.counts if fine.counts is None else fine.counts
    bounds = {name: found.bounds[name] for name in levels if name in found.bounds}
    return attrs.evolve(found, counts=counts, bounds=bounds)
