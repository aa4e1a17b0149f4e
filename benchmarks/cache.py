"""What it costs to know a cluster: decoding, memory, and listing 100,000 pods."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import multiprocessing
import random
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgspec

from benchmarks.figures import Figure, middle
from benchmarks.inputs import listed_pods, page
from benchmarks.pages import serve
from gpusched.api.serializer.codecs import CODECS
from gpusched.base.clock import SystemClock
from gpusched.base.limits import LIST_PAGE, LIST_TIMEOUT_S
from gpusched.cache.cache import Cache
from gpusched.config.model import DEFAULT
from gpusched.io.client.api_client import ApiClient
from gpusched.io.observe.process_limits import collect_garbage_rarely
from gpusched.io.observe.telemetry import Telemetry
from gpusched.io.watch.informers import make_event_handlers
from gpusched.io.watch.page_process import PageProcesses
from gpusched.io.watch.reflector import KindSpec, Reflector

SEED: Final = 1
DECODED: Final = 20_000
LISTED: Final = 100_000
RUNS: Final = 3
DECODE_MAX_US: Final = 12.0
BYTES_MAX: Final = 2048
LIST_MAX_S: Final = 5.0


def measure() -> list[Figure]:
    """Decoding, memory and the big list."""
    collect_garbage_rarely()  # as the daemon does
    bodies = listed_pods(DECODED, seed=SEED)
    size = sum(map(len, bodies)) / len(bodies)
    pages = [page(bodies[at : at + LIST_PAGE], token="") for at in range(0, DECODED, LIST_PAGE)]
    del bodies
    figures = [_decoding(pages, size), *_memory(pages)]
    del pages
    gc.collect()
    return [*figures, _listing()]


def _decoding(pages: list[bytes], size: float) -> Figure:
    ours: list[float] = []
    raw: list[float] = []
    decode = CODECS["pods"].decode_page
    scan = msgspec.json.Decoder(msgspec.Raw).decode
    for _ in range(RUNS):
        began = time.perf_counter()
        for each in pages:
            scan(each)
        middle_of = time.perf_counter()
        for each in pages:
            decode(each)
        ended = time.perf_counter()
        raw.append((middle_of - began) / DECODED * 1e6)
        ours.append((ended - middle_of) / DECODED * 1e6)
    cost, spread = middle(ours)
    return Figure(
        name=f"decode a pod of {size:,.0f} bytes",
        measured=cost,
        unit="us",
        spread=spread,
        raw=median(raw),
        raw_is="JSON scanned only",
        target=f"<= {DECODE_MAX_US:g} us",
        met=cost <= DECODE_MAX_US,
    )


def _memory(pages: list[bytes]) -> list[Figure]:
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        items: list[Any] = []
        for each in pages:
            items.extend(CODECS["pods"].decode_page(each).items)
        gc.collect()
        decoded = tracemalloc.get_traced_memory()[0]
        cache = Cache(DEFAULT.scheduler_names)
        for item in items:
            cache.put_pod(item)
        cache.take_snapshot(0.0)
        del items
        gc.collect()
        whole = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    entity = (decoded - before) / DECODED
    total = (whole - before) / DECODED
    return [
        Figure(name="memory of a pod, decoded", measured=entity, unit="bytes"),
        Figure(
            name="memory of a pod, whole cache",
            measured=total,
            unit="bytes",
            raw=sum(map(len, pages)) / DECODED,
            raw_is="as JSON",
            target=f"<= {BYTES_MAX} bytes",
            met=total <= BYTES_MAX,
        ),
    ]


def _listing() -> Figure:
    with _server() as (host, folder):
        ours, raw = [], []
        for _ in range(RUNS):
            raw.append(asyncio.run(_download(_kubeconfig(folder, host))))
            ours.append(asyncio.run(_list(_kubeconfig(folder, host))))
            gc.collect()
    cost, spread = middle(ours)
    return Figure(
        name=f"list {LISTED:,} pods",
        measured=cost,
        unit="s",
        spread=spread,
        raw=median(raw),
        raw_is="download only",
        target=f"< {LIST_MAX_S:g} s",
        met=cost < LIST_MAX_S,
    )


@contextmanager
def _server() -> Iterator[tuple[str, str]]:
    """A process that serves the same pages again and again."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, LISTED, SEED), daemon=True)
    process.start()
    try:
        with tempfile.TemporaryDirectory(prefix="gpusched-bench-") as folder:
            yield f"http://127.0.0.1:{ours.recv()}", folder
    finally:
        process.terminate()
        process.join()


def _kubeconfig(folder: str, host: str) -> str:
    path = Path(folder) / "kubeconfig"
    path.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
        f"clusters: [{{name: c, cluster: {{server: '{host}'}}}}]\n"
        "contexts: [{name: c, context: {cluster: c, user: c}}]\nusers: [{name: c, user: {}}]\n"
    )
    path.chmod(0o600)
    return str(path)


async def _download(kubeconfig: str) -> float:
    """The same requests through the same client, nothing decoded."""
    api = await ApiClient.connect(kubeconfig, clock=SystemClock())
    began = time.monotonic()
    for at in range(0, LISTED, LIST_PAGE):
        query = {"limit": str(LIST_PAGE), **({"continue": str(at)} if at else {})}
        await api.request("GET", "/api/v1/pods", query=query, timeout_s=LIST_TIMEOUT_S)
    took = time.monotonic() - began
    await api.close()
    return took


async def _list(kubeconfig: str) -> float:
    """From the first request until the cache holds every pod."""
    clock = SystemClock()
    api = await ApiClient.connect(kubeconfig, clock=clock)
    cache = Cache(DEFAULT.scheduler_names)
    reflector: Reflector[Any] = Reflector(
        api,
        KindSpec("pods", "/api/v1/pods"),
        codec=CODECS["pods"],
        sink=make_event_handlers(cache, lambda _kind, rejected: sys.exit(rejected.message))["pods"],
        clock=clock,
        rng=random.Random(SEED),
        telemetry=Telemetry(),
        beside=PageProcesses,
    )
    began = time.monotonic()
    listed = reflector.ask_relist()
    running = asyncio.create_task(reflector.run())
    await listed()
    took = time.monotonic() - began
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    await api.close()
    if len(cache.pods) != LISTED:
        raise RuntimeError(f"{len(cache.pods)} pods were listed")
    return took
