"""B3: a window of gangs admitted jointly, beside the better of two greedy orders.

Twenty gangs on an aged cluster ask for 1.3 times the free GPUs: pods of 8, 8, 8, 4 or 2 GPUs,
pinned to a rack, a block, a block or nothing, worth their GPUs times 1 to 10. All of it is
invented. GPUs alone count: every pod asks for its share of CPU and memory, of which there is
enough.
"""

from __future__ import annotations

import random
import time
from statistics import mean, median
from typing import Final

import attrs
import numpy as np

from benchmarks.figures import Figure
from benchmarks.placement.aged import aged
from gpusched.placement.admission.admit import admit_batch, admit_in_order
from gpusched.placement.admission.model import Admission, AdmissionBatch, AdmissionCandidate
from gpusched.placement.model.problem import DomainLevel, Effort, Problem, Role, SearchOutcome

GANGS: Final = 20
PODS: Final = (8, 8, 8, 4, 2)
PINNED: Final = ("rack", "block", "block", "")
GPUS_OF_GANG: Final = (16, 192)
DEMAND: Final = 1.3
EFFORT: Final = Effort(budget_s=0.2)
GAIN_MIN: Final = 1.05
PROVEN_MIN: Final = 0.9


@attrs.frozen
class Suite:
    """Clusters of one size and use."""

    nodes: int
    used: float
    seeds: int
    gain_min: float | None = None


SUITES: Final = (
    Suite(1000, 0.75, 8),
    Suite(1000, 0.90, 8, GAIN_MIN),
    Suite(5000, 0.80, 4),
)


@attrs.frozen
class Run:
    """One window: weights, and how the search for it ended."""

    gain: float
    proven: bool
    rounds: int
    work: float
    cpu: float
    gap: float


def measure() -> list[Figure]:
    """Admitted weight of each suite to that of greedy, and the share that is proven."""
    figures = []
    proven: list[bool] = []
    for suite in SUITES:
        runs = [run(suite, seed) for seed in range(suite.seeds)]
        proven += [each.proven for each in runs]
        gain = mean(each.gain for each in runs)
        name = f"{suite.nodes:,} nodes, {suite.used:.0%} used"
        better = sum(each.gain > 1 for each in runs)
        figures.append(
            Figure(
                name=f"B3 admitted weight / greedy, {name}",
                measured=gain,
                unit="times",
                spread=f"{better} of {len(runs)} better, best {max(r.gain for r in runs):.3f}, "
                f"{sum(r.proven for r in runs)} proven, gap {max(r.gap for r in runs):.2%}",
                target=f">= {suite.gain_min}" if suite.gain_min else "",
                met=gain >= suite.gain_min if suite.gain_min else None,
            )
        )
        figures.append(
            Figure(
                name=f"B3 processor time of one window, {name}",
                measured=median(each.cpu for each in runs) * 1e3,
                unit="ms",
                spread=f"max {max(r.cpu for r in runs) * 1e3:.0f}; solver "
                f"{median(r.work for r in runs) * 1e3:.0f} (max "
                f"{max(r.work for r in runs) * 1e3:.0f}) det. ms",
            )
        )
    share = sum(proven) / len(proven)
    figures.append(
        Figure(
            name=f"B3 proven optimal within {EFFORT.budget_s} deterministic s",
            measured=share,
            unit="of windows",
            spread=f"{sum(proven)} of {len(proven)}",
            target=f">= {PROVEN_MIN}",
            met=share >= PROVEN_MIN,
        )
    )
    return figures


def run(suite: Suite, seed: int) -> Run:
    """One cluster and one window on it."""
    made = window(suite, seed)
    greedy = max(made.total_weight([*admit_in_order(made, order)]) for order in orders(made))
    began = time.process_time()
    answer: Admission = admit_batch(made, EFFORT)
    cpu = time.process_time() - began
    return Run(
        gain=answer.weight / greedy,
        proven=answer.outcome is SearchOutcome.OPTIMAL and answer.work <= EFFORT.budget_s,
        rounds=answer.rounds,
        work=answer.work,
        cpu=cpu,
        gap=(answer.bound - answer.weight) / max(1, answer.bound),
    )


def orders(made: AdmissionBatch) -> tuple[list[int], list[int]]:
    """By weight, and by weight for each GPU."""
    every = range(len(made.contenders))
    gpus = [each.problem.members * each.problem.roles[0].gpus for each in made.contenders]
    weights = [each.weight for each in made.contenders]
    return (
        sorted(every, key=lambda n: (-weights[n], n)),
        sorted(every, key=lambda n: (-weights[n] / gpus[n], n)),
    )


def window(suite: Suite, seed: int) -> AdmissionBatch:
    """Gangs that ask for more than is free."""
    rng = random.Random(seed)
    cluster = aged(suite.nodes, suite.used, rng)
    free = np.array([[gpus] for gpus, _, _ in cluster.free], dtype=np.int64)
    levels = cluster.levels
    drawn = [_drawn(rng) for _ in range(GANGS)]
    asked = sum(pods * gpus for pods, gpus, _, _ in drawn)
    scale = DEMAND * int(free.sum()) / asked
    contenders = []
    for pods, gpus, level, worth in drawn:
        count = max(1, round(pods * scale))
        problem = _gang(free, levels, count, gpus, level)
        contenders.append(AdmissionCandidate(problem=problem, weight=count * gpus * worth))
    return AdmissionBatch(free=free, contenders=tuple(contenders))


def _drawn(rng: random.Random) -> tuple[int, int, str, int]:
    gpus = rng.choice(PODS)
    asked = rng.randint(*GPUS_OF_GANG)
    return max(1, asked // gpus), gpus, rng.choice(PINNED), rng.randint(1, 10)


def _gang(
    free: np.ndarray, levels: tuple[DomainLevel, ...], pods: int, gpus: int, level: str
) -> Problem:
    fits = np.minimum(free[:, 0] // gpus, pods)
    role = Role(request=np.array([gpus], dtype=np.int64), most=pods, fits=fits, gpus=gpus)
    names = [each.name for each in levels]
    required = names.index(level) if level else -1
    return Problem(free=free, roles=(role,), members=pods, levels=levels, required=required)
