"""Workloads in short made into ordinary manifests: nothing is random or hidden in here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from gpusched.api.meta.duration import NANOSECONDS, format_duration
from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.lab.scenario.model.scenario import CLASS_LABEL, Obj
from gpusched.lab.scenario.model.workload import (
    GpuRequest,
    PodRole,
    WorkloadSpec,
    WorkloadTopology,
)

JOB: Final = "Job"
GROUP: Final = "PodGroup"
DEPLOYMENT: Final = "Deployment"
POD: Final = "Pod"
KINDS: Final = (JOB, GROUP, DEPLOYMENT, POD)
API_VERSIONS: Final[Mapping[str, str]] = {
    JOB: "batch/v1",
    GROUP: "scheduling.gpusched.io/v1alpha1",
    DEPLOYMENT: "apps/v1",
    POD: "v1",
}
PREFIX: Final = "gpusched.io/"
IMAGE: Final = "busybox:1.37"
APP_LABEL: Final = "scenario.gpusched.io/app"
"""By which a Deployment finds its pods."""


def manifest_duration(seconds: float) -> str:
    """A duration as manifests hold it."""
    return format_duration(round(seconds * NANOSECONDS))


def manifests_of(work: WorkloadSpec) -> list[Obj]:
    """The objects of a workload, in the order in which they are created.

    Args:
        work: with nothing left to draw.

    Raises:
        ValueError: it was drawn with fewer pods than it needs at least.
    """
    pods, least = cast("int", work.pods), cast("int", work.min_member or 0)
    if least > pods and not work.roles:
        raise ValueError(f"minMember is {least}, of {pods} pods")
    match work.kind:
        case "Job":
            return [_job(work)]
        case "PodGroup":
            return [_group(work), *_group_pods(work)]
        case "Deployment":
            return [_deployment(work)]
        case _:
            return [_lone_pod(work)]


# -- kinds -------------------------------------------------------------------------------------
def _job(work: WorkloadSpec) -> Obj:
    pods = cast("int", work.pods)
    spec: Obj = {"completionMode": "Indexed", "completions": pods, "parallelism": pods}
    if work.deadline_s is not None:
        spec["activeDeadlineSeconds"] = round(work.deadline_s)
    if work.backoff_limit is not None:
        spec["backoffLimit"] = work.backoff_limit
    if bool(work.queue) if work.suspend is None else work.suspend:
        spec["suspend"] = True
    spec["template"] = {
        **_parts(labels=_labels(work), annotations=_notes(work)),
        "spec": _pod_spec(work),
    }
    own = {**_queue(work), **_class(work)}
    metadata = _metadata(work, labels=own, annotations=_group_notes(work))
    return _obj(JOB, metadata, spec)


def _group(work: WorkloadSpec) -> Obj:
    spec: Obj = {}
    if work.queue:
        spec["queue"] = work.queue
    # In a tree sub-groups say what is needed; roles outside of it need what they have.
    needed = [role for role in work.roles if not (work.sub_groups and role.sub_group)]
    spec["minMember"] = (
        max(1, sum(map(_role_least, needed))) if work.sub_groups else _least_members(work)
    )
    if work.roles:
        if needed:
            spec["minTaskMember"] = {role.name: _role_least(role) for role in needed}
        if groups := _sub_groups(work):
            spec["subGroups"] = groups
    if work.min_sub_groups is not None:
        spec["minSubGroups"] = work.min_sub_groups
    if work.priority:
        spec["priorityClassName"] = work.priority
    if work.preemptible is not None:
        spec["preemptible"] = work.preemptible
    if work.topology:
        spec["topology"] = _wish(work.topology)
    if (expected := _expected(work)) is not None:
        spec["expectedDuration"] = manifest_duration(expected)
    if work.min_runtime_s is not None:
        spec["minRuntime"] = manifest_duration(work.min_runtime_s)
    return _obj(GROUP, _metadata(work, labels=_class(work), annotations={}), spec)


def _group_pods(work: WorkloadSpec) -> list[Obj]:
    labels = {**_labels(work), f"{PREFIX}pod-group": work.name}
    if not work.roles:
        return [
            _pod(work, f"{work.name}-{at}", labels, _pod_spec(work))
            for at in range(cast("int", work.pods))
        ]
    found = []
    for role in work.roles:
        own = {**labels, f"{PREFIX}role": role.name}
        if role.sub_group:
            own[f"{PREFIX}sub-group"] = role.sub_group
        found += [
            _pod(work, f"{work.name}-{role.name}-{at}", own, _pod_spec(work, role))
            for at in range(role.pods)
        ]
    return found


def _deployment(work: WorkloadSpec) -> Obj:
    app = {APP_LABEL: work.name}
    labels = {**_labels(work), **_queue(work), **app}
    spec = {
        "replicas": work.pods,
        "selector": {"matchLabels": app},
        "template": {
            "metadata": _meta(labels=labels, annotations={**_notes(work), **_group_notes(work)}),
            "spec": {**_pod_spec(work), "restartPolicy": "Always"},
        },
    }
    return _obj(DEPLOYMENT, _metadata(work, labels=_class(work), annotations={}), spec)


def _lone_pod(work: WorkloadSpec) -> Obj:
    labels = {**_labels(work), **_queue(work)}
    return _pod(work, work.name, labels, _pod_spec(work), notes=_group_notes(work))


def _pod(
    work: WorkloadSpec, name: str, labels: Mapping[str, str], spec: Obj, *, notes: Obj | None = None
) -> Obj:
    metadata = {
        "name": name,
        "namespace": work.namespace,
        **_meta(labels=labels, annotations={**_notes(work), **(notes or {})}),
    }
    return _obj(POD, metadata, spec)


# -- parts -------------------------------------------------------------------------------------
def _obj(kind: str, metadata: Obj, spec: Obj) -> Obj:
    return {"apiVersion": API_VERSIONS[kind], "kind": kind, "metadata": metadata, "spec": spec}


def _metadata(
    work: WorkloadSpec, *, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> Obj:
    return {
        "name": work.name,
        "namespace": work.namespace,
        **_meta(labels=labels, annotations=annotations),
    }


def _meta(*, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Obj:
    found: Obj = {}
    if labels:
        found["labels"] = dict(labels)
    if annotations:
        found["annotations"] = dict(annotations)
    return found


def _parts(*, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Obj:
    metadata = _meta(labels=labels, annotations=annotations)
    return {"metadata": metadata} if metadata else {}


def _queue(work: WorkloadSpec) -> dict[str, str]:
    return {f"{PREFIX}queue": cast("str", work.queue)} if work.queue else {}


def _class(work: WorkloadSpec) -> dict[str, str]:
    return {CLASS_LABEL: cast("str", work.klass)} if work.klass else {}


def _labels(work: WorkloadSpec) -> dict[str, str]:
    return {**_class(work), **work.labels}


def _notes(work: WorkloadSpec) -> dict[str, str]:
    """Annotations of each pod: how it runs, and what its share is."""
    found = {f"{PREFIX}{key}": value for key, value in work.notes.items()}
    if work.run_for_s is not None:
        found[f"{PREFIX}run-for"] = manifest_duration(cast("float", work.run_for_s))
    share = work.share
    if share.fraction:
        found[f"{PREFIX}gpu-fraction"] = cast("str", share.fraction)
    if share.memory:
        found[f"{PREFIX}gpu-memory"] = cast("str", share.memory)
    return {**found, **work.annotations}


def _group_notes(work: WorkloadSpec) -> dict[str, str]:
    """Annotations that stand in for the fields of a PodGroup."""
    expected = _expected(work)
    said: dict[str, str | None] = {
        "min-member": None if work.min_member is None else str(work.min_member),
        "topology-required": work.topology.required or None,
        "topology-preferred": work.topology.preferred or None,
        "expected-duration": None if expected is None else manifest_duration(expected),
        "preemptible": None if work.preemptible is None else str(work.preemptible).lower(),
        "min-runtime": None
        if work.min_runtime_s is None
        else manifest_duration(work.min_runtime_s),
    }
    return {f"{PREFIX}{key}": value for key, value in said.items() if value is not None}


def _expected(work: WorkloadSpec) -> float | None:
    if work.expected is True:
        return cast("float | None", work.run_for_s)
    return None if work.expected is False else cast("float | None", work.expected)


def _role_least(role: PodRole) -> int:
    return role.pods if role.min_member is None else role.min_member


def _least_members(work: WorkloadSpec) -> int:
    if work.min_member is not None:
        return cast("int", work.min_member)
    if work.roles:
        return sum(map(_role_least, work.roles))
    return cast("int", work.pods)


def _sub_groups(work: WorkloadSpec) -> list[Obj]:
    found: dict[str, Obj] = {}
    for role in work.roles:
        if not role.sub_group:
            continue
        group = found.setdefault(role.sub_group, {"name": role.sub_group, "minMember": 0})
        group["minMember"] += _role_least(role)
        if role.topology:
            group["topology"] = _wish(role.topology)
    for each in work.sub_groups:
        group = found.setdefault(each.name, {"name": each.name})
        if each.parent:
            group["parent"] = each.parent
        if each.min_sub_groups is not None:
            group["minSubGroups"] = each.min_sub_groups
        if each.topology:
            group["topology"] = _wish(each.topology)
    return list(found.values())


def _wish(wish: WorkloadTopology) -> Obj:
    found: Obj = {}
    if wish.required:
        found["required"] = wish.required
    if wish.preferred:
        found["preferred"] = wish.preferred
    if wish.max_wait_s is not None:
        found["maxWait"] = manifest_duration(wish.max_wait_s)
    return found


def _pod_spec(work: WorkloadSpec, role: PodRole | None = None) -> Obj:
    spec: Obj = {"schedulerName": "gpusched", "restartPolicy": "Never"}
    if work.priority:
        spec["priorityClassName"] = work.priority
    if work.node_selector:
        spec["nodeSelector"] = dict(work.node_selector)
    if work.tolerations:
        spec["tolerations"] = list(work.tolerations)
    spec["containers"] = [
        {
            "name": "worker",
            "image": IMAGE,
            "command": ["sleep", _sleep(cast("float | None", work.run_for_s))],
            "resources": _resources(work, role),
        }
    ]
    return spec


def _sleep(seconds: float | None) -> str:
    return "infinity" if seconds is None else f"{seconds:.3f}".rstrip("0").rstrip(".")


def _resources(work: WorkloadSpec, role: PodRole | None) -> Obj:
    source: WorkloadSpec | PodRole = work if role is None else role
    requests = {"cpu": source.cpu, "memory": source.memory}
    limits = {} if not source.gpus else {gpu_resources().main.name: str(source.gpus)}
    if role is None:
        limits.update(_extended(work.share))
    return {"requests": requests, "limits": limits} if limits else {"requests": requests}


def _extended(share: GpuRequest) -> dict[str, str]:
    found = dict(share.resources)
    if share.mig:
        found[f"{gpu_resources().main.slice_prefix}{share.mig}"] = str(share.slices)
    return found
