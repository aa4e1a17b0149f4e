"""What PodGroups of all other projects have in common: identity, queue, hints and status."""

from __future__ import annotations

from typing import Any, Final

from gpusched.api.gang.decode import PENDING
from gpusched.api.gang.pod_group import GangTerms, PodGroup, TopologyRequest
from gpusched.api.meta import wire
from gpusched.api.meta.fields import (
    check_identity,
    read_hold,
    read_labels,
    read_resource_version,
    read_uid,
)
from gpusched.api.meta.identity import parse_time
from gpusched.api.meta.status import decode_conditions, read_status
from gpusched.api.pod import gang_annotations
from gpusched.api.pod.pod import NO_GANG_ANNOTATIONS, GangAnnotations

_PHASES: Final = {
    "PreScheduling": "Pending",
    "Scheduling": "Inqueue",
    "Scheduled": "Running",
    "Finished": "Completed",
}
"""Of coscheduling, where its words are not ours."""
_NO_TERMS: Final = GangTerms()


def make_foreign_group(
    metadata: wire.Metadata,
    raw: Any,
    source: str,
    *,
    notes: wire.WorkloadAnnotations | None,
    **more: Any,
) -> PodGroup:
    """A PodGroup with what all foreign groups say in the same place.

    Args:
        metadata: of the object.
        raw: its status.
        source: project of its kind.
        notes: its annotations.
        more: fields of one source.

    Raises:
        InvalidObject: a field of it is missing, malformed or out of bounds.
    """
    check_identity(metadata, namespaced=True)
    status, canonical = read_status(raw)
    wishes = gang_annotations.read_gang_annotations(notes)
    named = gang_annotations.read_queue_name(read_labels(metadata), notes)
    fields: dict[str, Any] = {
        "namespace": metadata.namespace,
        "name": metadata.name,
        "uid": read_uid(metadata),
        "resource_version": read_resource_version(metadata),
        "generation": metadata.generation,
        "created": parse_time(metadata.creation_timestamp or ""),
        "topology": TopologyRequest(wishes.topology_required, wishes.topology_preferred),
        "terms": terms_of_annotations(wishes),
        "phase": _PHASES.get(status.phase or "", status.phase or PENDING),
        "conditions": decode_conditions(status),
        "status": canonical,
        "deleting": metadata.deletion_timestamp is not None,
        "source": source,
        "hold": read_hold(notes.hold if notes is not None else None),
        **more,
    }
    fields["queue"] = fields.get("queue") or named
    return PodGroup(**fields)


def terms_of_annotations(wishes: GangAnnotations) -> GangTerms:
    """Terms as annotations of the group say them."""
    if wishes is NO_GANG_ANNOTATIONS:
        return _NO_TERMS
    return GangTerms(
        preemptible=wishes.preemptible,
        expected_duration_ns=wishes.expected_duration_ns,
        min_runtime_ns=wishes.min_runtime_ns,
        gpu_types=wishes.gpu_types,
        devices=wishes.devices,
    )
