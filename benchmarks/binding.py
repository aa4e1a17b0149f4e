"""Binding at the rate of a slow server: the daemon beside the same client without a scheduler, in turns."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from statistics import median
from typing import Final

import attrs

from benchmarks.cluster import PODS, cluster, cpu_s, daemon_process, running
from benchmarks.figures import Figure, middle
from benchmarks.inputs import pod

NODES: Final = 500
PENDING: Final = 3_000
PAIRS: Final = 10
SMALL: Final = 50
SMALL_RUNS: Final = 5
WRITES_A_SECOND: Final = 900
RATIO_MIN: Final = 0.9
CPU_RATIO_MAX: Final = 2.5
FIRST_MAX_S: Final = 1.5


@attrs.frozen
class Drain:
    """One process bound all pods.

    Attributes:
        rate: pods a second, from the first binding to the last, as the server wrote them.
        cpu_s: of the process from its start to the last binding.
        first_s: from its start to the first binding.
    """

    rate: float
    cpu_s: float
    first_s: float


def measure() -> list[Figure]:
    """Ten pairs; each is compared within itself."""
    pairs = [(asyncio.run(_drain(_raw)), asyncio.run(_drain(daemon_process))) for _ in range(PAIRS)]
    rates = median(ours.rate / raw.rate for raw, ours in pairs)
    cpus = median(ours.cpu_s / raw.cpu_s for raw, ours in pairs)
    rate, rates_seen = middle([ours.rate for _, ours in pairs])
    cpu, cpus_seen = middle([ours.cpu_s for _, ours in pairs])
    first, firsts_seen = middle([ours.first_s for _, ours in pairs])
    small, smalls_seen = middle(
        [
            asyncio.run(_drain(daemon_process, nodes=SMALL, pods=SMALL)).first_s
            for _ in range(SMALL_RUNS)
        ]
    )
    of = f"{PENDING:,} pods on {NODES} nodes, {WRITES_A_SECOND} writes a second"
    return [
        Figure(
            name=f"bindings: {of}",
            measured=rate,
            unit="pods/s",
            spread=rates_seen,
            raw=rate / rates,
            raw_is="client alone",
            target=f"ratio >= {RATIO_MIN}",
            met=rates >= RATIO_MIN,
        ),
        Figure(
            name="CPU of the process until the last of them",
            measured=cpu,
            unit="s",
            spread=cpus_seen,
            raw=cpu / cpus,
            raw_is="client alone",
            target=f"ratio <= {CPU_RATIO_MAX}",
            met=cpus <= CPU_RATIO_MAX,
        ),
        Figure(
            name="start of the process to its first binding",
            measured=first,
            unit="s",
            spread=firsts_seen,
            target=f"<= {FIRST_MAX_S} s",
            met=first <= FIRST_MAX_S,
        ),
        Figure(
            name=f"the same with {SMALL} pods on {SMALL} nodes",
            measured=small,
            unit="s",
            spread=smalls_seen,
            target=f"<= {FIRST_MAX_S} s",
            met=small <= FIRST_MAX_S,
        ),
    ]


def _raw(kubeconfig: str) -> AbstractContextManager[subprocess.Popen[str]]:
    return running([sys.executable, "-m", "benchmarks.raw_binds", kubeconfig, str(NODES)])


async def _drain(
    binder: Callable[[str], AbstractContextManager[subprocess.Popen[str]]],
    *,
    nodes: int = NODES,
    pods: int = PENDING,
) -> Drain:
    async with cluster(nodes=nodes, writes_a_second=WRITES_A_SECOND) as here:
        await here.create(PODS, (pod(f"pod-{index:05d}") for index in range(pods)))
        here.slow()
        began = time.monotonic()
        with binder(here.kubeconfig) as process:
            times = await here.bound(pods)
            used = cpu_s(process.pid)
    return Drain((pods - 1) / (times[-1] - times[0]), used, times[0] - began)
