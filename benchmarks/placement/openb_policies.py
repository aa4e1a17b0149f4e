"""The published policies of the openb experiment, written from their definitions.

FGD is computed here by the letter of its definition, one typical request after another and in
floats, so that it can stand beside the tables of the daemon's plugin, with which it shares no code.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from benchmarks.placement.openb_fill import ALL, NEVER, Field, Ints, Rows
from benchmarks.placement.openb_traces import WHOLE, TracePod

MAX_CPU, MAX_GPU = 128_000, 8 * WHOLE
"""The largest host, by which amounts are made comparable."""
POINTS = 100
Floats = npt.NDArray[np.float64]


class _Base:
    """Parts go to the fullest GPU that holds them; of equal rows the last wins."""

    name = ""

    def slot(self, field: Field, request: TracePod, row: int) -> int:
        """See ``FillPolicy``."""
        if not request.gpus or request.part == WHOLE:
            return -1
        parts = field.parts[row]
        return int(np.where(parts >= request.part, parts, WHOLE + 1).argmin())

    def pick(self, score: Ints) -> int:
        """See ``FillPolicy``."""
        return len(score) - 1 - int(score[::-1].argmax())


class Random(_Base):
    """Any host that fits, any GPU that holds a part."""

    name = "Random"

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def score(self, field: Field, request: TracePod, rows: Rows) -> Ints:
        """See ``FillPolicy``."""
        del request
        return np.zeros(len(field.cpu[rows]), dtype=np.int64)

    def slot(self, field: Field, request: TracePod, row: int) -> int:
        """See ``FillPolicy``."""
        if not request.gpus or request.part == WHOLE:
            return -1
        return self._rng.choice(np.flatnonzero(field.parts[row] >= request.part).tolist())

    def pick(self, score: Ints) -> int:
        """See ``FillPolicy``."""
        best = np.flatnonzero(score > NEVER)
        return int(best[self._rng.randrange(len(best))]) if len(best) else 0


class DotProduct(_Base):
    """Tetris turned round: the smallest product of what is free and what is asked.

    For a part each GPU in use is looked at on its own, and all idle ones together.
    """

    name = "Dot product"

    def score(self, field: Field, request: TracePod, rows: Rows) -> Ints:
        """See ``FillPolicy``."""
        best = self._products(field, request, rows).min(axis=1)
        score: Ints = (POINTS * (1 - best)).astype(np.int64)
        return score

    def slot(self, field: Field, request: TracePod, row: int) -> int:
        """See ``FillPolicy``."""
        if not request.gpus or request.part == WHOLE:
            return -1
        at = int(self._products(field, request, [row])[0].argmin())
        parts = field.parts[row]
        return at if at < len(parts) else int((parts == WHOLE).argmax())

    def _products(self, field: Field, request: TracePod, rows: Rows) -> Floats:
        parts = field.parts[rows]
        idle = ((parts == WHOLE).sum(axis=1) * WHOLE)[:, np.newaxis]
        gpus = np.concatenate([parts, idle], axis=1)
        usable = np.zeros_like(gpus, dtype=np.bool_)
        usable[:, -1] = idle[:, 0] >= request.demand
        if 0 < request.demand < WHOLE:
            usable[:, :-1] = (parts >= request.part) & (parts < WHOLE)
        cpu = field.cpu[rows][:, np.newaxis] / MAX_CPU * (request.cpu / MAX_CPU)
        product = (cpu + gpus / MAX_GPU * (request.demand / MAX_GPU)) / 2
        return np.where(usable, product, 1.0)


class Clustering(_Base):
    """Beside pods of the same GPU request, else on an idle host, else anywhere; fullest first."""

    name = "Clustering"

    def score(self, field: Field, request: TracePod, rows: Rows) -> Ints:
        """See ``FillPolicy``."""
        free = field.parts[rows].sum(axis=1)
        if not request.gpus:
            return np.zeros(len(free), dtype=np.int64)
        kind = request.kind
        pods = field.pods[rows] if isinstance(rows, slice) else [field.pods[row] for row in rows]
        quarter = [
            (3 if len(each) == 1 else 2) if kind in each else (0 if each else 1) for each in pods
        ]
        within = POINTS // 4 * (MAX_GPU - free) // MAX_GPU
        score: Ints = within + np.array(quarter, dtype=np.int64) * (POINTS // 4)
        return score


class Packing(_Base):
    """GPUs in use first, then idle GPUs of hosts in use, then idle hosts."""

    name = "Packing"

    def score(self, field: Field, request: TracePod, rows: Rows) -> Ints:
        """See ``FillPolicy``."""
        parts, total = field.parts[rows], field.total[rows]
        if not request.gpus:
            return np.zeros(len(parts), dtype=np.int64)
        idle = (parts == WHOLE).sum(axis=1)
        idle_host = np.maximum(POINTS // 3 - idle, idle)
        idle_gpus = np.maximum(POINTS // 2 - request.gpus, POINTS // 3)
        score = np.where(idle == total, idle_host, idle_gpus)
        if request.part < WHOLE:
            room = np.where(parts >= request.part, parts, WHOLE).min(axis=1)
            shared = np.maximum(POINTS - room * 100 // WHOLE // 10, POINTS // 2)
            score = np.where((idle < total) & (room < WHOLE), shared, score)
        points: Ints = score.astype(np.int64)
        return points


class BestFit(_Base):
    """The least CPU and GPU left, in steps of a hundredth."""

    name = "Best fit"

    def score(self, field: Field, request: TracePod, rows: Rows) -> Ints:
        """See ``FillPolicy``."""
        cpu = (field.cpu[rows] - request.cpu) / MAX_CPU
        gpu = (field.parts[rows].sum(axis=1) - request.demand) / MAX_GPU
        # Rounded before it is cut, so that 0.29 in floats is 29 hundredths.
        score: Ints = np.floor(np.round(POINTS * (1 - (cpu + gpu) / 2), 9)).astype(np.int64)
        return score


class Definition:
    """F by its definition, for many hosts and all typical requests at once.

    Args:
        typical: shapes and their numbers.
        field: whose hosts are meant.
    """

    def __init__(self, typical: Sequence[tuple[TracePod, int]], field: Field) -> None:
        shapes = [shape for shape, _ in typical if shape.gpus]
        self._parts = sorted({shape.part for shape in shapes})
        self._part = np.array([self._parts.index(shape.part) for shape in shapes], dtype=np.int64)
        self._gpus = np.array([shape.gpus for shape in shapes], dtype=np.int64)
        self._cpu = np.array([shape.cpu for shape in shapes], dtype=np.int64)
        total = sum(count for _, count in typical)
        self._popularity = np.array([n / total for shape, n in typical if shape.gpus])
        self._accepts = np.stack([field.accepts(shape) for shape in shapes], axis=1)

    def share(self, field: Field) -> float:
        """See ``Measured``."""
        return float(self.wasted(ALL, field.cpu, field.parts).sum() / field.capacity)

    def wasted(self, rows: Rows, cpu: Ints, parts: Ints) -> Floats:
        """F of some rows as if so much were free there, thousandths of GPUs.

        Args:
            rows: of the field.
            cpu: free, shape (rows,).
            parts: free, shape (rows, GPUs).
        """
        holding = np.stack([(parts >= part).sum(axis=1) for part in self._parts], axis=1)
        holds = np.stack([np.where(parts >= p, parts, 0).sum(axis=1) for p in self._parts], axis=1)
        runs = self._accepts[rows] & (cpu[:, np.newaxis] >= self._cpu)
        runs &= holding[:, self._part] >= self._gpus
        used = np.where(runs, holds[:, self._part], 0) @ self._popularity
        wasted: Floats = parts.sum(axis=1) - used
        return wasted


class Fgd(_Base):
    """The steepest fall of F, in the published hundred steps of a sigmoid."""

    name = "FGD"

    def __init__(self, definition: Definition) -> None:
        self._definition = definition

    def score(self, field: Field, request: TracePod, rows: Rows) -> Ints:
        """See ``FillPolicy``."""
        best: Ints = self.scores(field, request, rows).max(axis=1)
        return best

    def slot(self, field: Field, request: TracePod, row: int) -> int:
        """See ``FillPolicy``."""
        if not request.gpus or request.part == WHOLE:
            return -1
        return int(self.scores(field, request, [row])[0].argmax())

    def scores(self, field: Field, request: TracePod, rows: Rows) -> Ints:
        """Of each GPU for a part, of the host for others: shape (rows, GPUs or 1)."""
        cpu, parts = field.cpu[rows], field.parts[rows]
        hosts, gpus = parts.shape
        before = self._definition.wasted(rows, cpu, parts)
        if 0 < request.demand < WHOLE:
            after = np.repeat(parts[:, np.newaxis], gpus, axis=1)
            after[:, np.arange(gpus), np.arange(gpus)] -= request.part
        else:
            whole = parts == WHOLE
            taken = whole & (whole.cumsum(axis=1) <= request.gpus)
            after = np.where(taken, 0, parts)[:, np.newaxis]
        tries = after.shape[1]
        fits = (after >= 0).all(axis=2)
        numbers = np.arange(len(field))[rows] if isinstance(rows, slice) else np.array(rows)
        left = self._definition.wasted(
            np.repeat(numbers, tries).tolist(),
            np.repeat(cpu - request.cpu, tries),
            np.maximum(after, 0).reshape(hosts * tries, gpus),
        )
        fall = before[:, np.newaxis] - left.reshape(hosts, tries)
        steps = np.floor(POINTS / (1 + np.exp(-fall / WHOLE))).astype(np.int64)
        return np.where(fits, steps, NEVER)
