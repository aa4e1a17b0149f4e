"""What gangs of Kubernetes itself cost the daemon, beside the same gangs with our own PodGroup.

The whole daemon over HTTP on an embedded cluster, in one loop of virtual time that counts the CPU of
the daemon's callbacks alone: from the first pod created to the last binding, in turns. Then what a
long list of native groups costs: decoding, cache and first snapshot.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.figures import Figure, middle
from benchmarks.inputs import NAMESPACE, node, page, pod
from gpusched.api.foreign import kinds
from gpusched.api.foreign.pod_groups import CODECS
from gpusched.app import App, AppOptions
from gpusched.base.clock import LoopClock
from gpusched.base.limits import LIST_PAGE
from gpusched.cache.cache import Cache
from gpusched.config.model import DEFAULT
from gpusched.devcluster.apiserver.client.local_client import LocalClient
from gpusched.devcluster.cluster import ClusterOptions, start
from gpusched.devcluster.registry.gangs.features import all_gates
from gpusched.io.client.transport import over_http
from gpusched.io.observe.process_limits import collect_garbage_rarely
from gpusched.lab.virtual_time.loop import run_virtual
from gpusched.lab.virtual_time.process_pause import PROGRAM, PausableLoop

TURNS: Final = 5
GANGS: Final = 100
MEMBERS: Final = 8
NODES: Final = 100
LISTED: Final = 10_000
RATIO_MAX: Final = 1.05
LIST_MAX_S: Final = 2.0
_DAEMON: Final = "daemon"
_BOUND_WITHIN_S: Final = 120.0
Obj = dict[str, Any]


def measure() -> list[Figure]:
    """CPU of the daemon for gangs by either group, and of a long list of native groups."""
    collect_garbage_rarely()  # as the daemon does
    daemon_cpu_s(native=True)  # imports and caches of the first run
    spent: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(2 * TURNS):
        native = turn % 2 == 0
        spent[native].append(daemon_cpu_s(native=native))
    ratios = [ours / raw for ours, raw in zip(spent[True], spent[False], strict=True)]
    ratio, spread = middle(ratios)
    cost, cost_spread = middle([each * 1e3 / (GANGS * MEMBERS) for each in spent[True]])
    return [
        Figure(
            name=f"{GANGS} native gangs of {MEMBERS} pods, decided and bound: a pod",
            measured=cost,
            unit="ms of CPU",
            spread=cost_spread,
            raw=median(spent[False]) * 1e3 / (GANGS * MEMBERS),
            raw_is="by our own PodGroup",
        ),
        Figure(
            name="the same, native to our own, turn by turn",
            measured=ratio,
            unit="times",
            spread=spread,
            target=f"<= {RATIO_MAX:g}",
            met=ratio <= RATIO_MAX,
        ),
        _listing(),
    ]


class _CountingLoop(PausableLoop):
    """A virtual loop that counts the CPU seconds of one program's callbacks."""

    def __init__(self) -> None:
        self.cpu_s = 0.0
        super().__init__()

    def holds(self, handle: asyncio.Handle, program: object, *, timer: bool) -> bool:
        """Run the daemon's callback here, so that it can be timed: nothing is left to run."""
        held = super().holds(handle, program, timer=timer)
        if held or program != _DAEMON:
            return held
        began = time.process_time()
        asyncio.Handle._run(handle)  # noqa: SLF001
        self.cpu_s += time.process_time() - began
        return True


def daemon_cpu_s(*, native: bool) -> float:
    """CPU seconds of the daemon from the first pod created to the last binding."""
    gc.collect()

    async def main(clock: LoopClock) -> float:
        with tempfile.TemporaryDirectory(prefix="gpusched-bench-") as folder:
            return await _run(clock, Path(folder), native=native)

    return run_virtual(main, loop_factory=_CountingLoop)


