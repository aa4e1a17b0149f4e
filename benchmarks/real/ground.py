"""A cluster before and after: whose it is, whether KWOK plays our Stages, what is left over."""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import AsyncIterator, Sequence
from typing import Final

import attrs

from gpusched.base.clock import SystemClock
from gpusched.base.errors import ConfigError
from gpusched.io.client.api_client import ApiClient
from gpusched.lab.scenario.target_cluster.interface import Obj
from gpusched.lab.scenario.target_cluster.real import ALWAYS, RUN_LABEL, RealTarget
from gpusched.lab.scenario.target_cluster.real_preparation import OWN_KINDS, remove_run_objects

FAKE: Final = ("kwok.x-k8s.io/node", "fake")
HOME: Final = "gpusched-system"
_SYSTEM: Final = frozenset(("kube-system", "kube-public", "kube-node-lease", HOME))
_HOME: Final = f"/api/v1/namespaces/{HOME}"
_READY_S: Final = 20.0
_GONE_S: Final = 30.0
_LOOK_S: Final = 0.5
_NAMED: Final = 3
_CRD: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_MADE: Final = ("Node", "Pod", "Job", "Deployment", "PodGroup", "Queue", "Topology",
    "PriorityClass", "Namespace", "PodDisruptionBudget", "PersistentVolumeClaim")  # fmt: skip


@attrs.frozen(kw_only=True)
class Cluster:
    """What was found before anything was made.

    Attributes:
        host: of its API server.
        version: of Kubernetes.
        nodes: names of those that KWOK does not play.
        pods: ``namespace/name`` of pods outside the system's namespaces.
        home: whether the namespace of the Lease is there.
        kinds: whether the project's kinds are served.
        kwok: why KWOK does not play the project's Stages there; empty when it does.
    """

    host: str
    version: str
    nodes: tuple[str, ...]
    pods: tuple[str, ...]
    home: bool
    kinds: bool
    kwok: str = ""

    @property
    def taken(self) -> str:
        """Why one should not play here without being asked to; empty for a cluster of our own."""
        found = []
        if self.nodes:
            found.append(f"{_some(self.nodes, 'node')} that KWOK does not play")
        if self.pods:
            found.append(f"{_some(self.pods, 'pod')} of others")
        return " and ".join(found)


def _some(names: Sequence[str], what: str) -> str:
    shown = ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
    return f"{len(names)} {what}{'' if len(names) == 1 else 's'} ({shown})"


@contextlib.asynccontextmanager
async def opened(kubeconfig: str) -> AsyncIterator[tuple[ApiClient, RealTarget, str]]:
    """The way to a cluster and a ground on it, with the server's version.

    Raises:
        ClusterUnreachable: it does not answer.
    """
    clock = SystemClock()
    api = await ApiClient.connect(kubeconfig, clock=clock)
    ground = RealTarget(api, clock, run=f"look-{secrets.token_hex(3)}")
    try:
        yield api, ground, await api.server_version()
    finally:
        await ground.close()
        await api.close()


async def look(kubeconfig: str) -> Cluster:
    """What is there; nothing is made."""
    async with opened(kubeconfig) as (api, ground, version):
        await ground.kinds.read()
        nodes = await _all(ground, "Node")
        pods = await _all(ground, "Pod")
        home = await ground.read(_HOME)
        return Cluster(
            host=api.host,
            version=version,
            nodes=tuple(_name(each) for each in nodes if not _is_fake(each)),
            pods=tuple(
                f"{each['metadata']['namespace']}/{_name(each)}"
                for each in pods
                if each["metadata"]["namespace"] not in _SYSTEM
            ),
            home=home is not None,
            kinds=all(ground.kinds.find(kind) for kind in OWN_KINDS),
        )


async def without_kwok(kubeconfig: str) -> str:
    """Make a fake node with a pod and remove both; why they did not live, empty when they did."""
    async with opened(kubeconfig) as (_, ground, _):
        await ground.open([])
        try:
            return await _lives(ground)
        finally:
            await remove_run_objects(ground, tell=lambda _: None)


async def _lives(ground: RealTarget) -> str:
    name = f"gpusched-{ground.run}"
    key, value = FAKE
    await ground.apply({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "annotations": {key: value}},
        "status": {"capacity": {"cpu": "4", "memory": "4Gi", "pods": "10"}},
    })  # fmt: skip
    if not await _until(ground, "Node", ready=True):
        return f"a node with the annotation {key}: {value} was not Ready after {_READY_S:.0f} s"
    await ground.apply({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": name, "tolerations": [{"operator": "Exists"}],
                 "containers": [{"name": "c", "image": "none"}]},
    })  # fmt: skip
    if not await _until(ground, "Pod", ready=True):
        return f"a pod on such a node was not Running after {_READY_S:.0f} s"
    return ""


async def _until(ground: RealTarget, kind: str, *, ready: bool) -> bool:
    until = ground.clock.monotonic() + _READY_S
    while ground.clock.monotonic() < until:
        for obj in ground.list(kind):
            conditions = (obj.get("status") or {}).get("conditions") or ()
            if any(c["type"] == "Ready" and (c["status"] == "True") == ready for c in conditions):
                return True
        await ground.clock.sleep(_LOOK_S)
    return False


async def tidy(kubeconfig: str, before: Cluster) -> list[str]:
    """Remove what a run may leave on purpose, and tell what else is left of runs.

    Kinds and the namespace of the Lease go if they were not there before.
    """
    async with opened(kubeconfig) as (api, ground, _):
        if not before.kinds:
            for kind in ("podgroups", "queues", "topologies"):
                await api.request("DELETE", f"{_CRD}/{kind}.scheduling.gpusched.io", timeout_s=30)
        if not before.home:
            await api.request("DELETE", _HOME, timeout_s=30)
            until = ground.clock.monotonic() + _GONE_S
            while await ground.read(_HOME) and ground.clock.monotonic() < until:
                await ground.clock.sleep(_LOOK_S)
        await ground.kinds.read()
        left = []
        for kind in dict.fromkeys((*_MADE, *ALWAYS)):
            if kind == "Event" or ground.kinds.find(kind) is None:
                continue
            for obj in await _all(ground, kind):
                labels = obj["metadata"].get("labels") or {}
                name = _name(obj)
                ours = RUN_LABEL in labels or (kind in _MADE and name.startswith("contract-"))
                if ours and obj["metadata"].get("deletionTimestamp") is None:
                    left.append(f"{kind} {name}")
        return left


async def _all(ground: RealTarget, kind: str) -> list[Obj]:
    served = ground.kinds.need(kind)
    found = await ground.read(served.collection())
    if found is None:
        raise ConfigError(f"the cluster does not list {served.name}")
    items: list[Obj] = json.loads(json.dumps(found.get("items") or []))
    return items


def _name(obj: Obj) -> str:
    return str(obj["metadata"]["name"])


def _is_fake(node: Obj) -> bool:
    key, value = FAKE
    return bool((node["metadata"].get("annotations") or {}).get(key) == value)
