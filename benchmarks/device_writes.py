"""How fast gangs with claims are bound, writes and all, beside the same gangs with ``nvidia.com/gpu``.

Cluster, daemon and client are processes of their own. All pods wait, with claims made, before the daemon
starts. With a claim three requests come before a pod runs (finalizer, allocation, binding) instead of
one; what the same client does in the same time without a scheduler stands beside it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from statistics import median
from typing import Any, Final

import attrs

from benchmarks.cluster import PODS, Cluster, cluster, cpu_s, daemon_process
from benchmarks.device_inputs import API, claimant, classes, node_of_devices, slices, template
from benchmarks.figures import Figure, middle
from benchmarks.inputs import NAMESPACE, Obj, node, pod

NODES: Final = 250
GANGS: Final = 200
MEMBERS: Final = 8
ROUNDS: Final = 3
RATIO_MIN: Final = 0.6
_PLURALS: Final = {
    "DeviceClass": f"/apis/{API}/deviceclasses",
    "ResourceSlice": f"/apis/{API}/resourceslices",
    "ResourceClaimTemplate": f"/apis/{API}/namespaces/{NAMESPACE}/resourceclaimtemplates",
}
_LOOK_S: Final = 0.2
_QUIET_S: Final = 2.0
_WITHIN_S: Final = 120.0


@attrs.frozen
class Run:
    """What one run cost.

    Attributes:
        rate: pods a second from the first binding to the last, as the server writes them.
        cpu_s: seconds of CPU of the daemon, beyond those of its start on the cluster without pods.
    """

    rate: float
    cpu_s: float


def measure() -> list[Figure]:
    """Both sorts of gangs in turn, and the client alone."""
    return asyncio.run(_measure())


async def _measure() -> list[Figure]:
    pods = GANGS * MEMBERS
    idle = {claims: await _idle_cpu_s(claims=claims) for claims in (True, False)}
    runs: dict[bool, list[Run]] = {True: [], False: []}
    raw: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(ROUNDS):
        for claims in (True, False):
            runs[claims].append(await _daemon(idle[claims], claims=claims))
            raw[claims].append(await _raw(claims=claims))
    pairs = list(zip(runs[True], runs[False], strict=True))
    rate, spread = middle([each.rate for each in runs[True]])
    ratio, ratio_spread = middle([ours.rate / plain.rate for ours, plain in pairs])
    cost, cost_spread = middle([each.cpu_s * 1e3 / pods for each in runs[True]])
    work, work_spread = middle([plain.cpu_s / ours.cpu_s for ours, plain in pairs])
    limit = median(ours / plain for ours, plain in zip(raw[True], raw[False], strict=True))
    return [
        Figure(
            name=f"{pods:,} pods with a GPU and a NIC, claims written and bound over HTTP",
            measured=rate, unit="pods/s", spread=spread, raw=median(raw[True]),
            raw_is="client alone",
        ),
        Figure(
            name="  with nvidia.com/gpu", measured=median(each.rate for each in runs[False]),
            unit="pods/s", raw=median(raw[False]), raw_is="client alone",
        ),
        Figure(
            name="  of the rate with nvidia.com/gpu, turn by turn", measured=ratio, unit="times",
            spread=ratio_spread, raw=limit, raw_is="of the client alone",
            target=f">= {RATIO_MIN:g}", met=ratio >= RATIO_MIN,
        ),
        Figure(
            name="  the daemon for a pod", measured=cost, unit="ms of CPU", spread=cost_spread,
            raw=median(each.cpu_s for each in runs[False]) * 1e3 / pods,
            raw_is="with nvidia.com/gpu",
        ),
        Figure(
            name="  pods a second of the daemon's CPU, of those with nvidia.com/gpu", measured=work,
            unit="times", spread=work_spread,
        ),
    ]  # fmt: skip


@contextlib.asynccontextmanager
async def _filled(*, claims: bool, gangs: int = GANGS) -> AsyncIterator[Cluster]:
    """A cluster with nodes, and gangs that wait with their claims made."""
    async with cluster(nodes=NODES, make=node_of_devices if claims else node) as here:
        if claims:
            for each in (*classes(), template()):
                await here.post(_PLURALS[each["kind"]], each)
            parts = (each for at in range(NODES) for each in slices(at, shareable_nics=True))
            await here.create(_PLURALS["ResourceSlice"], parts)
        await here.create(PODS, [_member(at, claims=claims) for at in range(gangs * MEMBERS)])
        until = asyncio.get_running_loop().time() + _WITHIN_S
        while claims and any(
            "resourceClaimStatuses" not in each["status"] for each in await _items(here, PODS)
        ):
            if asyncio.get_running_loop().time() > until:
                raise RuntimeError("claims were not made in time")
            await asyncio.sleep(_LOOK_S)
        yield here


async def _items(here: Cluster, path: str) -> list[dict[str, Any]]:
    answer = await here.api.request("GET", path, timeout_s=_WITHIN_S)
    found: list[dict[str, Any]] = json.loads(answer.body)["items"]
    return found


def _member(at: int, *, claims: bool) -> Obj:
    gang, number = divmod(at, MEMBERS)
    name = f"gang-{gang:04d}-{number:03d}"
    made = claimant(name) if claims else pod(name)
    made["metadata"]["annotations"] = {"gpusched.io/min-member": str(MEMBERS)}
    made["metadata"]["ownerReferences"] = [
        {
            "apiVersion": "example.com/v1", "kind": "Trainer", "name": f"gang-{gang:04d}",
            "uid": f"t{gang:07d}-0000-4000-8000-000000000000", "controller": True,
        }
    ]  # fmt: skip
    return made


async def _idle_cpu_s(*, claims: bool) -> float:
    """CPU of a daemon that has started and has nothing to do."""
    async with _filled(claims=claims, gangs=0) as here:
        with daemon_process(here.kubeconfig) as process:
            before, quiet_s = -1.0, 0.0
            while quiet_s < _QUIET_S:
                await asyncio.sleep(_LOOK_S)
                now = cpu_s(process.pid)
                quiet_s = quiet_s + _LOOK_S if now - before < _LOOK_S / 4 else 0.0
                before = now
            return before


async def _daemon(idle_cpu_s: float, *, claims: bool) -> Run:
    pods = GANGS * MEMBERS
    async with _filled(claims=claims) as here:
        with daemon_process(here.kubeconfig) as process:
            times = await here.bound(pods)
            spent = cpu_s(process.pid) - idle_cpu_s
    return Run((pods - 1) / (times[-1] - times[0]), spent)


async def _raw(*, claims: bool) -> float:
    pods = GANGS * MEMBERS
    async with _filled(claims=claims) as here:
        command = [sys.executable, "-m", "benchmarks.raw_binds", here.kubeconfig, str(NODES)]
        with here.child([*command, *(["claims"] if claims else [])]):
            times = await here.bound(pods)
    return (pods - 1) / (times[-1] - times[0])
