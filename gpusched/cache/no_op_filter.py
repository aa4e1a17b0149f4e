"""What a watch shows that changes no decision: what we wrote ourselves, what we do not read."""

from __future__ import annotations

import attrs
from msgspec import structs

from gpusched.api.gang.eviction_record import NO_EVICTIONS
from gpusched.api.gang.pod_group import PodGroup
from gpusched.api.jobs.job import Job
from gpusched.api.meta.identity import NO_CREATOR, Creator, Rejected, ResourceVersion
from gpusched.api.pod.pod import NOMINATED, Pod
from gpusched.api.policy.kinds import Topology
from gpusched.api.policy.reservation import AdvanceReservation
from gpusched.api.queue.queue import Queue

Own = PodGroup | Queue | Topology | AdvanceReservation


def same_spec(known: Own | None, item: Own | Rejected) -> bool:
    """Whether only the status differs, which is ours."""
    if known is None or isinstance(item, Rejected) or known.uid != item.uid:
        return False
    if isinstance(known, PodGroup) and isinstance(item, PodGroup) and item.source:
        return _without_status(known) == _without_status(item)
    return known.generation == item.generation and _counted_annotations(
        known
    ) == _counted_annotations(item)


def _without_status(group: PodGroup) -> PodGroup:
    """All that its author says: a generation is not given to every kind, nor counts annotations."""
    native = group.native and attrs.evolve(group.native, started=False)
    return attrs.evolve(
        group, resource_version=ResourceVersion(""), generation=0, phase="", conditions=(),
        status=b"", move=None, turn=None, evictions=NO_EVICTIONS, native=native,
    )  # fmt: skip


def _counted_annotations(item: Own) -> tuple[bool, str, Creator]:
    """What counts of its metadata, which has no generation."""
    if not isinstance(item, PodGroup):
        return False, "", NO_CREATOR
    return item.deleting, item.hold, item.creator


def same_job(known: Job | None, item: Job | Rejected) -> bool:
    """Whether nothing that we read has changed: of a Job's status we read little, and its seal is in what we believe of it."""
    return (
        known is not None
        and isinstance(item, Job)
        and attrs.evolve(item, resource_version=known.resource_version, seal=known.seal) == known
    )


def same_told(known: Queue | Rejected | None, item: Queue | Rejected) -> bool:
    """Whether a queue is the same but for what its status tells people, of which nothing is read again."""
    if not isinstance(known, Queue) or not isinstance(item, Queue):
        return False
    return known == attrs.evolve(
        item, resource_version=known.resource_version, status=known.status,
        conditions=known.conditions, start_errors=known.start_errors,
    )  # fmt: skip


def tells_its_end(known: Job, item: Job | Rejected) -> bool:
    """Whether nothing has changed but that a Job says that it has what it was to complete."""
    if not isinstance(item, Job):
        return False
    over = item.finished or (item.completions is not None and item.succeeded >= item.completions)
    return over and known == attrs.evolve(
        item, resource_version=known.resource_version, succeeded=known.succeeded,
        finished=known.finished, ended=known.ended, ran_s=known.ran_s,
    )  # fmt: skip


def same_finished(known: Pod | None, item: Pod) -> bool:
    """The same of a pod that is over: its finalizers are none of our business."""
    return (
        known is not None
        and item.finished
        and structs.replace(item, resource_version=known.resource_version) == known
    )


def same_waiting(known: Pod | None, item: Pod) -> bool:
    """Whether only what a pod is told about why it waits has changed: no decision reads that.

    A promise of room stands in the same condition, and is read.
    """
    if known is None or item.node or known.node:
        return False
    if NOMINATED in (known.unschedulable_reason, item.unschedulable_reason):
        return False
    return known == structs.replace(
        item,
        resource_version=known.resource_version,
        unschedulable_reason=known.unschedulable_reason,
        unschedulable=known.unschedulable,
        unschedulable_since=known.unschedulable_since,
    )
