"""How fast waiting pods are bound, beside the rate of the same client without a scheduler."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable
from statistics import median
from typing import Final

from benchmarks.cluster import PODS, Cluster, cluster
from benchmarks.figures import Figure, middle
from benchmarks.inputs import pod

NODES: Final = 500
PENDING: Final = 3_000
ROUNDS: Final = 5
RATIO_MIN: Final = 0.6


def measure() -> list[Figure]:
    """Rates of both in turn; medians are compared, as single rounds vary much."""
    raw: list[float] = []
    ours: list[float] = []
    for _ in range(ROUNDS):
        raw.append(asyncio.run(_round(_raw)))
        ours.append(asyncio.run(_round(_daemon)))
    rate, spread = middle(ours)
    limit = median(raw)
    return [
        Figure(
            name=f"drain {PENDING:,} pods onto {NODES} nodes",
            measured=rate,
            unit="pods/s",
            spread=spread,
            raw=limit,
            raw_is="client alone",
            target=f"ratio >= {RATIO_MIN}, aim 0.8",
            met=rate / limit >= RATIO_MIN,
        )
    ]


async def _round(binder: Callable[[Cluster], Awaitable[None]]) -> float:
    """Pods a second from the first binding to the last, as the server writes them."""
    async with cluster(nodes=NODES) as here:
        await here.create(PODS, (pod(f"pod-{index:05d}") for index in range(PENDING)))
        binding = asyncio.ensure_future(binder(here))
        try:
            times = await here.bound(PENDING)
        finally:
            binding.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await binding
    return (PENDING - 1) / (times[-1] - times[0])


async def _raw(here: Cluster) -> None:
    with here.child([sys.executable, "-m", "benchmarks.raw_binds", here.kubeconfig, str(NODES)]):
        await asyncio.get_running_loop().create_future()


async def _daemon(here: Cluster) -> None:
    with here.daemon():
        await asyncio.get_running_loop().create_future()
