"""The view where no daemon serves one: what the API shows, counted by the daemon's own cache.

Reasons, positions and estimates are those that a daemon wrote last; nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from gpusched.api.affinity.selector import EVERYTHING, Selector
from gpusched.api.devices.gpu_types import gpu_type_of
from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.api.meta.identity import GangKey, InvalidObject, ObjectKey, parse_time
from gpusched.api.meta.quantity import QuantityError, format_quantity, parse_quantity
from gpusched.api.meta.resources import Resources, total
from gpusched.api.queue.decode import decode_queue
from gpusched.api.queue.queue import DEFAULT_QUEUE, ROOT_QUEUE
from gpusched.api.queue.wire import WireQueue
from gpusched.cache.gangs.gang import Gang, Placed
from gpusched.cache.snapshot import Snapshot, StartEstimate
from gpusched.cli.inspect.cluster_reader import Json, items_at, value_at
from gpusched.cli.inspect.listing.api_objects import ApiObjects
from gpusched.session.state.nodes.gpu_types import GpuTypeCache
from gpusched.session.status.gpu_counts import count_gpus
from gpusched.topology.levels import topology_levels
from gpusched.view.frames import (
    GangPut,
    NodePut,
    QueuePut,
)
from gpusched.view.gang_story import GangStory
from gpusched.view.gang_views import (
    ToldGang,
    gang_view,
    gpus_text,
    member_views,
    unreadable_pod_view,
)
from gpusched.view.model import (
    BudgetView,
    GpuTotalsView,
    QueueGpus,
    QueueView,
    StartAccuracyView,
    ViewName,
)
from gpusched.view.node_views import gpu_totals_view, node_view
from gpusched.view.queue_views import budget_view, start_accuracy_views

_QUEUE: Final = msgspec.json.Decoder(WireQueue)
_NEVER_TOLD: Final = ""
"""State of a queue that no daemon has written a status of."""


def all_gpu_totals(snapshot: Snapshot) -> GpuTotalsView | None:
    """GPUs of all nodes, where all pods are seen."""
    return gpu_totals_view(count_gpus(snapshot, GpuTypeCache().of_nodes(snapshot.nodes)))


def view_frames(found: ApiObjects) -> Iterator[GangPut | NodePut | QueuePut]:
    """Everything that is to be seen of some objects."""
    yield from gang_frames(found)
    yield from node_frames(found)
    for queue in queue_views(found):
        yield QueuePut(view=queue)


def gang_frames(found: ApiObjects, selector: Selector = EVERYTHING) -> Iterator[GangPut]:
    """Gangs by namespace, name and kind, then pods that cannot be believed and Jobs without pods.

    Args:
        found: what they are made of.
        selector: of labels; a gang has those of its object and of each of its pods.
    """
    nodes = found.snapshot.nodes.nodes
    types = {each.name: gpu_type_of(each.labels, gpu_resources()) for each in nodes}
    for gang in found.gangs:
        if any(selector.matches(each) for each in _labels(gang, found)):
            told = _last_told(gang, found)
            view = gang_view(gang, told, gpu_type_of_node=lambda name: types.get(name, ""))
            yield GangPut(view=view, members=member_views(gang))
    for pod in found.unread:
        if selector.matches(_labels_of_object(found.pods[pod.key])):
            yield GangPut(view=unreadable_pod_view(pod), members=())
    for job in found.podless:
        if selector.matches(_labels_of_object(found.objects.get(GangKey(*job.gang_key)))):
            yield GangPut(view=job, members=())


def gang_stories(found: ApiObjects) -> Iterator[GangStory]:
    """Gangs with their pods; what was decided about them only a daemon knows."""
    for frame in gang_frames(found):
        told = msgspec.structs.asdict(frame.view)
        yield GangStory(**told, members=frame.members)


def node_frames(found: ApiObjects) -> Iterator[NodePut]:
    """Nodes by name."""
    residents: dict[str, list[tuple[Gang, Placed]]] = {}
    for gang in sorted(found.gangs, key=lambda each: each.key):
        for member in gang.placed:
            residents.setdefault(member.node, []).append((gang, member))
    nodes = found.snapshot.nodes
    levels = topology_levels(nodes.nodes, found.topologies) if len(nodes) else ()
    pods = found.snapshot.pods_by_node.pods
    for row, node in sorted(enumerate(nodes.nodes), key=lambda each: each[1].name):
        yield NodePut(
            view=node_view(
                nodes,
                row,
                pods=len(pods[row]) if row < len(pods) else 0,
                residents=residents.get(node.name, ()),
                levels=levels,
            )
        )


def queue_views(found: ApiObjects, *, built_in: bool = True) -> list[QueueView]:
    """Queues by name, with the built-in one, which jobs without a queue go to whether or not it is an object."""
    told = [_queue_view(item) for item in found.queues]
    if built_in and all(each.metadata.name != DEFAULT_QUEUE for each in told):
        told.append(_built_in_queue(found))
    return sorted(told, key=lambda each: each.metadata.name)


def _labels(gang: Gang, found: ApiObjects) -> Iterator[Mapping[str, str]]:
    """Labels of the gang's object, then of each of its pods."""
    key = ObjectKey(gang.key.namespace, gang.key.name)
    own = found.pods.get(key) if gang.key.kind == "Pod" else found.objects.get(gang.key)
    yield _labels_of_object(own)
    members = [pod for pod_set in gang.pod_sets for pod in pod_set.pods]
    for pod in (*members, *(member.pod for member in gang.placed)):
        yield _labels_of_object(found.pods.get(pod.key))


