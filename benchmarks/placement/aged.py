"""Clusters that have been in use: filled and emptied at random until they are fragmented.

All of it is invented, and whoever shows a figure says so: sizes of nodes and jobs, how they were
put, and the topology of zones, blocks and racks. Nodes have 8 GPUs, of which jobs hold slots.
"""

from __future__ import annotations

import random
from typing import Final

import attrs
import numpy as np

from gpusched.arrays.columns import how_many_fit
from gpusched.placement.model.problem import DomainLevel, Problem, Role
from gpusched.topology.slot_costs import SlotTables

GPUS, CPU, MEMORY = 8, 128, 2048
RACK, BLOCK, ZONE = 16, 128, 512
SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128)
WEIGHTS: Final = (30, 12, 14, 18, 12, 8, 4, 2)
FULL, AGES, FAILURES = 0.97, 3, 40
ONE_ISLAND: Final = ((0, 1, 2, 3, 4, 5, 6, 7),)


@attrs.frozen(eq=False)
class Job:
    """Pods on nodes: GPUs, CPU and memory of each, the slots it holds; cost of the whole."""

    rows: tuple[int, ...]
    request: tuple[int, int, int]
    priority: int
    cost: int
    masks: tuple[int, ...] = ()


@attrs.define(eq=False)
class Cluster:
    """Free GPUs, CPU and memory of each node, who runs, and the free slots of each node."""

    free: list[list[int]]
    jobs: list[Job]
    slots: list[int]

    @property
    def levels(self) -> tuple[DomainLevel, ...]:
        """Zones, blocks and racks; every node has all labels."""
        rows = np.arange(len(self.free), dtype=np.int64)
        return tuple(
            DomainLevel(name=name, domain=rows // size, real=-(-len(rows) // size))
            for name, size in (("zone", ZONE), ("block", BLOCK), ("rack", RACK))
        )


def aged(nodes: int, used: float, rng: random.Random) -> Cluster:
    """Filled and emptied again and again, as clusters are.

    Args:
        nodes: how many.
        used: share of the GPUs that jobs hold in the end.
        rng: all that is random comes from it.
    """
    cluster = Cluster(
        [[GPUS, CPU, MEMORY] for _ in range(nodes)], [], [2**GPUS - 1 for _ in range(nodes)]
    )
    for _ in range(AGES):
        _fill(cluster, rng)
        while _held(cluster) > used * nodes * GPUS:
            job = cluster.jobs.pop(rng.randrange(len(cluster.jobs)))
            _move(cluster, job, 1)
            for row, mask in zip(job.rows, job.masks, strict=True):
                cluster.slots[row] |= mask
    return cluster


def ask_of(gpus: int, *, mixed: bool = False) -> tuple[int, int, int]:
    """What a pod of a gang under test asks: GPUs, CPUs, GiB.

    Args:
        gpus: 0 for a pod that needs CPUs only.
        mixed: whether the gang has several roles.
    """
    if gpus == 0:
        return 0, 16, 64
    if gpus == 1 and mixed:
        return 1, 24, 100
    each = (12, 128) if gpus == GPUS else (10, 100)
    return gpus, gpus * each[0], gpus * each[1]


def problem_of(
    cluster: Cluster,
    gang: tuple[tuple[int, int], ...],
    *,
    required: int = -1,
    islands: tuple[tuple[int, ...], ...] = ONE_ISLAND,
) -> Problem:
    """All members of a gang on this cluster.

    Args:
        cluster: as it is.
        gang: pairs of pods and the GPUs of each.
        required: index of the required level, -1 for none.
        islands: slots of each island of every node.
    """
    free = np.array(cluster.free, dtype=np.int64)
    roles = []
    for pods, gpus in gang:
        ask = np.array(ask_of(gpus, mixed=len(gang) > 1), dtype=np.int64)
        wanted = np.flatnonzero(ask)
        fits = np.minimum(how_many_fit(free[:, wanted], ask[wanted]), pods)
        roles.append(Role(request=ask, most=pods, fits=fits, gpus=gpus))
    nodes = [_islands(mask, islands) for mask in cluster.slots]
    states = tuple(sorted(set(nodes)))
    number = {each: index for index, each in enumerate(states)}
    members = sum(pods for pods, _ in gang)
    return Problem(
        free=free,
        roles=tuple(roles),
        members=members,
        minima=tuple(((index,), pods) for index, (pods, _) in enumerate(gang)),
        levels=cluster.levels,
        required=required,
        hope=members if required >= 0 else 0,
        states=np.array([number[each] for each in nodes], dtype=np.int64),
        slots=SlotTables(states),
    )


def _islands(mask: int, islands: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, int], ...]:
    return tuple(sorted((len(each), sum(mask >> slot & 1 for slot in each)) for each in islands))


def _held(cluster: Cluster) -> int:
    return sum(GPUS - each[0] for each in cluster.free)


def _move(cluster: Cluster, job: Job, sign: int) -> None:
    for row in job.rows:
        free = cluster.free[row]
        cluster.free[row] = [a + sign * b for a, b in zip(free, job.request, strict=True)]


def _fill(cluster: Cluster, rng: random.Random) -> None:
    failures, held = 0, _held(cluster)
    nodes = len(cluster.free)
    while failures < FAILURES and held < FULL * nodes * GPUS:
        size = rng.choices(SIZES, WEIGHTS)[0]
        each = 2 if size in (4, 8) and rng.random() < 0.25 else min(size, GPUS)
        request = (each, each * rng.randint(8, 14), each * rng.randint(64, 192))
        rows = _place(cluster, size // each, request, rng)
        if rows is None:
            failures += 1
            continue
        priority = rng.choices((0, 1, 2), (3, 4, 3))[0]
        cost = 1 + size * rng.randint(1, 24)
        masks = tuple(_take(cluster, row, each) for row in rows)
        job = Job(rows, request, priority, cost, masks)
        cluster.jobs.append(job)
        _move(cluster, job, -1)
        held += size


def _take(cluster: Cluster, row: int, count: int) -> int:
    """The lowest free slots of a node, as a device plugin that knows no links gives them."""
    free, taken = cluster.slots[row], 0
    for _ in range(count):
        lowest = free & -free
        taken, free = taken | lowest, free & ~lowest
    cluster.slots[row] = free
    return taken


def _place(
    cluster: Cluster, count: int, request: tuple[int, int, int], rng: random.Random
) -> tuple[int, ...] | None:
    fits = [
        min(a // b for a, b in zip(free, request, strict=True)) if free[0] >= request[0] else 0
        for free in cluster.free
    ]
    nodes = len(fits)
    racks = [range(start, min(start + RACK, nodes)) for start in range(0, nodes, RACK)]
    able = [rack for rack in racks if sum(fits[row] for row in rack) >= count]
    if able and rng.random() >= 0.3:
        rack = min(able, key=lambda each: (sum(cluster.free[row][0] for row in each), each.start))
        order = [row for row in rack if fits[row]]
    else:
        order = [row for row in range(nodes) if fits[row]]
        rng.shuffle(order)
    if rng.random() >= 0.3:
        order.sort(key=lambda row: cluster.free[row][0])
    rows: list[int] = []
    for row in order:
        rows += [row] * min(fits[row], count - len(rows))
        if len(rows) == count:
            return tuple(rows)
    return None
