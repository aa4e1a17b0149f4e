"""Whether a gang fits, by going through everything: no bound, no order of places, no solver.

What one node takes is listed, and lists of nodes are added up: every way of spreading members is
in the sum. Shares nothing with ``gpusched.placement`` nor with its models.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Final

from benchmarks.placement.shapes import LEVELS, Amounts, Case

_NOWHERE: Final = -1
_ANYWHERE: Final = -2


def fits(case: Case, *, exactly: bool = False) -> bool:
    """Whether the gang may start.

    Args:
        case: a small one.
        exactly: with exactly so many members as it needs, and not with more.
    """
    return any(_fits_on(case, rows, exactly=exactly) for rows in _homes(case, case.required))


def _homes(case: Case, level: str) -> list[list[int]]:
    """Rows of each domain, or all rows."""
    if not level:
        return [list(range(len(case.free)))]
    at = LEVELS.index(level)
    domains = sorted({each[at] for each in case.where})
    return [[row for row, each in enumerate(case.where) if each[at] == home] for home in domains]


def _fits_on(case: Case, rows: Sequence[int], *, exactly: bool) -> bool:
    memory: dict[tuple[Amounts, tuple[bool, ...]], set[tuple[int, ...]]] = {}
    for chosen in product(*(_choices(case, part) for part in range(len(case.squads)))):
        complete = sum(
            home != _NOWHERE and squad.least > 0
            for home, squad in zip(chosen, case.squads, strict=True)
        )
        if complete < case.squads_least:
            continue
        reached = {(0,) * len(case.crews)}
        for row in rows:
            able = tuple(_able(case, crew.part, chosen, row) for crew in case.crews)
            key = (case.free[row], able)
            if key not in memory:
                memory[key] = set(_patterns(case, case.free[row], able))
            reached = _sum(case, reached, memory[key])
        if exactly:
            reached = {each for each in reached if sum(each) == case.members}
        if any(_right(case, each, chosen) for each in reached):
            return True
    return False


def _choices(case: Case, part: int) -> list[int]:
    """What may become of a sub-group: nothing, one domain of its level, or any place."""
    level = case.squads[part].level
    if not level:
        return [_ANYWHERE, _NOWHERE]
    return [*sorted({each[LEVELS.index(level)] for each in case.where}), _NOWHERE]


def _able(case: Case, part: int, chosen: Sequence[int], row: int) -> bool:
    if part < 0 or chosen[part] == _ANYWHERE:
        return True
    level = case.squads[part].level
    return bool(level) and case.where[row][LEVELS.index(level)] == chosen[part]


def _patterns(case: Case, free: Amounts, able: Sequence[bool]) -> Iterator[tuple[int, ...]]:
    """Counts by role that one node takes together."""
    most = [
        min(
            [crew.count, *(have // need for have, need in zip(free, crew.ask, strict=True) if need)]
        )
        if can
        else 0
        for crew, can in zip(case.crews, able, strict=True)
    ]
    for pattern in product(*(range(each + 1) for each in most)):
        taken = (
            sum(n * crew.ask[at] for n, crew in zip(pattern, case.crews, strict=True))
            for at in range(len(free))
        )
        if all(need <= have for need, have in zip(taken, free, strict=True)):
            yield pattern


def _sum(
    case: Case, one: set[tuple[int, ...]], other: set[tuple[int, ...]]
) -> set[tuple[int, ...]]:
    """All that two lists of counts come to together, no more than there are members."""
    counts = [crew.count for crew in case.crews]
    found = {tuple(a + b for a, b in zip(x, y, strict=True)) for x in one for y in other}
    return {each for each in found if all(a <= b for a, b in zip(each, counts, strict=True))}


def _right(case: Case, counts: tuple[int, ...], chosen: Sequence[int]) -> bool:
    """Whether so many of each role may start."""
    if sum(counts) < case.members:
        return False
    if any(n < crew.least for n, crew in zip(counts, case.crews, strict=True)):
        return False
    for part, home in enumerate(chosen):
        got = sum(n for n, crew in zip(counts, case.crews, strict=True) if crew.part == part)
        if got < case.squads[part].least if home != _NOWHERE else got:
            return False
    return True
