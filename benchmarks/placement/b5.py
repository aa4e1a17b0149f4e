"""B5: how long each method takes, by size of the cluster, and how often nothing is known after it.

Clusters and gangs are invented, see ``aged``; the figures are only shown. A gang that is proven
not to fit counts: that answer takes time too.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from typing import Final

import attrs

from benchmarks.figures import Figure, number
from benchmarks.placement.aged import Cluster, aged, problem_of
from gpusched.placement.greedy import place_greedily
from gpusched.placement.model.problem import Effort, Problem, SearchOutcome
from gpusched.placement.pipeline.gang_placement import place_gang

EFFORT: Final = Effort(budget_s=2.0)
Gang = tuple[tuple[int, int], ...]


@attrs.frozen
class Size:
    """Clusters of one size, and gangs that are placed there."""

    nodes: int
    seeds: int
    alike: tuple[Gang, ...]
    mixed: tuple[Gang, ...]


SIZES: Final = (
    Size(100, 6, (((8, 8),), ((16, 4),), ((24, 1),)), (((6, 4), (4, 1), (2, 0)),)),
    Size(1000, 6, (((64, 8),), ((64, 2),), ((24, 1),)), (((48, 4), (12, 1), (4, 0)),)),
    Size(5000, 2, (((512, 8),), ((512, 4),), ((64, 1),)), (((384, 4), (96, 1), (32, 0)),)),
)
USED: Final = 0.75
REPEATS: Final = 3


def measure() -> list[Figure]:
    """Median, 99th percentile and maximum of each method at each size."""
    place_gang(
        problem_of(aged(16, 0.5, random.Random(0)), SIZES[0].mixed[0]), EFFORT
    )  # loads the library
    figures = []
    for size in SIZES:
        clusters = [aged(size.nodes, USED, random.Random(seed)) for seed in range(size.seeds)]
        alike = list(_problems(clusters, size.alike))
        mixed = list(_problems(clusters, size.mixed))
        every = [*size.alike, *size.mixed]
        figures += [
            _row(f"build a problem, {size.nodes:,} nodes", [
                lambda cluster=cluster, gang=gang: problem_of(cluster, gang)  # type: ignore[misc]
                for cluster in clusters for gang in every
            ]),
            _row(f"greedy, {size.nodes:,} nodes", [
                lambda problem=problem: place_greedily(problem)  # type: ignore[misc]
                for problem in (*alike, *mixed)
            ]),
            _row(f"pods alike, {size.nodes:,} nodes", [
                lambda problem=problem: place_gang(problem, EFFORT)  # type: ignore[misc]
                for problem in alike
            ]),
            _row(f"several roles, {size.nodes:,} nodes", [
                lambda problem=problem: place_gang(problem, EFFORT)  # type: ignore[misc]
                for problem in mixed
            ]),
        ]  # fmt: skip
    return figures


def _problems(clusters: Iterable[Cluster], gangs: Iterable[Gang]) -> Iterable[Problem]:
    return (problem_of(cluster, gang) for gang in gangs for cluster in clusters)


def _row(name: str, calls: list[Callable[[], object]]) -> Figure:
    walls, cpus, unknown = [], [], 0
    for call in calls:
        for _ in range(REPEATS):
            wall, cpu = time.perf_counter(), time.process_time()
            answer = call()
            walls.append((time.perf_counter() - wall) * 1e3)
            cpus.append((time.process_time() - cpu) * 1e3)
        unknown += getattr(answer, "outcome", None) is SearchOutcome.UNKNOWN
    walls.sort()
    cpus.sort()
    last = min(len(walls) - 1, len(walls) * 99 // 100)
    return Figure(
        name=f"B5 {name}",
        measured=walls[len(walls) // 2],
        unit="ms",
        spread=f"p99 {number(walls[last])}, max {number(walls[-1])}, CPU "
        f"{number(cpus[len(cpus) // 2])}, {unknown} of {len(calls)} unknown",
    )
