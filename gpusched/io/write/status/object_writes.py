"""The status of PodGroups, Queues, Topologies and Reservations, and of gangs and queues of other projects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote

from gpusched import API_VERSION
from gpusched.api.foreign.kinds import VOLCANO
from gpusched.api.gang.pod_group import PodGroup
from gpusched.api.meta.identity import UID, ObjectKey, ResourceVersion, format_time
from gpusched.api.queue.budget import NO_BUDGET_RECORD, WITHIN_BUDGET, format_gpu_hours
from gpusched.api.queue.decode_limits import format_gpu_seconds
from gpusched.api.queue.queue import Queue, QueueUsage
from gpusched.api.serializer import foreign_status, requests
from gpusched.api.serializer.requests import ConditionUpdate
from gpusched.base.classes import frozen
from gpusched.cache.snapshot import StartEstimate
from gpusched.io.write.status.shard_rows import queue_fields_of_shards, start_estimates
from gpusched.io.write.status.status_request import (
    StatusRequest,
    WrittenStatus,
    condition_update,
    last_status,
    merge_request,
)
from gpusched.io.write.status_cache import StatusCache, find_group
from gpusched.session.framework.reasons import Reason
from gpusched.session.state.plan import (
    BudgetStatus,
    GangStatus,
    PendingReason,
    PoolStatus,
    QueueStatus,
    ReservationStatus,
    TopologyStatus,
)

MEMBERS_LACK: Final = frozenset({Reason.NOT_ENOUGH_MEMBERS, Reason.GATED})
"""Reasons for which nothing was tried: pods are still to come."""


def _foreign_group(
    cache: StatusCache,
    group: PodGroup,
    status: GangStatus,
    shown: bytes,
    *,
    version: ResourceVersion,
    now: float,
) -> StatusRequest | None:
    """In the words of the project whose kind it is, where we write to it at all."""
    served = cache.foreign.served.get((group.kind, group.source))
    if served is None:
        return None
    state = foreign_status.GroupState(
        phase=status.phase,
        is_scheduled=status.is_scheduled,
        reason=status.scheduled.reason,
        message=status.scheduled.message,
        counts=status.counts,
        min_member=group.min_member,
        api_version=served.api_version,
        kind=group.kind,
        generation=group.generation,
        admitted=(status.is_admitted, status.admitted.reason, status.admitted.message),
        preempted=None
        if status.preempted is None
        else (status.is_preempted, status.preempted.reason, status.preempted.message),
        has_members=status.scheduled.reason not in MEMBERS_LACK,
    )
    body = foreign_status.foreign_group_status_patch(
        group.source, status.uid, shown, state, now=now
    )
    path = served.status_path(quote(group.namespace), quote(group.name))
    return merge_request(path, body, version=version, seen=group.resource_version)


def _foreign_queue(
    cache: StatusCache,
    queue: Queue,
    status: QueueStatus,
    shown: bytes,
    *,
    version: ResourceVersion,
) -> StatusRequest | None:
    served = cache.foreign.served.get(("Queue", queue.source))
    if served is None or queue.source != VOLCANO:
        return None
    body = foreign_status.foreign_queue_status_patch(
        status.uid,
        shown,
        allocated=status.allocated.quantities(),
        counts=(status.pending, status.inqueue, status.running),
    )
    path = served.status_path("", quote(queue.name))
    return merge_request(path, body, version=version, seen=queue.resource_version)


@frozen(slots=True)
class GroupWrite:
    """The status of a PodGroup."""

    status: GangStatus

    @property
    def gang(self) -> UID:
        """The gang whose status is submitted again when this write fails."""
        return self.status.uid

    @property
    def namespace(self) -> str:
        """The namespace by which writes are served in turn."""
        return self.status.gang.namespace

    def request(
        self, cache: StatusCache, written: WrittenStatus | None, now: float
    ) -> StatusRequest | None:
        """The patch of the PodGroup's status; None when nothing changes."""
        status = self.status
        group = find_group(cache, status.gang)
        if group is None or group.uid != status.uid:
            return None
        shown, version = last_status(written, group.resource_version, group.status)
        if group.source:
            return _foreign_group(cache, group, status, shown, version=version, now=now)
        scheduled, running, succeeded, failed = status.counts
        body = requests.status_patch(
            status.uid,
            shown,
            {
                "phase": status.phase,
                "scheduled": scheduled,
                "running": running,
                "succeeded": succeeded,
                "failed": failed,
                "queuePosition": status.queue_position or None,
                "estimatedStartTime": _time(status.estimated_start),
                "estimatedStartRange": _range(status.start_estimate),
                "placement": dict(status.placement) or None,
            },
            says=_gang_conditions(status),
            now=now,
        )
        namespace, name = quote(status.gang.namespace), quote(status.gang.name)
        path = f"/apis/{API_VERSION}/namespaces/{namespace}/podgroups/{name}/status"
        return merge_request(path, body, version=version, seen=group.resource_version)


