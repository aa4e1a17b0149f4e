"""Pods of the kinds of other projects, with the labels by which their operators mark them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from gpusched.advice.submission.manifests import SubmittedObject
from gpusched.advice.submission.workload_pods import (
    Expander,
    RefusedManifest,
    count_at,
    mapping_at,
    mappings_at,
    owner_reference,
)
from gpusched.engine.objects import Obj

_JOBSET: Final = "jobset.sigs.k8s.io/"
_LWS: Final = "leaderworkerset.sigs.k8s.io/"
_TRAINING: Final = "training.kubeflow.org/"
_LEADERS: Final = frozenset({"master", "chief", "launcher"})


# -- JobSet ---------------------------------------------------------------------------------
def expand_job_set(made: Expander) -> None:
    """The Jobs that start at first, with their pods."""
    owner = made.add_own()
    if made.spec.get("suspend"):
        made.workload.remarks.append(_suspended(made))
        return
    notes = mapping_at(made.document, "metadata", "annotations")
    order = mapping_at(made.spec, "startupPolicy").get("startupPolicyOrder")
    late = []
    number = 0
    jobs = list(mappings_at(made.spec, "replicatedJobs"))
    total = sum(count_at(each, "replicas", 1) for each in jobs)
    for place, job in enumerate(jobs):
        role = str(job.get("name") or "")
        replicas = count_at(job, "replicas", 1)
        if job.get("dependsOn") or (order == "InOrder" and place):
            late.append(role)
            number += replicas
            continue
        for index in range(replicas):
            marks = {
                "jobset-name": made.name, "replicatedjob-name": role,
                "replicatedjob-replicas": str(replicas), "global-replicas": str(total),
                "job-index": str(index), "job-global-index": str(number), "restart-attempt": "0",
            }  # fmt: skip
            labels = {f"{_JOBSET}{key}": text for key, text in marks.items()}
            _add_job_of_set(
                made, owner, job, f"{made.name}-{role}-{index}", labels=labels, notes=notes
            )
            number += 1
    if late:
        made.workload.remarks.append(
            f"{made.workload.title}: its Jobs {', '.join(late)} start when those before them are ready; "
            "they are not looked at"
        )


def _add_job_of_set(
    made: Expander,
    owner: Obj,
    replicated: Obj,
    name: str,
    *,
    labels: Mapping[str, str],
    notes: Mapping[str, str],
) -> None:
    template = mapping_at(replicated, "template")
    spec = {"completionMode": "Indexed", **mapping_at(template, "spec")}
    pods = mapping_at(spec, "template")
    metadata = mapping_at(pods, "metadata")
    exclusive = {key: text for key, text in notes.items() if key.startswith("alpha.jobset")}
    marked = {
        **metadata,
        "labels": {**mapping_at(metadata, "labels"), **labels},
        "annotations": {**mapping_at(metadata, "annotations"), **labels, **exclusive},
    }
    job = made.add({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": name, "namespace": made.namespace,
            "labels": {**mapping_at(template, "metadata", "labels"), **labels},
            "annotations": {**mapping_at(template, "metadata", "annotations"), **labels},
            "ownerReferences": [owner_reference(owner)],
        },
        "spec": {**spec, "template": {**pods, "metadata": marked}},
    })  # fmt: skip
    made.add_job_pods(job)


# -- LeaderWorkerSet ------------------------------------------------------------------------
def expand_leader_worker_set(made: Expander) -> None:
    """The leaders and the workers that do not wait for theirs."""
    owner = made.add_own()
    shape = mapping_at(made.spec, "leaderWorkerTemplate")
    workers = mapping_at(shape, "workerTemplate")
    leaders = mapping_at(shape, "leaderTemplate") or workers
    size = max(1, count_at(shape, "size", 1))
    notes = mapping_at(made.document, "metadata", "annotations")
    exclusive = {key: text for key, text in notes.items() if key.startswith(f"{_LWS}exclusive")}
    late = bool(exclusive) or made.spec.get("startupPolicy") == "LeaderReady"
    if late and size > 1:
        made.workload.remarks.append(
            f"{made.workload.title}: workers are made when their leader is ready; they are not looked at"
        )
    for group in range(count_at(made.spec, "replicas", 1)):
        leader = f"{made.name}-{group}"
        for index in range(1 if late else size):
            marks = {
                "name": made.name, "group-index": str(group), "worker-index": str(index),
                "group-key": f"{made.name}-{group}",
            }  # fmt: skip
            made.add_pod(
                leaders if index == 0 else workers,
                f"{leader}-{index}" if index else leader,
                owner=owner,
                labels={f"{_LWS}{key}": text for key, text in marks.items()},
                annotations={f"{_LWS}size": str(size), **exclusive},
            )


# -- training operator and MPI operator -------------------------------------------------------
def expand_training_job(made: Expander) -> None:
    """The pods of all replica types; a launcher that waits for workers comes later."""
    owner = made.add_own()
    if mapping_at(made.spec, "runPolicy").get("suspend"):
        made.workload.remarks.append(_suspended(made))
        return
    replicas = next(
        (made.spec[key] for key in sorted(made.spec) if key.endswith("ReplicaSpecs")), None
    )
    if not isinstance(replicas, dict) or not replicas:
        raise RefusedManifest("it has no replica specs")
    kind = made.document["kind"]
    operator = "mpi-operator" if kind == "MPIJob" else f"{kind.lower()}-controller"
    waits = made.spec.get("launcherCreationPolicy") == "WaitForWorkersReady"
    for role in sorted(replicas, key=lambda each: (each.lower() not in _LEADERS, each)):
        part, word = mapping_at(replicas, role), role.lower()
        if waits and word == "launcher":
            made.workload.remarks.append(
                f"{made.workload.title}: its launcher is made when its workers are ready; it is not looked at"
            )
            continue
        for index in range(count_at(part, "replicas", 1)):
            labels = {
                f"{_TRAINING}operator-name": operator, f"{_TRAINING}job-name": made.name,
                f"{_TRAINING}replica-type": word, f"{_TRAINING}replica-index": str(index),
            }  # fmt: skip
            if kind == "MPIJob":
                labels[f"{_TRAINING}job-role"] = word
            made.add_pod(
                part.get("template") or {},
                f"{made.name}-{word}-{index}",
                owner=owner,
                labels=labels,
            )


# -- Ray ------------------------------------------------------------------------------------
def expand_ray_cluster(made: Expander) -> None:
    """The head and the workers of each group."""
    _add_ray_pods(made, made.add_own(), made.spec)


def expand_ray_owner(field: str) -> Callable[[Expander], None]:
    """The same of what makes a RayCluster: a RayJob, a RayService.

    Args:
        field: of its spec, in which the cluster stands.
    """

    def expand(made: Expander) -> None:
        if made.spec.get("suspend"):
            made.workload.remarks.append(_suspended(made))
            return
        spec = mapping_at(made.spec, field)
        if not spec:
            raise RefusedManifest(f"it has no {field}, so that it makes no RayCluster")
        head = mapping_at(made.document, "metadata")
        own = {key: head[key] for key in ("labels", "annotations") if key in head}
        cluster = made.add({
            "apiVersion": made.document["apiVersion"], "kind": "RayCluster",
            "metadata": {"name": f"{made.name}-00001", "namespace": made.namespace, **own},
            "spec": spec,
        })  # fmt: skip
        _add_ray_pods(made, cluster, spec)
        if made.document["kind"] == "RayJob":
            made.workload.remarks.append(
                f"{made.workload.title}: the pod that submits it, made when the cluster is ready, is not looked at"
            )

    return expand


def _add_ray_pods(made: Expander, cluster: Obj, spec: Obj) -> None:
    name = cluster["metadata"]["name"]
    if spec.get("suspend"):
        made.workload.remarks.append(_suspended(made))
        return
    head = {"cluster": name, "node-type": "head", "group": "headgroup", "is-ray-node": "yes"}
    made.add_pod(
        mapping_at(spec, "headGroupSpec", "template"), f"{name}-head", owner=cluster,
        labels={f"ray.io/{key}": text for key, text in head.items()},
    )  # fmt: skip
    for group in mappings_at(spec, "workerGroupSpecs"):
        if group.get("suspend"):
            continue
        title = str(group.get("groupName") or "")
        replicas = max(count_at(group, "replicas", 0), count_at(group, "minReplicas", 0))
        for replica in range(replicas):
            for host in range(max(1, count_at(group, "numOfHosts", 1))):
                marks = {
                    "cluster": name, "node-type": "worker", "group": title, "is-ray-node": "yes",
                    "worker-group-replica-index": str(replica), "replica-host-index": str(host),
                }  # fmt: skip
                made.add_pod(
                    group.get("template") or {}, f"{name}-{title}-worker-{replica}-{host}",
                    owner=cluster,
                    labels={f"ray.io/{key}": text for key, text in marks.items()},
                )  # fmt: skip


# -- Volcano --------------------------------------------------------------------------------
def expand_volcano_job(made: Expander) -> None:
    """Its PodGroup and the pods of its tasks."""
    job = made.add_own()
    tasks = list(mappings_at(made.spec, "tasks"))
    total = sum(count_at(each, "replicas", 1) for each in tasks)
    group = f"{made.name}-{job['metadata']['uid']}"
    queue = made.spec.get("queue") or "default"
    least = {
        str(each.get("name") or ""): count_at(each, "minAvailable", 0)
        for each in tasks
        if each.get("minAvailable") is not None
    }
    spec: dict[str, Any] = {
        "minMember": count_at(made.spec, "minAvailable", total) or total, "queue": queue,
    }  # fmt: skip
    if least:
        spec["minTaskMember"] = least
    for field in ("priorityClassName", "networkTopology"):
        if made.spec.get(field) is not None:
            spec[field] = made.spec[field]
    head = mapping_at(made.document, "metadata")
    made.add({
        "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
        "metadata": {
            "name": group, "namespace": made.namespace, "ownerReferences": [owner_reference(job)],
            **{key: head[key] for key in ("labels", "annotations") if key in head},
        },
        "spec": spec,
    })  # fmt: skip
    scheduler = made.spec.get("schedulerName") or "volcano"
    for task in tasks:
        role = str(task.get("name") or "default")
        for index in range(count_at(task, "replicas", 1)):
            marks = {
                "scheduling.k8s.io/group-name": group, "volcano.sh/task-spec": role,
                "volcano.sh/job-name": made.name, "volcano.sh/queue-name": queue,
            }  # fmt: skip
            labels = {key: marks[key] for key in list(marks)[1:]} | {
                "volcano.sh/task-index": str(index)
            }
            made.add_pod(
                task.get("template") or {}, f"{made.name}-{role}-{index}", owner=job,
                labels=labels, annotations=marks, schedulerName=scheduler,
            )  # fmt: skip


# -- Kubeflow Trainer -------------------------------------------------------------------------
def expand_train_job(made: Expander, runtimes: Mapping[tuple[str, str], SubmittedObject]) -> None:
    """The JobSet that its runtime makes of it.

    Args:
        made: the TrainJob.
        runtimes: by kind and name, those that are submitted with it.

    Raises:
        RefusedManifest: its runtime is not among them.
    """
    if made.spec.get("suspend"):
        made.workload.remarks.append(_suspended(made))
        return
    wanted = mapping_at(made.spec, "runtimeRef")
    kind, name = str(wanted.get("kind") or "ClusterTrainingRuntime"), str(wanted.get("name") or "")
    runtime = runtimes.get((kind, name))
    if runtime is None:
        raise RefusedManifest(
            f"its pods are made from {kind} {name}, which is not read from the cluster: give it with -f, too "
            f"(kubectl get {kind.lower()} {name} -o yaml)"
        )
    spec = mapping_at(runtime.obj, "spec")
    trainer = mapping_at(made.spec, "trainer")
    nodes = count_at(trainer, "numNodes", count_at(mapping_at(spec, "mlPolicy"), "numNodes", 1))
    jobs = [
        _trained(job, nodes, mapping_at(trainer, "resourcesPerNode"))
        for job in mappings_at(mapping_at(spec, "template", "spec"), "replicatedJobs")
    ]
    head = mapping_at(made.document, "metadata")
    labels = {**mapping_at(head, "labels"), **mapping_at(made.spec, "labels")}
    notes = {**mapping_at(head, "annotations"), **mapping_at(made.spec, "annotations")}
    below = Expander(
        made.workload,
        {
            "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
            "metadata": {
                "name": made.name, "namespace": made.namespace, "labels": labels, "annotations": notes,
            },
            "spec": {**mapping_at(spec, "template", "spec"), "replicatedJobs": jobs},
        },
        number=made.number,
    )  # fmt: skip
    expand_job_set(below)


_STEP: Final = "trainer.kubeflow.org/trainjob-ancestor-step"


def _trained(job: Obj, nodes: int, resources: Obj) -> Obj:
    """A replicated Job of a runtime: the one that trains has the TrainJob's nodes and resources."""
    template = mapping_at(job, "template")
    step = mapping_at(template, "metadata", "labels").get(_STEP)
    if step != "trainer" and job.get("name") not in ("node", "trainer-node"):
        return job
    spec = mapping_at(template, "spec")
    pods = mapping_at(spec, "template")
    inner = mapping_at(pods, "spec")
    containers = [
        {**each, "resources": resources} if resources and number == 0 else each
        for number, each in enumerate(mappings_at(inner, "containers"))
    ]
    sized = {
        **spec, "parallelism": nodes, "completions": nodes,
        "template": {**pods, "spec": {**inner, "containers": containers}},
    }  # fmt: skip
    return {**job, "template": {**template, "spec": sized}}


def _suspended(made: Expander) -> str:
    return f"{made.workload.title} is suspended: its pods are made when it is resumed"
