"""The embedded cluster as its users start it: start, writes over HTTP, memory, a long list."""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import attrs

from benchmarks.cluster import peak_mib
from benchmarks.figures import Figure, middle
from benchmarks.inputs import NAMESPACE, Obj, gang_pod, node
from gpusched.api.meta.identity import UID, ObjectKey
from gpusched.api.serializer import requests
from gpusched.base import limits
from gpusched.base.clock import SystemClock
from gpusched.io.client.api_client import ApiClient

NODES: Final = 1_000
PODS: Final = 20_000
WATCHES: Final = 4
STARTS: Final = 5
START_MAX_S: Final = 1.0
WRITES_MIN: Final = 2_000
MEMORY_MAX_MIB: Final = 1_024
LIST_MAX_S: Final = 1.0
_PATH: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
_COMMAND: Final = str(Path(sys.executable).with_name("gpusched"))
_TIMEOUT_S: Final = 60.0
_SETTLE_S: Final = 300.0


def measure() -> list[Figure]:
    """One server is filled, bound, run by its stages, watched and listed."""
    starts = [_start_seconds() for _ in range(STARTS)]
    seconds, spread = middle(starts)
    return [
        Figure(
            name="embedded cluster: process to ready line",
            measured=seconds,
            unit="s",
            spread=spread,
            target=f"< {START_MAX_S:g}",
            met=seconds < START_MAX_S,
        ),
        *asyncio.run(_written()),
        *asyncio.run(_filled()),
    ]


def _start_seconds() -> float:
    began = time.monotonic()
    with _server():
        return time.monotonic() - began


@contextmanager
def _server(*flags: str) -> Iterator[tuple[int, str, str]]:
    """A running ``gpusched devcluster``: process id, URL, kubeconfig."""
    with tempfile.TemporaryDirectory(prefix="gpusched-bench-") as folder:
        kubeconfig = str(Path(folder) / "kubeconfig")
        command = [_COMMAND, "devcluster", "--kubeconfig", kubeconfig, *flags]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            assert process.stdout is not None
            word, _, url = process.stdout.readline().strip().partition(" ")
            try:
                if word != "ready":
                    raise RuntimeError("the cluster did not start")
                yield process.pid, url, kubeconfig
            finally:
                process.terminate()


