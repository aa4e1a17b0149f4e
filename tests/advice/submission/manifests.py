"""Manifests of each kind that is known, and the answers about them."""

from __future__ import annotations

import json

from gpusched.advice.submission.answer import answer_submission
from gpusched.advice.submission.manifests import read_manifests
from tests.advice.clusters import API, GPU

QUEUE = {"gpusched.io/queue": "a"}


def template(gpus=8, *, labels=None, scheduler="gpusched", annotations=None, **spec):
    """A pod template of queue ``a``."""
    container = {"name": "c", "image": "i", "resources": {"limits": {GPU: str(gpus)}}}
    return {
        "metadata": {"labels": {**QUEUE, **(labels or {})}, "annotations": annotations or {}},
        "spec": {"schedulerName": scheduler, "containers": [container], **spec},
    }  # fmt: skip


def manifest(kind, version, spec, *, name="new", **metadata):
    """A manifest."""
    head = {"name": name, "labels": QUEUE, **metadata}
    return {"apiVersion": version, "kind": kind, "metadata": head, "spec": spec}


def job(pods, gpus=8, *, name="new", template_=None, **spec):
    """A Job that runs all its pods at a time."""
    body = {"parallelism": pods, "completions": pods, "template": template_ or template(gpus)}
    return manifest("Job", "batch/v1", {**body, **spec}, name=name)


def group(pods, *, name="new", queue="a", **spec):
    """A PodGroup of ours."""
    return {
        "apiVersion": API, "kind": "PodGroup", "metadata": {"name": name},
        "spec": {"queue": queue, "minMember": pods, **spec},
    }  # fmt: skip


def ask(trial, *manifests, namespace="team", **more):
    """The answer about manifests, which are given as a file is."""
    raw = "---\n".join(f"{json.dumps(each)}\n" for each in manifests).encode()
    documents = read_manifests(raw, "job.yaml")
    return answer_submission(trial, documents, namespace=namespace, **more)


def only_gang(answer):
    """The one gang of an answer."""
    (found,) = answer.gangs
    assert not answer.refused, answer.refused
    return found


_RAY = {
    "headGroupSpec": {"template": template(0)},
    "workerGroupSpecs": [
        {"groupName": "w", "replicas": 2, "minReplicas": 2, "template": template()}
    ],
}
_SET_OF_JOBS = {
    "replicatedJobs": [
        {"name": "driver", "template": {"spec": {"parallelism": 1, "completions": 1, "template": template(0)}}},
        {"name": "worker", "replicas": 2, "template": {"spec": {"parallelism": 1, "completions": 1, "template": template()}}},
    ]
}  # fmt: skip
_RUNTIME = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "ClusterTrainingRuntime",
    "metadata": {"name": "torch"},
    "spec": {
        "mlPolicy": {"numNodes": 1},
        "template": {"spec": {"replicatedJobs": [{
            "name": "node",
            "template": {
                "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
                "spec": {"template": template(1)},
            },
        }]}},
    },
}  # fmt: skip


def _training(kind, field, **roles):
    return manifest(
        kind, "kubeflow.org/v1",
        {field: {role: {"replicas": count, "template": template(gpus)} for role, (count, gpus) in roles.items()}},
    )  # fmt: skip


