"""To which gang a pod belongs by what its controller wrote on it, and where in its order.

Whatever names a PodGroup comes first (``hints.group_of``); here are the conventions that name
none, in order of precedence: Koordinator, Kueue, YuniKorn, then the controllers.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import msgspec

from gpusched.api.gang.native_terms import COMPOSITE
from gpusched.api.meta.fields import decode_part, parse_number
from gpusched.api.meta.identity import GangKey, InvalidObject, Owner
from gpusched.api.pod import wire as pod_wire
from gpusched.api.pod.gang_annotations import LWS_INDEX, ROLES
from gpusched.api.pod.pod import GangMembership, Pod
from gpusched.base.limits import GANG_PODS_MAX

_OLD_NAME: Final = "pod-group.scheduling.sigs.k8s.io/name"
_OLD_MIN: Final = "pod-group.scheduling.sigs.k8s.io/min-available"
_KUEUE_GROUP: Final = "kueue.x-k8s.io/pod-group-name"
_JOBSET: Final = "jobset.sigs.k8s.io/jobset-name"
_JOBSET_REPLICAS: Final = "jobset.sigs.k8s.io/replicatedjob-replicas"
_JOBSET_INDEXES: Final = (
    "jobset.sigs.k8s.io/job-global-index",
    "jobset.sigs.k8s.io/job-index",
)
_LWS: Final = "leaderworkerset.sigs.k8s.io/name"
_LWS_GROUP: Final = "leaderworkerset.sigs.k8s.io/group-index"
_TRAINING: Final = "training.kubeflow.org/job-name"
_TRAINING_OPERATOR: Final = "training.kubeflow.org/operator-name"
_TRAINING_TYPE: Final = "training.kubeflow.org/replica-type"
_TRAINING_INDEX: Final = "training.kubeflow.org/replica-index"
_MPI_ROLE: Final = "training.kubeflow.org/job-role"
_RAY: Final = "ray.io/cluster"
_RAY_TYPE: Final = "ray.io/node-type"
_RAY_INDEX: Final = "ray.io/worker-group-replica-index"
_RAY_HOST: Final = "ray.io/replica-host-index"
_SPARK: Final = "spark-app-selector"
_TEMPLATE_HASH: Final = "pod-template-hash"
_VOLCANO_INDEX: Final = "volcano.sh/task-index"

_OPERATORS: Final = {
    "pytorchjob-controller": "PyTorchJob",
    "tfjob-controller": "TFJob",
    "xgboostjob-controller": "XGBoostJob",
    "jaxjob-controller": "JAXJob",
    "paddlejob-controller": "PaddleJob",
    "mpijob-controller": "MPIJob",
    "mpi-operator": "MPIJob",
}
_TRAINING_KINDS: Final = frozenset(_OPERATORS.values())
_LEADERS: Final = frozenset({"master", "chief", "launcher", "head", "driver"})
_INDEX_MAX: Final = 2**31 - 1

NATIVE_WORKLOAD: Final = "Workload"
PART: Final = ":"
"""Between the name of a Workload, that of its group and a replica's key: no name has it."""
KUEUE_GROUP: Final = "KueuePodGroup"
KOORDINATOR_GANG: Final = "KoordinatorGang"
YUNIKORN_APP: Final = "YuniKornApplication"
SPARK_APP: Final = "SparkApplication"
WITHOUT_OBJECT: Final = frozenset({KUEUE_GROUP, KOORDINATOR_GANG, YUNIKORN_APP, SPARK_APP})
"""Kinds of gangs that only their pods tell of."""
_NO_NOTES: Final = pod_wire.PodAnnotations()
_NO_CONTROLLERS: Final = frozenset({"Pod", "PodGroup", COMPOSITE})
"""Kinds of gangs that no pod joins by an owner reference, which any tenant may write."""


_MARKS: Final = frozenset(
    {
        *(_OLD_NAME, _KUEUE_GROUP, _JOBSET, _LWS, _TRAINING, _TRAINING_TYPE, _MPI_ROLE, _RAY),
        *(_SPARK, _TEMPLATE_HASH, _VOLCANO_INDEX, LWS_INDEX, *ROLES),
    }
)
"""Labels without any of which a pod was made by none of the controllers known here."""


def has_controller_labels(labels: Mapping[str, str]) -> bool:
    """Whether anything else here has something to read; most pods have no such label."""
    return not _MARKS.isdisjoint(labels)


class _TaskGroup(msgspec.Struct, rename="camel"):
    name: str = ""
    min_member: int = 0


_TASK_GROUPS: Final = msgspec.json.Decoder(list[_TaskGroup])


def read_gang_membership(
    labels: Mapping[str, str],
    annotations: pod_wire.PodAnnotations | None,
    owner: Owner | None,
    min_member: int,
) -> GangMembership | None:
    """The gang that the pod's controller made it for; None for none.

    Args:
        labels: of the pod.
        annotations: of the pod.
        owner: its controller.
        min_member: what an annotation asks for; Deployments and Spark form gangs only so.

    Raises:
        InvalidObject: a number in a label or annotation cannot be read.
    """
    if annotations is not None or _OLD_NAME in labels or _KUEUE_GROUP in labels:
        found = _by_convention(labels, annotations or _NO_NOTES)
        if found is not None:
            return found
    if not has_controller_labels(labels):
        return None
    found = _by_controller(labels, annotations or _NO_NOTES, owner)
    if found is not None or min_member <= 1:
        return found
    if owner is not None and owner.kind == "ReplicaSet":
        # A rollout has two ReplicaSets, and one gang.
        suffix = "-" + labels.get(_TEMPLATE_HASH, "")
        if len(suffix) > 1 and owner.name.endswith(suffix):
            return _interned_membership("Deployment", owner.name.removesuffix(suffix))
    if _SPARK in labels:
        return _interned_membership(SPARK_APP, labels[_SPARK])
    return None