async def _written() -> list[Figure]:
    """Writes alone: nodes and pods stay as the client writes them."""
    with _server("--no-stages") as (_, _, kubeconfig), _quiet_client():
        api = await ApiClient.connect(kubeconfig, clock=SystemClock())
        try:
            await _set_up(api)
            raw = await _rate(api, [_Call("/readyz", None)] * (PODS // 4))
            created = await _rate(api, _creations())
            uids = await _uids(api)
            bound = await _rate(api, [_binding(*e, number=n) for n, e in enumerate(uids)])
        finally:
            await api.close()
    return [
        _writes("pods created over HTTP", created, raw),
        _writes("pods bound over HTTP", bound, raw),
    ]


async def _filled() -> list[Figure]:
    """A living cluster: stages drive the pods while they are bound, and others watch."""
    with _server() as (pid, url, kubeconfig), _quiet_client():
        api = await ApiClient.connect(kubeconfig, clock=SystemClock())
        try:
            return await _lived(api, pid, url)
        finally:
            await api.close()


@contextmanager
def _quiet_client() -> Iterator[None]:
    """The client is one process of garbage too: what it collects is not the server's time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@attrs.frozen
class _Call:
    """One request that must succeed."""

    path: str
    body: bytes | None

    async def make(self, api: ApiClient) -> None:
        method = "GET" if self.body is None else "POST"
        answer = await api.request(method, self.path, body=self.body, timeout_s=_TIMEOUT_S)
        if not answer.ok:
            raise RuntimeError(f"{self.path}: {answer.body[:500]!r}")


async def _rate(api: ApiClient, calls: list[_Call]) -> float:
    """Calls a second, as many at once as the daemon binds."""
    queue = calls[::-1]

    async def work() -> None:
        while queue:
            await queue.pop().make(api)

    began = time.monotonic()
    await asyncio.gather(*(work() for _ in range(limits.BINDS_IN_FLIGHT_MAX)))
    return len(calls) / (time.monotonic() - began)


async def _set_up(api: ApiClient) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    await _rate(api, [_Call("/api/v1/namespaces", _json(namespace))])
    await _rate(api, [_Call("/api/v1/nodes", _json(_fake(index))) for index in range(NODES)])


def _creations() -> list[_Call]:
    return [_Call(_PATH, _json(gang_pod(index))) for index in range(PODS)]


async def _lived(api: ApiClient, pid: int, url: str) -> list[Figure]:
    await _set_up(api)
    await _rate(api, _creations())
    uids = await _uids(api)
    with _watches(url):
        began = time.monotonic()
        await _rate(api, [_binding(*each, number=n) for n, each in enumerate(uids)])
        running = await _running(api)
        lasted = time.monotonic() - began
        memory = peak_mib(pid)
    listed = min([await _timed(lambda: _Call(_PATH, None).make(api)) for _ in range(3)])
    return [
        Figure(
            name=f"from the first of {PODS:,} bindings to all running, {WATCHES} watches",
            measured=lasted,
            unit="s",
        ),
        Figure(
            name=f"memory of {NODES:,} nodes and {running:,} running pods, {WATCHES} watches",
            measured=memory,
            unit="MiB",
            target=f"< {MEMORY_MAX_MIB:,}, all {PODS:,} running",
            met=memory < MEMORY_MAX_MIB and running == PODS,
        ),
        Figure(
            name=f"list of {PODS:,} running pods, downloaded",
            measured=listed,
            unit="s",
            target=f"< {LIST_MAX_S:g}",
            met=listed < LIST_MAX_S,
        ),
    ]


def _writes(name: str, rate: float, raw: float) -> Figure:
    return Figure(
        name=name,
        measured=rate,
        unit="1/s",
        raw=raw,
        raw_is="/readyz",
        target=f">= {WRITES_MIN:,}",
        met=rate >= WRITES_MIN,
    )


def _json(obj: Obj) -> bytes:
    return json.dumps(obj).encode()


def _fake(index: int) -> Obj:
    made = node(index)
    made["metadata"]["annotations"] = {"kwok.x-k8s.io/node": "fake"}
    return made


async def _uids(api: ApiClient) -> list[tuple[str, str]]:
    answer = await api.request("GET", _PATH, timeout_s=_TIMEOUT_S)
    items = json.loads(answer.body)["items"]
    return [(each["metadata"]["name"], each["metadata"]["uid"]) for each in items]


def _binding(name: str, uid: str, *, number: int) -> _Call:
    body = requests.binding_body(
        ObjectKey(NAMESPACE, name), UID(uid), node=f"node-{number % NODES:05d}", slots=1,
        rank=-1, plan="0" * 12, fence="bench/1",
    )  # fmt: skip
    return _Call(f"{_PATH}/{name}/binding", body)


@contextmanager
def _watches(url: str) -> Iterator[None]:
    """Readers of all pods, in a process of their own."""
    where = urlsplit(url)
    command = [
        sys.executable, "-m", "benchmarks.watch_reader", str(where.hostname), str(where.port),
        "0", str(WATCHES), str(10**9),
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            if process.stdout.readline().strip() != "watching":
                raise RuntimeError("the reader did not come to watch")
            yield
        finally:
            process.kill()


async def _running(api: ApiClient) -> int:
    """Wait until the stages have every pod running; how many do when that takes too long."""
    end = time.monotonic() + _SETTLE_S
    waiting = {"fieldSelector": "status.phase=Pending", "limit": "1"}
    while time.monotonic() < end:
        answer = await api.request("GET", _PATH, query=waiting, timeout_s=_TIMEOUT_S)
        if not json.loads(answer.body)["items"]:
            break
        await asyncio.sleep(2.0)
    query = {"fieldSelector": "status.phase=Running"}
    answer = await api.request("GET", _PATH, query=query, timeout_s=_TIMEOUT_S)
    return len(json.loads(answer.body)["items"])


async def _timed(work: Callable[[], Awaitable[None]]) -> float:
    began = time.monotonic()
    await work()
    return time.monotonic() - began