@frozen(slots=True)
class _ClusterWideWrite:
    """The status of an object that is in no namespace."""

    status: QueueStatus | TopologyStatus | ReservationStatus

    @property
    def gang(self) -> UID:
        """The object whose status is submitted again when this write fails: it is of no gang."""
        return self.status.uid

    @property
    def namespace(self) -> str:
        """Empty: writes of all such objects have one turn."""
        return ""


def _without_told_once(
    fields: Mapping[str, object], status: QueueStatus, queue: Queue
) -> dict[str, object]:
    """Fields of a queue's status without those that one daemon writes, where several divide the cluster.

    A record of its budget stays that is newer than what the Queue has: it was overdue.
    """
    record = status.budget.record if status.budget is not None else NO_BUDGET_RECORD
    once = {"state", "usage"}
    if not queue.budget_record.as_of < record.as_of or not queue.budget_record.as_of:
        once.add("budget")
    return {name: value for name, value in fields.items() if name not in once}


@frozen(slots=True)
class QueueWrite(_ClusterWideWrite):
    """The status of a Queue."""

    status: QueueStatus

    def request(
        self, cache: StatusCache, written: WrittenStatus | None, now: float
    ) -> StatusRequest | None:
        """The patch of the Queue's status; None when nothing changes."""
        status = self.status
        queue = cache.queues.items.get(ObjectKey("", status.name))
        if queue is None or queue.uid != status.uid:
            return None
        shown, version = last_status(written, queue.resource_version, queue.status)
        if queue.source:
            if status.told_elsewhere:
                return None
            return _foreign_queue(cache, queue, status, shown, version=version)
        fields: dict[str, object] = {
            "state": status.state,
            "allocated": status.allocated.quantities(),
            "requested": status.requested.quantities(),
            "borrowed": status.borrowed.quantities(),
            "fairShare": status.fair_share.quantities(),
            "usage": _usage(status.usage),
            "nodePools": _pools(status.node_pools),
            "budget": _budget(status.budget),
            "startEstimates": start_estimates(status.start_errors),
            "pending": status.pending,
            "inqueue": status.inqueue,
            "running": status.running,
            "shards": None,
        }
        if status.shards:
            fields |= queue_fields_of_shards(status, queue, fields, shown)
        if status.told_elsewhere:
            fields = _without_told_once(fields, status, queue)
        body = requests.status_patch(
            status.uid,
            shown,
            fields,
            says=() if status.told_elsewhere else _queue_conditions(status, queue),
            now=now,
        )
        path = f"/apis/{API_VERSION}/queues/{quote(status.name)}/status"
        return merge_request(path, body, version=version, seen=queue.resource_version)


@frozen(slots=True)
class TopologyWrite(_ClusterWideWrite):
    """The status of a Topology."""

    status: TopologyStatus

    def request(
        self, cache: StatusCache, written: WrittenStatus | None, now: float
    ) -> StatusRequest | None:
        """The patch of the Topology's status; None when nothing changes."""
        status = self.status
        topology = cache.topologies.items.get(ObjectKey("", status.name))
        if topology is None or topology.uid != status.uid:
            return None
        shown, version = last_status(written, topology.resource_version, topology.status)
        body = requests.status_patch(
            status.uid,
            shown,
            {},
            says=(
                condition_update(
                    "Ready", status.ready, holds=status.is_ready, generation=status.generation
                ),
            ),
            now=now,
        )
        path = f"/apis/{API_VERSION}/topologies/{quote(status.name)}/status"
        return merge_request(path, body, version=version, seen=topology.resource_version)


