"""The whole daemon on 5,000 nodes in 50 racks, with gangs that require one rack each.

Two loads, as kube-scheduler's own topology tests have them: three gangs of 1,000 pods, and 750
gangs of 4. The pods are there when the daemon starts. What counts is the time from the first
pod that it sees, lists and lease included, to its last decision; bindings go on meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from typing import Final

import attrs

from benchmarks.cluster import PODS, Cluster, cluster, running
from benchmarks.figures import Figure, middle
from benchmarks.inputs import NAMESPACE, Obj, node, pod

NODES: Final = 5_000
NODES_A_RACK: Final = 100
RUNS: Final = 3
RATE_MIN: Final = 600.0
GROUPS: Final = f"/apis/scheduling.gpusched.io/v1alpha1/namespaces/{NAMESPACE}/podgroups"
_RUN_S: Final = 300.0


@attrs.frozen
class Load:
    """Equal gangs; their pods ask for a CPU core, and for GPUs where there are any."""

    gangs: int
    size: int
    gpus: int

    @property
    def pods(self) -> int:
        """Of all gangs."""
        return self.gangs * self.size


LOADS: Final = (Load(gangs=3, size=1_000, gpus=0), Load(gangs=750, size=4, gpus=2))


@attrs.frozen
class Run:
    """What one daemon told.

    Attributes:
        decided_s: from the first pod seen to the last decision.
        sessions_s: inside sessions that decided something.
        cpu_s: of the daemon's processor time until then.
        bound_s: from the first binding to the last, as the server writes them.
    """

    decided_s: float
    sessions_s: float
    cpu_s: float
    bound_s: float


def measure() -> list[Figure]:
    """Rates of both loads."""
    return [figure for load in LOADS for figure in _figures(load)]


def _figures(load: Load) -> list[Figure]:
    runs = [asyncio.run(run(load)) for _ in range(RUNS)]
    shape = (
        f"{load.gangs} gangs of {load.size:,} pods, {NODES:,} nodes in "
        f"{NODES // NODES_A_RACK} racks, rack required"
    )
    rate, spread = middle([load.pods / each.decided_s for each in runs])
    inside, inside_spread = middle([load.pods / each.sessions_s for each in runs])
    bound, bound_spread = middle([load.pods / each.bound_s for each in runs])
    cpu, cpu_spread = middle([each.cpu_s for each in runs])
    return [
        Figure(
            name=f"decided, {shape}", measured=rate, unit="pods/s", spread=spread,
            target=f">= {RATE_MIN:g}", met=rate >= RATE_MIN,
        ),
        Figure(
            name="  of that in sessions alone", measured=inside, unit="pods/s",
            spread=inside_spread,
        ),
        Figure(name="  bound meanwhile", measured=bound, unit="pods/s", spread=bound_spread),
        Figure(name="  processor time of the daemon", measured=cpu, unit="s", spread=cpu_spread),
    ]  # fmt: skip


async def run(load: Load, *, profile: str = "") -> Run:
    """One cluster, one daemon, until everything is bound.

    Args:
        load: of the cluster.
        profile: file for the profile of the sessions; empty for none.

    Raises:
        RuntimeError: the daemon ended, or put a gang into several racks.
    """
    async with cluster(nodes=NODES, make=_node) as here:
        await here.create(GROUPS, _groups(load))
        await here.create(PODS, _pods(load))
        command = [
            sys.executable, "-m", "benchmarks.placement_daemon_run", here.kubeconfig,
            str(load.pods), profile,
        ]  # fmt: skip
        with running(command) as daemon:
            assert daemon.stdout is not None
            told = await asyncio.wait_for(asyncio.to_thread(daemon.stdout.readline), _RUN_S)
            if not told:
                raise RuntimeError("the daemon ended before it had decided everything")
            times = await here.bound(load.pods)
            await _one_rack_each(here, load)
    return Run(**json.loads(told), bound_s=times[-1] - times[0])


async def _one_rack_each(here: Cluster, load: Load) -> None:
    answer = await here.api.request("GET", PODS, timeout_s=_RUN_S)
    racks: dict[str, set[int]] = {}
    for each in json.loads(answer.body)["items"]:
        index = int(each["spec"]["nodeName"].rpartition("-")[2])
        gang = each["metadata"]["labels"]["gpusched.io/pod-group"]
        racks.setdefault(gang, set()).add(index // NODES_A_RACK)
    if len(racks) != load.gangs or any(len(each) > 1 for each in racks.values()):
        raise RuntimeError(f"gangs are in these racks: {racks}")


def _node(index: int) -> Obj:
    made = node(index)
    made["metadata"]["labels"]["gpusched.io/rack"] = f"rack-{index // NODES_A_RACK:03d}"
    return made


def _groups(load: Load) -> Iterator[Obj]:
    for number in range(load.gangs):
        yield {
            "apiVersion": "scheduling.gpusched.io/v1alpha1",
            "kind": "PodGroup",
            "metadata": {"name": f"gang-{number:04d}", "namespace": NAMESPACE},
            "spec": {"minMember": load.size, "topology": {"required": "rack"}},
        }


def _pods(load: Load) -> Iterator[Obj]:
    for number in range(load.gangs):
        for rank in range(load.size):
            made = pod(f"gang-{number:04d}-{rank:04d}", gpus=load.gpus)
            made["metadata"]["labels"] = {"gpusched.io/pod-group": f"gang-{number:04d}"}
            yield made
