"""B2: gangs of several roles on aged clusters, racks by greedy and proven.

Clusters, gangs and topology are invented. Every answer is counted again by the verifier before
it is counted here. Time is processor time of the whole call, models and verifier included; the
solver's own library is loaded before.
"""

from __future__ import annotations

import random
import time
from functools import lru_cache
from statistics import mean, median
from typing import Final

import attrs

from benchmarks.figures import Figure
from benchmarks.placement.aged import Cluster, aged, problem_of
from gpusched.placement.greedy import place_greedily
from gpusched.placement.model.problem import Effort, Problem
from gpusched.placement.model.verify import objective_names, objective_values, solution_errors
from gpusched.placement.pipeline.gang_placement import place_gang

Gang = tuple[tuple[int, int], ...]
BUDGET_S: Final = {1000: 0.5, 5000: 2.0}
"""Deterministic seconds by nodes."""
TIME_MAX_S: Final = {1000: 0.7, 5000: 5.0}


@attrs.frozen
class Suite:
    """One gang on clusters of one size and use.

    Attributes:
        gang: pairs of pods and the GPUs of each, 0 for CPUs only.
        greedy, proven: mean racks that are published for clusters made by the same recipe.
    """

    gang: Gang
    nodes: int
    used: float
    seeds: int
    greedy: float | None = None
    proven: float | None = None

    @property
    def name(self) -> str:
        """The gang and the cluster."""
        roles = " + ".join(f"{pods}x{gpus or 'c'}" for pods, gpus in self.gang)
        return f"{roles}, {self.nodes:,} nodes, {self.used:.0%} used"


SUITES: Final = (
    Suite(((48, 4), (12, 1), (4, 0)), 1000, 0.80, 10, 7.4, 3.8),
    Suite(((32, 8), (16, 2), (4, 0)), 1000, 0.75, 10, 7.4, 5.5),
    Suite(((24, 6), (16, 3), (8, 0)), 1000, 0.80, 10, 6.0, 4.8),
    Suite(((16, 8), (12, 5), (16, 2), (6, 0)), 1000, 0.75, 10, 7.2, 3.8),
    Suite(((480, 8), (32, 0)), 5000, 0.70, 5, 92.8, 82.0),
    Suite(((384, 4), (96, 1), (32, 0)), 5000, 0.80, 5, 54.2, 37.6),
    Suite(((200, 6), (100, 3), (60, 1)), 5000, 0.80, 4, 62.0, 48.0),
)


@attrs.frozen
class Run:
    """One gang: racks, whether every level is proven, and what it took."""

    racks: int
    by_greedy: int | None
    proven: bool
    cpu: float
    work: float


def measure() -> list[Figure]:
    """Racks, share proven and time of each row."""
    place_gang(problem_of(cluster(1000, 0.80, 0), SUITES[0].gang), Effort())  # loads the library
    figures = []
    for suite in SUITES:
        runs = [run(suite, seed) for seed in range(suite.seeds)]
        figures += [_racks(suite, runs), _proven(suite, runs), _time(suite, runs)]
    return figures


@lru_cache(maxsize=16)
def cluster(nodes: int, used: float, seed: int) -> Cluster:
    """An aged cluster."""
    return aged(nodes, used, random.Random(seed))


def run(suite: Suite, seed: int) -> Run:
    """One seed of a row."""
    problem = problem_of(cluster(suite.nodes, suite.used, seed), suite.gang)
    effort = Effort(budget_s=BUDGET_S[suite.nodes])
    began = time.process_time()
    found = place_gang(problem, effort)
    cpu = time.process_time() - began
    if not found.counts.size or solution_errors(problem, found.counts):
        raise AssertionError(f"{suite.name}, seed {seed}: {found.outcome}, {found.faults}")
    levels = [term for term in found.terms if term.name.startswith("domains:")]
    quick = place_greedily(problem)
    return Run(
        racks=levels[-1].value,
        by_greedy=None if quick is None else _racks_of(problem, objective_values(problem, quick)),
        proven=all(term.value == term.bound for term in levels),
        cpu=cpu,
        work=found.work,
    )


def _racks_of(problem: Problem, values: tuple[int, ...]) -> int:
    return values[objective_names(problem).index("domains:rack")]


def _racks(suite: Suite, runs: list[Run]) -> Figure:
    found = [each.by_greedy for each in runs if each.by_greedy is not None]
    least, most = min(each.racks for each in runs), max(each.racks for each in runs)
    return Figure(
        name=f"B2 racks, {suite.name}",
        measured=mean(each.racks for each in runs),
        unit="racks",
        spread=f"{least} .. {most}; published {suite.greedy} -> {suite.proven}",
        raw=mean(found) if found else None,
        raw_is=f"greedy, which found {len(found)} of {len(runs)}",
    )


def _proven(suite: Suite, runs: list[Run]) -> Figure:
    share = sum(each.proven for each in runs) / len(runs)
    return Figure(
        name=f"B2 zones, blocks and racks proven, {suite.name}",
        measured=share,
        unit="of gangs",
        spread=f"{sum(each.proven for each in runs)} of {len(runs)} in "
        f"{BUDGET_S[suite.nodes]} deterministic s; used up to "
        f"{max(each.work for each in runs):.3f}",
        target=">= 1",
        met=share == 1,
    )


def _time(suite: Suite, runs: list[Run]) -> Figure:
    worst = max(each.cpu for each in runs)
    return Figure(
        name=f"B2 processor time of one gang, {suite.name}",
        measured=median(each.cpu for each in runs) * 1e3,
        unit="ms",
        spread=f"max {worst * 1e3:.0f}",
        target=f"max < {TIME_MAX_S[suite.nodes] * 1e3:.0f}",
        met=worst < TIME_MAX_S[suite.nodes],
    )
