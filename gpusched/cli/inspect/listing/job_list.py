"""``gpusched get jobs``: every gang that waits or runs, whatever made it, from what the API shows.

Gangs are counted by the daemon's own cache, so that one is here what it is there. States, reasons,
positions and estimates are those that the daemon wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from gpusched import API_VERSION
from gpusched.api.affinity.selector import EVERYTHING, Selector
from gpusched.api.foreign.kinds import WORKLOADS
from gpusched.api.gang.native_terms import COMPOSITE
from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.api.meta.identity import GangKey, ObjectKey, Rejected, parse_time
from gpusched.api.meta.quantity import format_quantity
from gpusched.api.meta.resources import Resources
from gpusched.base.errors import Denied, NotFound
from gpusched.cache.cache import Cache
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.gangs.holds import HELD
from gpusched.cli.inspect.cluster_reader import (
    GROUP_PATH,
    Json,
    items_at,
    list_objects,
    read_entity,
    served_versions,
    value_at,
)
from gpusched.cli.inspect.owners import read_workload
from gpusched.cli.inspect.pod_groups import API, list_groups
from gpusched.io.client.api_client import ApiClient
from gpusched.session.framework.reasons import gates_text, pods_text

WAITS: Final = "Waiting"
STARTS: Final = "Starting"
RUNS: Final = "Running"
ENDS: Final = "Ending"
_CLUSTER_KINDS: Final = {
    "namespaces": "/api/v1/namespaces",
    "priorityclasses": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "queues": f"{GROUP_PATH}/queues",
}
"""Kinds without a namespace that tell queues and priorities of gangs; gangs are listed without them."""


@attrs.frozen(kw_only=True)
class ListedJob:
    """One gang.

    Attributes:
        kind: of what made it: ``PodGroup``, ``Job``, ``Pod`` or another owner's kind.
        state: ``Waiting``, ``Starting``, ``Running`` or ``Ending``.
        placed, waiting: members with a node, and without one.
        least: members that it needs at once.
        gpus: that all of these request, as a quantity.
        since: when it was created, or got its minimum where it runs; seconds since the epoch.
        position: among those of its queue that wait, 0 for none; as the daemon wrote it last.
        start: estimated, as a time of the API; empty where it is not known.
        reason, message: why it waits.
        nodes: of its members, sorted.
    """

    namespace: str
    name: str
    kind: str
    queue: str
    priority: int
    state: str
    placed: int
    waiting: int
    least: int
    gpus: str
    since: float
    position: int = 0
    start: str = ""
    reason: str = ""
    message: str = ""
    nodes: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class ListedJobs:
    """Gangs of a scope by namespace and name, and kinds that this user may not list."""

    jobs: tuple[ListedJob, ...]
    refused: tuple[str, ...]


@attrs.frozen(kw_only=True)
class ReadGangs:
    """Gangs of a scope as the daemon's cache counts them, and the objects they are made of.

    Attributes:
        gangs: that are not done, by namespace and name.
        told: groups in our words by gang.
        objects: groups and Jobs by gang.
        pods: as the server has them.
        unread: pods of ours that wait and cannot be believed.
        refused: kinds that this user may not list.
    """

    gangs: tuple[Gang, ...]
    told: Mapping[tuple[str, str, str], Json]
    objects: Mapping[GangKey, Json]
    pods: Mapping[ObjectKey, Json]
    unread: tuple[Rejected, ...]
    refused: tuple[str, ...]


async def read_gangs(
    api: ApiClient, scope: str, *, schedulers: Sequence[str], now: float
) -> ReadGangs:
    """Every gang of a scope that is not done.

    Args:
        api: of the cluster.
        scope: ``/namespaces/NAME``, or empty for all of them.
        schedulers: names of schedulers whose pods are ours.
        now: seconds since the epoch.

    Raises:
        Denied: pods may not be listed.
    """
    cache, refused = Cache(schedulers), []
    for kind, path in _CLUSTER_KINDS.items():
        try:
            _put_all(cache, kind, await list_objects(api, path, what=kind))
        except NotFound:
            continue
        except Denied:
            refused.append(kind)
    told, left_out = await _put_groups(api, cache, scope)
    refused += left_out
    objects = {GangKey(kind, *rest): item for (kind, *rest), item in told.items()}
    refused += await _put_workloads(api, cache, scope)
    try:
        jobs = await list_objects(api, f"/apis/batch/v1{scope}/jobs", what="jobs")
        _put_all(cache, "jobs", jobs)
        objects |= {GangKey("Job", *_key(job)): job for job in jobs}
    except Denied:
        refused.append("jobs")
    pods = await list_objects(api, f"/api/v1{scope}/pods", what="pods")
    refused_pods = [each for each in _put_all(cache, "pods", pods) if isinstance(each, Rejected)]
    gangs = sorted(cache.snapshot(now).gangs, key=lambda gang: (gang.key[1:], gang.key.kind))
    return ReadGangs(
        gangs=tuple(gang for gang in gangs if gang.active),
        told=told,
        objects=objects,
        pods={_key(pod): pod for pod in pods},
        unread=tuple(
            each for each in refused_pods if each.pending and each.scheduler in schedulers
        ),
        refused=tuple(refused),
    )


async def list_jobs(
    api: ApiClient, scope: str, *, schedulers: Sequence[str], now: float,
    selector: Selector = EVERYTHING,
) -> ListedJobs:  # fmt: skip
    """Every gang of a scope that is not done, as a line.

    Args:
        api: of the cluster.
        scope: ``/namespaces/NAME``, or empty for all of them.
        schedulers: names of schedulers whose pods are ours.
        now: seconds since the epoch.
        selector: of labels; a gang has those of its object and of each of its pods.

    Raises:
        Denied: pods may not be listed.
    """
    read = await read_gangs(api, scope, schedulers=schedulers, now=now)
    found = [
        _listed(gang, read.told.get(gang.key), read.pods)
        for gang in read.gangs
        if any(selector.matches(each) for each in _labels(gang, read.objects, read.pods))
    ]
    found += [
        _unreadable(each, read.pods[each.key])
        for each in read.unread
        if selector.matches(_labels_of_object(read.pods[each.key]))
    ]
    return ListedJobs(jobs=tuple(found), refused=read.refused)


def _labels(
    gang: Gang, objects: Mapping[GangKey, Json], pods: Mapping[ObjectKey, Json]
) -> Iterator[Mapping[str, str]]:
    """Labels of the gang's object, then of each of its pods."""
    key = ObjectKey(gang.key.namespace, gang.key.name)
    yield _labels_of_object(pods.get(key) if gang.key.kind == "Pod" else objects.get(gang.key))
    members = [pod for pod_set in gang.pod_sets for pod in pod_set.pods]
    for pod in (*members, *(member.pod for member in gang.placed)):
        yield _labels_of_object(pods.get(pod.key))


