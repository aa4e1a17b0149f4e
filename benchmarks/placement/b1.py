"""B1: gangs of identical pods, placed by greedy and by the tree, on aged clusters.

Clusters and gangs are invented, see ``aged``. The mean number of racks is shown with greedy's
beside it; published are the means of the design's own clusters, greedy and best. There, terms
were weighed softly; here the list of terms is strict: zones, blocks and racks come before nodes,
and nodes before fragmentation.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import lru_cache
from statistics import mean, median
from typing import Final

import attrs

from benchmarks.figures import Figure, number
from benchmarks.placement.aged import Cluster, aged, problem_of
from gpusched.placement.greedy import place_greedily
from gpusched.placement.model.problem import Effort, SearchOutcome, Solution
from gpusched.placement.model.verify import objective_names, objective_values
from gpusched.placement.pipeline.elastic_placement import place_most_members
from gpusched.placement.pipeline.gang_placement import place_gang

EFFORT: Final = Effort()
SEEDS, NODES = 12, 1000
GANGS: Final = ((8, 8), (16, 8), (32, 8), (32, 4), (64, 2), (24, 1))
PUBLISHED: Final = {
    0.75: ("1.0 = 1.0", "2.3 -> 1.5", "6.1 -> 4.7", "2.2 -> 1.5", "2.2 -> 1.5", "equal"),
    0.85: ("1.0 = 1.0", "3.0 -> 1.8", "8.4 -> 4.8", "3.2 -> 1.7", "2.9 -> 1.7", "equal"),
    0.92: ("1.6 -> 1.2", "4.3 -> 3.3", "12.6 -> 9.4", "4.5 -> 3.4", "4.4 -> 3.4", "equal"),
}
REPEATS: Final = 5
ELASTIC_MIN, ELASTIC_MAX, ELASTIC_MS = 16, 64, 15
GPUS: Final = 8
"""GPUs of each pod of the elastic gang."""


@attrs.frozen
class Speed:
    """How long one gang may take."""

    gang: tuple[int, int]
    nodes: int
    used: float
    seeds: int
    limit_ms: float
    building: bool = False


SPEEDS: Final = (
    Speed((64, 8), 1000, 0.75, 6, 10),
    Speed((64, 2), 1000, 0.85, 6, 10),
    Speed((512, 8), 5000, 0.70, 2, 60),
    Speed((512, 4), 5000, 0.80, 2, 60),
    Speed((1000, 4), 5000, 0.70, 2, 1000, building=True),
)


def measure() -> list[Figure]:
    """Racks of each gang at each use, greedy's beside the best; then times."""
    figures = []
    for used, published in PUBLISHED.items():
        for gang, known in zip(GANGS, published, strict=True):
            figures.append(_quality(gang, used, SEEDS, known))
    figures.append(_quality((64, 8), 0.75, SEEDS, "15.4 -> 10.8"))
    return [*figures, *(_time(speed) for speed in SPEEDS), _elastic()]


@lru_cache(maxsize=64)
def _cluster(nodes: int, used: float, seed: int) -> Cluster:
    return aged(nodes, used, random.Random(seed))


def _quality(gang: tuple[int, int], used: float, seeds: int, published: str) -> Figure:
    best, quick, proven = [], [], 0
    for seed in range(seeds):
        problem = problem_of(_cluster(NODES, used, seed), (gang,))
        answer, counts = place_gang(problem, EFFORT), place_greedily(problem)
        proven += answer.outcome in (SearchOutcome.OPTIMAL, SearchOutcome.INFEASIBLE)
        if answer.counts.size and counts is not None:
            terms = objective_names(problem)
            best.append(dict(zip(terms, (term.value for term in answer.terms), strict=True)))
            quick.append(dict(zip(terms, objective_values(problem, counts), strict=True)))

    def means(term: str, scale: int = 1) -> str:
        pair = [mean(each[term] for each in side) / scale for side in (quick, best)]
        return f"{pair[0]:.1f} -> {pair[1]:.1f}"

    return Figure(
        name=f"racks of {gang[0]}x{gang[1]} GPUs on {NODES:,} nodes, {used:.0%} used",
        measured=mean(each["domains:rack"] for each in best),
        unit="racks",
        spread=f"blocks {means('domains:block')}, nodes {means('nodes')}, fragmentation "
        f"{means('fragmentation', 1000)}, {proven} of {seeds} proven",
        raw=mean(each["domains:rack"] for each in quick),
        raw_is="by greedy",
        target=f"all proven; published {published}",
        met=proven == seeds,
    )


def _time(speed: Speed) -> Figure:
    walls, cpus = [], []
    for seed in range(speed.seeds):
        cluster = _cluster(speed.nodes, speed.used, seed)
        problem = problem_of(cluster, (speed.gang,))

        def once() -> object:
            # What the loop variables are now is what is meant: it runs at once.
            return place_gang(
                problem_of(cluster, (speed.gang,)) if speed.building else problem,  # noqa: B023
                EFFORT,
            )

        for _ in range(REPEATS):
            wall, cpu = _timed(once)
            walls.append(wall * 1e3)
            cpus.append(cpu * 1e3)
    around = ", problem built anew" if speed.building else ""
    return Figure(
        name=f"one gang of {speed.gang[0]}x{speed.gang[1]} GPUs, {speed.nodes:,} nodes, "
        f"{speed.used:.0%} used{around}",
        measured=median(walls),
        unit="ms",
        spread=f"{number(min(walls))} .. {number(max(walls))}, {number(median(cpus))} of CPU",
        target=f"< {speed.limit_ms:.0f} ms",
        met=median(walls) < speed.limit_ms,
    )


def _elastic() -> Figure:
    """A gang of 64 of which 16 are needed: its start and all of it, the search of a session."""
    cpus, left = [], 0
    for seed in range(SEEDS):
        whole = problem_of(_cluster(NODES, 0.75, seed), ((ELASTIC_MAX, GPUS),))
        needed = attrs.evolve(whole, members=ELASTIC_MIN, minima=())
        for _ in range(REPEATS):
            _, start = _timed(lambda: place_gang(needed, EFFORT))  # noqa: B023 - it runs at once
            found, cpu = _answered(
                lambda: place_most_members(needed, ELASTIC_MAX - ELASTIC_MIN, EFFORT)  # noqa: B023
            )
            cpus.append((start + cpu) * 1e3)
        left += found.terms[0].value + (found.outcome is not SearchOutcome.OPTIMAL)
    return Figure(
        name=f"elastic {ELASTIC_MAX} of minMember {ELASTIC_MIN} on {NODES:,} nodes, start and growth",
        measured=median(cpus),
        unit="ms of CPU",
        spread=f"{number(min(cpus))} .. {number(max(cpus))}, {left} pods left out or not proven",
        target="< 15 ms, all placed and proven",
        met=median(cpus) < ELASTIC_MS and not left,
    )


def _answered(once: Callable[[], Solution]) -> tuple[Solution, float]:
    cpu = time.process_time()
    found = once()
    return found, time.process_time() - cpu


def _timed(once: Callable[[], object]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    once()
    return time.perf_counter() - wall, time.process_time() - cpu
