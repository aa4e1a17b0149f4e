"""From a pod created to its binding written, on an idle cluster."""

from __future__ import annotations

import asyncio
import json
import random
import time
from typing import Final

from benchmarks.cluster import PODS, Cluster, cluster
from benchmarks.figures import Figure, number
from benchmarks.inputs import pod
from gpusched.api.meta.identity import UID, ObjectKey
from gpusched.api.serializer import requests

NODES: Final = 500
PODS_ALONE: Final = 200
MEDIAN_MAX_MS: Final = 30.0
P99_MAX_MS: Final = 100.0
SEED: Final = 1
_WARM: Final = 5


def measure() -> list[Figure]:
    """Median and 99th percentile of the daemon, beside a client that binds at once."""
    raw, ours = asyncio.run(_both())
    figures = []
    for name, share, most in (("median", 0.5, MEDIAN_MAX_MS), ("p99", 0.99, P99_MAX_MS)):
        figures.append(
            Figure(
                name=f"pod created to bound, {NODES} nodes, {name}",
                measured=_quantile(ours, share),
                unit="ms",
                spread=f"{number(min(ours))} .. {number(max(ours))}",
                raw=_quantile(raw, share),
                raw_is="bound at once",
                target=f"< {most:g} ms",
                met=_quantile(ours, share) < most,
            )
        )
    return figures


async def _both() -> tuple[list[float], list[float]]:
    async with cluster(nodes=NODES) as here:
        raw = await _times(here, "raw", before=0, bind=True)
        with here.daemon():
            return raw, await _times(here, "ours", before=PODS_ALONE + _WARM, bind=False)


async def _times(here: Cluster, prefix: str, *, before: int, bind: bool) -> list[float]:
    """Milliseconds of each pod; the next is created some time after the last was bound."""
    rng = random.Random(SEED)
    times = []
    for index in range(PODS_ALONE + _WARM):
        created = await here.post(PODS, pod(f"{prefix}-{index:04d}"))
        began = time.monotonic()
        if bind:
            await _bind(here, created["metadata"])
        times.append(((await here.bound(before + index + 1))[-1] - began) * 1e3)
        await asyncio.sleep(rng.uniform(0.01, 0.06))
    # The first pods also wait for connections, and for the daemon to start and to lead.
    return times[_WARM:]


async def _bind(here: Cluster, metadata: dict[str, str]) -> None:
    key = ObjectKey(metadata["namespace"], metadata["name"])
    body = requests.binding_body(
        key, UID(metadata["uid"]), node="node-00000", slots=1, rank=-1, plan="0" * 12, fence="b/1"
    )
    await here.post(f"{PODS}/{key.name}/binding", json.loads(body))


def _quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
