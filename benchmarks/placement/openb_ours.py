"""The daemon's measure of fragmentation in the numpy harness: pod by pod, and in windows.

A window is placed pod by pod first, in the order of arrival. Then, as long as it helps and for so
many rounds, each of its pods is lifted and put where the exact fall of fragmentation is steepest
with all others where they are; one that found no place tries again. The window's places then stand.
Only pods of the window are known, and only they move. F is looked at when a window is done.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
from gpusched_plugins.nodes.nodeorder import STEP
from gpusched_plugins.nodes.nodeorder.fragmentation import (
    FragmentationTables,
    FreeGpus,
    RequestShape,
)

from benchmarks.placement.openb_fill import (
    NEVER,
    Boards,
    Field,
    Fill,
    Ints,
    Measured,
    Rows,
    Tally,
)
from benchmarks.placement.openb_traces import WHOLE, TraceHost, TracePod


class ByTables:
    """The score of ``nodeorder`` with ``strategy: fragmentation``; of equal rows the first wins.

    Args:
        typical: shapes and their numbers.
        field: whose hosts are meant.
        look_ahead: see ``Measure``.
        exact: by the fall itself, not by its classes.
    """

    def __init__(
        self,
        typical: Sequence[tuple[TracePod, int]],
        field: Field,
        *,
        look_ahead: int,
        exact: bool = False,
    ) -> None:
        self.name = f"ours, look-ahead {look_ahead}"
        self._exact = exact
        accepts = np.stack([field.accepts(shape) for shape, _ in typical])
        groups, group = np.unique(accepts.T, axis=0, return_inverse=True)
        self._group: Ints = group.reshape(-1).astype(np.int64)
        self._measure = FragmentationTables(
            [_ask(shape) for shape, _ in typical],
            [count for _, count in typical],
            accepts=groups,
            gpus=field.parts.shape[1],
            lookahead=look_ahead,
        )

    def score(self, field: Field, request: TracePod, rows: Rows) -> Ints:
        """See ``FillPolicy``."""
        fall = self._measure.fall(self._spots(field, rows), _ask(request))
        if self._exact:
            return fall
        fullest = np.maximum(STEP - 1 - field.parts[rows].sum(axis=1) // 4, 0)
        score: Ints = self._measure.classes(fall) * STEP + fullest
        return score

    def slot(self, field: Field, request: TracePod, row: int) -> int:
        """See ``FillPolicy``."""
        if not request.gpus or request.part == WHOLE:
            return -1
        parts = field.parts[row]
        return int(np.where(parts >= request.part, parts, WHOLE + 1).argmin())

    def pick(self, score: Ints) -> int:
        """See ``FillPolicy``."""
        return int(score.argmax())

    def waste(self, field: Field, row: int) -> int:
        """What the measure says of one host now."""
        return int(self._measure.wasted(self._spots(field, [row]))[0])

    def _spots(self, field: Field, rows: Rows) -> FreeGpus:
        return FreeGpus(self._group[rows], field.cpu[rows], field.parts[rows])


def _ask(request: TracePod) -> RequestShape:
    return RequestShape(request.cpu, request.gpus, request.part)


@attrs.frozen(kw_only=True)
class Window:
    """How a window is placed.

    Attributes:
        size: pods that are known at once.
        rounds: at most so many looks at each pod.
        first: where a pod goes first.
        then: where it moves.
    """

    size: int
    rounds: int
    first: ByTables
    then: ByTables


def fill_by_windows(
    hosts: Sequence[TraceHost], arriving: Sequence[TracePod], window: Window, measure: Measured
) -> Fill:
    """As ``openb_fill.fill``, some pods at a time."""
    run = _Run(Field(hosts), window)
    tally = Tally(run.field, measure)
    rows: list[int] = []
    for start in range(0, len(arriving), window.size):
        requests = arriving[start : start + window.size]
        for request, row in zip(requests, run.place(requests), strict=True):
            rows.append(row)
            tally.arrive(request, row)
    return Fill(allocated=tally.allocated, wasted=tally.wasted, rows=tuple(rows))


class _Run:
    def __init__(self, field: Field, window: Window) -> None:
        self.field = field
        self._window = window
        self._first = Boards(field, window.first)
        self._then = Boards(field, window.then)

    def place(self, requests: Sequence[TracePod]) -> list[int]:
        """Rows of a window's pods, -1 for none."""
        places = [self._put(request, self._first) for request in requests]
        for _ in range(self._window.rounds):
            moved = 0
            for at, request in enumerate(requests):
                moved += self._better(request, places, at)
            if not moved:
                break
        return [-1 if place is None else place[0] for place in places]

    def _put(self, request: TracePod, boards: Boards) -> tuple[int, tuple[int, ...]] | None:
        rank = boards.rank(request)
        row = int(rank.argmax())
        if rank[row] == NEVER:
            return None
        slots = self.field.place(request, row, self._window.first.slot(self.field, request, row))
        self._touch(row)
        return row, slots

    def _better(
        self, request: TracePod, places: list[tuple[int, tuple[int, ...]] | None], at: int
    ) -> bool:
        place = places[at]
        if place is None:
            places[at] = self._put(request, self._then)
            return places[at] is not None
        row, slots = place
        before = self._window.then.waste(self.field, row)
        self.field.move(request, row, slots, times=-1)
        self._touch(row)
        here = self._window.then.waste(self.field, row) - before
        rank = self._then.rank(request)
        best = int(rank.argmax())
        if rank[best] > here:
            places[at] = self._put(request, self._then)
            return True
        self.field.move(request, row, slots)
        self._touch(row)
        return False

    def _touch(self, row: int) -> None:
        self._first.touched.append(row)
        self._then.touched.append(row)
