"""Objects with odd names and values, drawn from a seed: what tenants may write, and a little more."""

from __future__ import annotations

import contextlib
import copy
import random
from typing import Any

import msgspec

from gpusched.api.pod import wire as pod_wire
from gpusched.devcluster.apimachinery.status import StatusError
from tests.behaviour.fuzz.crd_fields import spec_paths
from tests.behaviour.fuzz.foreign_kinds import ANY, SCHEMAS

Obj = dict[str, Any]
LABELS = (
    "gpusched.io/pod-group", "gpusched.io/queue", "gpusched.io/role", "gpusched.io/sub-group",
    "gpusched.io/gpu-fraction", "gpusched.io/gpu-memory",
    "scheduling.x-k8s.io/pod-group", "kueue.x-k8s.io/queue-name", "kai.scheduler/queue",
    "kai.scheduler/subgroup-name", "kueue.x-k8s.io/pod-group-name",
    "kueue.x-k8s.io/max-exec-time-seconds", "volcano.sh/task-spec", "volcano.sh/task-index",
    "volcano.sh/queue-name", "scheduling.volcano.sh/queue-name",
    "pod-group.scheduling.sigs.k8s.io/name", "pod-group.scheduling.sigs.k8s.io/min-available",
    "jobset.sigs.k8s.io/jobset-name", "jobset.sigs.k8s.io/replicatedjob-name",
    "jobset.sigs.k8s.io/replicatedjob-replicas", "jobset.sigs.k8s.io/job-index",
    "jobset.sigs.k8s.io/job-global-index",
    "leaderworkerset.sigs.k8s.io/name", "leaderworkerset.sigs.k8s.io/group-index",
    "leaderworkerset.sigs.k8s.io/worker-index", "training.kubeflow.org/job-name",
    "training.kubeflow.org/operator-name", "training.kubeflow.org/replica-type",
    "training.kubeflow.org/replica-index", "training.kubeflow.org/job-role", "ray.io/cluster",
    "ray.io/node-type", "ray.io/group", "ray.io/worker-group-replica-index",
    "ray.io/replica-host-index", "spark-app-selector", "spark-role", "pod-template-hash",
    "applicationId", "batch.kubernetes.io/job-completion-index", "apps.kubernetes.io/pod-index",
)  # fmt: skip
NOTES = tuple(
    sorted({each.encode_name for each in msgspec.structs.fields(pod_wire.PodAnnotations)})
)
GROUP_RESOURCE = "podgroups.scheduling.gpusched.io"
GROUPS = ("g", "rejected", "deleting", "gone", "loose", "hidden")
ODD_TEXTS = (
    "", "team-a/va", "/", "a/", "/a", "//", "a/b/c", "g/", "g/x", "default/g", "other/g", "x" * 63,
    "x" * 300, "x" * 5000, "-", ".", "..", "_", "ümlaut", "名前", "UPPER", "a b", " a", "a\nb",
    "a\x1b[31m", "a\u202eb", "%s%n", "{0}", "${x}", "#1", "a#0", "g#0", "0", "1", "-1", "1e9",
    "2147483648", "99999999999999999999", "٣", "null", "true", "TRUE", "kube-system", "default",
    "node-0", "rack", "host", "[]", "{}", '[{"name":"a","minMember":2}]', "0.5", "1.5", "10Gi",
    "5m", "-5m", "leader", "worker", "head", "pytorchjob-controller", *GROUPS,
)  # fmt: skip
NUMBERS = ("1", "2", "0", "-1", "3", "10001", "x", "", "1.0", " 2 ")
KINDS = (
    "Job", "JobSet", "LeaderWorkerSet", "PyTorchJob", "MPIJob", "RayCluster", "ReplicaSet",
    "StatefulSet", "PodGroup", "Pod", "Queue", "Thing", "Node", "a/b", "#", "x" * 300,
)  # fmt: skip
JUNK: tuple[Any, ...] = (
    None, 0, 1, -1, 2**31, 2**53, 2**63, 10**30, 1.5, True, "", "x", "1e30", "5m", "rack", [], {},
    [1], {"a": 1}, {"": ""}, [{}], [None], "x" * 300,
)  # fmt: skip
GROUP_PATHS = (
    *spec_paths("podgroups"), ("spec", "checkpointInterval"),
    ("status",), ("status", "phase"), ("status", "conditions"),
    ("status", "nominated"), ("metadata", "labels"), ("metadata", "annotations"),
    ("metadata", "finalizers"),
)  # fmt: skip


