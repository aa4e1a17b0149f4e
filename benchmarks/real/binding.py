"""``python -m benchmarks.real.binding``: pods bound a second on the cluster KUBECONFIG names, by whoever binds them.

The bare client, the daemon and, with ``--other NAME=COMMAND``, another scheduler bind the same pods to the same fake nodes in
turns; each is a process that is started when the pods are there, and its first binding counts from that start. Schedulers that have bound
them all then get pods one at a time: so long they take when they run already. What this process sees in a watch counts. The cluster must be
free: nodes and pods are made, and removed afterwards. Kinds and the namespace of the Lease have to be there.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from statistics import median
from types import MappingProxyType
from typing import Final

import attrs
from rich.console import Console

from benchmarks.binding import Drain
from benchmarks.cluster import PODS, Cluster, cpu_s, daemon_process, running
from benchmarks.inputs import GPUS_A_NODE, NAMESPACE, Obj, node, pod
from benchmarks.real import ground
from gpusched.base.clock import SystemClock
from gpusched.base.errors import ConfigError, UsageError
from gpusched.cli.command import table
from gpusched.cli.main import report
from gpusched.io.client.api_client import ApiClient

RAW: Final = "bare client"
OURS: Final = "gpusched"
_NODES: Final = "/api/v1/nodes"
_SPACE: Final = f"/api/v1/namespaces/{NAMESPACE}"
_BOUND_S: Final = 180.0
_GONE_S: Final = 180.0
_LOOK_S: Final = 0.5
_LONE: Final = 20
"""Pods that come one at a time."""
_REST_S: Final = 10.0
"""From the last binding of many to the first pod that comes alone: events are written meanwhile."""
_RUN: Final = ("benchmark", "binding")
"""A label that is not ours: one that we do not know has a warning for each pod."""
Binder = Callable[[str], AbstractContextManager[subprocess.Popen[str]]]


@attrs.frozen
class Rate:
    """What was seen of one binder.

    Attributes:
        runs: all of them, in their order.
        lone_s: of each run, the median from the creation of a pod that came alone to its binding; empty
            for one that waits for no pods.
    """

    name: str
    runs: list[Drain] = attrs.Factory(list)
    lone_s: list[float] = attrs.Factory(list)


def main() -> int:
    """Look, make, measure, tidy up; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--pods", type=int, default=3000)
    parser.add_argument("--turns", type=int, default=3, help="of each (3)")
    parser.add_argument(
        "--other",
        metavar="NAME=COMMAND",
        default="",
        help="another scheduler, by its schedulerName",
    )
    arguments = parser.parse_args()
    try:
        return asyncio.run(_measure(arguments))
    except Exception as error:  # noqa: BLE001 - the last line: every exception becomes a status
        return report(error)


async def _measure(arguments: argparse.Namespace) -> int:
    if arguments.nodes < 1 or arguments.turns < 1 or arguments.pods < 2:
        raise UsageError("it takes one node, one turn and two pods at least")
    if arguments.pods + _LONE > arguments.nodes * GPUS_A_NODE:
        raise UsageError(
            f"{arguments.pods} pods of one GPU, and {_LONE} more, do not fit {arguments.nodes} nodes of {GPUS_A_NODE}"
        )
    kubeconfig = os.environ.get("KUBECONFIG", "")
    if not kubeconfig:
        raise UsageError("it plays on the cluster that KUBECONFIG names, and it names none")
    found = await ground.look(kubeconfig)
    if found.taken or not found.kinds or not found.home:
        why = found.taken or "no kinds or no namespace gpusched-system"
        raise ConfigError(
            f"{found.host} has {why}: it needs a cluster of its own, with the manifests applied"
        )
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"{found.host} serves Kubernetes {found.version}")
    name, _, command = arguments.other.partition("=")
    binders: dict[str, tuple[str, Binder]] = {
        RAW: ("gpusched", lambda file: running([sys.executable, "-m", "benchmarks.raw_binds", file, str(arguments.nodes)])),
        OURS: ("gpusched", daemon_process),
    }  # fmt: skip
    if name:
        binders[name] = (name, lambda _file: running(shlex.split(command)))
    rates = {each: Rate(each) for each in binders}
    async with _cluster(kubeconfig, arguments.nodes) as here:
        for turn in range(arguments.turns):
            for who, (scheduler, binder) in binders.items():
                made = partial(_pod, scheduler, f"{who}-{turn}")
                drain, lone_s = await _drain(here, made, binder, arguments.pods, waits=who != RAW)
                rates[who].runs.append(drain)
                rates[who].lone_s.extend([] if lone_s is None else [lone_s])
                console.print(
                    f"turn {turn + 1}: {who} bound {drain.rate:.0f} a second, first {drain.first_s:.2f} s after its start"
                )
    head = (
        "binder",
        "pods/s",
        "of the bare client's",
        "CPU s",
        "first after its start, s",
        "pod that comes alone, ms",
    )
    console.print(table([head, *_rows(rates)]))
    return 0


def _rows(rates: dict[str, Rate]) -> list[tuple[str, ...]]:
    raw = rates[RAW].runs
    rows = list[tuple[str, ...]]()
    for each in rates.values():
        ratio = median(one.rate / bare.rate for one, bare in zip(each.runs, raw, strict=True))
        shown = " ".join(f"{one.rate:.0f}" for one in each.runs)
        cpus = " ".join(f"{one.cpu_s:.1f}" if one.cpu_s else "-" for one in each.runs)
        rows.append(
            (
                each.name,
                shown,
                f"{ratio:.2f}",
                cpus,
                " ".join(f"{one.first_s:.2f}" for one in each.runs),
                " ".join(f"{one * 1000:.0f}" for one in each.lone_s) or "-",
            )
        )
    return rows


