"""The view where no daemon serves one: what the API shows, counted by the daemon's own cache.

Reasons, positions and estimates are those that a daemon wrote last; nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from gpusched import __version__
from gpusched.api.devices.gpu_types import gpu_type_of
from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.api.meta.identity import InvalidObject, Rejected, parse_time
from gpusched.api.meta.quantity import QuantityError, format_quantity, parse_quantity
from gpusched.base.clock import Clock
from gpusched.base.errors import Denied, NotFound
from gpusched.cache.cache import Cache
from gpusched.cache.gangs.gang import Gang, Placed
from gpusched.cli.inspect.cluster_reader import (
    GROUP_PATH,
    Json,
    items_at,
    list_objects,
    read_entity,
    value_at,
)
from gpusched.cli.inspect.listing import job_list
from gpusched.config.model import Config
from gpusched.io.client.api_client import ApiClient
from gpusched.topology.levels import topology_levels
from gpusched.view.access import ViewAccess
from gpusched.view.frames import (
    GangPut,
    NodePut,
    PartsGone,
    QueuePut,
    ViewFrame,
    ViewHead,
    ViewMoment,
)
from gpusched.view.gang_views import ToldGang, gang_view, member_views, unreadable_pod_view
from gpusched.view.model import QueueGpus, QueueView, ViewName
from gpusched.view.node_views import node_view

_CLUSTER_KINDS: Final = {
    "namespaces": "/api/v1/namespaces",
    "priorityclasses": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "queues": f"{GROUP_PATH}/queues",
    "topologies": f"{GROUP_PATH}/topologies",
    "nodes": "/api/v1/nodes",
}


@attrs.define
class _ReadObjects:
    """What one look found.

    Attributes:
        queues: as the server has them.
        refused: kinds that this user may not list.
    """

    cache: Cache
    queues: list[Json] = attrs.Factory(list)
    topologies: list[Any] = attrs.Factory(list)
    refused: set[str] = attrs.Factory(set)
    told: Mapping[tuple[str, str, str], Json] = attrs.Factory(dict)
    pods: dict[Any, Json] = attrs.Factory(dict)
    unreadable: list[Rejected] = attrs.Factory(list)


class ApiView:
    """Looks at the API; ``changes`` tells what is another than the last time.

    Args:
        api: of the cluster.
        config: which schedulers' pods are ours.
        clock: time.
        namespace: that is looked at where not all may be.

    Attributes:
        access: what was found to be allowed.
    """

    def __init__(self, api: ApiClient, config: Config, clock: Clock, namespace: str) -> None:
        self._namespace = namespace
        self._api = api
        self._names = config.scheduler_names
        self._clock = clock
        self._shown: dict[str, ViewFrame] = {}
        self._headed = False
        self.access = ViewAccess(namespaces=frozenset(), nodes=False, queues=False)

    async def changes(self) -> list[ViewFrame]:
        """Frames of one look.

        Raises:
            ClusterUnreachable: no answer.
            ApiError: the server refused to list pods.
        """
        now = self._clock.now()
        found = await self._read()
        frames: dict[str, ViewFrame] = {}
        for frame in _frames(found, now):
            frames[_key(frame)] = frame
        changed = [frame for key, frame in frames.items() if self._shown.get(key) != frame]
        gone = sorted(self._shown.keys() - frames.keys())
        self._shown = frames
        if gone:
            changed.append(
                PartsGone(
                    gangs=tuple(key[2:] for key in gone if key.startswith("g ")),
                    nodes=tuple(key[2:] for key in gone if key.startswith("n ")),
                    queues=tuple(key[2:] for key in gone if key.startswith("q ")),
                )
            )
        if not self._headed:
            self._headed = True
            names = tuple(self._names)
            changed.insert(
                0, ViewHead(version=__version__, daemon="", leading=True, scheduler_names=names)
            )
        return [*changed, ViewMoment(now=now)]

    async def _read(self) -> _ReadObjects:
        found = _ReadObjects(Cache(self._names))
        for kind, path in _CLUSTER_KINDS.items():
            try:
                items = await list_objects(self._api, path, what=kind)
            except NotFound:
                continue
            except Denied:
                found.refused.add(kind)
                continue
            _put_cluster_objects(found, kind, items)
        scope = await self._scope()
        found.told, _ = await job_list._put_groups(self._api, found.cache, scope)  # noqa: SLF001
        jobs = await list_objects(self._api, f"/apis/batch/v1{scope}/jobs", what="jobs")
        job_list._put_all(found.cache, "jobs", jobs)  # noqa: SLF001
        pods = await list_objects(self._api, f"/api/v1{scope}/pods", what="pods")
        for pod in pods:
            entity = read_entity("pods", pod)
            found.cache.put_pod(entity)
            found.pods[job_list._key(pod)] = pod  # noqa: SLF001
            if isinstance(entity, Rejected) and entity.pending and entity.scheduler in self._names:
                found.unreadable.append(entity)
        self.access = ViewAccess(
            namespaces=None if not scope else frozenset({scope.rpartition("/")[2]}),
            nodes="nodes" not in found.refused,
            queues="queues" not in found.refused,
        )
        return found

    async def _scope(self) -> str:
        """All namespaces, else the one of the context, where pods may be listed."""
        answer = await self._api.request(
            "GET", "/api/v1/pods", query={"limit": "1"}, timeout_s=_LOOK_TIMEOUT_S
        )
        if answer.status in {401, 403}:
            return f"/namespaces/{self._namespace}"
        return ""


_LOOK_TIMEOUT_S: Final = 15.0


def _put_cluster_objects(found: _ReadObjects, kind: str, items: Sequence[Json]) -> None:
    if kind == "nodes":
        for item in items:
            found.cache.put_node(read_entity("nodes", item))
        return
    if kind == "topologies":
        entities = [read_entity("topologies", item) for item in items]
        found.topologies = [each for each in entities if not isinstance(each, Rejected)]
        return
    if kind == "queues":
        found.queues = list(items)
    job_list._put_all(found.cache, kind, items)  # noqa: SLF001


def _frames(found: _ReadObjects, now: float) -> Iterator[ViewFrame]:
    snapshot = found.cache.snapshot(now)
    nodes = snapshot.nodes
    residents: dict[str, list[tuple[Gang, Placed]]] = {}
    types = {each.name: gpu_type_of(each.labels, gpu_resources()) for each in nodes.nodes}
    for gang in sorted(snapshot.gangs, key=lambda each: each.key):
        if not gang.active:
            continue
        for member in gang.placed:
            residents.setdefault(member.node, []).append((gang, member))
        told = _told(gang, found)
        view = gang_view(gang, told, gpu_type_of_node=lambda name: types.get(name, ""))
        yield GangPut(view=view, members=member_views(gang))
    for each in found.unreadable:
        created = value_at(found.pods.get(each.key), "metadata", "creationTimestamp")
        yield GangPut(view=unreadable_pod_view(each, _seconds(created)), members=())
    levels = topology_levels(nodes.nodes, found.topologies) if len(nodes) else ()
    pods = snapshot.pods_by_node.pods
    for row, node in enumerate(nodes.nodes):
        yield NodePut(
            view=node_view(
                nodes,
                row,
                pods=len(pods[row]) if row < len(pods) else 0,
                residents=residents.get(node.name, ()),
                levels=levels,
            )
        )
    for queue in found.queues:
        yield QueuePut(view=_queue_view(queue))


def _told(gang: Gang, found: _ReadObjects) -> ToldGang:
    group = found.told.get((gang.key.kind, gang.key.namespace, gang.key.name))
    reason, message = next(job_list._reasons(gang, group, found.pods), ("", ""))  # noqa: SLF001
    return ToldGang(
        reason=reason,
        message=message,
        position=int(value_at(group, "status", "queuePosition") or 0),
        estimated_start=_seconds(value_at(group, "status", "estimatedStartTime")),
    )


def _queue_view(item: Json) -> QueueView:
    ready = next(
        (e for e in items_at(item, "status", "conditions") if e.get("type") == "Ready"), {}
    )
    counts = {
        name: int(value_at(item, "status", name) or 0) for name in ("pending", "inqueue", "running")
    }
    return QueueView(
        metadata=ViewName(
            name=str(value_at(item, "metadata", "name")),
            uid=str(value_at(item, "metadata", "uid") or ""),
        ),
        parent=str(value_at(item, "spec", "parent") or ""),
        state=str(value_at(item, "status", "state") or ""),
        weight=int(value_at(item, "spec", "weight") or 0),
        gpus=QueueGpus(
            allocated=_gpus(item, "status", "allocated") or "0",
            requested=_gpus(item, "status", "requested") or "0",
            borrowed=_gpus(item, "status", "borrowed") or "0",
            fair_share=_gpus(item, "status", "fairShare"),
            deserved=_gpus(item, "spec", "deserved"),
            limit=_gpus(item, "spec", "capability"),
        ),
        ready=ready.get("status") != "False",
        message=str(ready.get("message") or "") if ready.get("status") == "False" else "",
        **counts,
    )


def _gpus(item: Json, *path: str) -> str:
    """GPUs of all resources in a ResourceList together; empty where it names none."""
    amounts = value_at(item, *path)
    names = gpu_resources().names
    named = [str(amounts[name]) for name in names if name in amounts] if amounts else []
    try:
        total = sum(parse_quantity(text, power=3) for text in named)
    except QuantityError:
        return ""
    return format_quantity(total, resource=names[0]) if named else ""


def _seconds(text: object) -> float:
    try:
        return parse_time(str(text)) if text else 0.0
    except InvalidObject:
        return 0.0


def _key(frame: ViewFrame) -> str:
    if isinstance(frame, GangPut):
        return f"g {frame.view.key}"
    if isinstance(frame, NodePut):
        return f"n {frame.view.metadata.name}"
    assert isinstance(frame, QueuePut)
    return f"q {frame.view.metadata.name}"
