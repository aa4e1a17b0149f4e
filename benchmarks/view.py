"""What the view costs the daemon, and how old it is: 50 pages and 1,000 requests a second beside churn."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import aiohttp
import attrs

from benchmarks.cluster import COMMAND, PODS, Cluster, cluster, cpu_s, running
from benchmarks.figures import Figure, middle, number
from benchmarks.inputs import pod

NODES: Final = 1_000
PAGES: Final = 50
RATE: Final = 1_000
SECONDS: Final = 15.0
PODS_WATCHED: Final = 20
CORE_MAX: Final = 0.05
CYCLE_MAX_MS: Final = 1.0
AGE_MAX_S: Final = 1.0
_LEASE: Final = "/apis/coordination.k8s.io/v1/namespaces/gpusched-system/leases/gpusched-view"
_TURNS: Final = 3


@attrs.frozen
class _Spell:
    """Of some seconds: CPU seconds of the daemon for each of them, and milliseconds of its mean session."""

    core: float
    cycle_ms: float


def measure() -> list[Figure]:
    """The daemon's CPU and sessions in turns without and with clients; the age of what is shown."""
    quiet, busy, clients, ages = asyncio.run(_measured())
    cost = [one.core - other.core for one, other in zip(busy, quiet, strict=True)]
    longer = [one.cycle_ms - other.cycle_ms for one, other in zip(busy, quiet, strict=True)]
    age, spread = middle(ages)
    rate = min(each["requests_s"] for each in clients)
    what = f"{PAGES} pages and {RATE:,} requests a second, {NODES:,} nodes"
    return [
        Figure(
            name=f"{what}: CPU of the daemon beyond that without them",
            measured=middle(cost)[0],
            unit="cores",
            spread=f"{middle(cost)[1]}; {number(rate)} requests a second were answered at least",
            raw=middle([each.core for each in quiet])[0],
            raw_is="the daemon without clients",
            target=f"< {CORE_MAX:g}",
            met=middle(cost)[0] < CORE_MAX,
        ),
        Figure(
            name=f"{what}: mean session beyond that without them",
            measured=middle(longer)[0],
            unit="ms",
            spread=middle(longer)[1],
            raw=middle([each.cycle_ms for each in quiet])[0],
            raw_is="mean session without clients",
            target=f"< {CYCLE_MAX_MS:g} ms",
            met=middle(longer)[0] < CYCLE_MAX_MS,
        ),
        Figure(
            name=f"from a pod created to its place shown in the view, {NODES:,} nodes",
            measured=age,
            unit="s",
            spread=spread,
            target=f"< {AGE_MAX_S:g} s",
            met=max(ages) < AGE_MAX_S,
        ),
    ]


async def _measured() -> tuple[list[_Spell], list[_Spell], list[dict[str, float]], list[float]]:
    async with cluster(nodes=NODES) as here:
        command = [
            COMMAND, "run", "--kubeconfig", here.kubeconfig, "--listen", "127.0.0.1:0",
            "--view", "127.0.0.1:0", "--state-file", "none", "--log-format", "json",
        ]  # fmt: skip
        with running([sys.executable, "-c", _LOGGED, *command]) as wrapper:
            assert wrapper.stdout is not None
            first = json.loads(await asyncio.to_thread(wrapper.stdout.readline))
            url, token = await _served(here)
            ages = await _ages(here, url, token)
            quiet, busy, clients = [], [], []
            for _ in range(_TURNS):
                quiet.append(await _spell(here, first))
                task = asyncio.create_task(_clients(url, token))
                busy.append(await _spell(here, first))
                clients.append(await task)
            return quiet, busy, clients, ages


_LOGGED: Final = """
import json, subprocess, sys, threading
process = subprocess.Popen(sys.argv[1:], stderr=subprocess.PIPE, text=True)
for line in process.stderr:
    record = json.loads(line)
    if "livez" in record:
        print(json.dumps({"pid": process.pid, "metrics": record["livez"].replace("livez", "metrics")}), flush=True)
        break
threading.Thread(target=process.stderr.read, daemon=True).start()
import signal
signal.signal(signal.SIGTERM, lambda *_: process.terminate())
sys.exit(process.wait())
"""


async def _served(here: Cluster) -> tuple[str, str]:
    token = here.api.access.authorization.partition(" ")[2]
    for _ in range(150):
        answer = await here.api.request("GET", _LEASE, timeout_s=10)
        if answer.ok:
            notes = json.loads(answer.body)["metadata"].get("annotations") or {}
            if "gpusched.io/view" in notes:
                return notes["gpusched.io/view"], token
        await asyncio.sleep(0.2)
    raise TimeoutError("the view is not served")


async def _ages(here: Cluster, url: str, token: str) -> list[float]:
    """Seconds from a pod created to its gang shown with a node: those of its binding are among them."""
    shown: dict[str, float] = {}
    ages = []
    async with _following(url, token, shown):
        for index in range(PODS_WATCHED):
            name = f"watched-{index:03d}"
            await here.post(PODS, pod(name))
            created = time.monotonic()
            for _ in range(1000):
                if name in shown:
                    break
                await asyncio.sleep(0.01)
            ages.append(shown[name] - created)
            await asyncio.sleep(0.3)
    return ages


@asynccontextmanager
async def _following(url: str, token: str, shown: dict[str, float]) -> AsyncIterator[None]:
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as session:

        async def follow() -> None:
            async with session.get(f"{url}/v1/changes") as answer:
                async for line in answer.content:
                    if line.startswith(b"data: ") and b'"gangKind"' in line:
                        for item in json.loads(line[6:])["items"]:
                            if item["placed"]:
                                shown.setdefault(item["metadata"]["name"], time.monotonic())

        task = asyncio.create_task(follow())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def _spell(here: Cluster, first: dict[str, Any]) -> _Spell:
    """Some seconds in which a pod comes and goes again and again."""
    used, (total, count) = cpu_s(first["pid"]), await _sessions(first["metrics"])
    end = time.monotonic() + SECONDS
    number = 0
    while time.monotonic() < end:
        name = f"comes-{int(end)}-{number}"
        number += 1
        await here.post(PODS, pod(name))
        await asyncio.sleep(0.25)
        await here.api.request("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0", timeout_s=10)
        await asyncio.sleep(0.25)
    after, (total_after, count_after) = cpu_s(first["pid"]), await _sessions(first["metrics"])
    return _Spell(
        core=(after - used) / SECONDS,
        cycle_ms=1000 * (total_after - total) / max(1, count_after - count),
    )


async def _sessions(url: str) -> tuple[float, float]:
    """Seconds and number of all sessions so far."""
    text = (await asyncio.to_thread(_read, url)).decode()
    row = 'gpusched_cycle_duration_seconds_{}{{action="session"}} ([0-9.e+-]+)'
    found = [re.search(row.format(name), text) for name in ("sum", "count")]
    return tuple(float(each[1]) for each in found if each)  # type: ignore[return-value]


def _read(url: str) -> bytes:
    with urllib.request.urlopen(url) as answer:
        return bytes(answer.read())


async def _clients(url: str, token: str) -> dict[str, float]:
    words = [sys.executable, "-m", "benchmarks.view_clients", url, token, PAGES, RATE, SECONDS]
    done = await asyncio.to_thread(
        subprocess.run, list(map(str, words)), check=True, capture_output=True, text=True
    )
    told: dict[str, float] = json.loads(done.stdout)
    return told
