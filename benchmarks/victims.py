"""Eviction cost against the optimum, on aged random clusters: how much work a choice loses in vain.

The clusters are invented: node and job sizes, how they were filled, and the three levels of
topology are in the constants below. For every domain of the required level the greedy chooses;
the best of these is then bettered or proven by one model a domain. A row compares the greedy,
and what a session would do, with the least of all domains, proven without a time limit that
matters.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from statistics import mean, median
from typing import Final

import attrs

from benchmarks.figures import Figure
from gpusched.limits import VICTIM_MODEL_S
from gpusched.placement.cpsat_victims import cheaper
from gpusched.placement.problem import Outcome
from gpusched.placement.victim_field import Field
from gpusched.placement.victims import Bundle, Choice, Member

GPUS, CPU, MEMORY = 8, 128, 2048
RACK, BLOCK, ZONE = 16, 128, 512
SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128)
WEIGHTS: Final = (30, 12, 14, 18, 12, 8, 4, 2)
FULL, AGES, FAILURES = 0.97, 3, 40
RATIO_MAX: Final = 1.15
SESSION_S: Final = 0.5
PROOF_S: Final = 20.0
"""Deterministic seconds after which a domain counts as unproven."""


@attrs.frozen
class Suite:
    """Newcomers of one kind: pods of some GPUs that must fit one domain of so many nodes."""

    pods: int
    gpus: int
    nodes: int
    used: float
    domain: int
    seeds: int


SUITES: Final = (
    Suite(32, 8, 1000, 0.92, BLOCK, 6),
    Suite(64, 8, 1000, 0.92, BLOCK, 6),
    Suite(48, 4, 1000, 0.95, BLOCK, 4),
    Suite(12, 8, 1000, 0.95, RACK, 4),
    Suite(96, 8, 5000, 0.92, BLOCK, 4),
    Suite(256, 8, 5000, 0.92, ZONE, 6),
)


def measure() -> list[Figure]:
    """Cost ratios of each suite: what a session chooses, and what its greedy alone would."""
    figures = []
    for suite in SUITES:
        # A newcomer that fits as it is costs nobody anything: there is no ratio.
        runs = [run for seed in range(suite.seeds) if (run := _run(suite, seed))[2]]
        name = f"{suite.pods}x{suite.gpus} GPUs in {suite.domain} of {suite.nodes:,} nodes"
        ratios = [chosen / best for _, chosen, best, _, _ in runs]
        greedy = [first / best for first, _, best, _, _ in runs]
        figures.append(
            Figure(
                name=f"eviction cost / optimum, {name}, {suite.used:.0%} used",
                measured=max(ratios),
                unit="times",
                spread=f"mean {mean(ratios):.3f}, {sum(each[4] for each in runs)} of "
                f"{len(runs)} proven, {median(each[3] for each in runs) * 1e3:.0f} ms",
                raw=max(greedy),
                raw_is="greedy alone",
                target=f"<= {RATIO_MAX}",
                met=max(ratios) <= RATIO_MAX,
            )
        )
    return figures


def _run(suite: Suite, seed: int) -> tuple[int, int, int, float, bool]:
    """Cost of the greedy, of a session, the least; seconds of the session; whether proven."""
    rng = random.Random(seed)
    fields = _fields(suite, aged(suite.nodes, suite.used, rng))
    began = time.perf_counter()
    found = [(field, choice) for field in fields if (choice := field.choose(suite.pods))]
    found.sort(key=lambda each: (each[1].lane, each[1].cost))
    greedy = found[0][1]
    chosen, _ = _better(found, suite.pods, greedy, each_s=VICTIM_MODEL_S, all_s=SESSION_S)
    seconds = time.perf_counter() - began
    best, proven = _better(found, suite.pods, chosen, each_s=PROOF_S, all_s=1e9)
    return greedy.cost, chosen.cost, best.cost, seconds, proven


def _better(
    found: Sequence[tuple[Field, Choice]], need: int, best: Choice, *, each_s: float, all_s: float
) -> tuple[Choice, bool]:
    proven = True
    for field, _ in found:
        if all_s <= 0:
            return best, False
        answer = cheaper(field, need, best, budget_s=min(each_s, all_s), workers=1, seed=1)
        all_s -= answer.spent
        best = answer.choice or best
        proven = proven and (answer.proven or answer.outcome is Outcome.INFEASIBLE)
    return best, proven


# -- clusters --------------------------------------------------------------------------------
@attrs.frozen(eq=False)
class Job:
    """Pods on nodes: GPUs, CPU and memory of each; cost of the whole."""

    rows: tuple[int, ...]
    request: tuple[int, int, int]
    priority: int
    cost: int


@attrs.define(eq=False)
class Cluster:
    """Free GPUs, CPU and memory of each node, and who runs."""

    free: list[list[int]]
    jobs: list[Job]


def aged(nodes: int, used: float, rng: random.Random) -> Cluster:
    """Filled and emptied again and again, as clusters are."""
    cluster = Cluster([[GPUS, CPU, MEMORY] for _ in range(nodes)], [])
    for _ in range(AGES):
        _fill(cluster, rng)
        while _held(cluster) > used * nodes * GPUS:
            job = cluster.jobs.pop(rng.randrange(len(cluster.jobs)))
            _move(cluster, job, 1)
    return cluster


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
        job = Job(
            rows, request, rng.choices((0, 1, 2), (3, 4, 3))[0], 1 + size * rng.randint(1, 24)
        )
        cluster.jobs.append(job)
        _move(cluster, job, -1)
        held += size


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


def _fields(suite: Suite, cluster: Cluster) -> list[Field]:
    """One field for each domain; jobs below priority 2 may go, each as a whole."""
    ask = (suite.gpus, suite.gpus * (12 if suite.gpus == GPUS else 10), suite.gpus * 128)
    fields = []
    for start in range(0, suite.nodes, suite.domain):
        rows = range(start, min(start + suite.domain, suite.nodes))
        members: list[Member] = []
        bundles: list[Bundle] = []
        for job in cluster.jobs:
            if job.priority == 2 or not any(row in rows for row in job.rows):
                continue
            first = len(members)
            members += [Member(row if row in rows else -1, job.request, 0) for row in job.rows]
            every = tuple(range(first, len(members)))
            bundles.append(Bundle(every, len(bundles), len(bundles), extra=job.cost))
        fields.append(Field(ask, {row: cluster.free[row] for row in rows}, members, bundles))
    return fields
