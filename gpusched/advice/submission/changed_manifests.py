"""Manifests that ask for something else: another queue, level, type of GPUs, or number of members."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from gpusched.advice.submission.expansion import kinds_with_pods
from gpusched.advice.submission.manifests import SubmittedObject
from gpusched.api.devices.gpu_types import ANNOTATION as GPU_TYPES
from gpusched.base.errors import UsageError
from gpusched.engine.objects import Obj

NO_LEVEL: Final = "none"
_OURS: Final = "scheduling.gpusched.io"
_QUEUE: Final = "gpusched.io/queue"
_LEVEL: Final = "gpusched.io/topology-required"
_MINIMUM: Final = "gpusched.io/min-member"
_QUEUE_IN_SPEC: Final = frozenset(
    {(_OURS, "PodGroup"), ("scheduling.volcano.sh", "PodGroup"), ("scheduling.run.ai", "PodGroup"),
     ("batch.volcano.sh", "Job")}
)  # fmt: skip
_LEADS: Final = frozenset({"master", "chief", "launcher"})
_WORKLOADS: Final = frozenset({"PodGroup", "Workload", "TrainJob"})


def with_queue(documents: Sequence[SubmittedObject], queue: str) -> list[SubmittedObject]:
    """They are submitted to a queue."""

    def change(obj: Obj) -> Obj:
        if _kind(obj) in _QUEUE_IN_SPEC:
            obj = _with_spec(obj, queue=queue)
            if obj["kind"] == "PodGroup":
                return obj
        return _with_texts(obj, "labels", {_QUEUE: queue})

    return _changed(documents, change)


def with_level(documents: Sequence[SubmittedObject], level: str) -> list[SubmittedObject]:
    """All pods of a gang share a domain of a level; ``none`` for no such wish."""
    text = "" if level == NO_LEVEL else level

    def change(obj: Obj) -> Obj:
        if _kind(obj) == (_OURS, "PodGroup"):
            topology = {**((obj.get("spec") or {}).get("topology") or {})}
            topology.pop("required", None)
            return _with_spec(obj, topology={**topology, **({"required": text} if text else {})})
        return _with_texts(obj, "annotations", {_LEVEL: text})

    return _changed(documents, change)


def with_gpu_type(
    documents: Sequence[SubmittedObject], name: str, labels: Sequence[str]
) -> list[SubmittedObject]:
    """They run on GPUs of one type; what they say about types elsewhere is taken off.

    Args:
        documents: that are submitted.
        name: of the type, or some of its words.
        labels: of nodes that tell the type.
    """
    request = {"speeds": {name: 1}}

    def change(obj: Obj) -> Obj:
        if _kind(obj) == (_OURS, "PodGroup"):
            return _with_spec(obj, gpuTypes=request)
        obj = _with_texts(obj, "annotations", {GPU_TYPES: json.dumps(request)})
        return _with_pod_specs(obj, lambda pod: _without_selectors(pod, labels))

    return _changed(documents, change)


def with_members(documents: Sequence[SubmittedObject], count: int) -> list[SubmittedObject]:
    """The one gang among them has so many pods, all of which start together.

    Raises:
        UsageError: there are several, or its pods are of several roles.
    """
    groups = [each for each in documents if each.obj["kind"] == "PodGroup"]
    sized = [each for each in documents if _kind(each.obj) in _RESIZED]
    if len(groups) > 1 or len(sized) > 1:
        titles = ", ".join(each.title for each in (groups if len(groups) > 1 else sized))
        raise UsageError(f"--members is for one gang, and there are several: {titles}")
    if not sized:
        raise UsageError("--members is for a workload that says how many pods it has")
    group = groups[0] if groups else None

    def change(each: SubmittedObject) -> Obj:
        if each is group:
            return _resized_group(each, count)
        return _RESIZED[_kind(each.obj)](each, count) if each is sized[0] else each.obj

    return [attrs.evolve(each, obj=change(each)) for each in documents]


# -- numbers of pods ------------------------------------------------------------------------
def _resized_group(document: SubmittedObject, count: int) -> Obj:
    obj, spec = document.obj, document.obj.get("spec") or {}
    for field in ("minTaskMember", "subGroups"):
        if spec.get(field):
            raise UsageError(f"{document.title} has {field}: --members cannot say of which part")
    if _kind(obj)[0] == "scheduling.k8s.io":
        return _with_spec(obj, schedulingPolicy={"gang": {"minCount": count}})
    return _with_spec(obj, minMember=count)


def _resized_job(document: SubmittedObject, count: int) -> Obj:
    obj = document.obj
    spec = {**(obj.get("spec") or {}), "parallelism": count}
    if spec.get("completions") is not None:
        spec["completions"] = count
    return _with_minimum({**obj, "spec": spec}, count)


def _resized_replicas(document: SubmittedObject, count: int) -> Obj:
    return _with_minimum(_with_spec(document.obj, replicas=count), count)


def _resized_group_of_set(document: SubmittedObject, count: int) -> Obj:
    shape = {**((document.obj.get("spec") or {}).get("leaderWorkerTemplate") or {}), "size": count}
    return _with_spec(document.obj, leaderWorkerTemplate=shape)


def _resized_job_set(document: SubmittedObject, count: int) -> Obj:
    spec = document.obj.get("spec") or {}
    job = _only_part(document, spec.get("replicatedJobs"), "replicatedJobs")
    template = job.get("template") or {}
    inner = {**(template.get("spec") or {}), "parallelism": count, "completions": count}
    made = {**job, "replicas": 1, "template": {**template, "spec": inner}}
    return _with_spec(document.obj, replicatedJobs=[made])


def _resized_ray(field: str) -> Callable[[SubmittedObject, int], Obj]:
    """A RayCluster with one group of workers, in a field of the spec; empty for the spec itself."""

    def resized(document: SubmittedObject, count: int) -> Obj:
        spec = document.obj.get("spec") or {}
        cluster = (spec.get(field) or {}) if field else spec
        group = _only_part(document, cluster.get("workerGroupSpecs"), "workerGroupSpecs")
        workers = _left_for_workers(document, count, 1)
        made = {**group, "replicas": workers, "minReplicas": workers, "numOfHosts": 1}
        changed = {**cluster, "workerGroupSpecs": [made]}
        return {**document.obj, "spec": {**spec, field: changed} if field else changed}

    return resized


def _resized_training_job(document: SubmittedObject, count: int) -> Obj:
    spec = document.obj.get("spec") or {}
    field = next((key for key in sorted(spec) if key.endswith("ReplicaSpecs")), "")
    replicas = {**(spec.get(field) or {})}
    workers = [name for name in replicas if name.lower() not in _LEADS]
    if len(workers) != 1:
        raise UsageError(
            f"{document.title} has pods of the roles {', '.join(sorted(replicas)) or 'none'}: "
            "--members cannot say of which"
        )
    leads = sum(
        (replicas[name] or {}).get("replicas", 1) for name in replicas if name not in workers
    )
    left = _left_for_workers(document, count, leads)
    replicas[workers[0]] = {**(replicas[workers[0]] or {}), "replicas": left}
    changed = {key: value for key, value in spec.items() if key != "elasticPolicy"}
    return {**document.obj, "spec": {**changed, field: replicas}}


def _resized_volcano_job(document: SubmittedObject, count: int) -> Obj:
    task = _only_part(document, (document.obj.get("spec") or {}).get("tasks"), "tasks")
    return _with_spec(document.obj, tasks=[{**task, "replicas": count}], minAvailable=count)


_RESIZED: Final[Mapping[tuple[str, str], Callable[[SubmittedObject, int], Obj]]] = {
    ("batch", "Job"): _resized_job,
    ("apps", "Deployment"): _resized_replicas,
    ("apps", "ReplicaSet"): _resized_replicas,
    ("apps", "StatefulSet"): _resized_replicas,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): _resized_group_of_set,
    ("jobset.x-k8s.io", "JobSet"): _resized_job_set,
    ("ray.io", "RayCluster"): _resized_ray(""),
    ("ray.io", "RayJob"): _resized_ray("rayClusterSpec"),
    ("ray.io", "RayService"): _resized_ray("rayClusterConfig"),
    ("batch.volcano.sh", "Job"): _resized_volcano_job,
    **{
        ("kubeflow.org", kind): _resized_training_job
        for kind in ("PyTorchJob", "TFJob", "XGBoostJob", "JAXJob", "PaddleJob", "MPIJob")
    },
}


def _only_part(document: SubmittedObject, parts: Any, field: str) -> Obj:
    if not isinstance(parts, list) or len(parts) != 1 or not isinstance(parts[0], dict):
        count = len(parts) if isinstance(parts, list) else 0
        raise UsageError(f"{document.title} has {count} {field}: --members is for one of them")
    return dict(parts[0])


def _left_for_workers(document: SubmittedObject, count: int, leads: int) -> int:
    if count <= leads:
        raise UsageError(
            f"{document.title} needs more than {leads} members: so many of them are no workers"
        )
    return count - leads


def _with_minimum(obj: Obj, count: int) -> Obj:
    """With the annotation that says so many start together, where it has one."""
    said = json.dumps(obj)
    return _with_texts(obj, "annotations", {_MINIMUM: str(count)}) if _MINIMUM in said else obj


# -- manifests ------------------------------------------------------------------------------
def _kind(obj: Obj) -> tuple[str, str]:
    return str(obj["apiVersion"]).rpartition("/")[0], str(obj["kind"])


def _changed(
    documents: Sequence[SubmittedObject], change: Callable[[Obj], Obj]
) -> list[SubmittedObject]:
    """Documents that have pods, and groups, changed; the others as they are."""
    return [
        attrs.evolve(each, obj=change(each.obj))
        if each.obj["kind"] in _WORKLOADS or _kind(each.obj) in kinds_with_pods()
        else each
        for each in documents
    ]


def _with_spec(obj: Obj, **fields: Any) -> Obj:
    return {**obj, "spec": {**(obj.get("spec") or {}), **fields}}


def _with_texts(obj: Obj, part: str, texts: Mapping[str, str]) -> Obj:
    """Labels or annotations of a manifest and of its pods, set; an empty text takes one off."""
    return _set_texts(
        _with_pod_templates(obj, lambda pods: _set_texts(pods, part, texts)), part, texts
    )


def _set_texts(obj: Obj, part: str, texts: Mapping[str, str]) -> Obj:
    metadata = obj.get("metadata") or {}
    held = {**(metadata.get(part) or {}), **texts}
    kept = {name: text for name, text in held.items() if text}
    return {**obj, "metadata": {**metadata, part: kept}}


def _with_pod_specs(obj: Obj, change: Callable[[Obj], Obj]) -> Obj:
    made: Obj = _with_pod_templates(obj, lambda pods: {**pods, "spec": change(pods["spec"])})
    return made


def _with_pod_templates(value: Any, change: Callable[[Obj], Obj]) -> Any:
    """A manifest in which every mapping with metadata and a spec of pods is changed."""
    if isinstance(value, list):
        return [_with_pod_templates(each, change) for each in value]
    if not isinstance(value, dict):
        return value
    spec = value.get("spec")
    if isinstance(spec, dict) and isinstance(spec.get("containers"), list):
        return change(value)
    return {key: _with_pod_templates(each, change) for key, each in value.items()}


def _without_selectors(pod: Obj, labels: Sequence[str]) -> Obj:
    selector = pod.get("nodeSelector")
    if not isinstance(selector, dict):
        return pod
    kept = {name: text for name, text in selector.items() if name not in labels}
    return {**pod, "nodeSelector": kept}
