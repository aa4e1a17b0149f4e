"""How long gangs of a queue waited beside what they were told: counts, as the status of the Queue keeps them.

A wait is compared as a ratio: from the moment of telling to the start, in percent of what was told
for it. Ratios are counted in classes that are narrow near 100 and wide far from it, so that a
summary is some hundred bytes however many gangs started.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from enum import StrEnum
from itertools import chain
from typing import Final

import attrs

from gpusched.base.classes import frozen

RATIO_EDGES: Final = (
    1, 2, 3, 5, 7, 10, 14, 20, 25, 30, 35, 40, 45, 50, 55, 60, 65, 70, 75, 80, 85, 90, 93, 95, 97, 98, 99,
    100, 101, 102, 103, 105, 108, 111, 118, 125, 133, 143, 154, 167, 182, 200, 222, 250, 286, 333, 400,
    500, 600, 800, 1_000, 1_400, 2_000, 3_000, 5_000, 10_000,
)  # fmt: skip
"""Upper ends of the classes, percent of the wait that was told; what is longer counts in the last one."""
AS_TOLD: Final = (90, 111)
"""Ends of the classes between which a wait is called as told."""
STARTS_KEPT_MAX: Final = 256
"""Starts of one kind; when there are more all counts are halved, so that what is long past fades."""
KNOWN_BY_MAX: Final = 16
"""Kinds that one queue keeps: what is written there by others than us stays small."""


class StartKnownBy(StrEnum):
    """What an estimated start rests on; where it is several, the least certain of them."""

    ANNOUNCED = "Announced"
    """Ends of gangs that run, as their authors or a deadline tell them."""
    MAX_RUNTIME = "MaxRuntime"
    """Ends by ``maxRuntime`` of their queue."""
    LEARNED = "Learned"
    """Ends as runs of Jobs like them took, or as a policy tells them."""
    WAITING = "Waiting"
    """Ends of gangs that are still to start."""
    QUOTA = "Quota"
    """Ends elsewhere: there is room, and the queue may not use it yet."""
    EVICTIONS = "Evictions"
    """Gangs that may be evicted for it from a time on."""
    WINDOW = "Window"
    """The end of a window that a Reservation keeps for others."""
    PLAYED = "Played"
    """The whole line, played forward by the daemon's sessions."""
    UNKNOWN = "Unknown"
    """Nothing: it was told no start."""


@frozen(slots=True, kw_only=True)
class StartTally:
    """Starts whose time was known in one way.

    Attributes:
        known_by: how it was known.
        ratios: upper end of the class in percent, and how many starts are in it; ascending.
        ranged: starts that had been told a range as well.
        held: of these came within it.
    """

    known_by: str
    ratios: tuple[tuple[int, int], ...] = ()
    ranged: int = 0
    held: int = 0

    @property
    def starts(self) -> int:
        """Number of starts that are counted."""
        return sum(count for _, count in self.ratios)

    @property
    def median_percent(self) -> int:
        """The class in which the median is, percent of what was told; 0 for no starts."""
        left = (self.starts + 1) // 2
        for edge, count in self.ratios:
            left -= count
            if left <= 0:
                return edge
        return 0

    @property
    def as_told(self) -> int:
        """Starts whose wait was within a tenth of what was told for it."""
        return sum(count for edge, count in self.ratios if AS_TOLD[0] < edge <= AS_TOLD[1])


