"""Filling the openb hosts with one pod after another under some policy, in numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import attrs
import numpy as np
import numpy.typing as npt

from benchmarks.placement.openb_traces import WHOLE, TraceHost, TracePod

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Rows = Sequence[int] | slice
ALL: Final = slice(None)
NEVER: Final = np.int64(-(2**62))
CHECKPOINTS: Final = tuple(range(10, 131, 10))
"""Percent of the GPUs whose requests have arrived when a fill is looked at."""


class Field:
    """The hosts and what is free on them.

    Attributes:
        cpu, memory: free, shape (hosts,).
        parts: free thousandths of each GPU, shape (hosts, most GPUs of a host).
        total: GPUs of each host, shape (hosts,).
        model: number of the model of each host, shape (hosts,).
        models: by number.
        pods: those with GPUs on each host by their kind.
    """

    def __init__(self, hosts: Sequence[TraceHost]) -> None:
        self.cpu = np.array([host.cpu for host in hosts], dtype=np.int64)
        self.memory = np.array([host.memory for host in hosts], dtype=np.int64)
        self.total = np.array([host.gpus for host in hosts], dtype=np.int64)
        most = int(self.total.max())
        self.parts = np.where(np.arange(most) < self.total[:, np.newaxis], WHOLE, 0).astype(
            np.int64
        )
        self.models = tuple(sorted({host.model for host in hosts}))
        self.model = np.array([self.models.index(host.model) for host in hosts], dtype=np.int64)
        self.pods: list[dict[int, int]] = [{} for _ in hosts]

    def __len__(self) -> int:
        return len(self.cpu)

    @property
    def capacity(self) -> int:
        """Thousandths of GPUs of all hosts."""
        return int(self.total.sum()) * WHOLE

    def accepts(self, request: TracePod, rows: Rows = ALL) -> Bools:
        """Where the model is one the request names."""
        if not request.models:
            return np.ones(len(self.cpu[rows]), dtype=np.bool_)
        known = [number for number, name in enumerate(self.models) if name in request.models]
        return np.isin(self.model[rows], known)

    def holds(self, request: TracePod, rows: Rows = ALL) -> Bools:
        """Where it fits, by CPU, memory, model and GPUs."""
        fits = self.accepts(request, rows)
        fits &= self.cpu[rows] >= request.cpu
        fits &= self.memory[rows] >= request.memory
        if request.gpus:
            fits &= (self.parts[rows] >= request.part).sum(axis=1) >= request.gpus
        return fits

    def place(self, request: TracePod, row: int, slot: int) -> tuple[int, ...]:
        """Take its room; ``slot`` is the GPU of a part, whole GPUs go from the first on.

        Returns:
            The GPUs that it got.

        Raises:
            RuntimeError: the host has not so much.
        """
        slots: tuple[int, ...] = ()
        if request.gpus and request.part < WHOLE:
            slots = (slot,)
        elif request.gpus:
            slots = tuple(np.flatnonzero(self.parts[row] == WHOLE)[: request.gpus].tolist())
        self.move(request, row, slots)
        short = len(slots) < request.gpus or (self.parts[row] < 0).any()
        if self.cpu[row] < 0 or self.memory[row] < 0 or short:
            raise RuntimeError(f"host {row} got more than it holds")
        return slots

    def move(self, request: TracePod, row: int, slots: tuple[int, ...], *, times: int = 1) -> None:
        """Take these GPUs and its other room; ``times=-1`` gives all of it back."""
        self.cpu[row] -= request.cpu * times
        self.memory[row] -= request.memory * times
        self.parts[row, list(slots)] -= request.part * times
        if request.gpus:
            pods = self.pods[row]
            pods[request.kind] = pods.get(request.kind, 0) + times
            if not pods[request.kind]:
                del pods[request.kind]


class FillPolicy(Protocol):
    """One way to choose."""

    name: str

    def score(self, field: Field, request: TracePod, rows: Rows) -> Ints:
        """Of rows where it fits or not, larger is better."""

    def slot(self, field: Field, request: TracePod, row: int) -> int:
        """Which GPU of a row a part takes."""

    def pick(self, score: Ints) -> int:
        """One of the rows with the largest score; all of them when nothing fits are ``NEVER``."""


@attrs.frozen(kw_only=True)
class Fill:
    """How one fill went.

    Attributes:
        allocated: percent of the GPUs, by percent of them whose requests had arrived.
        wasted: F in percent of the GPUs, by the same; see ``openb_policies.fragmentation``.
        rows: where each request went, -1 where nowhere.
    """

    allocated: dict[int, float]
    wasted: dict[int, float]
    rows: tuple[int, ...]


class Boards:
    """Scores of each kind of request, refreshed only on rows that changed since the last look."""

    def __init__(self, field: Field, policy: FillPolicy) -> None:
        self._field = field
        self._policy = policy
        self._rank: dict[TracePod, tuple[Ints, int]] = {}
        self.touched: list[int] = []

    def rank(self, request: TracePod) -> Ints:
        """Scores now, ``NEVER`` where it does not fit, shape (hosts,)."""
        now = len(self.touched)
        known = self._rank.get(request)
        if known is None:
            rank = self._of(request, ALL)
        else:
            rank, seen = known
            rows = sorted(set(self.touched[seen:]))
            if rows:
                rank[rows] = self._of(request, rows)
        self._rank[request] = (rank, now)
        return rank

    def _of(self, request: TracePod, rows: Rows) -> Ints:
        fits = self._field.holds(request, rows)
        return np.where(fits, self._policy.score(self._field, request, rows), NEVER)


class Tally:
    """Looks at a fill whenever enough has arrived."""

    def __init__(self, field: Field, measure: Measured) -> None:
        self._field = field
        self._measure = measure
        self._left = list(CHECKPOINTS)
        self.arrived = self.placed = 0
        self.allocated: dict[int, float] = {}
        self.wasted: dict[int, float] = {}

    def arrive(self, request: TracePod, row: int) -> None:
        """One more request, at a row or, at -1, nowhere."""
        self.arrived += request.demand
        self.placed += request.demand if row >= 0 else 0
        capacity = self._field.capacity
        while self._left and self.arrived * 100 >= self._left[0] * capacity:
            at = self._left.pop(0)
            self.allocated[at] = 100 * self.placed / capacity
            self.wasted[at] = 100 * self._measure.share(self._field)


class Measured(Protocol):
    """Says how fragmented a field is."""

    def share(self, field: Field) -> float:
        """F as a part of all GPUs."""


def fill(
    hosts: Sequence[TraceHost], arriving: Sequence[TracePod], policy: FillPolicy, measure: Measured
) -> Fill:
    """Place requests in order; what does not fit is dropped, nothing ever leaves."""
    field = Field(hosts)
    boards = Boards(field, policy)
    tally = Tally(field, measure)
    rows = []
    for request in arriving:
        rank = boards.rank(request)
        row = policy.pick(rank)
        if rank[row] == NEVER:
            row = -1
        else:
            field.place(request, row, policy.slot(field, request, row))
            boards.touched.append(row)
        rows.append(row)
        tally.arrive(request, row)
    return Fill(allocated=tally.allocated, wasted=tally.wasted, rows=tuple(rows))
