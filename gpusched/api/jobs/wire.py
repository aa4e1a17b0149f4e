"""The shape of a Job on the wire: only the fields that are read."""

from __future__ import annotations

from msgspec import Raw, Struct

from gpusched.api.meta.wire import (
    ABSENT,
    Count,
    Generation,
    Metadata,
    OwnerReference,
    WireCondition,
    WorkloadAnnotations,
)
from gpusched.api.pod.wire import PodMetadata


class PodTemplate(Struct, gc=False):
    """The pods that a Job makes; the spec is read only where we start the Job."""

    metadata: PodMetadata | None = None
    spec: Raw = ABSENT


class PodNames(Struct, gc=False, rename="camel"):
    """What the spec of a template names: it is all that is read of it where the Job is not ours to start."""

    scheduler_name: str = ""
    priority_class_name: str = ""


class JobAnnotations(
    WorkloadAnnotations,
    gc=False,
    rename={
        "admitted": "gpusched.io/admitted",
        "parallelism": "gpusched.io/parallelism",
        "min_parallelism": "kueue.x-k8s.io/job-min-parallelism",
        "max_exec": "kueue.x-k8s.io/max-exec-time-seconds",
        "moved": "gpusched.io/moved",
        "turn": "gpusched.io/turn",
        "evictions": "gpusched.io/evictions",
        "seal": "gpusched.io/seal",
    },
):
    """Annotations of a Job, with what we wrote when we started it."""

    admitted: str | None = None
    max_exec: str | None = None
    parallelism: str | None = None
    min_parallelism: str | None = None
    moved: str | None = None
    turn: str | None = None
    evictions: str | None = None
    seal: str | None = None


class JobMetadata(Metadata, gc=False, rename="camel"):
    """Metadata of a Job."""

    annotations: JobAnnotations | None = None
    owner_references: list[OwnerReference] | None = None


class PodConditionPattern(Struct, gc=False, rename="camel"):
    """A condition of a failed pod; the status is True where none is named."""

    type: str = ""
    status: str | None = None


class ExitCodesPattern(Struct, gc=False, rename="camel"):
    """Exit codes of a failed pod's containers; which ones is not read."""

    operator: str = ""


class PodFailureRule(Struct, gc=False, rename="camel"):
    """What a failed pod means for its Job, by its exit codes or by its conditions."""

    action: str = ""
    on_exit_codes: ExitCodesPattern | None = None
    on_pod_conditions: list[PodConditionPattern] | None = None


class PodFailurePolicy(Struct, gc=False, rename="camel"):
    """Rules of which the first that fits a failed pod counts."""

    rules: list[PodFailureRule] | None = None


class JobSpec(Struct, gc=False, rename="camel"):
    """The spec of a Job."""

    parallelism: Count | None = None
    completions: Count | None = None
    completion_mode: str | None = None
    suspend: bool | None = None
    active_deadline_seconds: Generation | None = None
    backoff_limit: Count | None = None
    backoff_limit_per_index: Count | None = None
    pod_failure_policy: PodFailurePolicy | None = None
    template: PodTemplate | None = None


class JobStatus(Struct, gc=False, rename="camel"):
    """Status of a Job."""

    succeeded: Count | None = None
    failed_indexes: str | None = None
    start_time: str | None = None
    completion_time: str | None = None
    conditions: list[WireCondition] | None = None


class WireJob(Struct, gc=False):
    """A Job as the API server sends it."""

    metadata: JobMetadata
    spec: JobSpec | None = None
    status: JobStatus | None = None
