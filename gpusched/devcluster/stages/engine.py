"""Plays stages on the objects of a cluster, as KWOK's controller does.

    event of an object --> choose a stage --> wait its delay --> play its steps --> events ...

One job is pending for an object. An event of the version already pending changes nothing, any
other chooses again and restarts the delay; matching nothing leaves the pending job as it is; a
deleted object loses its job. Templates see the object as it was when its stage was chosen.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable, Sequence
from ipaddress import ip_address, ip_network
from typing import Any, Final

from gpusched.base.classes import define
from gpusched.base.clock import Clock
from gpusched.devcluster.apimachinery.seeded_random import KeyedRandom
from gpusched.devcluster.apimachinery.status import StatusError
from gpusched.devcluster.apimachinery.times import rfc3339
from gpusched.devcluster.apiserver.client.local_client import LocalClient, Obj, WatchItem
from gpusched.devcluster.apiserver.client.workqueue import WorkQueue
from gpusched.devcluster.stages import matching, rendering
from gpusched.devcluster.stages.expressions import ExpressionInput
from gpusched.devcluster.stages.model import KwokStage, PatchType, StageError
from gpusched.devcluster.stages.templates import functions as funcs
from gpusched.devcluster.stages.templates.parser import TemplateError

_NODES: Final = "172.16.0.0/12"
_PODS: Final = "10.0.0.0/24"
"""Where a node has no podCIDR, as on KWOK; more pods than fit run on into the next network."""


class _AddressPool:
    def __init__(self, network: str) -> None:
        self._first = ip_network(network, strict=False).network_address
        self._count = 0
        self._free: list[int] = []

    def take(self) -> str:
        if self._free:
            return str(self._first + heapq.heappop(self._free))
        self._count += 1
        return str(self._first + self._count)

    def give_back(self, address: str) -> None:
        heapq.heappush(self._free, int(ip_address(address)) - int(self._first))


class AddressBook:
    """The pool of addresses, and the pods and nodes that hold them.

    Args:
        pod_network: the podCIDR of a node by name, empty when it has none.
    """

    def __init__(self, pod_network: Callable[[str], str]) -> None:
        self._pod_network = pod_network
        self._node_pool = _AddressPool(_NODES)
        self._nodes: dict[str, str] = {}
        self._pools: dict[str, _AddressPool] = {}
        self._pods: dict[str, tuple[str, str]] = {}

    def node(self, name: str) -> str:
        """The address of a node; the same for as long as the process lives."""
        if name not in self._nodes:
            self._nodes[name] = self._node_pool.take()
        return self._nodes[name]

    def pod(self, node: str, *, host_network: bool, uid: str, name: str, namespace: str) -> str:
        """The address of a pod; the same until ``release``."""
        if host_network:
            return self.node(node)
        key = uid or f"{namespace}/{name}"
        if key not in self._pods:
            network = self._pod_network(node) or _PODS
            pool = self._pools.setdefault(network, _AddressPool(network))
            self._pods[key] = (network, pool.take())
        return self._pods[key][1]

    def release(self, uid: str) -> None:
        """Free the address of a pod that is gone."""
        held = self._pods.pop(uid, None)
        if held is not None:
            network, address = held
            self._pools[network].give_back(address)


_log = logging.getLogger(__name__)
FAKE_NODE_ANNOTATION: Final = ("kwok.x-k8s.io/node", "fake")
"""The annotation of nodes that stages drive, together with the pods bound to them."""
_RETRIED: Final = frozenset({429, 503, 504})
_RETRY_FIRST_S: Final = 1.0
_RETRY_MAX_S: Final = 32 * 60.0
_RETRY_JITTER: Final = 0.2
_MANAGER: Final = "kwok"


@define
class _Job:
    """A chosen stage waiting for its moment, and where to go on after a refused step."""

    stage: KwokStage
    snapshot: Obj
    version: int
    step: int = 0
    tries: int = 0


def _version(obj: Obj) -> int:
    return int(obj["metadata"]["resourceVersion"])


class StageEngine:
    """Drives fake nodes, the pods bound to them, and other kinds for which stages are given.

    Args:
        client: the cluster.
        stages: checked stages; their order does not matter.
        clock: time of delays, of ``Now`` and of absolute moments.
        rng: draws among weighted stages and jitter, by the uid of the object.
        all_nodes: drive every node, annotated or not.
    """

    def __init__(
        self,
        client: LocalClient,
        stages: Sequence[KwokStage],
        *,
        clock: Clock,
        rng: KeyedRandom,
        all_nodes: bool = False,
    ) -> None:
        self._client = client
        self._clock = clock
        self._rng = rng
        self._all_nodes = all_nodes
        self._started = rfc3339(clock.now())
        self._stages: dict[str, list[KwokStage]] = {}
        self._matchers: dict[str, matching.StageMatcher] = {}
        self._resources: dict[str, str] = {}
        self._group: asyncio.TaskGroup | None = None
        self._queue: WorkQueue[str] = WorkQueue(clock)
        self._jobs: dict[str, _Job] = {}
        self._strays: dict[str, dict[str, tuple[str, str]]] = {}
        self._addresses = AddressBook(self._pod_network)
        for stage in stages:
            self.add_stage(stage)

    async def run(self) -> None:
        """Watch and play until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            for resource in sorted({*self._stages, "nodes"}):
                group.create_task(self._watch(resource))
            group.create_task(self._play_due())

    def add_stage(self, stage: KwokStage) -> None:
        """Play a stage from now on, instead of the one of that name if there is one.

        Objects that wait for the stage replaced, or for none, or that match the new one choose
        anew at once; all others keep what they wait for.

        Raises:
            StageError: the cluster does not serve its kind; nothing has changed then.
        """
        resource = resource_of(self._client, stage.group_version, stage.kind)
        self.remove(stage.name)
        self._resources[stage.name] = resource
        known = resource in self._stages
        stages = [*self._stages.get(resource, ()), stage]
        self._stages[resource] = sorted(stages, key=lambda one: one.name)
        self._matchers.pop(resource, None)
        if self._group is None:
            return
        if known or resource == "nodes":
            self._choose_anew(resource, new=stage)
        else:
            self._group.create_task(self._watch(resource))

    def remove(self, name: str) -> None:
        """Play the stage of that name no more, if there is one; objects that wait for it choose again."""
        resource = self._resources.pop(name, None)
        if resource is None:
            return
        self._stages[resource] = [s for s in self._stages[resource] if s.name != name]
        self._matchers.pop(resource, None)
        for uid, job in list(self._jobs.items()):
            if job.stage.name == name:
                self._drop(uid)
        if self._group is not None:
            self._choose_anew(resource)

    def _drop(self, uid: str) -> None:
        self._jobs.pop(uid, None)
        self._queue.remove(uid)

    def _choose_anew(self, resource: str, *, new: KwokStage | None = None) -> None:
        stages = self._stages[resource]
        if not stages or not self._client.kind_of(stages[0].group_version, stages[0].kind):
            return  # nothing to choose from, or the kind has gone with its definition
        for obj in self._client.list(resource):
            uid: str = obj["metadata"]["uid"]
            if uid in self._jobs:
                if new is None or not matching.matching_stages([new], self._subject(obj)):
                    continue
                self._drop(uid)
            if self._managed(resource, obj):
                self._consider(resource, obj)

    async def _watch(self, resource: str) -> None:
        await self._client.follow(resource, lambda item: self._see(resource, item))

    def _see(self, resource: str, item: WatchItem) -> None:
        uid: str = item.object["metadata"]["uid"]
        if item.type == "DELETED":
            self._drop(uid)
            self._rng.forget(uid)
            if resource == "pods":
                self._addresses.release(uid)
                node = (item.object.get("spec") or {}).get("nodeName", "")
                self._strays.get(node, {}).pop(uid, None)
            return
        if resource == "nodes" and self._drives(item.object):
            self._claim(item.object["metadata"]["name"])
        if resource in self._stages and self._managed(resource, item.object):
            self._consider(resource, item.object)

    def _claim(self, node: str) -> None:
        """Take up the pods that were bound to a node before it was known as a fake one."""
        for namespace, name in self._strays.pop(node, {}).values():
            pod = self._client.get("pods", namespace, name)
            if pod is not None and (pod.get("spec") or {}).get("nodeName") == node:
                self._consider("pods", pod)

    def _drives(self, node: Obj) -> bool:
        key, value = FAKE_NODE_ANNOTATION
        annotations = node["metadata"].get("annotations") or {}
        return self._all_nodes or annotations.get(key) == value

    def _managed(self, resource: str, obj: Obj) -> bool:
        if resource == "nodes":
            return self._drives(obj)
        if resource != "pods":
            return True
        name = (obj.get("spec") or {}).get("nodeName")
        if not name:
            return False
        node = self._client.get("nodes", None, name)
        if node is not None and self._drives(node):
            return True
        metadata = obj["metadata"]
        strays = self._strays.setdefault(name, {})
        strays[metadata["uid"]] = (metadata["namespace"], metadata["name"])
        return False

    def _consider(self, resource: str, obj: Obj) -> None:
        uid, version = obj["metadata"]["uid"], _version(obj)
        pending = self._jobs.get(uid)
        if pending is not None and version <= pending.version:
            return
        matcher = self._matchers.get(resource)
        if matcher is None:
            matcher = self._matchers[resource] = matching.StageMatcher(self._stages[resource])
        choice = matching.choose_stage(matcher, self._subject(obj), self._rng)
        if choice is None:
            return
        self._jobs[uid] = _Job(choice.stage, obj, version)
        self._queue.schedule(uid, choice.delay_s)

    def _subject(self, obj: Obj) -> ExpressionInput:
        self._rng.about(obj["metadata"]["uid"])
        return ExpressionInput(obj, now=self._clock.now(), rand=self._rng.random)

    async def _play_due(self) -> None:
        async for uid in self._queue.keys():
            self._play(uid, self._jobs.pop(uid))

    def _play(self, uid: str, job: _Job) -> None:
        snapshot = job.snapshot
        functions = funcs.functions(
            snapshot,
            now=rfc3339(self._clock.now()),
            start_time=self._started,
            addresses=self._addresses,
        )
        last: Obj | None = None
        deleted = False
        try:
            while job.step < len(job.stage.steps):
                effect = rendering.render_effect(job.stage.steps[job.step], snapshot, functions)
                if not deleted or isinstance(effect, rendering.EventEffect):
                    last = self._carry_out(effect, snapshot, job.stage) or last
                    deleted = deleted or isinstance(effect, rendering.DeleteEffect)
                job.step += 1
        except StatusError as refusal:
            self._refused(uid, job, refusal)
        except (TemplateError, StageError) as fault:
            self._give_up(job, str(fault))
        else:
            if job.stage.immediate_next and last is not None:
                self._consider(self._resource(job.stage), last)

    def _refused(self, uid: str, job: _Job, refusal: StatusError) -> None:
        if refusal.code not in _RETRIED:
            self._give_up(job, refusal.message)
            return
        wait = min(_RETRY_FIRST_S * 2**job.tries, _RETRY_MAX_S)
        job.tries += 1
        self._jobs[uid] = job
        self._rng.about(uid)
        self._queue.schedule(uid, wait * (1 + _RETRY_JITTER * self._rng.random()))

    def _give_up(self, job: _Job, why: str) -> None:
        metadata = job.snapshot["metadata"]
        _log.warning("stage %s on %s is dropped: %s", job.stage.name, metadata.get("name"), why)

    def _resource(self, stage: KwokStage) -> str:
        return resource_of(self._client, stage.group_version, stage.kind)

    def _carry_out(self, effect: rendering.Effect | None, obj: Obj, stage: KwokStage) -> Obj | None:
        metadata = obj["metadata"]
        namespace, name = metadata.get("namespace"), metadata["name"]
        if effect is None:
            return None
        if isinstance(effect, rendering.EventEffect):
            self._client.event(obj, effect.reason, effect.message, effect.type, component=_MANAGER)
            return None
        if isinstance(effect, rendering.DeleteEffect):
            self._client.delete(
                self._resource(stage), namespace, name, grace_s=0, uid=metadata["uid"]
            )
            return None
        if isinstance(effect, rendering.ApplyEffect):
            self._apply(effect)
            return None
        default: PatchType = "strategic" if stage.kind in {"Pod", "Node"} else "merge"
        return self._client.patch(
            self._resource(stage),
            namespace,
            name,
            effect.body,
            patch_type=effect.type or default,
            subresource=effect.subresource or None,
            field_manager=_MANAGER,
        )

    def _apply(self, effect: rendering.ApplyEffect) -> None:
        body = effect.body
        metadata: dict[str, Any] = body.get("metadata") or {}
        self._client.patch(
            resource_of(self._client, body.get("apiVersion", "v1"), body.get("kind", "")),
            metadata.get("namespace"),
            metadata.get("name", ""),
            body,
            patch_type=effect.type,
            subresource=effect.subresource or None,
            field_manager=_MANAGER,
        )

    def _pod_network(self, node: str) -> str:
        found = self._client.get("nodes", None, node) or {}
        return str((found.get("spec") or {}).get("podCIDR") or "")


def resource_of(client: LocalClient, group_version: str, kind: str) -> str:
    """The plural of a kind, with its group, as clients name it: ``pods``, ``jobs.batch``.

    Raises:
        StageError: the cluster does not serve that kind.
    """
    found = client.kind_of(group_version, kind)
    if found is None:
        raise StageError(f"stages for {group_version} {kind}: the cluster does not serve that kind")
    return found.qualified
