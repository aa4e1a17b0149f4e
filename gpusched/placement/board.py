"""One class of pods on all nodes: how many fit where, and which place is best.

A board is refreshed from the workbench's log of touched rows: after a placement only the
touched rows are computed again, so placing a pod costs the same on ten nodes and on thousands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gpusched.arrays.columns import Bools, Demand, Ints, how_many_fit
from gpusched.arrays.workbench import Workbench

Score = Callable[[Sequence[int] | None], Ints]
"""Scores of some rows (None: of all), int64, larger is better."""
_NEVER = np.int64(-(2**62))
_FEW = 64
"""Up to so many rows are refreshed one by one; beyond, all at once is cheaper."""


class Board:
    """What one class of pods may do.

    Args:
        bench: moves under it.
        ask: of one pod.
        allowed: bool, shape (nodes,): what filters allow.
        score: rates rows; ties go to the lower row, which is the smaller node name.
    """

    def __init__(self, bench: Workbench, ask: Demand, *, allowed: Bools, score: Score) -> None:
        self.ask = ask
        self.allowed = allowed
        self._bench = bench
        self._score = score
        self._seen = len(bench.touched)
        self.fits: Ints = self._count(slice(None), allowed)
        self._rank: Ints = np.where(self.fits > 0, score(None), _NEVER)

    def refresh(self) -> None:
        """Take in what happened on the bench since the last look."""
        touched = self._bench.touched
        if self._seen == len(touched):
            return
        rows = sorted(set(touched[self._seen :]))
        self._seen = len(touched)
        if len(rows) > _FEW:
            self.fits = self._count(slice(None), self.allowed)
            self._rank = np.where(self.fits > 0, self._score(None), _NEVER)
            return
        fits = self._count(rows, self.allowed[rows])
        self.fits[rows] = fits
        # A row that is full now, as most are after a whole-node pod, needs no score.
        some = bool(fits.any())
        self._rank[rows] = np.where(fits > 0, self._score(rows), _NEVER) if some else _NEVER

    def best(self, within: Bools | None = None) -> int:
        """The row where the next pod goes, -1 when it fits nowhere.

        Args:
            within: only these rows, shape (nodes,).
        """
        if self._rank.size == 0:
            return -1
        rank = self._rank if within is None else np.where(within, self._rank, _NEVER)
        row = int(rank.argmax())
        return row if rank[row] > _NEVER else -1

    def total(self, within: Bools | None = None, *, most: int) -> int:
        """How many pods fit in all, counted up to ``most`` a node so that sums stay small."""
        fits = self.fits if within is None else np.where(within, self.fits, 0)
        return int(np.minimum(fits, most).sum())

    def _count(self, rows: Sequence[int] | slice, allowed: Bools) -> Ints:
        if self.ask.missing:
            return np.zeros(allowed.shape[0], dtype=np.int64)
        free = self._bench.free(rows, self.ask.columns)
        return np.where(allowed, how_many_fit(free, self.ask.amounts), 0)
