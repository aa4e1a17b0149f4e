"""How far starts were from what was told of them: of waits of a minute or more (docs/estimates.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Final

from gpusched.api.queue.start_errors import StartKnownBy
from gpusched.engine.run_record import JobLife, RunRecord, StartRecord, ToldStartRecord

_TOLD: Final[Mapping[str, Callable[[StartRecord], ToldStartRecord | None]]] = {
    "First": lambda start: start.first,
    "Half": lambda start: start.half,
    "Last": lambda start: start.last,
}
ERROR_NAMES: Final = tuple(f"startError{name}" for name in _TOLD)
"""Median error as a part of the wait, of the three estimates that are compared."""
KIND_NAMES: Final = tuple(f"startErrorHalf{kind}" for kind in StartKnownBy if kind != "Unknown")
"""The same of the one at half of the wait, of one kind."""


def starts_of(record: RunRecord, jobs: Sequence[JobLife]) -> list[StartRecord]:
    """Starts of some jobs."""
    keys = {job.key for job in jobs}
    return [start for start in record.starts if start.job in keys]


def median_error(starts: Iterable[StartRecord], name: str) -> float | None:
    """Median of the distance from what was told, as a part of the wait; None without any.

    Args:
        starts: that count.
        name: one of ``ERROR_NAMES`` or ``KIND_NAMES``.
    """
    words = name.removeprefix("startError")
    which = next(each for each in _TOLD if words.startswith(each))
    kind = words.removeprefix(which)
    errors = [
        abs(start.started - told.start) / (start.started - start.since)
        for start in starts
        if (told := _TOLD[which](start)) is not None and kind in ("", told.known_by)
    ]
    return median(errors) if errors else None


def part_in_range(starts: Iterable[StartRecord]) -> float | None:
    """Part of the starts with a range at half of their wait that came within it; None without any."""
    ranges = [
        (told.earliest, start.started, told.latest)
        for start in starts
        if (told := start.half) is not None
        and told.earliest is not None
        and told.latest is not None
    ]
    held = [earliest <= at <= latest for earliest, at, latest in ranges]
    return sum(held) / len(held) if held else None


def count_ranged(starts: Iterable[StartRecord]) -> int:
    """Starts that had been told a range at half of their wait."""
    return sum(start.half is not None and start.half.latest is not None for start in starts)
