"""Months of gang jobs with the shape that was published of Microsoft's Philly clusters.

Published ("Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads", USENIX
ATC 2019, arXiv 1901.05758; README of msr-fiddle/philly-traces): jobs of 1 to 128 GPUs, most of them
of one; run times from minutes to weeks, larger jobs longer, half a percent above a week; virtual
clusters of unequal size with a quota each; the sizes that people tell apart are 1, 2 to 4, 5 to 8
and more than 8 GPUs; 117,325 jobs in 4.5 months. All else here, the shares of sizes and queues, the
medians and the rhythm of day and week, is a choice with that shape, not a fit: it is stated below.
"""

from __future__ import annotations

import math
import random
from typing import Final

from gpusched.base.classes import frozen
from gpusched.lab.simulate.traces.model import Trace, TraceJob

SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128)
SHARES: Final = (0.70, 0.08, 0.08, 0.09, 0.03, 0.013, 0.005, 0.002)
"""Of jobs by size."""
MEDIANS_S: Final = (780, 1_200, 1_500, 2_400, 5_400, 7_200, 10_800, 10_800)
"""Median run time by size: minutes for small jobs, hours for large ones."""
WEEK_S: Final = 7 * 86_400
OVER_A_WEEK: Final = 0.005
"""Of the jobs of one GPU run longer than a week; their spread follows from that."""
_QUANTILE: Final = 2.5758
"""Standard deviations above the median with half a percent beyond."""
LONGEST_S: Final = 28 * 86_400
SHORTEST_S: Final = 60
QUEUES: Final = 15
_SKEW: Final = 0.9
"""Queue k submits in proportion to 1 / k ** 0.9: the first has a quarter, the last a fiftieth."""
HOURS: Final = (
    0.55, 0.45, 0.40, 0.35, 0.35, 0.40, 0.55, 0.75, 1.00, 1.25, 1.45, 1.50,
    1.40, 1.45, 1.55, 1.60, 1.60, 1.50, 1.35, 1.25, 1.15, 1.00, 0.85, 0.70,
)  # fmt: skip
"""How busy each hour of the day is, relative to each other."""
DAYS: Final = (1.10, 1.15, 1.15, 1.15, 1.05, 0.70, 0.70)
"""The same of the days of a week, from Monday."""
USERS_PER_QUEUE: Final = 20


@frozen(kw_only=True)
class GeneratorOptions:
    """What is generated.

    Attributes:
        jobs: how many.
        days: over how many days they come.
        seed: the same seed gives the same jobs.
        gpus_max: no job is larger.
    """

    jobs: int
    days: float
    seed: int = 1
    gpus_max: int = 128


def generate_jobs(plan: GeneratorOptions) -> Trace:
    """Jobs by time.

    Raises:
        ValueError: fewer than one job, or no time for them.
    """
    if plan.jobs < 1 or plan.days <= 0 or plan.gpus_max < 1:
        raise ValueError("a trace has at least one job, some time, and jobs of at least one GPU")
    rng = random.Random(plan.seed)  # noqa: S311 - nothing secret is drawn
    weights = [1 / (1 + number) ** _SKEW for number in range(QUEUES)]
    moments = sorted(_moments(plan, rng))
    jobs = [_job(number, at, rng, weights, plan) for number, at in enumerate(moments)]
    source = f"generated Philly shape, {plan.jobs} jobs in {plan.days:g} days, seed {plan.seed}"
    return Trace(source=source, jobs=tuple(jobs))


def _moments(plan: GeneratorOptions, rng: random.Random) -> list[float]:
    """Whole seconds, denser in busy hours and on working days."""
    span_s = plan.days * 86_400
    most = max(HOURS) * max(DAYS)
    found: list[float] = []
    while len(found) < plan.jobs:
        at = rng.uniform(0, span_s)
        busy = HOURS[int(at // 3600) % 24] * DAYS[int(at // 86_400) % 7]
        if rng.random() * most <= busy:
            found.append(float(int(at)))
    return found


def _job(
    number: int, at: float, rng: random.Random, weights: list[float], plan: GeneratorOptions
) -> TraceJob:
    kind = rng.choices(range(len(SIZES)), SHARES)[0]
    queue = rng.choices(range(QUEUES), weights)[0]
    spread = math.log(WEEK_S / MEDIANS_S[0]) / _QUANTILE
    seconds = MEDIANS_S[kind] * math.exp(rng.gauss(0, spread))
    user = int(USERS_PER_QUEUE * rng.random() ** 2)
    return TraceJob(
        name=f"job-{number:06d}",
        submit_s=at,
        duration_s=int(min(LONGEST_S, max(SHORTEST_S, seconds))),
        gpus=min(plan.gpus_max, SIZES[kind]),
        queue=f"vc-{queue + 1:02d}",
        user=f"user-{queue + 1:02d}-{user:02d}",
    )
