"""Operators as far as a scheduler meets them: their objects, and the Jobs and pods that they make.

Labels, names and order are those of JobSet 0.10, LeaderWorkerSet 0.7, Kubeflow Trainer 2.1 and KubeRay
1.5. Their own CRDs are used where the folder of shared facts is there, else short ones.
"""

from __future__ import annotations

import gzip
import os
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import yaml

from gpusched.devcluster.registry.gangs.features import OFF, GangFeatures
from tests.behaviour.fuzz.foreign_kinds import ANY, SCHEMAS, definition
from tests.daemon.conftest import pod_spec

Obj = dict[str, Any]
JOBSETS: Final = "jobsets.jobset.x-k8s.io"
LWS: Final = "leaderworkersets.leaderworkerset.x-k8s.io"
TRAIN_JOBS: Final = "trainjobs.trainer.kubeflow.org"
RAY: Final = "rayclusters.ray.io"
DEFINITIONS: Final = "customresourcedefinitions.apiextensions.k8s.io"
SHARED: Final = Path(os.environ.get("GPUSCHED_SHARED", Path(__file__).parents[4] / "shared"))
_FILES: Final = {
    JOBSETS: "jobset",
    LWS: "leaderworkerset",
    TRAIN_JOBS: "trainjobs",
    RAY: "rayclusters",
}
_VERSIONS: Final = {
    JOBSETS: ("jobset.x-k8s.io/v1alpha2", "JobSet"),
    LWS: ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"),
    TRAIN_JOBS: ("trainer.kubeflow.org/v1alpha1", "TrainJob"),
    RAY: ("ray.io/v1", "RayCluster"),
}


@lru_cache
def shipped_definition(resource: str) -> Obj | None:
    """The CRD as its operator ships it, its newest version alone; None where it is not at hand."""
    file = SHARED / "crds" / f"{_FILES[resource]}.yaml.gz"
    if not file.is_file():
        return None
    loaded = yaml.load_all(gzip.decompress(file.read_bytes()), Loader=yaml.CSafeLoader)
    found: Obj = next(each for each in loaded if each and each["metadata"]["name"] == resource)
    newest = _VERSIONS[resource][0].partition("/")[2]
    versions = [each for each in found["spec"]["versions"] if each["name"] == newest]
    return {**found, "spec": {**found["spec"], "versions": versions}}


async def start_with(w: Any, *resources: str, gangs: GangFeatures = OFF, nodes: int = 2) -> None:
    """A cluster that serves these operators' kinds, with nodes of eight GPUs."""
    await w.start(nodes=nodes, gangs=gangs)
    for resource in resources:
        body = shipped_definition(resource)
        if body is None:
            SCHEMAS.setdefault(resource, ("v1alpha1", "TrainJob", True, ANY, ANY))
            body = definition(resource)
        w.client.create(DEFINITIONS, body)
    for resource in resources:
        await w.until(lambda resource=resource: w.client.kind_of(*_VERSIONS[resource]))


def make(w: Any, resource: str, name: str, spec: Obj, **metadata: Any) -> Obj:
    """An object of an operator's kind."""
    api_version, kind = _VERSIONS[resource]
    head = {"name": name, "namespace": "default", **metadata}
    body = {"apiVersion": api_version, "kind": kind, "metadata": head, "spec": spec}
    made: Obj = w.client.create(resource, body)
    return made