def _labels_of_object(item: Json | None) -> Mapping[str, str]:
    found = value_at(item, "metadata", "labels")
    return found if isinstance(found, dict) else {}


def _last_told(gang: Gang, found: ApiObjects) -> ToldGang:
    """What a daemon wrote last: on the group, else on the pods that wait."""
    group = found.told.get(gang.key)
    reason, message = next(_reasons(gang, group, found.pods), ("", ""))
    start = _seconds(value_at(group, "status", "estimatedStartTime"))
    return ToldGang(
        reason=reason,
        message=message,
        position=_int_or_zero(value_at(group, "status", "queuePosition")),
        estimated_start=start,
        estimate=_published_estimate(group, start),
    )


def _published_estimate(group: Json | None, start: float) -> StartEstimate | None:
    """The estimate with its range, where the group's status has one."""
    known_by = value_at(group, "status", "estimatedStartRange", "knownBy")
    if not start or not isinstance(known_by, str):
        return None
    return StartEstimate(
        start=start,
        known_by=known_by,
        earliest=_seconds(value_at(group, "status", "estimatedStartRange", "earliest")),
        latest=_seconds(value_at(group, "status", "estimatedStartRange", "latest")),
    )


def _reasons(
    gang: Gang, group: Json | None, pods: Mapping[ObjectKey, Json]
) -> Iterator[tuple[str, str]]:
    if not gang.placed or gang.missing_members:
        yield from _conditions(group, "Scheduled")
    for pod_set in gang.pod_sets:
        for pod in pod_set.pods:
            yield from _conditions(pods.get(pod.key), "PodScheduled")


def _conditions(item: Json | None, kind: str) -> Iterator[tuple[str, str]]:
    for each in items_at(item, "status", "conditions"):
        if each.get("type") == kind and each.get("status") == "False":
            yield str(each.get("reason") or ""), str(each.get("message") or "")