@frozen(slots=True)
class ReservationWrite(_ClusterWideWrite):
    """The status of a Reservation."""

    status: ReservationStatus

    def request(
        self, cache: StatusCache, written: WrittenStatus | None, now: float
    ) -> StatusRequest | None:
        """The patch of the Reservation's status; None when nothing changes."""
        status = self.status
        reservation = cache.reservations.items.get(ObjectKey("", status.name))
        if reservation is None or reservation.uid != status.uid:
            return None
        shown, version = last_status(written, reservation.resource_version, reservation.status)
        body = requests.status_patch(
            status.uid,
            shown,
            {
                "phase": status.phase,
                "from": format_time(status.begins) if status.begins else None,
                "to": format_time(status.ends) if status.ends else None,
                "nodes": list(status.nodes),
                "nodeCount": len(status.nodes),
                "gangsInTheWay": status.in_the_way,
            },
            says=(
                condition_update(
                    "Ready", status.ready, holds=status.is_ready, generation=status.generation
                ),
            ),
            now=now,
        )
        path = f"/apis/{API_VERSION}/reservations/{quote(status.name)}/status"
        return merge_request(path, body, version=version, seen=reservation.resource_version)


def _gang_conditions(status: GangStatus) -> tuple[ConditionUpdate, ...]:
    admitted = condition_update(
        "Admitted", status.admitted, holds=status.is_admitted, generation=status.generation
    )
    scheduled = condition_update(
        "Scheduled", status.scheduled, holds=status.is_scheduled, generation=status.generation
    )
    if status.preempted is None:
        return (admitted, scheduled)
    preempted = condition_update(
        "Preempted", status.preempted, holds=status.is_preempted, generation=status.generation
    )
    return (admitted, scheduled, preempted)


def _time(seconds: float) -> str | None:
    return format_time(seconds) if seconds else None


def _range(estimate: StartEstimate | None) -> dict[str, str] | None:
    if estimate is None or not estimate.latest:
        return None
    return {
        "earliest": format_time(estimate.earliest),
        "latest": format_time(estimate.latest),
        "knownBy": estimate.known_by,
    }


def _pools(pools: Sequence[PoolStatus]) -> list[dict[str, object]] | None:
    return [
        {
            "name": pool.name,
            "allocated": pool.allocated.quantities(),
            "fairShare": pool.fair_share.quantities(),
        }
        for pool in pools
    ] or None


def _usage(usage: QueueUsage | None) -> dict[str, object] | None:
    if usage is None or not usage.as_of:
        return None
    return {
        "asOf": format_time(usage.as_of),
        "average": dict(usage.average),
        "share": dict(usage.share),
    }


_NO_BUDGET: Final = PendingReason(reason="NoBudget", message="the queue has no budget")


def _queue_conditions(status: QueueStatus, queue: Queue) -> tuple[ConditionUpdate, ...]:
    generation, budget = status.generation, status.budget
    ready = condition_update("Ready", status.ready, holds=status.is_ready, generation=generation)
    told = budget.told if budget is not None else _NO_BUDGET
    if budget is None and all(each.type != WITHIN_BUDGET for each in queue.conditions):
        return (ready,)
    is_within = budget is None or budget.is_within
    return ready, condition_update(WITHIN_BUDGET, told, holds=is_within, generation=generation)


def _budget(budget: BudgetStatus | None) -> dict[str, object] | None:
    if budget is None:
        return None
    record = budget.record
    return {
        "asOf": format_time(record.as_of),
        "periodStart": format_time(record.period_start),
        "nextPeriod": format_time(budget.next_period),
        "gpuSeconds": format_gpu_seconds(record.used),
        "rolledOverGpuSeconds": format_gpu_seconds(record.rolled_over),
        "usedGpuHours": format_gpu_hours(record.used),
        "availableGpuHours": format_gpu_hours(budget.available),
        "users": [
            {"name": name, "gpuSeconds": format_gpu_seconds(used)} for name, used in record.users
        ],
    }
