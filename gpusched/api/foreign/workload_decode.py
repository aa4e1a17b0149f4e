"""JobSets, LeaderWorkerSets, training jobs and Ray clusters: how large a gang each makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct

from gpusched.api.foreign import kinds, native_workloads
from gpusched.api.foreign.workload import ForeignWorkload, ForeignWorkloadRole
from gpusched.api.gang.wire import Members
from gpusched.api.jobs.wire import JobSpec
from gpusched.api.meta.codec import KindCodec
from gpusched.api.meta.fields import (
    check_identity,
    read_hold,
    read_labels,
    read_resource_version,
    read_uid,
)
from gpusched.api.meta.identity import InvalidObject, parse_time
from gpusched.api.meta.wire import Count, WorkloadMetadata
from gpusched.api.pod import gang_annotations
from gpusched.base.limits import GANG_PODS_MAX

DecodedWorkload = Callable[[Any], ForeignWorkload]


def _workload(
    kind: str,
    metadata: WorkloadMetadata,
    parts: tuple[ForeignWorkloadRole, ...],
    *,
    queue: str = "",
    **more: Any,
) -> ForeignWorkload:
    """What all workloads have in common.

    Raises:
        InvalidObject: no pods, or more than any gang may have.
    """
    check_identity(metadata, namespaced=True)
    labels, notes = read_labels(metadata), metadata.annotations
    size = sum(part.size for part in parts)
    if size > GANG_PODS_MAX:
        raise InvalidObject("spec", f"asks for {size:,} pods, more than {GANG_PODS_MAX:,}")
    return ForeignWorkload(
        kind=kind,
        namespace=metadata.namespace,
        name=metadata.name,
        uid=read_uid(metadata),
        resource_version=read_resource_version(metadata),
        created=parse_time(metadata.creation_timestamp or ""),
        parts=parts,
        queue=gang_annotations.read_queue_name(labels, notes) or queue,
        hints=gang_annotations.read_gang_annotations(notes),
        hold=read_hold(notes.hold if notes is not None else None),
        **more,
    )


# -- JobSet ---------------------------------------------------------------------------------


class _JobTemplate(Struct, gc=False):
    metadata: WorkloadMetadata | None = None
    spec: JobSpec | None = None


class _ReplicatedJob(Struct, gc=False, rename="camel"):
    name: str = ""
    replicas: Count | None = None
    template: _JobTemplate | None = None
    depends_on: list[dict[str, Any]] | None = None


class _StartupPolicy(Struct, gc=False, rename="camel"):
    startup_policy_order: str | None = None


class _JobSetSpec(Struct, gc=False, rename="camel"):
    replicated_jobs: list[_ReplicatedJob] | None = None
    startup_policy: _StartupPolicy | None = None


class _ReplicatedJobStatus(Struct, gc=False):
    name: str = ""
    succeeded: Count = 0


class _JobSetStatus(Struct, gc=False, rename="camel"):
    replicated_jobs_status: list[_ReplicatedJobStatus] | None = None


class JobSet(Struct, gc=False):
    """A JobSet on the wire."""

    metadata: WorkloadMetadata
    spec: _JobSetSpec | None = None
    status: _JobSetStatus | None = None


def decode_job_set(parsed: JobSet) -> ForeignWorkload:
    """All pods of all its Jobs; with a startup order those of later Jobs come late.

    Raises:
        InvalidObject: a field of it is missing, malformed or out of bounds.
    """
    spec = parsed.spec or _JobSetSpec()
    order = spec.startup_policy.startup_policy_order if spec.startup_policy else None
    jobs = (parsed.status and parsed.status.replicated_jobs_status) or ()
    done = {each.name: each.succeeded for each in jobs}
    parts = []
    warning = ""
    for number, job in enumerate(spec.replicated_jobs or ()):
        replicas = 1 if job.replicas is None else job.replicas
        finished = min(replicas, done.get(job.name, 0))
        template = job.template or _JobTemplate()
        pods = _running_pods(template.spec)
        if _starts_leader_first(parsed.metadata) or (
            template.metadata and _starts_leader_first(template.metadata)
        ):
            pods, warning = min(pods, 1), _LEADER_FIRST_VALUES
        late = bool(job.depends_on) or (order == "InOrder" and number > 0)
        parts.append(
            ForeignWorkloadRole(job.name, (replicas - finished) * pods, late, finished * pods)
        )
    return _workload("JobSet", parsed.metadata, tuple(parts), warning=warning)


_LEADER_FIRST_VALUES: Final = (
    "with exclusive-topology the other pods of a Job are made when its first has a node: one pod of "
    "each Job is the minimum"
)


def _starts_leader_first(metadata: WorkloadMetadata) -> bool:
    """Whether the first pod of each Job must have its node before the others are made."""
    notes = metadata.annotations
    return notes is not None and bool(notes.jobset_exclusive) and not notes.jobset_selector


def _running_pods(job: JobSpec | None) -> int:
    """Pods that one Job runs at a time."""
    if job is None:
        return 1
    parallelism = 1 if job.parallelism is None else job.parallelism
    return parallelism if job.completions is None else min(parallelism, job.completions)


# -- LeaderWorkerSet ------------------------------------------------------------------------


class _LeaderWorkerTemplate(Struct, gc=False):
    size: Count | None = None


class _LeaderWorkerSetSpec(Struct, gc=False, rename="camel"):
    leader_worker_template: _LeaderWorkerTemplate | None = None
    startup_policy: str | None = None


class LeaderWorkerSet(Struct, gc=False):
    """A LeaderWorkerSet on the wire."""

    metadata: WorkloadMetadata
    spec: _LeaderWorkerSetSpec | None = None


def decode_leader_worker_set(parsed: LeaderWorkerSet) -> ForeignWorkload:
    """One of its groups: the leader and its workers, who come late if they wait for it.

    Raises:
        InvalidObject: a field of it is missing, malformed or out of bounds.
    """
    spec = parsed.spec or _LeaderWorkerSetSpec()
    template = spec.leader_worker_template or _LeaderWorkerTemplate()
    size = template.size or 1
    notes = parsed.metadata.annotations
    # With exclusive placement workers are made only when their leader has its node.
    exclusive = notes is not None and bool(notes.lws_exclusive)
    late = exclusive or spec.startup_policy == "LeaderReady"
    parts: tuple[ForeignWorkloadRole, ...] = (ForeignWorkloadRole("leader", 1),)
    if size > 1:
        parts = (*parts, ForeignWorkloadRole("worker", size - 1, late))
    return _workload("LeaderWorkerSet", parsed.metadata, parts)


# -- training operator and MPI operator -------------------------------------------------------


class _Replicas(Struct, gc=False):
    replicas: Count | None = None


class _SchedulingPolicy(Struct, gc=False, rename="camel"):
    min_available: Members | None = None
    queue: str | None = None
    priority_class: str | None = None


class _RunPolicy(Struct, gc=False, rename="camel"):
    scheduling_policy: _SchedulingPolicy | None = None


class _ElasticPolicy(Struct, gc=False, rename="camel"):
    min_replicas: Count | None = None


class _TrainingSpec(
    Struct,
    gc=False,
    rename={
        "pytorch": "pytorchReplicaSpecs",
        "tensorflow": "tfReplicaSpecs",
        "xgboost": "xgbReplicaSpecs",
        "jax": "jaxReplicaSpecs",
        "paddle": "paddleReplicaSpecs",
        "mpi": "mpiReplicaSpecs",
        "run_policy": "runPolicy",
        "elastic_policy": "elasticPolicy",
        "creation": "launcherCreationPolicy",
    },
):
    pytorch: dict[str, _Replicas] | None = None
    tensorflow: dict[str, _Replicas] | None = None
    xgboost: dict[str, _Replicas] | None = None
    jax: dict[str, _Replicas] | None = None
    paddle: dict[str, _Replicas] | None = None
    mpi: dict[str, _Replicas] | None = None
    run_policy: _RunPolicy | None = None
    elastic_policy: _ElasticPolicy | None = None
    creation: str | None = None

    @property
    def replicas(self) -> Mapping[str, _Replicas]:
        """By role, of whichever framework it is."""
        return (
            self.pytorch
            or self.tensorflow
            or self.xgboost
            or self.jax
            or self.paddle
            or self.mpi
            or {}
        )


class TrainingJob(Struct, gc=False):
    """A PyTorchJob, TFJob, XGBoostJob, JAXJob, PaddleJob or MPIJob on the wire."""

    metadata: WorkloadMetadata
    spec: _TrainingSpec | None = None


_FIRST: Final = ("master", "chief", "launcher")


def _training_job(kind: str) -> DecodedWorkload:
    def made(parsed: TrainingJob) -> ForeignWorkload:
        return _decode_training_job(kind, parsed)

    return made


def _decode_training_job(kind: str, parsed: TrainingJob) -> ForeignWorkload:
    """``minAvailable``, else the elastic minimum and the masters, else all replicas."""
    spec = parsed.spec or _TrainingSpec()
    policy = (spec.run_policy and spec.run_policy.scheduling_policy) or _SchedulingPolicy()
    waits = spec.creation == "WaitForWorkersReady"
    parts = []
    for name, each in sorted(spec.replicas.items()):
        role = name.lower()
        size = 1 if each.replicas is None else each.replicas
        parts.append(ForeignWorkloadRole(role, size, waits and role == "launcher"))
    parts.sort(key=lambda part: (part.late, part.role not in _FIRST, part.role))
    minimum = policy.min_available or 0
    roles: tuple[tuple[str, int], ...] = ()
    elastic = spec.elastic_policy.min_replicas if spec.elastic_policy else None
    if not minimum and elastic:
        masters = sum(part.size for part in parts if part.role != "worker")
        minimum = masters + elastic
        roles = tuple((part.role, part.size) for part in parts if part.role != "worker")
    return _workload(
        kind,
        parsed.metadata,
        tuple(parts),
        min_member=minimum,
        min_roles=roles,
        queue=policy.queue or "",
        priority_class=policy.priority_class or "",
    )


# -- Ray ------------------------------------------------------------------------------------


class _WorkerGroup(Struct, gc=False, rename="camel"):
    group_name: str = ""
    replicas: Count | None = None
    min_replicas: Count | None = None
    num_of_hosts: Count | None = None
    suspend: bool | None = None


class _RayClusterSpec(Struct, gc=False, rename="camel"):
    worker_group_specs: list[_WorkerGroup] | None = None


class RayCluster(Struct, gc=False):
    """A RayCluster on the wire."""

    metadata: WorkloadMetadata
    spec: _RayClusterSpec | None = None


def decode_ray_cluster(parsed: RayCluster) -> ForeignWorkload:
    """The head and the least workers of each group; more of them are welcome later.

    Raises:
        InvalidObject: a field of it is missing, malformed or out of bounds.
    """
    spec = parsed.spec or _RayClusterSpec()
    parts = [ForeignWorkloadRole("headgroup", 1)]
    for group in spec.worker_group_specs or ():
        replicas = group.min_replicas or (0 if group.replicas is None else group.replicas)
        hosts = 1 if group.num_of_hosts is None else max(1, group.num_of_hosts)
        if replicas and not group.suspend:
            parts.append(ForeignWorkloadRole(group.group_name, replicas * hosts))
    roles = tuple(sorted((part.role, part.size) for part in parts))
    return _workload("RayCluster", parsed.metadata, tuple(parts), min_roles=roles)


_READERS: Final[Mapping[str, tuple[type[Any], DecodedWorkload]]] = {
    "JobSet": (JobSet, decode_job_set),
    "LeaderWorkerSet": (LeaderWorkerSet, decode_leader_worker_set),
    "RayCluster": (RayCluster, decode_ray_cluster),
    native_workloads.KIND: (
        native_workloads.NativeWorkload,
        native_workloads.decode_native_workload,
    ),
    **{
        kind: (TrainingJob, _training_job(kind))
        for kind in ("PyTorchJob", "TFJob", "XGBoostJob", "JAXJob", "PaddleJob", "MPIJob")
    },
}
CODECS: Final = {
    kind: KindCodec(kind, wire_type=_READERS[kind][0], entity=_READERS[kind][1])
    for kind in kinds.WORKLOADS
}
"""By kind."""