def _labels_of_object(item: Json | None) -> Mapping[str, str]:
    found = value_at(item, "metadata", "labels")
    return found if isinstance(found, dict) else {}


def _put_all(cache: Cache, kind: str, items: Iterable[Json]) -> list[Any]:
    """Show objects to the cache as a watch would, and return them as it sees them."""
    found = []
    put: dict[str, Callable[[Any], None]] = {"pods": cache.put_pod}
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
            keyed[kind](_key(item), entity)
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
        (cache.put_composite if kind == COMPOSITE else cache.put_group)(_key(item), group)
    own = [item for item in listed.told if item[API] == API_VERSION]
    _put_all(cache, "podgroups", own)
    told = {("PodGroup", *_key(item)): item for item in reversed(listed.told)}
    told |= {("PodGroup", *_key(item)): item for item in own}
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
            cache.foreign.put_workload(kind.kind, _key(item), read_workload(kind.kind, item))
    cache.foreign.set_read(frozenset(read))
    return refused


def _key(item: Json) -> ObjectKey:
    namespace = value_at(item, "metadata", "namespace")
    return ObjectKey(str(namespace or ""), str(value_at(item, "metadata", "name")))


def _listed(gang: Gang, group: Json | None, pods: Mapping[ObjectKey, Json]) -> ListedJob:
    running = bool(gang.placed) and not gang.missing_members
    told = next(_reasons(gang, group, pods), ("", "")) if gang.pod_sets or gang.gated else ("", "")
    if gang.gated and not told[0]:
        held = "is" if gang.gated == 1 else "are"
        told = (
            "SchedulingGated",
            f"{pods_text(gang.gated)} of {gang.min_member} needed {held} held by {gates_text(gang.gates)}",
        )
    if gang.error[0] and (gang.error[0] == HELD or not told[0]):
        told = gang.error  # what counts now, whether the daemon has said it yet or not
    if gang.suspended and not told[0]:
        told = ("Suspended", "its Job is suspended until the gang is admitted")
    return ListedJob(
        namespace=gang.key.namespace,
        name=gang.key.name,
        kind=gang.key.kind,
        queue=gang.queue,
        priority=gang.priority,
        state=_state(gang, running=running),
        placed=len(gang.placed),
        waiting=gang.pending + gang.gated,
        least=gang.min_member,
        gpus=_gpus(gang.allocated.plus(gang.pending_requests)),
        since=gang.started_at if running else gang.created,
        position=int(value_at(group, "status", "queuePosition") or 0),
        start=str(value_at(group, "status", "estimatedStartTime") or ""),
        reason=told[0],
        message=told[1],
        nodes=tuple(sorted({member.node for member in gang.placed})),
    )


def _unreadable(pod: Rejected, item: Json) -> ListedJob:
    """A pod that cannot be believed: it waits, for itself, until it is mended."""
    created = value_at(item, "metadata", "creationTimestamp")
    return ListedJob(
        namespace=pod.key.namespace,
        name=pod.key.name,
        kind="Pod",
        queue="",
        priority=0,
        state=WAITS,
        placed=0,
        waiting=1,
        least=1,
        gpus="",
        since=parse_time(str(created)) if created else 0.0,
        reason="InvalidSpec",
        message=f"{pod.field}: {pod.why}",
    )


def _state(gang: Gang, *, running: bool) -> str:
    if running:
        return RUNS if gang.running else STARTS
    if gang.leaving and not gang.pod_sets and not gang.gated:
        return ENDS
    return WAITS


def _reasons(
    gang: Gang, group: Json | None, pods: Mapping[ObjectKey, Json]
) -> Iterator[tuple[str, str]]:
    """Reasons and sentences that the daemon wrote: on the group, else on the pods that wait."""
    if not gang.placed or gang.missing_members:
        yield from _conditions(group, "Scheduled")
    for pod_set in gang.pod_sets:
        for pod in pod_set.pods:
            yield from _conditions(pods.get(pod.key), "PodScheduled")


def _conditions(item: Json | None, kind: str) -> Iterator[tuple[str, str]]:
    for each in items_at(item, "status", "conditions"):
        if each.get("type") == kind and each.get("status") == "False":
            yield str(each.get("reason") or ""), str(each.get("message") or "")


def _gpus(amounts: Resources) -> str:
    """GPUs of all resources together, as a quantity; empty for none."""
    names = gpu_resources().names
    total = sum(amounts.get(name) for name in names)
    return format_quantity(total, resource=names[0]) if total and names else ""
