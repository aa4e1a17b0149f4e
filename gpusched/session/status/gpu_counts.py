"""How many GPUs there are, are idle, can be used by nothing, or are held without work: by type and queue.

A GPU is idle while no pod has it. It is stranded while it is idle and pods may not go to its node, or
none of the pods that run and wait, by what they request, fits what its node has left. Selectors, taints,
affinity and topology are not looked at: what these rule out counts as idle. A GPU is held without work
while a gang that is below its minimum has it, or while it is promised to a pod that waits for an
eviction.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np

from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.api.meta.units import unit_of
from gpusched.api.pod.pod import NOMINATED, Pod, PodClass
from gpusched.arrays.columns import Ints, NodeColumns, how_many_fit, pod_class_vector
from gpusched.base.classes import frozen
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.snapshot import Snapshot
from gpusched.session.state.nodes.gpu_types import NodeGpuTypes

CLASSES_MAX: Final = 64
"""The most frequent classes of pods, of each resource, that are tried on every node."""
NODE_UNAVAILABLE: Final = "NodeUnavailable"
FRAGMENTED: Final = "Fragmented"
NO_OTHER_RESOURCES: Final = "NoCPUOrMemory"
BELOW_MINIMUM: Final = "BelowMinimum"
AWAITS_EVICTION: Final = "PreemptionInProgress"
UNKNOWN_TYPE: Final = "unknown"
"""The type of GPUs of which no label of their node tells the product."""
_THOUSAND: Final = 1000.0


@frozen(kw_only=True)
class GpuCounts:
    """GPUs, and slices that the hardware makes of them, in pieces.

    Attributes:
        total: that nodes offer, by type.
        idle: that no pod has, by type; a part of ``total``.
        stranded: that no pod which runs or waits could use, by type and reason; a part of ``idle``.
        held: held without work, by queue and reason; shares of a GPU count as their part.
    """

    total: Mapping[str, int]
    idle: Mapping[str, int]
    stranded: Mapping[tuple[str, str], int]
    held: Mapping[tuple[str, str], float]


def count_gpus(snapshot: Snapshot, types: NodeGpuTypes) -> GpuCounts:
    """GPUs of one moment.

    Args:
        snapshot: of a session.
        types: of the GPUs of its nodes.
    """
    nodes = snapshot.nodes
    gangs = {**snapshot.placed_gangs, **{gang.key: gang for gang in snapshot.gangs}}
    classes = _frequent_classes(gangs.values())
    open_rows = np.array(
        [not node.unschedulable and not node.not_ready for node in nodes.nodes], dtype=np.bool_
    )
    free = np.maximum(nodes.allocatable - nodes.used, 0)
    total: dict[str, int] = defaultdict(int)
    idle: dict[str, int] = defaultdict(int)
    stranded: dict[tuple[str, str], int] = defaultdict(int)
    for resource, column in sorted(nodes.columns.items()):
        if not gpu_resources().is_accelerator(resource):
            continue
        unit = unit_of(resource)
        left: Ints = free[:, column] // unit
        _add_by_type(total, types, nodes.allocatable[:, column] // unit)
        _add_by_type(idle, types, left)
        closed = np.where(open_rows, 0, left)
        fragmented, starved = _count_unusable(nodes, free, left, classes.get(resource, ()))
        reasons = {
            NODE_UNAVAILABLE: closed,
            FRAGMENTED: np.where(open_rows, fragmented, 0),
            NO_OTHER_RESOURCES: np.where(open_rows, starved, 0),
        }
        for reason, pieces in reasons.items():
            by_type: dict[str, int] = defaultdict(int)
            _add_by_type(by_type, types, pieces)
            for name, count in by_type.items():
                stranded[name, reason] += count
    return GpuCounts(
        total=dict(total), idle=dict(idle), stranded=dict(stranded), held=_held_gpus(gangs.values())
    )


def _frequent_classes(gangs: Iterable[Gang]) -> dict[str, tuple[PodClass, ...]]:
    """Classes of pods that ask for GPUs, by resource; one of each request."""
    counts: Counter[str] = Counter()
    known: dict[str, PodClass] = {}
    for gang in gangs:
        for pod_class, pods in _pods_by_class(gang):
            if pod_class.gpu:
                counts[pod_class.digest] += pods
                known[pod_class.digest] = pod_class
    found: dict[str, list[PodClass]] = defaultdict(list)
    for digest, _ in sorted(counts.items(), key=lambda each: (-each[1], each[0])):
        same = found[known[digest].gpu]
        if len(same) < CLASSES_MAX:
            same.append(known[digest])
    return {resource: tuple(same) for resource, same in found.items()}


def _pods_by_class(gang: Gang) -> Iterator[tuple[PodClass, int]]:
    for pod_set in gang.pod_sets:
        yield pod_set.pod_class, len(pod_set.pods)
    for member in gang.placed:
        yield member.pod.pod_class, 1


def _count_unusable(
    nodes: NodeColumns, free: Ints, left: Ints, classes: Iterable[PodClass]
) -> tuple[Ints, Ints]:
    """Idle GPUs of each node that are too few for a pod, and for which too little else is left.

    Without any pod that asks for the resource nothing is known of its use: none are unusable.
    """
    by_count: Ints = np.zeros_like(left)
    by_all: Ints = np.zeros_like(left)
    known = False
    for pod_class in classes:
        request = pod_class_vector(pod_class, nodes.columns).with_whole_gpus
        if request.missing:
            continue
        known = True
        gpus = max(1, pod_class.gpus)
        rounds = left // gpus
        fits = how_many_fit(free[:, request.columns], request.amounts)
        by_count = np.maximum(by_count, rounds * gpus)
        by_all = np.maximum(by_all, np.minimum(rounds, fits) * gpus)
    if not known:
        return by_count, by_all
    return left - by_count, by_count - by_all


def _add_by_type(counts: dict[str, int], types: NodeGpuTypes, pieces: Ints) -> None:
    for number, name in enumerate(types.names):
        rows = types.of_row == number
        if rows.any():
            counts[name or UNKNOWN_TYPE] += int(pieces[rows].sum())


def _held_gpus(gangs: Iterable[Gang]) -> dict[tuple[str, str], float]:
    held: dict[tuple[str, str], int] = defaultdict(int)
    for gang in gangs:
        if gang.missing_members:
            for member in gang.placed:
                held[gang.queue, BELOW_MINIMUM] += member.pod.pod_class.gpu_thousandths
        for pod_set in gang.pod_sets:
            if (gpus := pod_set.pod_class.gpu_thousandths) != 0:
                held[gang.queue, AWAITS_EVICTION] += gpus * sum(map(_awaits_eviction, pod_set.pods))
    return {row: amount / _THOUSAND for row, amount in held.items() if amount}


def _awaits_eviction(pod: Pod) -> bool:
    return bool(pod.nominated) and pod.unschedulable_reason == NOMINATED