def _queue_view(item: Json) -> QueueView:
    ready = next(
        (e for e in items_at(item, "status", "conditions") if e.get("type") == "Ready"), {}
    )
    return QueueView(
        metadata=ViewName(
            name=str(value_at(item, "metadata", "name")),
            uid=str(value_at(item, "metadata", "uid") or ""),
        ),
        parent=str(value_at(item, "spec", "parent") or ""),
        state=str(value_at(item, "status", "state") or _NEVER_TOLD),
        weight=_int_or_zero(value_at(item, "spec", "weight")),
        ordering=str(value_at(item, "spec", "ordering") or ""),
        gpus=QueueGpus(
            allocated=_gpus(item, "status", "allocated") or "0",
            requested=_gpus(item, "status", "requested") or "0",
            borrowed=_gpus(item, "status", "borrowed") or "0",
            fair_share=_gpus(item, "status", "fairShare"),
            deserved=_gpus(item, "spec", "deserved"),
            limit=_gpus(item, "spec", "capability"),
        ),
        pending=_int_or_zero(value_at(item, "status", "pending")),
        inqueue=_int_or_zero(value_at(item, "status", "inqueue")),
        running=_int_or_zero(value_at(item, "status", "running")),
        ready=ready.get("status") != "False",
        message=str(ready.get("message") or "") if ready.get("status") == "False" else "",
        created=str(value_at(item, "metadata", "creationTimestamp") or ""),
        warning=str(ready.get("message") or "").partition("; ")[2]
        if ready.get("status") == "True"
        else "",
        budget=_budget_view(item),
        start_estimates=_start_accuracy(item),
    )


def _start_accuracy(item: Json) -> tuple[StartAccuracyView, ...]:
    """What the status of a queue says of its starts; none where it cannot be read."""
    try:
        queue = decode_queue(_QUEUE.decode(msgspec.json.encode(item)))
    except (msgspec.MsgspecError, InvalidObject):
        return ()
    return start_accuracy_views(queue.start_errors)


def _budget_view(item: Json) -> BudgetView | None:
    """What the status of a queue says of its budget; None where it says nothing that can be read."""
    try:
        queue = decode_queue(_QUEUE.decode(msgspec.json.encode(item)))
    except (msgspec.MsgspecError, InvalidObject):
        return None
    if queue.budget is None or not queue.budget_record.as_of:
        return None
    said = next(
        (e for e in items_at(item, "status", "conditions") if e.get("type") == "WithinBudget"), {}
    )
    return budget_view(
        queue.budget_record,
        queue.budget.amount + queue.budget_record.rolled_over,
        next_period=str(value_at(item, "status", "budget", "nextPeriod") or ""),
        told=(str(said.get("reason") or ""), str(said.get("message") or "")),
    )


def _built_in_queue(found: ApiObjects) -> QueueView:
    """The queue that no object stands for, of what its gangs hold and request; what it is due only a daemon knows."""
    gangs = [gang for gang in found.gangs if gang.queue == DEFAULT_QUEUE]
    waiting = [gang for gang in gangs if gang.pod_sets]
    held = total(gang.allocated for gang in gangs)
    return QueueView(
        metadata=ViewName(name=DEFAULT_QUEUE),
        parent=ROOT_QUEUE,
        state=_NEVER_TOLD if "pods" in found.refused else "Open",
        ordering="Priority",
        gpus=QueueGpus(
            allocated=gpus_text(held) or "0",
            requested=gpus_text(_requested(held, waiting)) or "0",
        ),
        pending=sum(bool(gang.missing_members) for gang in waiting),
        running=sum(bool(gang.placed) and not gang.missing_members for gang in gangs),
    )


def _requested(held: Resources, waiting: Sequence[Gang]) -> Resources:
    return held.plus(total(gang.pending_requests for gang in waiting))


def _gpus(item: Json, *path: str) -> str:
    """GPUs of all resources in a ResourceList together; empty where it names none."""
    amounts = value_at(item, *path)
    names = gpu_resources().names
    named = [str(amounts[name]) for name in names if name in amounts] if amounts else []
    try:
        amount = sum(parse_quantity(text, power=3) for text in named)
    except QuantityError:
        return ""
    return format_quantity(amount, resource=names[0]) if named else ""


def _int_or_zero(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _seconds(text: object) -> float:
    try:
        return parse_time(str(text)) if text else 0.0
    except InvalidObject:
        return 0.0