@contextlib.asynccontextmanager
async def _cluster(kubeconfig: str, nodes: int) -> AsyncIterator[Cluster]:
    """So many fake nodes and a namespace, gone in the end."""
    api = await ApiClient.connect(kubeconfig, clock=SystemClock())
    here = Cluster(kubeconfig, api)
    try:
        await _wait_for_last_run(api)
    except BaseException:
        await api.close()
        raise
    try:
        await here.post(
            "/api/v1/namespaces",
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        )
        await here.create(_NODES, map(_fake, range(nodes)))
        await asyncio.sleep(5)
        yield here
    finally:
        await _delete(api, _NODES, {"labelSelector": "=".join(_RUN)})
        await api.request("DELETE", _SPACE, timeout_s=60)
        await api.close()


async def _wait_for_last_run(api: ApiClient) -> None:
    """Wait until the namespace that an earlier run deleted is gone.

    Raises:
        ConfigError: it is there, and nobody deletes it, or that takes too long.
    """
    until = time.monotonic() + _GONE_S
    while (answer := await api.request("GET", _SPACE, timeout_s=60)).ok:
        ends = bool(json.loads(answer.body)["metadata"].get("deletionTimestamp"))
        if not ends or time.monotonic() > until:
            why = "is still being deleted" if ends else "is there, perhaps of a run that was cut"
            raise ConfigError(f"namespace {NAMESPACE} {why}: delete it and wait until it is gone")
        await asyncio.sleep(_LOOK_S)


def _fake(index: int) -> Obj:
    made = node(index)
    made["metadata"] |= {"annotations": dict([ground.FAKE])}
    made["metadata"]["labels"] |= dict([_RUN])
    return made


async def _delete(api: ApiClient, path: str, query: dict[str, str]) -> None:
    await api.request("DELETE", path, query=query, timeout_s=_GONE_S)
    until = time.monotonic() + _GONE_S
    shown = {"limit": "1"} | {name: query[name] for name in ("labelSelector",) if name in query}
    while time.monotonic() < until:
        answer = await api.request("GET", path, query=shown, timeout_s=60)
        if not answer.ok or not json.loads(answer.body)["items"]:
            return
        await asyncio.sleep(_LOOK_S)


async def _drain(
    here: Cluster, made: Callable[[str], Obj], binder: Binder, pods: int, *, waits: bool
) -> tuple[Drain, float | None]:
    """Pods that nobody binds yet, then who binds them; and how long it takes for one that comes later, if it waits for any.

    Raises:
        TimeoutError: too few were bound in time.
    """
    await here.create(PODS, (made(f"{index:05d}") for index in range(pods)))
    watching = asyncio.create_task(_watch(here.api, pods))
    await asyncio.sleep(1)
    began = time.monotonic()
    try:
        with binder(here.kubeconfig) as process:
            times = await asyncio.wait_for(watching, _BOUND_S)
            used = cpu_s(process.pid)
            lone_s = await _one_at_a_time(here, made) if waits else None
    finally:
        await _delete(here.api, PODS, {"gracePeriodSeconds": "0"})
    return Drain((pods - 1) / (times[-1] - times[0]), used, times[0] - began), lone_s


async def _one_at_a_time(here: Cluster, made: Callable[[str], Obj]) -> float:
    """The median from the answer to a pod's creation to its binding, seconds: each pod comes when the one before it is bound.

    Raises:
        TimeoutError: one was not bound in time.
    """
    await asyncio.sleep(_REST_S)
    took = []
    for index in range(_LONE):
        lone = made(f"lone-{index:02d}")
        name = lone["metadata"]["name"]
        lone["metadata"]["labels"] = {_RUN[0]: name}
        watching = asyncio.create_task(_watch(here.api, 1, {"labelSelector": f"{_RUN[0]}={name}"}))
        await asyncio.sleep(_LOOK_S / 5)
        await here.post(PODS, lone)
        began = time.monotonic()
        took.append((await asyncio.wait_for(watching, _BOUND_S))[0] - began)
    return median(took)


def _pod(scheduler: str, run: str, name: str) -> Obj:
    """Named for its run, so that what is still on its way about pods of the last one concerns no pod of this one."""
    made = pod(f"{run.replace(' ', '-')}-{name}")
    made["spec"]["schedulerName"] = scheduler
    return made


async def _watch(
    api: ApiClient, count: int, which: Mapping[str, str] = MappingProxyType({})
) -> list[float]:
    """When the server showed so many pods with a node, in order; of those that a query means."""
    times: dict[str, float] = {}
    query = {"watch": "1", "fieldSelector": "spec.nodeName!=", "timeoutSeconds": "600", **which}
    while True:  # a server whose kinds have just changed ends its watches
        async with api.stream(PODS, query=query, read_timeout_s=_BOUND_S) as (_, lines):
            async for line in lines:
                event = json.loads(line)
                if event["type"] == "ADDED":
                    times.setdefault(event["object"]["metadata"]["name"], time.monotonic())
                    if len(times) >= count:
                        return sorted(times.values())


if __name__ == "__main__":
    sys.exit(main())