def native_membership(ref: pod_wire.PodWorkloadRef) -> GangMembership:
    """The gang of a pod of 1.35: one for each replica of a group of its Workload."""
    parts = [ref.name, ref.pod_group]
    if ref.pod_group_replica_key:
        parts.append(ref.pod_group_replica_key)
    return _interned_membership(NATIVE_WORKLOAD, PART.join(parts), owner=ref.name)


def _by_convention(
    labels: Mapping[str, str], notes: pod_wire.PodAnnotations
) -> GangMembership | None:
    name = notes.koordinator_gang or labels.get(_OLD_NAME)
    if name:
        text = notes.koordinator_min or labels.get(_OLD_MIN)
        return _interned_membership(KOORDINATOR_GANG, name, size=_size(text, "min-available"))
    name = labels.get(_KUEUE_GROUP)
    if name:
        return _interned_membership(
            KUEUE_GROUP, name, size=_size(notes.kueue_count, "pod-group-total-count")
        )
    if notes.yunikorn_task:
        name = labels.get("applicationId") or notes.yunikorn_app
        name = name or labels.get("yunikorn.apache.org/app-id")
        if name:
            return _interned_membership(
                YUNIKORN_APP, name, size=_task_groups(notes.yunikorn_tasks or "")
            )
    return None


@lru_cache(maxsize=1024)
def _task_groups(text: str) -> int:
    """Members that the task groups of a YuniKorn application ask for together."""
    field = "metadata.annotations[yunikorn.apache.org/task-groups]"
    groups = decode_part(_TASK_GROUPS, text.encode(), field=field) or []
    size = sum(max(0, group.min_member) for group in groups)
    if size > GANG_PODS_MAX:
        raise InvalidObject(field, f"adds up to {size:,}, more than {GANG_PODS_MAX:,}")
    return size


def _by_controller(
    labels: Mapping[str, str], notes: pod_wire.PodAnnotations, owner: Owner | None
) -> GangMembership | None:
    name = labels.get(_JOBSET)
    if name:
        part = _size(labels.get(_JOBSET_REPLICAS), _JOBSET_REPLICAS)
        return _interned_membership("JobSet", name, owner=name, part=part)
    name = labels.get(_LWS)
    if name and _LWS_GROUP in labels:
        group = f"{name}-{labels[_LWS_GROUP]}"
        # With exclusive placement workers are made only when their leader has its node.
        text = None if notes.lws_exclusive else notes.lws_size
        size = _size(text, "leaderworkerset.sigs.k8s.io/size")
        return _interned_membership("LeaderWorkerSet", group, owner=name, size=size)
    name = labels.get(_TRAINING)
    if name:
        kind = owner.kind if owner is not None else ""
        if kind not in _TRAINING_KINDS:
            kind = _OPERATORS.get(labels.get(_TRAINING_OPERATOR, ""), "")
        return _interned_membership(kind, name, owner=name) if kind else None
    name = labels.get(_RAY)
    if name and labels.get(_RAY_TYPE) in ("head", "worker"):
        return _interned_membership("RayCluster", name, owner=name)
    return None


@lru_cache(maxsize=1024)
def _interned_membership(
    kind: str, name: str, *, owner: str = "", size: int = 0, part: int = 0
) -> GangMembership:
    """Pods of one gang share the object."""
    return GangMembership(kind, name, owner, size, part)


def _size(text: str | None, name: str) -> int:
    if text is None:
        return 0
    return parse_number(text, field=f"metadata[{name}]", low=0, high=GANG_PODS_MAX)


def rank_block(labels: Mapping[str, str]) -> int:
    """Which part of the ranks a pod belongs to: those of a lower block come first."""
    if _JOBSET in labels:
        for key in _JOBSET_INDEXES:
            if key in labels:
                return _index(labels[key], key)
        return 0
    if _RAY in labels:
        text = labels.get(_RAY_INDEX)
        return 0 if text is None else 1 + _index(text, _RAY_INDEX)
    role = labels.get(_TRAINING_TYPE) or labels.get(_MPI_ROLE) or labels.get("spark-role")
    return int(role is not None and role.lower() not in _LEADERS)


def controller_rank(labels: Mapping[str, str]) -> int:
    """Index inside the block by the controller's own label; -1 for none."""
    for key in (LWS_INDEX, _TRAINING_INDEX, _RAY_HOST, _VOLCANO_INDEX):
        text = labels.get(key)
        if text is not None:
            return _index(text, key)
    return -1


def _index(text: str, key: str) -> int:
    if len(text) < 5 and text.isdecimal() and text.isascii():
        return int(text)
    return parse_number(text, field=f"metadata.labels[{key}]", low=0, high=_INDEX_MAX)


def gang_key_of(pod: Pod) -> GangKey:
    """The gang that a pod belongs to: its PodGroup's, its controller's, or its own."""
    if pod.group:
        return GangKey("PodGroup", pod.namespace, pod.group)
    if pod.family is not None:
        return GangKey(pod.family.kind, pod.namespace, pod.family.name)
    owner = pod.owner
    if owner is not None and owner.kind == "Job":
        return GangKey("Job", pod.namespace, owner.name)
    if owner is not None and pod.hints.min_member > 1 and owner.kind not in _NO_CONTROLLERS:
        return GangKey(owner.kind, pod.namespace, owner.name)
    return GangKey("Pod", pod.namespace, pod.name)
