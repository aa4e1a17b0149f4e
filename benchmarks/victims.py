"""Eviction cost against the optimum, on aged random clusters: how much work a choice loses in vain.

The clusters are invented, see ``benchmarks.placement.aged``. For every domain of the required level the greedy chooses;
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

from benchmarks.figures import Figure
from benchmarks.placement.aged import GPUS, Cluster, aged
from benchmarks.placement.b4 import SUITES, Suite
from gpusched.base.limits import VICTIM_MODEL_S
from gpusched.placement.model.problem import Effort, SearchOutcome
from gpusched.placement.victims.greedy_choice import VictimSearchState
from gpusched.placement.victims.model import EvictablePod, VictimBundle, VictimChoice
from gpusched.placement.victims.search import find_cheaper_victims

RATIO_MAX: Final = 1.15
SESSION_S: Final = 0.5
PROOF_S: Final = 20.0
"""Deterministic seconds after which a domain counts as unproven."""


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
    found = [(field, choice) for field in fields if (choice := field.choose_bundles(suite.pods))]
    found.sort(key=lambda each: (each[1].rank, each[1].cost))
    greedy = found[0][1]
    chosen, _ = _better(found, suite.pods, greedy, each_s=VICTIM_MODEL_S, all_s=SESSION_S)
    seconds = time.perf_counter() - began
    best, proven = _better(found, suite.pods, chosen, each_s=PROOF_S, all_s=1e9)
    return greedy.cost, chosen.cost, best.cost, seconds, proven


def _better(
    found: Sequence[tuple[VictimSearchState, VictimChoice]],
    need: int,
    best: VictimChoice,
    *,
    each_s: float,
    all_s: float,
) -> tuple[VictimChoice, bool]:
    proven = True
    for field, _ in found:
        if all_s <= 0:
            return best, False
        answer = find_cheaper_victims(field, need, best, Effort(budget_s=min(each_s, all_s)))
        all_s -= answer.spent
        best = answer.choice or best
        proven = proven and (answer.proven or answer.outcome is SearchOutcome.INFEASIBLE)
    return best, proven


def _fields(suite: Suite, cluster: Cluster) -> list[VictimSearchState]:
    """One field for each domain; jobs below priority 2 may go, each as a whole."""
    ask = (suite.gpus, suite.gpus * (12 if suite.gpus == GPUS else 10), suite.gpus * 128)
    fields = []
    for start in range(0, suite.nodes, suite.domain):
        rows = range(start, min(start + suite.domain, suite.nodes))
        members: list[EvictablePod] = []
        bundles: list[VictimBundle] = []
        for job in cluster.jobs:
            if job.priority == 2 or not any(row in rows for row in job.rows):
                continue
            first = len(members)
            members += [
                EvictablePod(row if row in rows else -1, job.request, 0) for row in job.rows
            ]
            every = tuple(range(first, len(members)))
            bundles.append(VictimBundle(every, len(bundles), len(bundles), extra=job.cost))
        fields.append(
            VictimSearchState(ask, {row: cluster.free[row] for row in rows}, members, bundles)
        )
    return fields
