"""How much of what is free typical requests cannot use: the share of free GPUs, by level.

On a node a typical pod wastes the free slots that are left over when as many pods of its size as
possible take theirs; in a domain of a level a typical gang wastes the free GPUs that are left over
when as many such gangs as possible have theirs, each inside one domain. What is typical is counted
among the gangs that run and wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

import numpy as np

from gpusched.api.devices.slots import slot_mask, slot_ranges
from gpusched.arrays.columns import Ints, NodeColumns
from gpusched.cache.gangs.gang import Gang
from gpusched.topology.islands import island_state
from gpusched.topology.levels import HOST, TopologyLevel
from gpusched.topology.slot_costs import slot_fragmentation

SHAPES_MAX: Final = 32
"""The most frequent sizes of pods, and shapes of gangs, that are looked at."""
_THOUSAND: Final = 1000

Shape = tuple[int, int]
"""Pods of a gang and GPUs of each."""
K = TypeVar("K", int, Shape)


def fragmentation_by_level(
    nodes: NodeColumns, gangs: Sequence[Gang], levels: Sequence[TopologyLevel]
) -> dict[str, float]:
    """For each level the share of the free GPUs that is wasted, 0 to 1; 0 where nothing is free.

    A cluster in which no pod with GPUs runs or waits has no typical request, and no answer.

    Args:
        nodes: as the session found them; whole free GPUs count.
        gangs: that run or wait.
        levels: widest first; single nodes are always reported, as ``host``.
    """
    sizes, shapes = _typical_requests(gangs)
    if not sizes:
        return {}
    free = np.array([slots.bit_count() for slots in nodes.free_slots], dtype=np.int64)
    total = int(free.sum())
    host = next((level.name for level in levels if level.label == HOST), "host")
    ratios = {host: _wasted_ratio(_wasted_on_nodes(nodes, sizes), total)}
    for level in levels:
        if level.label != HOST:
            ratios[level.name] = _wasted_ratio(_wasted_in_domains(free, level, shapes), total)
    return ratios


def _typical_requests(gangs: Sequence[Gang]) -> tuple[Mapping[int, int], Mapping[Shape, int]]:
    """Pods by size, and gangs by shape: thousandths each, the rarest left out."""
    sizes: Counter[int] = Counter()
    shapes: Counter[Shape] = Counter()
    for gang in gangs:
        pods: Counter[int] = Counter()
        for pod_set in gang.pod_sets:
            pods[pod_set.pod_class.gpus] += len(pod_set.pods)
        for member in gang.placed:
            pods[member.pod.pod_class.gpus] += 1
        del pods[0]
        sizes.update(pods)
        # A gang of several roles is as hard to place as the role that takes most GPUs.
        if pods:
            _, gpus = max((count * gpus, gpus) for gpus, count in pods.items())
            shapes[pods[gpus], gpus] += 1
    return _thousandths(sizes), _thousandths(shapes)


def _thousandths(counts: Counter[K]) -> dict[K, int]:
    chosen = sorted(counts.items(), key=lambda each: (-each[1], each[0]))[:SHAPES_MAX]
    total = sum(count for _, count in chosen)
    return {key: max(1, count * _THOUSAND // total) for key, count in chosen}


def _wasted_ratio(wasted: tuple[int, int], total: int) -> float:
    amount, weight = wasted
    return amount / (weight * total) if total and weight else 0.0


def _wasted_on_nodes(nodes: NodeColumns, sizes: Mapping[int, int]) -> tuple[int, int]:
    population = tuple(sorted(sizes.items()))
    wasted = 0
    for node, free in zip(nodes.nodes, nodes.free_slots, strict=True):
        if free:
            slots = 0
            for numbers in slot_ranges(node.allocatable).values():
                slots |= slot_mask(numbers)
            wasted += slot_fragmentation(island_state(node.layout, slots, free), population)
    return wasted, sum(sizes.values())


def _wasted_in_domains(
    free: Ints, level: TopologyLevel, shapes: Mapping[Shape, int]
) -> tuple[int, int]:
    total = int(free.sum())
    inside = level.domain >= 0
    wasted = 0
    for (pods, gpus), share in sorted(shapes.items()):
        room = np.zeros(len(level.names), dtype=np.int64)
        np.add.at(room, level.domain[inside], free[inside] // gpus)
        wasted += share * (total - pods * gpus * int((room // pods).sum()))
    return wasted, sum(shapes.values())