async def _run(clock: LoopClock, folder: Path, *, native: bool) -> float:
    loop = asyncio.get_running_loop()
    if not isinstance(loop, _CountingLoop):
        raise TypeError("the run is not in a loop that counts")
    cluster = await start(
        ClusterOptions(
            token="t",
            clock=clock, gangs=all_gates("1.36"), stages=False, records=False,
        )
    )  # fmt: skip
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(cluster.kubeconfig_text)
    kubeconfig.chmod(0o600)
    client = cluster.client
    client.create(
        "namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    )
    for index in range(NODES):
        client.create("nodes", node(index))
    app = App(
        AppOptions(
            config=DEFAULT, clock=clock, rng=random.Random(1),
            kubeconfig=str(kubeconfig), identity="bench", inline=True, opened=over_http,
        )
    )  # fmt: skip

    async def run() -> None:
        PROGRAM.set(_DAEMON)
        await app.run()

    daemon = asyncio.create_task(run())
    try:
        while not app.leadership.leading:
            await clock.sleep(1)
        await clock.sleep(30)
        before = loop.cpu_s
        for index in range(GANGS):
            _make_gang(client, f"gang-{index:05d}", native=native)
        end = clock.monotonic() + _BOUND_WITHIN_S
        while not _all_bound(client):
            if daemon.done() or clock.monotonic() > end:
                raise RuntimeError(f"gangs were not bound in time: {daemon}")
            await clock.sleep(0.05)
        return loop.cpu_s - before
    finally:
        daemon.cancel()
        await asyncio.gather(daemon, return_exceptions=True)
        await cluster.close()


def _all_bound(client: LocalClient) -> bool:
    pods = client.list("pods", NAMESPACE)
    return all("nodeName" in each["spec"] for each in pods)


def _make_gang(client: LocalClient, name: str, *, native: bool) -> None:
    head = {"name": name, "namespace": NAMESPACE}
    if native:
        client.create("podgroups.scheduling.k8s.io", _native_group(name))
    else:
        client.create(
            "podgroups.scheduling.gpusched.io",
            {
                "apiVersion": "scheduling.gpusched.io/v1alpha1", "kind": "PodGroup",
                "metadata": head, "spec": {"minMember": MEMBERS},
            },
        )  # fmt: skip
    for number in range(MEMBERS):
        made = pod(f"{name}-{number}")
        if native:
            made["spec"]["schedulingGroup"] = {"podGroupName": name}
        else:
            made["metadata"]["labels"] = {"gpusched.io/pod-group": name}
        client.create("pods", made)


def _native_group(name: str, **more: Any) -> Obj:
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": NAMESPACE, **more},
        "spec": {"schedulingPolicy": {"gang": {"minCount": MEMBERS}}},
    }


def _listing() -> Figure:
    """Decode, cache and first snapshot of native groups as a list shows them."""
    bodies = [
        json.dumps(
            _native_group(
                f"gang-{index:05d}",
                uid=f"{index:08x}-4b1c-4d2e-9f00-000000000000",
                resourceVersion=str(1_000_000 + index),
                generation=1,
                creationTimestamp="2026-01-01T10:00:00Z",
                finalizers=["scheduling.k8s.io/podgroup-protection"],
            )
        ).encode()
        for index in range(LISTED)
    ]
    pages = [
        page(bodies[at : at + LIST_PAGE], token="", kind="PodGroup")
        for at in range(0, LISTED, LIST_PAGE)
    ]
    codec = CODECS[kinds.NATIVE]
    runs = []
    for _ in range(TURNS):
        gc.collect()
        cache = Cache(DEFAULT.scheduler_names)
        layer = cache.foreign.groups.layer(kinds.NATIVE)
        began = time.process_time()
        for each in pages:
            for item in codec.decode_page(each).items:
                layer.put(item.key, item)
        cache.take_snapshot(0.0)
        runs.append(time.process_time() - began)
    cost, spread = middle(runs)
    return Figure(
        name=f"{LISTED:,} native groups: decoded, in the cache, first snapshot",
        measured=cost,
        unit="s of CPU",
        spread=spread,
        target=f"< {LIST_MAX_S:g} s",
        met=cost < LIST_MAX_S,
    )
