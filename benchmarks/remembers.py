"""Memory of the daemon while gangs come and go: it follows what is alive, not what ever was.

``MEMORY_GANGS`` says how many are made and deleted; the series is printed as it is measured.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Final

from benchmarks.cluster import Cluster, cluster, daemon_process, rss_mib
from benchmarks.figures import Figure, number
from benchmarks.inputs import NAMESPACE, pod
from gpusched import API_VERSION

NODES: Final = 20
GANGS: Final = int(os.environ.get("MEMORY_GANGS", "4000"))
"""A hundred thousand are half an hour."""
STEPS: Final = 20
ALIVE: Final = 12
MOST: Final = 1.05
_LIFE_S: Final = 0.2
_PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
_GROUPS: Final = f"/apis/{API_VERSION}/namespaces/{NAMESPACE}/podgroups"


def measure() -> list[Figure]:
    """Resident memory after half of the gangs and in the end."""
    series = asyncio.run(_series())
    half, end = max(series[: STEPS // 2]), max(series[STEPS // 2 :])
    shown = " ".join(number(each) for each in series[:: max(1, STEPS // 10)])
    return [
        Figure(
            name=f"memory of the daemon, {GANGS:,} gangs made and deleted: second half to first",
            measured=end / half,
            unit="times",
            spread=f"MiB: {shown}",
            target=f"<= {MOST:g}",
            met=end / half <= MOST,
        )
    ]


async def _series() -> list[float]:
    async with cluster(nodes=NODES) as here:
        with daemon_process(here.kubeconfig) as daemon:
            found = []
            made = 0
            for step in range(STEPS):
                upto = GANGS * (step + 1) // STEPS
                await _come_and_go(here, range(made, upto))
                made = upto
                found.append(rss_mib(daemon.pid))
                print(f"{made:,} gangs: {found[-1]:.1f} MiB", file=sys.stderr, flush=True)
            return found


async def _come_and_go(here: Cluster, numbers: range) -> None:
    free = asyncio.Semaphore(ALIVE)

    async def one(index: int) -> None:
        async with free:
            name = f"gang-{index}"
            group = {
                "apiVersion": API_VERSION, "kind": "PodGroup",
                "metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"minMember": 1},
            }  # fmt: skip
            await here.post(_GROUPS, group)
            member = pod(f"{name}-0", gpus=1 if index % 2 else 64)
            member["metadata"]["labels"] = {"gpusched.io/pod-group": name}
            await here.post(_PODS, member)
            await asyncio.sleep(_LIFE_S)
            for path in (f"{_PODS}/{name}-0?gracePeriodSeconds=0", f"{_GROUPS}/{name}"):
                await here.api.request("DELETE", path, timeout_s=60.0)

    await asyncio.gather(*(one(index) for index in numbers))