@frozen(slots=True)
class StartErrors:
    """What became of the starts that gangs of one queue were told: a tally a kind, sorted by it."""

    tallies: tuple[StartTally, ...] = ()

    def tally(self, known_by: str) -> StartTally:
        """The tally of one kind, empty where nothing was counted."""
        return next(
            (each for each in self.tallies if each.known_by == known_by),
            StartTally(known_by=known_by),
        )

    def with_start(self, known_by: str, ratio: float, *, in_range: bool | None) -> StartErrors:
        """These counts with one start more.

        Args:
            known_by: how its time was known.
            ratio: from telling to start, as a part of what was told.
            in_range: whether it came within the range that it was told; None for no range.
        """
        tally = self.tally(known_by)
        if tally.starts >= STARTS_KEPT_MAX:
            tally = _halved(tally)
        counts = dict(tally.ratios)
        edge = ratio_class(ratio)
        counts[edge] = counts.get(edge, 0) + 1
        grown = StartTally(
            known_by=known_by,
            ratios=tuple(sorted(counts.items())),
            ranged=tally.ranged + (in_range is not None),
            held=tally.held + bool(in_range),
        )
        others = [each for each in self.tallies if each.known_by != known_by]
        return StartErrors(tuple(sorted((*others, grown), key=lambda each: each.known_by)))


NO_START_ERRORS: Final = StartErrors()


def ratio_class(ratio: float) -> int:
    """The upper end of the class in which a ratio is, percent."""
    number = bisect_left(RATIO_EDGES, ratio * 100 - 1e-9)
    return RATIO_EDGES[min(number, len(RATIO_EDGES) - 1)]


def merge_tallies(tallies: Iterable[StartTally], known_by: str = "") -> StartTally:
    """The sum of some tallies, such as those of all queues.

    Args:
        tallies: of any kinds.
        known_by: what the sum is called.
    """
    counts: dict[int, int] = {}
    ranged = held = 0
    for tally in tallies:
        ranged, held = ranged + tally.ranged, held + tally.held
        for edge, count in tally.ratios:
            counts[edge] = counts.get(edge, 0) + count
    return StartTally(
        known_by=known_by, ratios=tuple(sorted(counts.items())), ranged=ranged, held=held
    )


def add_start_errors(parts: Iterable[StartErrors]) -> StartErrors:
    """The sum of some counts, kind by kind."""
    by_kind: dict[str, list[StartTally]] = {}
    for tally in chain.from_iterable(part.tallies for part in parts):
        by_kind.setdefault(tally.known_by, []).append(tally)
    return StartErrors(
        tuple(
            those[0] if len(those) == 1 else merge_tallies(those, kind)
            for kind, those in sorted(by_kind.items())
        )
    )


def start_errors_without(whole: StartErrors, part: StartErrors) -> StartErrors:
    """What is left of some counts without a part of them; never less than nothing."""
    found = []
    for tally in whole.tallies:
        taken = part.tally(tally.known_by)
        counts = dict(taken.ratios)
        left = tuple(
            (edge, count - counts.get(edge, 0))
            for edge, count in tally.ratios
            if count > counts.get(edge, 0)
        )
        if left:
            ranged = max(0, tally.ranged - taken.ranged)
            held = min(ranged, max(0, tally.held - taken.held))
            found.append(attrs.evolve(tally, ratios=left, ranged=ranged, held=held))
    return StartErrors(tuple(found))


def read_tally(
    known_by: str, ratios: Mapping[str, int], *, ranged: int, held: int
) -> StartTally | None:
    """A tally as a status has it; None where it says nothing that we could have written."""
    known = {str(edge): edge for edge in RATIO_EDGES}
    counts = {
        known[name]: min(count, STARTS_KEPT_MAX)
        for name, count in ratios.items()
        if name in known and count > 0
    }
    if not counts or not known_by:
        return None
    told = max(0, min(ranged, STARTS_KEPT_MAX))
    return StartTally(
        known_by=known_by,
        ratios=tuple(sorted(counts.items())),
        ranged=told,
        held=max(0, min(held, told)),
    )


def _halved(tally: StartTally) -> StartTally:
    halves = ((edge, count // 2) for edge, count in tally.ratios)
    return attrs.evolve(
        tally,
        ratios=tuple((edge, count) for edge, count in halves if count),
        ranged=tally.ranged // 2,
        held=tally.held // 2,
    )
