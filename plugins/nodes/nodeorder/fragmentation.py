"""What the free GPUs of nodes are worth to typical requests, counted in ints.

Fragmentation as in *Beware of Fragmentation* (USENIX ATC 2023): a typical request that cannot run
on a node wastes all that is free there; one that can wastes the free parts of those GPUs that are
each too small for it. F of a node is the mean over typical requests. As each request either needs
one GPU, or part of one, or whole ones only, F is a sum over GPUs of a value that depends on the
GPU's free part, the node's free CPU and its group (nodes that accept the same requests), so tables
answer for any number of nodes at once.

With a look-ahead of k the value of a free part is half of that, and half of what the next k typical
requests use of it, one after another: a part that is cut so that it is later filled to the brim is
worth more than one of the same size that leaves a rest no pod requests. The first half stays, because
the second alone says nothing of how many requests can use a node that nearly any k of them fill: nodes
that alone accept some requests would be given to others first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Context
from functools import lru_cache

import attrs
import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

WHOLE = 1000
"""Base units of one GPU."""
STEPS = 100
"""Classes of scores."""
CHAIN_STEP = 10
"""Look-ahead does not tell parts of a GPU apart any finer."""


@attrs.frozen(order=True)
class RequestShape:
    """One shape of requests.

    Attributes:
        cpu: base units.
        gpus: how many; 0 for none.
        part: of each GPU, ``WHOLE`` for all of it; less only where ``gpus`` is 1.
    """

    cpu: int
    gpus: int
    part: int


@attrs.frozen(eq=False)
class FreeGpus:
    """Free room of some nodes.

    Attributes:
        group: of each node, shape (nodes,).
        cpu: free, shape (nodes,).
        parts: free part of each GPU, shape (nodes, GPUs); 0 where there is none.
    """

    group: Ints
    cpu: Ints
    parts: Ints


class FragmentationTables:
    """Tables of one mix of typical requests.

    Args:
        asks: the typical requests.
        weights: how many of each; their sum is ``total``, by which results are multiplied.
        accepts: whether nodes of a group take a request at all, shape (groups, asks).
        gpus: largest number of GPUs on one node.
        lookahead: how many requests a free part is followed through; 0 is F as published.

    Raises:
        ValueError: a request asks for parts of several GPUs.
    """

    def __init__(
        self,
        asks: Sequence[RequestShape],
        weights: Sequence[int],
        *,
        accepts: Bools,
        gpus: int,
        lookahead: int,
    ) -> None:
        if any(ask.gpus > 1 and ask.part < WHOLE for ask in asks):
            raise ValueError("parts of several GPUs in one request are not measured")
        self.total = max(1, sum(weights))
        self._cpus = np.array(sorted({ask.cpu for ask in asks}), dtype=np.int64)
        self._ranks = len(self._cpus) + 1
        self._counts = gpus + 1
        groups = accepts.shape[0]
        shape = (groups, self._ranks)
        self._single = np.zeros((*shape, WHOLE + 1), dtype=np.int64)
        self._several = np.zeros((*shape, self._counts), dtype=np.int64)
        for group in range(groups):
            known = [(ask, weights[at]) for at, ask in enumerate(asks) if accepts[group, at]]
            self._single[group] = self._use(known, lookahead)
            for ask, weight in known:
                if 1 < ask.gpus < self._counts:
                    self._several[group, self._rank(ask) :, ask.gpus :] += weight
        self._several *= np.arange(self._counts) * WHOLE
        self._bounds = _class_bounds() * self.total

    # -- values ------------------------------------------------------------------------------
    def wasted(self, spots: FreeGpus) -> Ints:
        """F of each node times ``total``, in thousandths of a GPU, shape (nodes,)."""
        return self._wasted(spots.group, spots.cpu, spots.parts)

    def fall(self, spots: FreeGpus, ask: RequestShape) -> Ints:
        """Fall of F times ``total`` when a request is put on each node, int64 of shape (nodes,).

        A part is taken of the fullest GPU that still holds it, whole GPUs from the first on.
        Where it does not fit the value means nothing.
        """
        before = self._wasted(spots.group, spots.cpu, spots.parts)
        return before - self._wasted(
            spots.group, spots.cpu - ask.cpu, free_parts_after(spots.parts, ask)
        )

    def classes(self, fall: Ints) -> Ints:
        """The fall in ``STEPS`` classes, finest around none: 100 / (1 + exp(-fall of F in GPUs))."""
        return np.searchsorted(self._bounds, fall * 1000, side="right").astype(np.int64)

    def _wasted(self, group: Ints, cpu: Ints, parts: Ints) -> Ints:
        cell = group * self._ranks + np.searchsorted(self._cpus, cpu, side="right")
        used = self._single.ravel().take(cell[:, np.newaxis] * (WHOLE + 1) + parts).sum(axis=1)
        full = (parts == WHOLE).sum(axis=1)
        used += self._several.ravel().take(cell * self._counts + full)
        wasted: Ints = parts.sum(axis=1) * self.total - used
        return wasted

    # -- tables ------------------------------------------------------------------------------
    def _rank(self, ask: RequestShape) -> int:
        return int(np.searchsorted(self._cpus, ask.cpu)) + 1

    def _use(self, known: Sequence[tuple[RequestShape, int]], lookahead: int) -> Ints:
        """Use of one free GPU by requests for it or a part, times ``total``: (ranks, WHOLE + 1)."""
        single = [(ask, weight) for ask, weight in known if ask.gpus == 1]
        step = math.gcd(WHOLE, *(ask.part for ask, _ in single))
        if lookahead and step < CHAIN_STEP:
            step = CHAIN_STEP  # parts count as the next hundredth: tables stay small
        sizes = sorted({-(-ask.part // step) for ask, _ in single})
        weight = np.zeros((len(sizes), self._ranks), dtype=np.int64)
        for ask, count in single:
            weight[sizes.index(-(-ask.part // step)), self._rank(ask) :] += count
        cells = WHOLE // step + 1
        # Between two multiples of the step a part holds what the lower one holds.
        grid = np.arange(WHOLE + 1) // step
        use: Ints = self._next(sizes, weight, cells)[:, grid] * np.arange(WHOLE + 1)
        if lookahead:
            chain = self._chain(sizes, weight, cells, steps=lookahead, unit=step)[:, grid]
            use = (use + chain) // 2
        return use

    def _next(self, sizes: Sequence[int], weight: Ints, cells: int) -> Ints:
        """Weight of the requests that fit into a part, shape (ranks, cells)."""
        held = np.zeros((self._ranks, cells), dtype=np.int64)
        for size, each in zip(sizes, weight, strict=True):
            held[:, size:] += each[:, np.newaxis]
        return held

    def _chain(
        self, sizes: Sequence[int], weight: Ints, cells: int, *, steps: int, unit: int
    ) -> Ints:
        """What so many requests, drawn one after another, use of a part in the mean."""
        idle = self.total - self._next(sizes, weight, cells)
        use = np.zeros((self._ranks, cells), dtype=np.int64)
        for _ in range(steps):
            longer = idle * use
            for size, each in zip(sizes, weight, strict=True):
                used = use[:, : cells - size] + size * unit * self.total
                longer[:, size:] += each[:, np.newaxis] * used
            use = longer // self.total
        return use


def free_parts_after(parts: Ints, ask: RequestShape) -> Ints:
    """Free parts once a request has its own: the fullest GPU that it fits, or the first whole ones.

    Args:
        parts: shape (nodes, GPUs); not changed.
        ask: that fits; nodes on which it does not keep what they have or lose too little.
    """
    if ask.gpus == 0:
        return parts
    left = parts.copy()
    if ask.part < WHOLE:
        room = np.where(parts >= ask.part, parts, WHOLE + 1)
        slot = room.argmin(axis=1)
        rows = np.flatnonzero(room.min(axis=1) <= WHOLE)
        left[rows, slot[rows]] -= ask.part
        return left
    whole = parts == WHOLE
    left[whole & (whole.cumsum(axis=1) <= ask.gpus)] = 0
    return left


@lru_cache(maxsize=1)
def _class_bounds() -> Ints:
    """The falls, in millionths of a GPU, at which the classes 1 to 99 begin."""
    exact = Context(prec=30)
    bounds = []
    for step in range(1, STEPS):
        odds = exact.divide(exact.create_decimal(step), exact.create_decimal(STEPS - step))
        bounds.append(math.ceil(exact.multiply(exact.ln(odds), exact.create_decimal(10**6))))
    return np.array(bounds, dtype=np.int64)
