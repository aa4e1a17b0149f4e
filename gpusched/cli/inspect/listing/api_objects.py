"""What the API shows of gangs, nodes and queues, counted by the daemon's own cache: one is here what it is there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec

from gpusched import API_VERSION
from gpusched.api.foreign.kinds import WORKLOADS
from gpusched.api.foreign.workload_decode import CODECS as WORKLOAD_CODECS
from gpusched.api.gang.native_terms import COMPOSITE
from gpusched.api.meta.identity import GangKey, ObjectKey, Rejected
from gpusched.base.classes import frozen
from gpusched.base.errors import Denied, NotFound
from gpusched.cache.cache import Cache
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.snapshot import Snapshot
from gpusched.cli.inspect.cluster_reader import (
    GROUP_PATH,
    Json,
    list_objects,
    read_entity,
    served_versions,
    value_at,
)
from gpusched.cli.inspect.pod_groups import API, list_groups
from gpusched.io.client.api_client import ApiClient
from gpusched.view.model import GangView
from gpusched.view.podless_jobs import podless_job_views

_CLUSTER_KINDS: Final = {
    "namespaces": "/api/v1/namespaces",
    "priorityclasses": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "queues": f"{GROUP_PATH}/queues",
}
"""Kinds without a namespace that tell queues and priorities of gangs; gangs are listed without them."""
_NO_SELECTORS: Final[Mapping[str, str]] = MappingProxyType({})
_NODE_KINDS: Final = {"nodes": "/api/v1/nodes", "topologies": f"{GROUP_PATH}/topologies"}


@frozen(kw_only=True)
class ApiObjects:
    """Objects of a scope as the daemon's cache counts them.

    Attributes:
        snapshot: of the cache.
        told: groups in our words by gang.
        objects: groups and Jobs by gang.
        pods: as the server has them.
        queues: as the server has them.
        topologies: that can be read.
        unread: pods of ours that wait and cannot be believed.
        podless: Jobs that wait for their pods.
        refused: kinds that this user may not list.
    """

    snapshot: Snapshot
    told: Mapping[tuple[str, str, str], Json]
    objects: Mapping[GangKey, Json]
    pods: Mapping[ObjectKey, Json]
    queues: Sequence[Json]
    topologies: Sequence[Any]
    unread: tuple[Rejected, ...]
    podless: tuple[GangView, ...]
    refused: tuple[str, ...]

    @property
    def gangs(self) -> tuple[Gang, ...]:
        """Those that are not done, by namespace, name and kind."""
        found = (gang for gang in self.snapshot.gangs if gang.active or gang.lacks_pods)
        return tuple(sorted(found, key=lambda gang: (gang.key[1:], gang.key.kind)))


async def read_objects(
    api: ApiClient,
    scope: str,
    *,
    schedulers: Sequence[str],
    now: float,
    nodes: bool = False,
    needed: Collection[str] = frozenset({"pods"}),
    selectors: Mapping[str, str] = _NO_SELECTORS,
) -> ApiObjects:
    """Every gang of a scope that is not done, and what tells of it.

    Args:
        api: of the cluster.
        scope: ``/namespaces/NAME``, or empty for all of them.
        schedulers: names of schedulers whose pods are ours.
        now: seconds since the epoch.
        nodes: whether nodes and their topologies are read as well.
        needed: kinds without which there is no answer; others are left out where they may not be
            listed, or do not exist.
        selectors: of labels, by the kind that they select.

    Raises:
        Denied: a kind that is needed may not be listed.
        NotFound: the cluster does not have it.
    """
    cache, refused = Cache(schedulers), []
    paths = {
        **_CLUSTER_KINDS,
        **(_NODE_KINDS if nodes else {}),
        "jobs": f"/apis/batch/v1{scope}/jobs",
        "pods": f"/api/v1{scope}/pods",
    }

    async def items_of(kind: str) -> list[Json]:
        query = {"labelSelector": selectors[kind]} if selectors.get(kind) else None
        try:
            return await list_objects(api, paths[kind], what=kind, query=query)
        except (NotFound, Denied) as error:
            if kind in needed:
                raise
            if isinstance(error, Denied):
                refused.append(kind)
            return []

    read = {kind: await items_of(kind) for kind in paths if kind not in {"jobs", "pods"}}
    for kind in read.keys() - {"topologies"}:
        put_objects(cache, kind, read[kind])
    topologies = [read_entity("topologies", item) for item in read.get("topologies", ())]
    told, left_out = await _put_groups(api, cache, scope)
    refused += left_out
    objects = {GangKey(kind, *rest): item for (kind, *rest), item in told.items()}
    refused += await _put_workloads(api, cache, scope)
    jobs = await items_of("jobs")
    put_objects(cache, "jobs", jobs)
    objects |= {GangKey("Job", *key_of(job)): job for job in jobs}
    pods = await items_of("pods")
    refused_pods = [each for each in put_objects(cache, "pods", pods) if isinstance(each, Rejected)]
    cache.families.request_idle_gangs()
    return ApiObjects(
        snapshot=cache.take_snapshot(now),
        told=told,
        objects=objects,
        pods={key_of(pod): pod for pod in pods},
        queues=read["queues"],
        topologies=[each for each in topologies if not isinstance(each, Rejected)],
        unread=tuple(
            each for each in refused_pods if each.pending and each.scheduler in schedulers
        ),
        podless=tuple(filter(None, podless_job_views(cache))),
        refused=tuple(refused),
    )


def put_objects(cache: Cache, kind: str, items: Iterable[Json]) -> list[Any]:
    """Show objects to the cache as a watch would, and return them as it sees them."""
    found = []
    put: dict[str, Callable[[Any], None]] = {"pods": cache.put_pod, "nodes": cache.put_node}
    keyed: dict[str, Callable[[ObjectKey, Any], None]] = {
        "namespaces": cache.put_namespace,
        "priorityclasses": cache.put_priority,
        "queues": cache.put_queue,
        "podgroups": cache.put_group,
        "jobs": cache.put_job,
    }
    for item in items:
        entity = read_entity(kind, item)
        if kind in put:
            put[kind](entity)
        else:
            keyed[kind](key_of(item), entity)
        found.append(entity)
    return found


async def _put_groups(
    api: ApiClient, cache: Cache, scope: str
) -> tuple[dict[tuple[str, str, str], Json], list[str]]:
    """Show groups of all projects to the cache: their objects in our words, and kinds left out."""
    try:
        listed = await list_groups(api, scope)
    except NotFound:
        return {}, []
    except Denied:
        return {}, ["podgroups"]
    others = reversed(listed.foreign)  # the first kind that has a name counts: it comes last
    for kind, item, group in others:
        (cache.put_composite if kind == COMPOSITE else cache.put_group)(key_of(item), group)
    own = [item for item in listed.told if item[API] == API_VERSION]
    put_objects(cache, "podgroups", own)
    told = {("PodGroup", *key_of(item)): item for item in reversed(listed.told)}
    told |= {("PodGroup", *key_of(item)): item for item in own}
    return told, list(listed.refused)


async def _put_workloads(api: ApiClient, cache: Cache, scope: str) -> list[str]:
    """Show the owners that tell the size of gangs to the cache, as the daemon reads them: kinds left out."""
    served = await served_versions(api, WORKLOADS.values())
    refused, read = [], set()
    for kind, api_version in served.items():
        try:
            items = await list_objects(
                api, f"/apis/{api_version}{scope}/{kind.plural}", what=kind.name
            )
        except NotFound:
            continue
        except Denied:
            refused.append(kind.plural)
            continue
        read.add(kind.kind)
        for item in items:
            cache.foreign.put_workload(kind.kind, key_of(item), _workload(kind.kind, item))
    cache.foreign.set_read(frozenset(read))
    return refused


def _workload(kind: str, item: Json) -> Any:
    """The object as the daemon reads it."""
    event = msgspec.json.encode({"type": "ADDED", "object": item})
    return WORKLOAD_CODECS[kind].decode_event(event).item


def key_of(item: Json) -> ObjectKey:
    """Namespace and name of an object."""
    namespace = value_at(item, "metadata", "namespace")
    return ObjectKey(str(namespace or ""), str(value_at(item, "metadata", "name")))
