"""What labels and annotations say about gangs and queues; ours win over those of others."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from gpusched.api.devices.device_match import ANNOTATION_FIELD as DEVICES
from gpusched.api.devices.device_match import parse_device_match
from gpusched.api.devices.gpu_types import ANNOTATION_FIELD as GPU_TYPES
from gpusched.api.devices.gpu_types import parse_gpu_types
from gpusched.api.meta import wire
from gpusched.api.meta.fields import parse_duration_ns, parse_number, quoted
from gpusched.api.meta.identity import InvalidObject
from gpusched.api.pod import wire as pod_wire
from gpusched.api.pod.pod import NO_GANG_ANNOTATIONS, GangAnnotations
from gpusched.base.limits import GANG_PODS_MAX

GROUP_LABEL: Final = "gpusched.io/pod-group"
QUEUE_LABEL: Final = "gpusched.io/queue"
ROLE_LABEL: Final = "gpusched.io/role"
SUB_GROUP_LABEL: Final = "gpusched.io/sub-group"
KAI_SUB_GROUP: Final = "kai.scheduler/subgroup-name"
_COSCHEDULING_GROUP: Final = "scheduling.x-k8s.io/pod-group"
_KUEUE_QUEUE: Final = "kueue.x-k8s.io/queue-name"
_VOLCANO_QUEUE: Final = "scheduling.volcano.sh/queue-name"
_KAI_QUEUE: Final = "kai.scheduler/queue"
_VOLCANO_TASK: Final = "volcano.sh/task-spec"
_VOLCANO_JOB_QUEUE: Final = "volcano.sh/queue-name"
ROLES: Final = (
    "jobset.sigs.k8s.io/replicatedjob-name",
    "training.kubeflow.org/replica-type",
    "training.kubeflow.org/job-role",
    "ray.io/group",
    "spark-role",
)
"""Labels by which controllers tell roles."""
LWS_INDEX: Final = "leaderworkerset.sigs.k8s.io/worker-index"
LABEL_KEY_MAX: Final = 253 + 1 + 63
"""Characters of the longest label key: prefix, slash and name."""
_TRUE: Final = ("true", "t", "1")
MAX_EXEC_LABEL: Final = "kueue.x-k8s.io/max-exec-time-seconds"
"""Kueue reads it as a label; jobs that carry it as an annotation mean the same."""
_SECONDS_DIGITS_MAX: Final = 10
_BOOLEANS: Final = {"true": True, "false": False}

_NO_TEXTS: Final[tuple[str | None, ...]] = (None,) * 11
_NO_ANNOTATIONS: Final = wire.WorkloadAnnotations()


def read_group_name(
    labels: Mapping[str, str], annotations: wire.WorkloadAnnotations | None, native: str = ""
) -> str:
    """Name of the pod group, empty for none.

    Args:
        labels: of a pod or Job.
        annotations: of the same.
        native: what ``spec.schedulingGroup`` of a pod names.
    """
    notes = annotations or _NO_ANNOTATIONS
    kai = notes.kai_group if isinstance(notes, pod_wire.PodAnnotations) else None
    return (
        labels.get(GROUP_LABEL)
        or native
        or labels.get(_COSCHEDULING_GROUP)
        or notes.volcano_group_old
        or notes.volcano_group
        or kai
        or ""
    )


def read_queue_name(labels: Mapping[str, str], annotations: wire.WorkloadAnnotations | None) -> str:
    """Name of the queue, empty for none."""
    notes = annotations or _NO_ANNOTATIONS
    return (
        labels.get(QUEUE_LABEL)
        or labels.get(_KUEUE_QUEUE)
        or labels.get(_VOLCANO_QUEUE)
        or labels.get(_VOLCANO_JOB_QUEUE)
        or notes.volcano_queue
        or labels.get(_KAI_QUEUE)
        or notes.yunikorn_queue
        or ""
    )


def read_role(labels: Mapping[str, str], annotations: wire.WorkloadAnnotations | None) -> str:
    """Role inside the gang, empty for none."""
    notes = annotations or _NO_ANNOTATIONS
    named = labels.get(ROLE_LABEL) or notes.volcano_task or labels.get(_VOLCANO_TASK)
    if named:
        return named
    for key in ROLES:
        if key in labels:
            return labels[key]
    index = labels.get(LWS_INDEX)
    if index is None:
        return (isinstance(notes, pod_wire.PodAnnotations) and notes.yunikorn_task) or ""
    return "leader" if index == "0" else "worker"


def read_sub_group(labels: Mapping[str, str]) -> str:
    """Sub-group of the gang that a pod's labels name, empty for none."""
    return labels.get(SUB_GROUP_LABEL) or labels.get(KAI_SUB_GROUP, "")


