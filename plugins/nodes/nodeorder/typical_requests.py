"""The typical requests of a session, and what free GPUs are worth to them on its nodes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import attrs
import numpy as np
from gpusched_plugins.nodes.nodeorder.fragmentation import (
    Bools,
    FragmentationTables,
    FreeGpus,
    Ints,
    RequestShape,
)

from gpusched.plugin import DEVICE, NodeRows, PodClass, View

TYPICAL = 95
"""The most frequent requests are typical until they are so many percent of all."""
TYPICAL_MAX = 128
"""More than that are never looked at: tables grow with them."""
GROUPS_MAX = 16
"""Kinds of nodes that are told apart by what they accept; rarer ones count as accepting all."""
WEIGHTS = 1000
"""Beyond so many pods popularity is counted in thousandths, so that tables last for a while."""


def request_shape(pod: PodClass) -> RequestShape:
    """What a pod asks for, in the measure's terms."""
    cpu = pod.requests.get("cpu")
    if pod.gpus:
        return RequestShape(cpu, pod.gpus, DEVICE)
    part = min(pod.requests.get(pod.gpu), DEVICE) if pod.gpu else 0
    return RequestShape(cpu, 1 if part else 0, part)


@attrs.frozen(eq=False)
class _GpuModel:
    """One kind of GPU: its tables, and the group of each node."""

    measure: FragmentationTables
    group: Ints


class TypicalRequests:
    """Falls of fragmentation in one session, for each kind of GPU that typical requests name.

    Args:
        view: of the session.
        look_ahead: see ``Measure``.
    """

    def __init__(self, view: View, look_ahead: int) -> None:
        self._view = view
        self._look_ahead = look_ahead
        self._typical = _most_frequent(view.pod_classes_by_frequency)
        names = sorted({pod.gpu for pod, _ in self._typical if pod.gpu})
        self._kinds = {gpu: self._kind(gpu) for gpu in names}

    @property
    def empty(self) -> bool:
        """Whether no typical request names a GPU, so that nothing is broken up."""
        return not self._kinds

    def classes(self, pod: PodClass, rows: NodeRows) -> tuple[Ints, Ints]:
        """The fall on each row when a pod is put there, and what is free there now.

        Returns:
            Classes as of ``Measure.classes``, and thousandths of GPUs; both of shape (rows,).
        """
        fall = np.zeros(len(rows), dtype=np.int64)
        free = np.zeros(len(rows), dtype=np.int64)
        numbers, cpu = rows.numbers(), rows.allocatable("cpu") - rows.used("cpu")
        ask = request_shape(pod)
        for gpu, kind in self._kinds.items():
            parts = rows.parts(gpu)
            spots = FreeGpus(kind.group[numbers], cpu, parts)
            fall += kind.measure.fall(spots, ask if gpu == pod.gpu else RequestShape(ask.cpu, 0, 0))
            free += parts.sum(axis=1)
        return next(iter(self._kinds.values())).measure.classes(fall), free

    def _kind(self, gpu: str) -> _GpuModel:
        """Requests for another kind of GPU, or for none, waste all that is free of this one."""
        accepting: dict[tuple[RequestShape, bytes], int] = {}
        for pod, count in self._typical:
            mask = self._view.nodes_passing_filters(pod)
            ask = (
                request_shape(pod)
                if pod.gpu == gpu
                else RequestShape(pod.requests.get("cpu"), 0, 0)
            )
            key = (ask, mask.tobytes() if ask.gpus else b"")
            accepting[key] = accepting.get(key, 0) + count
        asks = [ask for ask, _ in accepting]
        nodes = len(self._view.nodes())
        masks = [
            np.frombuffer(mask, dtype=np.bool_) if mask else np.ones(nodes, dtype=np.bool_)
            for _, mask in accepting
        ]
        groups, group = _groups(np.array(masks, dtype=np.bool_).reshape(len(asks), nodes))
        measure = _measure(
            tuple(asks),
            _weights(tuple(accepting.values())),
            groups.tobytes(),
            self._view.rows().parts(gpu).shape[1],
            self._look_ahead,
        )
        return _GpuModel(measure, group)


def _most_frequent(popularity: Sequence[tuple[PodClass, int]]) -> list[tuple[PodClass, int]]:
    pods = sum(count for _, count in popularity)
    chosen: list[tuple[PodClass, int]] = []
    seen = 0
    for pod, count in popularity[:TYPICAL_MAX]:
        chosen.append((pod, count))
        seen += count
        if seen * 100 >= TYPICAL * pods:
            break
    return chosen


def _weights(counts: tuple[int, ...]) -> tuple[int, ...]:
    pods = sum(counts)
    if pods <= WEIGHTS:
        return counts
    return tuple(max(1, count * WEIGHTS // pods) for count in counts)


def _groups(accepts: Bools) -> tuple[Bools, Ints]:
    """Nodes that accept the same: (groups, asks), and the group of each node.

    Args:
        accepts: shape (asks, nodes).
    """
    known, inverse, counts = np.unique(accepts.T, axis=0, return_inverse=True, return_counts=True)
    group = inverse.reshape(-1).astype(np.int64)
    if len(known) > GROUPS_MAX:
        order = np.argsort(-counts, kind="stable")
        place = np.full(len(known), GROUPS_MAX - 1, dtype=np.int64)
        place[order[: GROUPS_MAX - 1]] = np.arange(GROUPS_MAX - 1)
        known = np.concatenate([known[order[: GROUPS_MAX - 1]], np.ones_like(known[:1])])
        group = place[group]
    return known, group


@lru_cache(maxsize=8)
def _measure(
    asks: tuple[RequestShape, ...],
    weights: tuple[int, ...],
    accepts: bytes,
    gpus: int,
    look_ahead: int,
) -> FragmentationTables:
    groups: Bools = np.frombuffer(accepts, dtype=np.bool_).reshape(-1, len(asks))
    return FragmentationTables(asks, weights, accepts=groups, gpus=gpus, lookahead=look_ahead)
