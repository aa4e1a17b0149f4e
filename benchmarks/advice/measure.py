"""The figures of advice: suggestions that start their gang, and what an answer costs."""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import Final

from benchmarks.advice.large_cluster import make_large_cluster
from benchmarks.advice.share_started import (
    JudgedAdvice,
    judge_advice,
    spread_over,
    trial_of,
    waiting_gangs,
)
from benchmarks.advice.smallest import judge_smallness
from benchmarks.figures import Figure, middle, number
from gpusched.advice.advisor import advise_gang
from gpusched.api.meta.gpu_resources import gpu_resources_in_force
from gpusched.config.model import DEFAULT
from gpusched.io.observe.process_limits import collect_garbage_rarely

SEEDS: Final = 1_000
"""More clusters than are needed for so many suggestions."""
SUGGESTIONS: Final = 940
GANGS_A_CLUSTER: Final = 4
SUGGESTIONS_IN_LONG_LINES: Final = 60
LONG_LINE_NODES: Final = 60
LONG_LINE_GANGS: Final = 100
GANGS_A_LINE: Final = 20
STARTED_LEAST: Final = 0.99
SMALL_CLUSTERS: Final = 40
SMALLEST_LEAST: Final = 0.95
LARGE_SEEDS: Final = (1, 2, 3)
LARGE_GANGS: Final = 25
MEDIAN_MAX_S: Final = 2.0
MOST_MAX_S: Final = 10.0


def measure() -> list[Figure]:
    """Suggestions carried out, and seconds of answers in a large cluster."""
    collect_garbage_rarely()
    return [*_started(), *_large(), _smallest()]


def _started() -> list[Figure]:
    long_lines = partial(make_large_cluster, nodes=LONG_LINE_NODES, waiting=LONG_LINE_GANGS)
    return [
        _share_started("", judge_advice(range(SEEDS), gangs=GANGS_A_CLUSTER, enough=SUGGESTIONS)),
        _share_started(
            f" in lines of {LONG_LINE_GANGS}",
            judge_advice(
                range(SEEDS),
                gangs=GANGS_A_LINE,
                make=long_lines,
                enough=SUGGESTIONS_IN_LONG_LINES,
            ),
        ),
    ]


def _share_started(where: str, judged: JudgedAdvice) -> Figure:
    for each in judged.failed:
        print(f"did not start{where}: {each.text}", file=sys.stderr)
    count = len(judged.judged)
    cost, spread = middle(judged.cpu_s)
    share = 1 - len(judged.failed) / max(1, count)
    families = ", ".join(f"{name} {good}/{every}" for name, every, good in judged.by_family())
    return Figure(
        name=f"{count:,} suggestions for {len(judged.cpu_s)} gangs{where}, carried out: start their gang",
        measured=100 * share,
        unit="%",
        spread=f"{families}; for {judged.unadvised} gangs no change was found, of which "
        f"{judged.unexplained} were not told why; CPU s of an answer {spread}, median {number(cost)}",
        target=f">= {STARTED_LEAST:.0%}",
        met=share >= STARTED_LEAST,
    )


def _smallest() -> Figure:
    checked, larger = judge_smallness(range(SMALL_CLUSTERS), gangs=GANGS_A_CLUSTER)
    for each in larger:
        print(f"larger than needed: {each}", file=sys.stderr)
    share = 1 - len(larger) / max(1, checked)
    return Figure(
        name=f"{checked} suggestions of which all smaller ones were decided: none is enough",
        measured=100 * share,
        unit="%",
        target=f">= {SMALLEST_LEAST:.0%}",
        met=share >= SMALLEST_LEAST,
    )


def _large() -> list[Figure]:
    answers: list[float] = []
    copies: list[float] = []
    unadvised = unexplained = 0
    for seed in LARGE_SEEDS:
        cluster = make_large_cluster(seed)
        with gpu_resources_in_force(DEFAULT.gpu_resources):
            began = time.process_time()
            trial = trial_of(cluster)
            copies.append(time.process_time() - began)
            for gang in spread_over(waiting_gangs(trial), LARGE_GANGS):
                began = time.process_time()
                advice = advise_gang(trial, gang)
                answers.append(time.process_time() - began)
                nothing = not advice.suggestions and not advice.unchanged.starts
                unadvised += nothing
                unexplained += nothing and not (advice.in_the_way or advice.contradiction)
    answers.sort()
    cost, spread = middle(answers)
    most = answers[-1 - len(answers) // 100]
    copy_s, _ = middle(copies)
    where = "1,000 nodes, 500 gangs wait"
    return [
        Figure(
            name=f"advice, {where}",
            measured=cost,
            unit="CPU s",
            spread=f"{spread}; copy of the cluster {number(copy_s)} s; "
            f"for {unadvised} of {len(answers)} no change was found, {unexplained} were not told why",
            target=f"<= {MEDIAN_MAX_S:g} s",
            met=cost <= MEDIAN_MAX_S,
        ),
        Figure(
            name=f"advice, {where}: 99 %",
            measured=most,
            unit="CPU s",
            target=f"<= {MOST_MAX_S:g} s",
            met=most <= MOST_MAX_S,
        ),
    ]