def parse_seconds(text: str) -> int:
    """A number of seconds in another project's words; 0 for what that project would refuse too."""
    if text.isascii() and text.isdigit() and len(text) <= _SECONDS_DIGITS_MAX:
        return int(text)
    return 0


def read_gang_annotations(annotations: wire.WorkloadAnnotations | None) -> GangAnnotations:
    """Annotations that stand in for a PodGroup.

    Raises:
        InvalidObject: one that is there and cannot be read.
    """
    if annotations is None:
        return NO_GANG_ANNOTATIONS
    own_min = annotations.min_member
    # What loses is left out here: nobody has checked its length, and the result is cached.
    texts = (
        own_min,
        annotations.volcano_min_member if own_min is None else None,
        annotations.topology_required or annotations.kueue_required,
        annotations.topology_preferred or annotations.kueue_preferred,
        annotations.expected_duration,
        annotations.preemptible,
        annotations.min_runtime,
        annotations.volcano_preemptable if annotations.preemptible is None else None,
        annotations.volcano_cooldown if annotations.min_runtime is None else None,
        annotations.gpu_types,
        annotations.devices,
    )
    return _read_gang_annotations(texts)


@lru_cache(maxsize=4096)
def _read_gang_annotations(texts: tuple[str | None, ...]) -> GangAnnotations:
    """In the order of ``hints_of``; pods of one template share the result."""
    if texts == _NO_TEXTS:
        return NO_GANG_ANNOTATIONS
    own_min, volcano_min, required, preferred, expected, preemptible, min_runtime = texts[:7]
    preemptable, cooldown, gpu_types, devices = texts[7:]
    return GangAnnotations(
        min_member=_members(own_min, volcano_min),
        topology_required=_level("topology-required", required),
        topology_preferred=_level("topology-preferred", preferred),
        expected_duration_ns=parse_duration_ns(expected, field=_field("expected-duration")),
        # Volcano takes whatever is not "true" for false.
        preemptible=_boolean("preemptible", preemptible)
        if preemptable is None
        else preemptable.lower() in _TRUE,
        min_runtime_ns=parse_duration_ns(min_runtime, field=_field("min-runtime"))
        if cooldown is None
        else parse_duration_ns(cooldown, field="metadata.annotations[volcano.sh/cooldown-time]"),
        gpu_types=parse_gpu_types((gpu_types or "").encode(), field=GPU_TYPES),
        devices=parse_device_match((devices or "").encode(), field=DEVICES),
    )


def _field(name: str) -> str:
    return f"metadata.annotations[gpusched.io/{name}]"


def _members(own: str | None, volcano: str | None) -> int:
    if own is not None:
        return parse_number(own, field=_field("min-member"), low=1, high=GANG_PODS_MAX)
    if volcano is None:
        return 0
    field = "metadata.annotations[scheduling.volcano.sh/group-min-member]"
    return parse_number(volcano, field=field, low=1, high=GANG_PODS_MAX)


def _level(name: str, text: str | None) -> str:
    """A level of the topology, by its name or node label."""
    if text and (len(text) > LABEL_KEY_MAX or not text.isprintable()):
        raise InvalidObject(_field(name), f"{quoted(text)} is no level of a topology")
    return text or ""


def _boolean(name: str, text: str | None) -> bool | None:
    if text is None:
        return None
    if text not in _BOOLEANS:
        raise InvalidObject(_field(name), f"{quoted(text)} is neither true nor false")
    return _BOOLEANS[text]