KINDS = {
    "Pod": ([manifest("Pod", "v1", template()["spec"])], ("Pod", 1, 1)),
    "Job": ([job(2)], ("Job", 2, 2)),
    "Job with a minimum": (
        [job(2, template_=template(annotations={"gpusched.io/min-member": "2"}))],
        ("Job", 2, 2),
    ),
    "suspended Job": ([job(2, suspend=True)], ("Job", 2, 2)),
    "CronJob": (
        [manifest("CronJob", "batch/v1", {"schedule": "* * * * *", "jobTemplate": job(2)})],
        ("Job", 2, 2),
    ),
    "PodGroup": (
        [group(2), job(2, template_=template(labels={"gpusched.io/pod-group": "new"}))],
        ("PodGroup", 2, 2),
    ),
    "Deployment": (
        [manifest("Deployment", "apps/v1", {"replicas": 2, "template": template()})],
        ("Deployment", 2, 1),
    ),
    "StatefulSet": (
        [manifest("StatefulSet", "apps/v1", {"replicas": 2, "template": template()})],
        ("StatefulSet", 2, 1),
    ),
    "ReplicaSet": (
        [manifest("ReplicaSet", "apps/v1", {"replicas": 2, "template": template()})],
        ("ReplicaSet", 2, 1),
    ),
    "JobSet": ([manifest("JobSet", "jobset.x-k8s.io/v1alpha2", _SET_OF_JOBS)], ("JobSet", 3, 3)),
    "LeaderWorkerSet": (
        [manifest(
            "LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1",
            {"replicas": 1, "leaderWorkerTemplate": {"size": 2, "workerTemplate": template()}},
        )],
        ("LeaderWorkerSet", 2, 2),
    ),
    "PyTorchJob": (
        [_training("PyTorchJob", "pytorchReplicaSpecs", Master=(1, 8), Worker=(1, 8))],
        ("PyTorchJob", 2, 2),
    ),
    "TFJob": ([_training("TFJob", "tfReplicaSpecs", Chief=(1, 8), Worker=(1, 8))], ("TFJob", 2, 2)),
    "XGBoostJob": (
        [_training("XGBoostJob", "xgbReplicaSpecs", Master=(1, 8), Worker=(1, 8))],
        ("XGBoostJob", 2, 2),
    ),
    "JAXJob": ([_training("JAXJob", "jaxReplicaSpecs", Worker=(2, 8))], ("JAXJob", 2, 2)),
    "PaddleJob": ([_training("PaddleJob", "paddleReplicaSpecs", Worker=(2, 8))], ("PaddleJob", 2, 2)),
    "MPIJob": (
        [_training("MPIJob", "mpiReplicaSpecs", Launcher=(1, 0), Worker=(2, 8))],
        ("MPIJob", 3, 3),
    ),
    "RayCluster": ([manifest("RayCluster", "ray.io/v1", _RAY)], ("RayCluster", 3, 3)),
    "RayJob": ([manifest("RayJob", "ray.io/v1", {"rayClusterSpec": _RAY})], ("RayCluster", 3, 3)),
    "RayService": (
        [manifest("RayService", "ray.io/v1", {"rayClusterConfig": _RAY})],
        ("RayCluster", 3, 3),
    ),
    "TrainJob": (
        [
            _RUNTIME,
            manifest(
                "TrainJob", "trainer.kubeflow.org/v1alpha1",
                {"runtimeRef": {"name": "torch"}, "trainer": {"numNodes": 2, "resourcesPerNode": {"limits": {GPU: "8"}}}},
            ),
        ],
        ("JobSet", 2, 2),
    ),
    "Volcano Job": (
        [manifest(
            "Job", "batch.volcano.sh/v1alpha1",
            {
                "schedulerName": "gpusched", "queue": "a", "minAvailable": 2,
                "tasks": [{"name": "w", "replicas": 2, "template": template()}],
            },
        )],
        ("PodGroup", 2, 2),
    ),
    "native PodGroup": (
        [
            manifest(
                "PodGroup", "scheduling.k8s.io/v1beta1", {"schedulingPolicy": {"gang": {"minCount": 2}}},
            ),
            job(2, template_=template(schedulingGroup={"podGroupName": "new"})),
        ],
        ("PodGroup", 2, 2),
    ),
    "Workload": (
        [
            manifest(
                "Workload", "scheduling.k8s.io/v1alpha1",
                {"podGroups": [{"name": "g", "policy": {"gang": {"minCount": 2}}}]},
            ),
            job(2, template_=template(workloadRef={"name": "new", "podGroup": "g"})),
        ],
        ("Workload", 2, 2),
    ),
    "coscheduling PodGroup": (
        [
            manifest("PodGroup", "scheduling.x-k8s.io/v1alpha1", {"minMember": 2}),
            job(2, template_=template(labels={"scheduling.x-k8s.io/pod-group": "new"})),
        ],
        ("PodGroup", 2, 2),
    ),
}  # fmt: skip
"""Documents by kind, with the gang that comes to be: its kind, its pods and its minimum. Two nodes of 8 GPUs are needed."""
