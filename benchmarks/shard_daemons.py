"""What whole daemons of shards spend on a burst beside one daemon: decided, bound, and seen of all others.

An embedded cluster of 20,000 nodes in a process of its own, half of them taken, and gangs of 4, which one daemon or four start: gangs that wait before a daemon
comes, and gangs that come one after the other, as fast as the cluster takes them. Counted are the CPU seconds of each daemon with its children, from the first
binding or the first gang to the last binding: the machine has fewer processors than there are processes, so that the time it takes says nothing.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import yaml

from benchmarks.cluster import COMMAND, PODS, Cluster, cluster, cpu_s, running
from benchmarks.figures import Figure
from benchmarks.inputs import GPUS_A_NODE, NAMESPACE, Obj, node, pod

NODES: Final = 20_000
GANGS: Final = 2_000
MEMBERS: Final = 4
SHARDS: Final = ("a", "b", "c", "d")
TIMES_MIN: Final = 2.5
_GROUPS: Final = f"/apis/scheduling.gpusched.io/v1alpha1/namespaces/{NAMESPACE}/podgroups"
_STEP: Final = 200
"""Bindings that are waited for at a time."""


def measure() -> list[Figure]:
    """CPU of one daemon and of each of four, on the same work."""
    return [*_figures("that wait", target=True), *_figures("that come one by one", target=False)]


def _figures(which: str, *, target: bool) -> list[Figure]:
    one, four = (asyncio.run(_burst(shards, waiting=target)) for shards in ((), SHARDS))
    work = f"{GANGS * MEMBERS:,} pods in gangs of {MEMBERS} {which}, {NODES:,} nodes"
    busiest = max(four.burst)
    times = one.burst[0] / busiest
    return [
        Figure(name=f"one whole daemon: {work}", measured=one.burst[0], unit="s of CPU"),
        Figure(
            name=f"the busiest of four whole daemons: {work}", measured=busiest, unit="s of CPU",
            raw=one.burst[0], raw_is="one daemon",
        ),
        Figure(
            name="all four together", measured=sum(four.burst), unit="s of CPU", raw=one.burst[0],
            raw_is="one daemon",
        ),
        Figure(
            name="the busiest of four before that, from its start", measured=max(four.start),
            unit="s of CPU", raw=one.start[0], raw_is="one daemon",
        ),
        Figure(
            name=f"pods {which}, by CPU of the busiest of four beside one", measured=times,
            unit="times", target=f">= {TIMES_MIN:g}" if target else "",
            met=times >= TIMES_MIN if target else None,
        ),
    ]  # fmt: skip


class Spent:
    """CPU seconds of each daemon.

    Attributes:
        start: until something was bound.
        burst: for the burst after that.
    """

    def __init__(self, start: Sequence[float], end: Sequence[float]) -> None:
        self.start = [*start]
        self.burst = [after - before for before, after in zip(start, end, strict=True)]


async def _burst(shards: Sequence[str], *, waiting: bool) -> Spent:
    async with cluster(nodes=NODES, make=_node) as here:
        await here.create(PODS, (_taken(number) for number in range(0, NODES, 2)))
        if waiting:
            await _come(here)
        with _daemons(here.kubeconfig, shards) as pids:
            probes = 0 if waiting else len(SHARDS)
            for name in SHARDS[:probes]:
                await here.post(PODS, _probe(name))
            await _bound(here, max(1, probes))
            before = [_tree_cpu_s(pid) for pid in pids]
            if not waiting:
                await _come(here)
            await _bound(here, probes + GANGS * MEMBERS)
            return Spent(before, [_tree_cpu_s(pid) for pid in pids])


async def _come(here: Cluster) -> None:
    await here.create(_GROUPS, map(_group, range(GANGS)))
    await here.create(PODS, map(_member, range(GANGS * MEMBERS)))


async def _bound(here: Cluster, count: int) -> None:
    for number in (*range(_STEP, count, _STEP), count):
        await here.bound(number)


@contextmanager
def _daemons(kubeconfig: str, shards: Sequence[str]) -> Iterator[list[int]]:
    """One daemon of each shard, or one without shards; their process ids."""
    options = [
        COMMAND, "run", "--kubeconfig", kubeconfig, "--listen", "none", "--view", "none",
        "--log-level", "warning",
    ]  # fmt: skip
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        file = Path(folder) / "gpusched.yaml"
        rows = [{"name": name, "nodeSelector": {"matchLabels": {"pool": name}}} for name in shards]
        file.write_text(yaml.safe_dump({"shards": rows} if rows else {}))
        config = ["--config", str(file)]
        commands = [[*options, *config, "--shard", name] for name in shards] or [
            [*options, *config]
        ]
        yield [stack.enter_context(running(each)).pid for each in commands]


def _tree_cpu_s(pid: int) -> float:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return cpu_s(pid) + sum(_tree_cpu_s(int(child)) for child in children)


def _node(index: int) -> Obj:
    made = node(index)
    made["metadata"]["labels"]["pool"] = SHARDS[index // 2 % len(SHARDS)]
    return made


def _taken(number: int) -> Obj:
    made = pod(f"runs-{number}", gpus=GPUS_A_NODE)
    made["spec"] |= {"nodeName": f"node-{number:05d}", "schedulerName": "other"}
    return made


def _probe(name: str) -> Obj:
    made = pod(f"probe-{name}", gpus=GPUS_A_NODE)
    made["spec"]["nodeSelector"] = {"pool": name}
    return made


def _group(number: int) -> Obj:
    return {
        "apiVersion": "scheduling.gpusched.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": f"gang-{number}", "namespace": NAMESPACE},
        "spec": {"minMember": MEMBERS},
    }


def _member(number: int) -> Obj:
    gang, member = divmod(number, MEMBERS)
    made = pod(f"gang-{gang}-{member}", gpus=GPUS_A_NODE)
    made["metadata"]["labels"] = {"gpusched.io/pod-group": f"gang-{gang}"}
    return made