def owner(made: Obj) -> Obj:
    """The reference of a controller to what it made an object for."""
    head = made["metadata"]
    return {
        "apiVersion": made["apiVersion"],
        "kind": made["kind"],
        "name": head["name"],
        "uid": head["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def held(w: Any) -> list[str]:
    """Names of pods that have a node and are not on their way out, sorted."""
    return sorted(
        pod["metadata"]["name"]
        for pod in w.bound()
        if not pod["metadata"].get("deletionTimestamp")
        and pod["status"].get("phase") not in {"Succeeded", "Failed"}
    )


def roles_held(w: Any, label: str) -> dict[str, int]:
    """How many pods of each value of a label hold nodes."""
    counts: dict[str, int] = {}
    for name in held(w):
        role = w.client.get("pods", "default", name)["metadata"].get("labels", {}).get(label, "")
        counts[role] = counts.get(role, 0) + 1
    return counts


def fail(w: Any, *names: str, phase: str = "Failed") -> None:
    """Pods end."""
    for name in names:
        w.client.patch("pods", "default", name, {"status": {"phase": phase}}, subresource="status")


class PlayedJobSet:
    """The JobSet controller at work on one JobSet.

    Args:
        jobs: replicated Jobs: name, replicas, and pods of each.
        template: more of the spec of each pod.
        labels: of each pod.
        spec: more of the JobSet's spec.
        depends: what each replicated Job waits for, by its name.
    """

    LABEL: Final = "jobset.sigs.k8s.io/"

    def __init__(
        self,
        w: Any,
        name: str,
        *jobs: tuple[str, int, int],
        template: Obj | None = None,
        labels: Obj | None = None,
        owned_by: Obj | None = None,
        depends: dict[str, tuple[str, str]] | None = None,
        **spec: Any,
    ) -> None:
        self.w, self.name, self.jobs = w, name, jobs
        self.template, self.labels = template or {}, labels or {}
        self.attempt = 0
        replicated = []
        for role, replicas, pods in jobs:
            job: Obj = {"name": role, "replicas": replicas, "template": {"spec": self._job(pods)}}
            if depends and role in depends:
                what, status = depends[role]
                job["dependsOn"] = [{"name": what, "status": status}]
            replicated.append(job)
        references = {"ownerReferences": [owner(owned_by)]} if owned_by else {}
        self.made = make(
            w, JOBSETS, name, {"replicatedJobs": replicated, "suspend": False, **spec}, **references
        )

    def _job(self, pods: int) -> Obj:
        template = {
            "metadata": {"labels": self.labels, "annotations": {"gpusched.io/run-for": "10h"}},
            "spec": {**pod_spec(8), **self.template},
        }
        return {
            "parallelism": pods,
            "completions": pods,
            "completionMode": "Indexed",
            "backoffLimit": 0,
            "template": template,
        }

    def make_jobs(self, *roles: str) -> None:
        """The Jobs of these replicated Jobs, or of all, as of this attempt."""
        suspended = self.w.client.get(JOBSETS, "default", self.name)["spec"].get("suspend", False)
        number = 0
        for role, replicas, pods in self.jobs:
            for index in range(replicas):
                if not roles or role in roles:
                    marks = {
                        "replicatedjob-name": role,
                        "replicatedjob-replicas": str(replicas),
                        "job-index": str(index),
                        "job-global-index": str(number),
                    }
                    self._make_job(
                        f"{role}-{index}", marks, {**self._job(pods), "suspend": suspended}
                    )
                number += 1

    def _make_job(self, name: str, marks: Obj, spec: Obj) -> None:
        marks = {
            **marks,
            "jobset-name": self.name,
            "jobset-uid": self.made["metadata"]["uid"],
            "global-replicas": str(sum(each[1] for each in self.jobs)),
            "restart-attempt": str(self.attempt),
        }
        labels = {f"{self.LABEL}{key}": value for key, value in marks.items()}
        head = spec["template"]["metadata"]
        head["labels"] = {**head["labels"], **labels}
        head["annotations"] = {**head["annotations"], **labels}
        self.w.client.create(
            "jobs.batch",
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {
                    "name": f"{self.name}-{name}",
                    "namespace": "default",
                    "labels": labels,
                    "annotations": labels,
                    "ownerReferences": [owner(self.made)],
                },
                "spec": spec,
            },
        )

    def own_jobs(self) -> list[str]:
        """Names of its Jobs."""
        label = f"{self.LABEL}jobset-name={self.name}"
        return [
            job["metadata"]["name"] for job in self.w.client.list("jobs.batch", "default", label)
        ]

    async def restart(self) -> None:
        """One Job has failed: all are deleted, and made anew once they are gone."""
        self.attempt += 1
        for name in self.own_jobs():
            self.w.client.delete("jobs.batch", "default", name, propagation="Foreground")
        await self.w.until(lambda: not self.own_jobs())
        self.make_jobs()

    def suspend(self, value: bool) -> None:
        """Suspend or resume it, and each of its Jobs."""
        body = {"spec": {"suspend": value}}
        self.w.client.patch(JOBSETS, "default", self.name, body)
        for name in self.own_jobs():
            self.w.client.patch("jobs.batch", "default", name, body)

    def tell_succeeded(self, **counts: int) -> None:
        """Jobs of these roles that have succeeded, in the status."""
        statuses = [
            {
                "name": role,
                "ready": 0,
                "succeeded": counts.get(role, 0),
                "failed": 0,
                "active": 0,
                "suspended": 0,
            }
            for role, _, _ in self.jobs
        ]
        body = {"status": {"replicatedJobsStatus": statuses}}
        self.w.client.patch(JOBSETS, "default", self.name, body, subresource="status")


class PlayedLeaderWorkerSet:
    """The LeaderWorkerSet controller, and the StatefulSets that it makes, at work on one object.

    Args:
        template: more of the spec of each pod.
        spec: more of its spec.
    """

    LABEL: Final = "leaderworkerset.sigs.k8s.io/"

    def __init__(
        self,
        w: Any,
        name: str,
        *,
        replicas: int,
        size: int,
        template: Obj | None = None,
        **spec: Any,
    ) -> None:
        self.w, self.name, self.size = w, name, size
        self.template = template or {}
        pods = {"spec": {**pod_spec(8), "restartPolicy": "Always", **self.template}}
        shape = {"size": size, "workerTemplate": pods, "restartPolicy": "RecreateGroupOnPodRestart"}
        self.made = make(
            w, LWS, name, {"replicas": replicas, "leaderWorkerTemplate": shape, **spec}
        )

    def make_pod(self, group: int, index: int) -> None:
        """The leader (index 0) or a worker of a group."""
        leader = f"{self.name}-{group}"
        marks = {
            "name": self.name,
            "group-index": str(group),
            "group-key": f"key-{self.name}-{group}",
            "worker-index": str(index),
            "template-revision-hash": "5c5fcdfb44",
        }
        notes = {"size": str(self.size)} | ({"leader-name": leader} if index else {})
        self.w.pod(
            f"{leader}-{index}" if index else leader,
            labels={
                **{f"{self.LABEL}{key}": value for key, value in marks.items()},
                "apps.kubernetes.io/pod-index": str(index or group),
                "statefulset.kubernetes.io/pod-name": f"{leader}-{index}" if index else leader,
            },
            annotations={
                **{f"{self.LABEL}{key}": value for key, value in notes.items()},
                "gpusched.io/run-for": "10h",
            },
            spec={"restartPolicy": "Always", **self.template},
        )

    def make_group(self, group: int) -> None:
        """Leader and workers of a group."""
        for index in range(self.size):
            self.make_pod(group, index)

    async def recreate(self, group: int) -> None:
        """A pod of the group has restarted: all of them are deleted, and made anew."""
        names = [f"{self.name}-{group}", *(f"{self.name}-{group}-{i}" for i in range(1, self.size))]
        for name in names:
            self.w.client.delete("pods", "default", name)
        pods = self.w.client
        await self.w.until(lambda: not any(pods.get("pods", "default", name) for name in names))
        self.make_group(group)


class PlayedRayCluster:
    """The KubeRay operator at work on one RayCluster.

    Args:
        groups: worker groups: replicas, least replicas and hosts of each, by name.
        template: more of the spec of each pod.
    """

    def __init__(
        self,
        w: Any,
        name: str,
        *,
        groups: dict[str, tuple[int, int, int]],
        template: Obj | None = None,
        **spec: Any,
    ) -> None:
        self.w, self.name, self.groups = w, name, groups
        self.template = template or {}
        self._made = 0
        pods = {"spec": {**pod_spec(8), **self.template}}
        workers = [
            {
                "groupName": group,
                "replicas": replicas,
                "minReplicas": least,
                "maxReplicas": 10,
                "numOfHosts": hosts,
                "rayStartParams": {},
                "template": pods,
            }
            for group, (replicas, least, hosts) in groups.items()
        ]
        head = {"rayStartParams": {}, "template": pods}
        self.made = make(w, RAY, name, {"headGroupSpec": head, "workerGroupSpecs": workers, **spec})

    def make_pod(
        self, kind: str, group: str, *, gpus: int = 8, replica: int = 0, host: int = 0
    ) -> str:
        """The head or a worker, with a name of its own."""
        self._made += 1
        name = f"{self.name}-{'head' if kind == 'head' else f'{group}-worker'}-{self._made:05}"
        labels = {
            "ray.io/cluster": self.name,
            "ray.io/node-type": kind,
            "ray.io/group": group,
            "ray.io/identifier": f"{self.name}-{kind}",
            "ray.io/is-ray-node": "yes",
            "app.kubernetes.io/created-by": "kuberay-operator",
        }
        if kind == "worker":
            labels["ray.io/worker-group-replica-index"] = str(replica)
            labels["ray.io/replica-host-index"] = str(host)
        self.w.pod(
            name,
            gpus=gpus,
            labels=labels,
            annotations={"gpusched.io/run-for": "10h"},
            ownerReferences=[owner(self.made)],
            spec=self.template,
        )
        return name

    def make_pods(self) -> None:
        """The head, then the workers of each group."""
        self.make_pod("head", "headgroup")
        for group, (replicas, _, hosts) in self.groups.items():
            for replica in range(replicas):
                for host in range(hosts):
                    self.make_pod("worker", group, replica=replica, host=host)

    async def suspend(self) -> None:
        """Suspended: the operator deletes all pods."""
        self.w.client.patch(RAY, "default", self.name, {"spec": {"suspend": True}})
        label = f"ray.io/cluster={self.name}"
        for pod in self.w.client.list("pods", "default", label):
            self.w.client.delete("pods", "default", pod["metadata"]["name"])
        await self.w.until(lambda: not self.w.client.list("pods", "default", label))

    def resume(self) -> None:
        """Resumed: the operator makes all pods again."""
        self.w.client.patch(RAY, "default", self.name, {"spec": {"suspend": False}})
        self.make_pods()
