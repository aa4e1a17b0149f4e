"""What comes to be of submitted documents: every kind whose pods are known, and those that need none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from gpusched.advice.submission.manifests import SubmittedObject
from gpusched.advice.submission.operator_kinds import (
    expand_job_set,
    expand_leader_worker_set,
    expand_ray_cluster,
    expand_ray_owner,
    expand_train_job,
    expand_training_job,
    expand_volcano_job,
)
from gpusched.advice.submission.workload_pods import (
    ExpandedWorkload,
    Expander,
    RefusedManifest,
    count_at,
    mapping_at,
)
from gpusched.api.foreign import kinds
from gpusched.base.classes import frozen
from gpusched.config.yaml_tree import did_you_mean
from gpusched.engine.objects import Obj, plural_of

Expand = Callable[[Expander], None]
_RUNTIMES: Final = frozenset({"ClusterTrainingRuntime", "TrainingRuntime"})
_SERVICE: Final = frozenset(
    {
        *("ConfigMap", "Secret", "Service", "ServiceAccount", "Endpoints", "EndpointSlice"),
        *("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "NetworkPolicy", "Ingress"),
        *("HorizontalPodAutoscaler", "LimitRange", "CustomResourceDefinition", "PodMonitor"),
        *("ServiceMonitor", "IngressClass", "HTTPRoute", "Gateway", "Event"),
    }
)
"""Kinds that make no pods and that no decision reads."""
_CLUSTER: Final = frozenset({"nodes", "namespaces", "persistentvolumes", "priorityclasses",
                             "storageclasses", "queues", "topologies"})  # fmt: skip


@frozen
class RefusedDocument:
    """A document of which nothing comes to be.

    Attributes:
        title: its kind and name.
        place: file and line.
        message: why, one sentence.
    """

    title: str
    place: str
    message: str


@frozen
class ExpandedSubmission:
    """All documents.

    Attributes:
        workloads: what comes to be, those first that others need.
        refused: documents of which nothing does.
    """

    workloads: tuple[ExpandedWorkload, ...]
    refused: tuple[RefusedDocument, ...]


def expand_documents(documents: Sequence[SubmittedObject], *, namespace: str) -> ExpandedSubmission:
    """What controllers make of documents.

    Args:
        documents: that are submitted.
        namespace: for those that name none.
    """
    runtimes = {
        (each.obj["kind"], each.obj["metadata"]["name"]): each
        for each in documents
        if each.obj["kind"] in _RUNTIMES
    }
    workloads, refused = [], []
    for number, document in enumerate(documents, 1):
        obj = _in_namespace(document.obj, namespace)
        kind, name = str(obj["kind"]), str(obj["metadata"]["name"])
        space = str(obj["metadata"].get("namespace", ""))
        made = ExpandedWorkload(kind, space, name, document.place)
        try:
            expand = _expander(obj, runtimes)
            if expand is not None:
                expand(Expander(made, obj, number=number))
        except RefusedManifest as error:
            refused.append(RefusedDocument(made.title, document.place, str(error)))
            continue
        workloads.append(made)
    workloads.sort(key=lambda each: bool(each.pods))
    return ExpandedSubmission(tuple(workloads), tuple(refused))


def _in_namespace(obj: Obj, namespace: str) -> Obj:
    metadata = obj["metadata"]
    foreign = _FOREIGN.get((_group(obj), obj["kind"]))
    plain = plural_of(obj) in _CLUSTER or (foreign is not None and not foreign.namespaced)
    if plain or obj["kind"] in _RUNTIMES:
        return {**obj, "metadata": {key: metadata[key] for key in metadata if key != "namespace"}}
    return {**obj, "metadata": {**metadata, "namespace": metadata.get("namespace") or namespace}}


_FOREIGN: Final = {(each.group, each.kind): each for each in kinds.ALL}


def _group(obj: Obj) -> str:
    return str(obj["apiVersion"]).rpartition("/")[0]


def _expander(obj: Obj, runtimes: Mapping[tuple[str, str], SubmittedObject]) -> Expand | None:
    """What makes the objects of a document; None where there are none that count.

    Raises:
        RefusedManifest: what it makes is not known.
    """
    group, kind = _group(obj), str(obj["kind"])
    found = _EXPANDERS.get((group, kind))
    if found is not None:
        return found
    if (group, kind) == ("trainer.kubeflow.org", "TrainJob"):
        return lambda made: expand_train_job(made, runtimes)
    if plural_of(obj) == "nodes":
        raise RefusedManifest("nodes are not submitted: only what is to run on them")
    if plural_of(obj) or (group, kind) in _FOREIGN:
        return _expand_itself
    if kind in _SERVICE or kind in _RUNTIMES:
        return None
    known = sorted({name for _, name in (*_EXPANDERS, ("", "TrainJob"), ("", "PodGroup"))})
    same = sorted(name for name in {place for place, word in _EXPANDERS if word == kind} if name)
    if same:
        raise RefusedManifest(
            f"{kind} of {obj['apiVersion']} is not known; {kind} of {', '.join(same)} is"
        )
    raise RefusedManifest(
        f"what pods a {kind} of {obj['apiVersion']} makes is not known here: give the pods, the Job or the like that "
        f"it makes; known kinds are {', '.join(known)}{did_you_mean(kind, known).rstrip('?')}"
    )


# -- kinds of Kubernetes itself -------------------------------------------------------------
def _expand_itself(made: Expander) -> None:
    made.add_own()


def _expand_job(made: Expander) -> None:
    made.add_job_pods(made.add_own())


def _expand_cron_job(made: Expander) -> None:
    """The Job that it would make now."""
    template = mapping_at(made.spec, "jobTemplate")
    head = mapping_at(template, "metadata")
    job = made.add({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {**head, "name": f"{made.name}-00000001", "namespace": made.namespace},
        "spec": mapping_at(template, "spec"),
    })  # fmt: skip
    made.workload.remarks.append(f"{made.workload.title}: as if its time came now")
    made.add_job_pods(job)


def _expand_deployment(made: Expander) -> None:
    """Its pods, of one ReplicaSet."""
    owner = made.add({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"name": f"{made.name}-{_HASH}", "namespace": made.namespace},
    })  # fmt: skip
    for index in range(count_at(made.spec, "replicas", 1)):
        made.add_pod(
            made.spec.get("template") or {}, f"{made.name}-{_HASH}-{index}", owner=owner,
            labels={"pod-template-hash": _HASH},
        )  # fmt: skip


def _expand_replicas(made: Expander) -> None:
    owner = made.add_own()
    for index in range(count_at(made.spec, "replicas", 1)):
        made.add_pod(made.spec.get("template") or {}, f"{made.name}-{index}", owner=owner)


def _expand_stateful_set(made: Expander) -> None:
    """All its pods: where they come one after another, each is asked about as if its turn had come."""
    owner = made.add_own()
    count = count_at(made.spec, "replicas", 1)
    for index in range(count):
        name = f"{made.name}-{index}"
        labels = {
            "statefulset.kubernetes.io/pod-name": name, "apps.kubernetes.io/pod-index": str(index),
        }  # fmt: skip
        made.add_pod(made.spec.get("template") or {}, name, owner=owner, labels=labels)
    if count > 1 and made.spec.get("podManagementPolicy") != "Parallel":
        made.workload.remarks.append(
            f"{made.workload.title}: its pods are made one after another; the answer is as if all were there"
        )


_HASH: Final = "submitted"
_EXPANDERS: Final[Mapping[tuple[str, str], Expand]] = {
    ("", "Pod"): _expand_itself,
    ("", "ReplicationController"): _expand_replicas,
    ("batch", "Job"): _expand_job,
    ("batch", "CronJob"): _expand_cron_job,
    ("apps", "Deployment"): _expand_deployment,
    ("apps", "ReplicaSet"): _expand_replicas,
    ("apps", "StatefulSet"): _expand_stateful_set,
    ("jobset.x-k8s.io", "JobSet"): expand_job_set,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): expand_leader_worker_set,
    ("ray.io", "RayCluster"): expand_ray_cluster,
    ("ray.io", "RayJob"): expand_ray_owner("rayClusterSpec"),
    ("ray.io", "RayService"): expand_ray_owner("rayClusterConfig"),
    ("batch.volcano.sh", "Job"): expand_volcano_job,
    **{
        ("kubeflow.org", kind): expand_training_job
        for kind in ("PyTorchJob", "TFJob", "XGBoostJob", "JAXJob", "PaddleJob", "MPIJob")
    },
}
"""By API group and kind."""


def kinds_with_pods() -> frozenset[tuple[str, str]]:
    """API group and kind of everything whose pods are known, by their controllers."""
    return frozenset(_EXPANDERS)