class MalformedObjects:
    """Makes odd objects in a cluster; what the server refuses is not there.

    Args:
        w: the world whose cluster gets them.
        seed: the same seed makes the same objects.
    """

    def __init__(self, w: Any, seed: int) -> None:
        self._w = w
        self._rng = random.Random(seed)
        self.made = 0

    # -- pods ------------------------------------------------------------------------------
    def pod(self, name: str) -> None:
        """A pod with one to three odd labels, annotations or fields."""
        metadata: Obj = {"labels": {}, "annotations": {}}
        spec: Obj = {}
        for _ in range(self._rng.randint(1, 3)):
            self._rng.choice((self._label, self._note, self._note, self._owner, self._field))(
                metadata, spec
            )
        gpus = self._rng.choice((0, 0, 1, 8, 64))
        self._try(lambda: self._w.pod(name, gpus=gpus, spec=spec, **metadata))

    def _label(self, metadata: Obj, _spec: Obj) -> None:
        metadata["labels"][self._rng.choice(LABELS)] = self._text()

    def _note(self, metadata: Obj, _spec: Obj) -> None:
        metadata["annotations"][self._rng.choice(NOTES)] = self._text()

    def _owner(self, metadata: Obj, _spec: Obj) -> None:
        metadata["ownerReferences"] = [
            {
                "apiVersion": self._rng.choice(("v1", "batch/v1", "x/v1")),
                "kind": self._rng.choice(KINDS),
                "name": self._text() or "a",
                "uid": self._rng.choice(("u", "u/1", "u#1", "x" * 300)),
                "controller": True,
            }
        ]

    def _field(self, _metadata: Obj, spec: Obj) -> None:
        text = self._text()
        name, value = self._rng.choice(
            [
                ("schedulingGroup", {"podGroupName": text}),
                ("priorityClassName", text),
                ("nodeSelector", {"gpusched.io/rack": text}),
                ("volumes", [{"name": "v", "persistentVolumeClaim": {"claimName": text}}]),
                ("tolerations", [{"key": text, "operator": "Exists"}]),
                ("resourceClaims", [{"name": "c", "resourceClaimName": text}]),
                ("preemptionPolicy", "Never"),
                ("activeDeadlineSeconds", self._rng.choice((1, 2**31, 10**18))),
                ("overhead", {"cpu": self._rng.choice(("1", "1e30", "-1", "x"))}),
                ("topologySpreadConstraints", [self._spread(text)]),
                ("affinity", self._affinity(text)),
                ("containers", [self._container(text)]),
            ]
        )
        spec[name] = value

    def _spread(self, text: str) -> Obj:
        return {
            "maxSkew": 1,
            "topologyKey": text or "a",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"a": text}},
        }

    def _affinity(self, text: str) -> Obj:
        term = {"topologyKey": text or "a", "labelSelector": {"matchLabels": {"a": "b"}}}
        return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}

    def _container(self, text: str) -> Obj:
        amount = self._rng.choice(("9223372036854775808", "1e30", "1n", "0", "1", "٣"))
        name = self._rng.choice(("nvidia.com/gpu", "cpu", "memory", "example.com/x", text or "a"))
        return {"name": "c", "image": "i", "resources": {"limits": {name: amount}}}

    # -- groups, Jobs and the objects of other projects ------------------------------------
    def group(self, name: str) -> None:
        """A PodGroup with one to three odd fields, and two pods."""
        body: Obj = {
            "apiVersion": "scheduling.gpusched.io/v1alpha1",
            "kind": "PodGroup",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"queue": "default", "minMember": 1},
        }
        self._spoil(body, GROUP_PATHS)
        self._try(lambda: self._w.client.create("podgroups.scheduling.gpusched.io", body))
        labels = {"gpusched.io/pod-group": name}
        self._try(lambda: self._w.pod(f"{name}-0", gpus=8, labels=labels))
        self._try(lambda: self._w.pod(f"{name}-1", gpus=8, labels=labels))

    def job(self, name: str) -> None:
        """A Job, suspended in a queue or not, with odd labels and annotations."""
        labels, notes = {}, {}
        if self._rng.random() < 0.5:
            labels["gpusched.io/queue"] = self._rng.choice(("default", "nowhere", self._text()))
        for _ in range(self._rng.randint(0, 2)):
            notes[self._rng.choice(NOTES)] = self._text()
        template: Obj = {"labels": {}, "annotations": {}}
        self._rng.choice((self._label, self._note))(template, {})
        body = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": name, "namespace": "default", "labels": labels, "annotations": notes,
            },
            "spec": {
                "parallelism": 2,
                "completions": 2,
                "suspend": self._rng.random() < 0.5,
                "template": {
                    "metadata": template,
                    "spec": {
                        "schedulerName": "gpusched",
                        "restartPolicy": "Never",
                        "containers": [
                            {
                                "name": "c",
                                "image": "i",
                                "resources": {"limits": {"nvidia.com/gpu": "8"}},
                            }
                        ],
                    },
                },
            },
        }  # fmt: skip
        self._try(lambda: self._w.client.create("jobs.batch", body))

    def foreign(self, name: str) -> None:
        """An object of another project, named as pods name theirs."""
        resource = self._rng.choice(sorted(SCHEMAS))
        version, kind, *_ = SCHEMAS[resource]
        body: Obj = {
            "apiVersion": f"{resource.partition('.')[2]}/{version}",
            "kind": kind,
            "metadata": {"name": name},
            "spec": {"minMember": 2, "replicatedJobs": [{"name": "a", "replicas": 1}]},
        }
        if kind != "Queue":
            body["metadata"]["namespace"] = "default"
        paths = [(*path,) for path in GROUP_PATHS]
        paths += [("spec", each) for each in ("replicatedJobs", "leaderWorkerTemplate", "replicas")]
        paths += [("spec", each) for each in ("pytorchReplicaSpecs", "workerGroupSpecs")]
        self._spoil(body, tuple(paths))
        self._try(lambda: self._w.client.create(resource, body))

    # -- later changes ---------------------------------------------------------------------
    def change(self) -> None:
        """Some of what is there changes or goes: labels, annotations, specs, statuses, owners."""
        for pod in self._w.client.list("pods", "default"):
            if not pod["spec"].get("nodeName") and self._rng.random() < 0.3:
                metadata: Obj = {"labels": {}, "annotations": {}}
                self._rng.choice((self._label, self._note, self._note))(metadata, {})
                self._patch("pods", pod, {"metadata": metadata})
        for group in self._w.client.list(GROUP_RESOURCE, "default"):
            drawn = self._rng.random()
            if drawn < 0.2:
                self._drop(GROUP_RESOURCE, group)
            elif drawn < 0.7:
                body: Obj = {}
                self._spoil(body, GROUP_PATHS)
                status = body.pop("status", None)
                self._patch(GROUP_RESOURCE, group, body)
                self._patch(GROUP_RESOURCE, group, {"status": status}, "status")
        for job in self._w.client.list("jobs.batch", "default"):
            if self._rng.random() < 0.2:
                self._drop("jobs.batch", job)

    def loosen(self) -> None:
        """From now on the server lets every PodGroup in, as one with an older CRD may."""
        name = "podgroups.scheduling.gpusched.io"
        crds = "customresourcedefinitions.apiextensions.k8s.io"
        definition = copy.deepcopy(self._w.client.get(crds, None, name))
        for version in definition["spec"]["versions"]:
            version.pop("selectableFields", None)
            version.pop("additionalPrinterColumns", None)
            version["schema"]["openAPIV3Schema"] = {
                "type": "object",
                "properties": {"spec": ANY, "status": ANY},
            }
        self._w.client.update(crds, definition)

    def _patch(self, resource: str, item: Obj, body: Obj, part: str = "") -> None:
        name = item["metadata"]["name"]
        self._try(
            lambda: self._w.client.patch(
                resource, "default", name, body, **({"subresource": part} if part else {})
            )
        )

    def _drop(self, resource: str, item: Obj) -> None:
        self._try(lambda: self._w.client.delete(resource, "default", item["metadata"]["name"]))

    # -- drawing ---------------------------------------------------------------------------
    def _text(self) -> str:
        return self._rng.choice(ODD_TEXTS if self._rng.random() < 0.7 else (*NUMBERS, *GROUPS))

    def _spoil(self, body: Obj, paths: tuple[tuple[str, ...], ...]) -> None:
        for _ in range(self._rng.randint(1, 3)):
            *above, last = self._rng.choice(paths)
            holder = body
            for part in above:
                if not isinstance(holder.get(part), dict):
                    holder[part] = {}
                holder = holder[part]
            if self._rng.random() < 0.5:
                holder[last] = copy.deepcopy(self._rng.choice(JUNK))
            else:
                holder[last] = self._text()

    def _try(self, make: Any) -> None:
        with contextlib.suppress(StatusError):
            make()
            self.made += 1
