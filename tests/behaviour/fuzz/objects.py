"""Objects of every kind that a session reads, drawn from a seed; most are good, some are mangled.

Names come from small sets, so that objects refer to each other: gangs of several roles and
sub-groups, shares of GPUs, Jobs to be started, records of moves, promises, rules between pods,
volumes, groups of other projects.
"""

from __future__ import annotations

import copy
import json
import random
from typing import Any, Final

from gpusched.api.meta.identity import format_time
from tests.behaviour.fuzz.crd_fields import durations
from tests.behaviour.fuzz.malformed_objects import JUNK, LABELS, NOTES, ODD_TEXTS

Obj = dict[str, Any]
GPU: Final = "nvidia.com/gpu"
QUEUES: Final = ("default", "a", "b", "b-one", "b-two", "c")
NODES: Final = tuple(f"n{number}" for number in range(7))
GANGS: Final = tuple(f"g{number}" for number in range(9))
ROLES: Final = ("driver", "worker", "")
PARTS: Final = ("left", "right")
LEVELS: Final = ("rack", "zone", "host", "rack", "example.com/rack", "nowhere")
CLASSES: Final = ("low", "high", "system-node-critical", "gone", "")
JUNK_TEXTS: Final = (*ODD_TEXTS, "2099-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "999999999999h")
_OWN: Final = "scheduling.gpusched.io/v1alpha1"


class FuzzedObjects:
    """A stream of objects.

    Args:
        rng: of the seed.
        epoch: seconds since the epoch around which things happened.
        oddness: how many of a hundred objects are mangled.
    """

    def __init__(self, rng: random.Random, *, epoch: float, oddness: int = 25) -> None:
        self.rng = rng
        self.now = epoch
        self.oddness = oddness
        self._version = 0

    # -- drawing -----------------------------------------------------------------------------
    def chance(self, percent: int) -> bool:
        """True so many times of a hundred."""
        return self.rng.randrange(100) < percent

    def pick(self, *values: Any) -> Any:
        """One of them."""
        return self.rng.choice(values)

    def when(self) -> str:
        """A moment of the last hours, rarely of the next."""
        return format_time(self.now - self.rng.choice((-600, 0, 1, 30, 400, 4000, 90_000)))

    def finished(self, kind: str, obj: Obj) -> Obj:
        """With identity and version, and mangled if it comes to that."""
        self._version += 1
        meta = obj.setdefault("metadata", {})
        namespace = meta.get("namespace", "")
        meta.setdefault("uid", f"{kind}-{namespace}-{meta['name']}-{int(self.chance(8))}")
        meta["resourceVersion"] = str(self._version)
        meta.setdefault("generation", self.rng.randrange(1, 4))
        meta.setdefault("creationTimestamp", self.when())
        if self.chance(3):
            meta["deletionTimestamp"] = self.when()
        if self.chance(self.oddness):
            for _ in range(self.rng.randrange(1, 4)):
                self._mangle(obj)
            # What has no name or version never gets through the API server.
            meta = obj["metadata"] = (
                obj["metadata"] if isinstance(obj.get("metadata"), dict) else {}
            )
            meta.setdefault("name", "x")
            meta["resourceVersion"] = str(self._version)
        return obj

    def _mangle(self, obj: Obj) -> None:
        """One value somewhere in it becomes another, is lost or comes twice."""
        paths = list(_paths(obj, ()))
        path = self.rng.choice([each for each in paths if each] or [("metadata",)])
        if path[:2] in {("metadata", "name"), ("metadata", "namespace"), ("metadata", "uid")}:
            return
        holder: Any = obj
        for step in path[:-1]:
            holder = holder[step]
        if isinstance(holder, dict) and path[-1] not in holder:
            return
        match self.rng.randrange(6):
            case 0 if isinstance(holder, dict):
                holder.pop(path[-1], None)
            case 1:
                holder[path[-1]] = self.rng.choice(JUNK_TEXTS)
            case 2 if isinstance(holder[path[-1]], list):
                holder[path[-1]] = [*holder[path[-1]], *copy.deepcopy(holder[path[-1]])]
            case 3 if isinstance(holder[path[-1]], int):
                holder[path[-1]] = self.pick(0, -1, 1, 2, 10**4, 2**31, 2**53, 2**63, 10**30)
            case _:
                holder[path[-1]] = copy.deepcopy(self.rng.choice(JUNK))

    # -- parts -------------------------------------------------------------------------------
    def amounts(self, *, most: int = 16) -> Obj:
        """Resources by name."""
        found: Obj = {}
        if self.chance(80):
            found[GPU] = str(self.rng.randrange(most + 1))
        if self.chance(50):
            found["cpu"] = self.pick("1", "500m", "64", "0", "1e3", "2000000")
        if self.chance(40):
            found["memory"] = self.pick("1Gi", "0", "1Ti", "123456789", "1.5Gi")
        if self.chance(5):
            found[self.pick("amd.com/gpu", "nvidia.com/mig-1g.5gb", "x.example/y")] = "1"
        return found

    def wish(self) -> Obj:
        """A wish for a level."""
        found: Obj = {}
        for name in ("required", "preferred"):
            if self.chance(40):
                found[name] = self.pick(*LEVELS)
        if self.chance(20):
            found["maxWait"] = self.pick("5m", "0s", "1h")
        return found

    def selector(self) -> Obj:
        """A label selector."""
        found: Obj = self.pick(
            {},
            {"matchLabels": {"app": self.pick("x", "y")}},
            {"matchExpressions": [{"key": "app", "operator": "In", "values": ["x", "y"]}]},
            {"matchExpressions": [{"key": "app", "operator": self.pick("Exists", "DoesNotExist")}]},
        )
        return found

    def labels(self, obj: Obj, chance: int = 10) -> None:
        """Labels and annotations of ours and of others, some with odd texts."""
        meta = obj["metadata"]
        for names, field in ((LABELS, "labels"), (NOTES, "annotations")):
            if self.chance(chance):
                name = self.rng.choice(names)
                meta.setdefault(field, {})[name] = self.pick(
                    *JUNK_TEXTS, *GANGS, *QUEUES, *NODES, "0", "1", "2", "8", "true", "0.5"
                )

    def conditions(self) -> list[Obj]:
        """Conditions of a status, as we write them or not."""
        return [
            {
                "type": self.pick("Admitted", "Scheduled", "Preempted", "Ready"),
                "status": self.pick("True", "False", "Unknown"),
                "reason": self.pick("Admitted", "BackOff", "Scheduled", "Reserved"),
                "message": "told",
                "lastTransitionTime": self.when(),
            }
            for _ in range(self.rng.randrange(3))
        ]

    def moved(self) -> str:
        """The record of a move, true or not."""
        places = [
            {
                "requests": {self.pick(GPU, "cpu", "pods"): self.pick(1000, 8000, 8, 10**15, -1)},
                "nodes": {self.pick(*NODES, "gone"): self.pick(1, 2, 0, -1, 10**6)},
            }
            for _ in range(self.rng.randrange(4))
        ]
        return json.dumps({"at": self.when(), "pods": places})

    # -- kinds -------------------------------------------------------------------------------
    def node(self) -> Obj:
        """A node with GPUs, taints, conditions, layouts."""
        gpus = str(self.pick(8, 8, 4, 0, 16, 1))
        amounts = {"cpu": "64", "memory": "512Gi", "pods": "20", GPU: gpus}
        if self.chance(10):
            amounts[self.pick("nvidia.com/mig-1g.5gb", "amd.com/gpu")] = "4"
        labels = {
            "kubernetes.io/hostname": self.pick(*NODES),
            "example.com/rack": self.pick("r1", "r2"),
            "example.com/zone": self.pick("z1", "z2"),
            "nvidia.com/gpu.product": self.pick("NVIDIA-A100-SXM4-80GB", "Tesla-T4", "x"),
            "nvidia.com/gpu.memory": self.pick("81920", "16384", "x"),
            "pool": self.pick("p1", "p2"),
        }
        obj: Obj = {
            "metadata": {"name": self.pick(*NODES), "labels": labels, "annotations": {}},
            "spec": {"unschedulable": self.chance(5)},
            "status": {
                "capacity": dict(amounts),
                "allocatable": amounts,
                "conditions": [
                    {
                        "type": "Ready",
                        "status": "True" if self.chance(93) else self.pick("False", "Unknown"),
                    }
                ],
            },
        }
        if self.chance(15):
            obj["spec"]["taints"] = [
                {"key": "t", "value": "v", "effect": self.pick("NoSchedule", "PreferNoSchedule")}
            ]
        if self.chance(15):
            obj["metadata"]["annotations"]["gpusched.io/gpu-layout"] = self.pick(
                "[[0,1],[2,3]]", "{islands: [[0,1,2,3]], numa: [[0,1],[2,3]]}", "[[0,0]]", "x"
            )
        return self.finished("Node", obj)

    def queue(self) -> Obj:
        """A queue somewhere in the tree, or in no tree at all."""
        spec: Obj = {"parent": self.pick("root", "b", "c", *QUEUES)} if self.chance(60) else {}
        for name, often in (("guarantee", 10), ("deserved", 50), ("capability", 12)):
            if self.chance(often):
                spec[name] = self.amounts(most=48)
        spec["weight"] = self.pick(1, 2, 0)
        if self.chance(30):
            spec["ordering"] = self.pick("Priority", "Fifo", "StrictFifo", "FairShare")
        if self.chance(10):
            spec["stopPolicy"] = self.pick("None", "Hold", "HoldAndDrain")
        for name in ("minRuntime", "maxRuntime", "maxWait"):
            if self.chance(15):
                spec[name] = self.pick("1s", "5m", "1h", "100h")
        if self.chance(10):
            spec["reclaimable"] = self.chance(50)
        if self.chance(10):
            spec["namespaceSelector"] = self.selector()
        if self.chance(25):
            spec["nodePools"] = [
                {"name": name, "nodeSelector": {"pool": name}, "deserved": self.amounts()}
                for name in self.pick(("p1",), ("p1", "p2"), ("p1", "p1"))
            ]
        obj = {"metadata": {"name": self.pick(*QUEUES[1:])}, "spec": spec}
        if self.chance(20):
            obj["status"] = {"conditions": self.conditions(), "usage": {"asOf": self.when()}}
        return self.finished("Queue", obj)

    def topology(self) -> Obj:
        """Levels by node labels."""
        levels = [
            {"name": "zone", "nodeLabel": "example.com/zone"},
            {"name": "rack", "nodeLabel": "example.com/rack"},
            {"name": "host", "nodeLabel": "kubernetes.io/hostname"},
        ]
        some = [each for each in levels if self.chance(80)]
        if self.chance(15):
            self.rng.shuffle(some)
        return self.finished(
            "Topology",
            {"metadata": {"name": self.pick("t1", "t2")}, "spec": {"levels": some or levels[:1]}},
        )

    def group(self, name: str) -> Obj:
        """A PodGroup with roles, sub-groups, wishes, terms, and a status."""
        spec: Obj = {"minMember": self.pick(1, 1, 2, 2, 3, 4)}
        if self.chance(70):
            spec["queue"] = self.pick(*QUEUES, "default", "default", "a")
        if self.chance(25):
            spec["minTaskMember"] = {role: self.pick(0, 1, 1, 2) for role in ROLES[:2]}
        if self.chance(20):
            spec["subGroups"] = [
                {"name": part, "minMember": self.pick(1, 2), "topology": self.wish()}
                for part in PARTS
            ]
            if self.chance(50):
                spec["minSubGroups"] = self.pick(1, 2)
        if self.chance(30):
            spec["topology"] = self.wish()
        if self.chance(60):
            spec["priorityClassName"] = self.pick(*CLASSES)
        self._terms(spec)
        obj: Obj = {
            "apiVersion": _OWN,
            "metadata": {"name": name, "namespace": "default", "annotations": {}},
            "spec": spec,
        }
        if self.chance(40):
            obj["status"] = {
                "phase": self.pick("Pending", "Inqueue", "Running", "Unknown", "Completed"),
                "conditions": self.conditions(),
            }
            if self.chance(20):
                obj["status"]["moved"] = self.moved()
        return self.finished("PodGroup", obj)

    def _terms(self, spec: Obj) -> None:
        """On which terms it runs."""
        if self.chance(20):
            spec["disruption"] = {
                "mode": self.pick("Group", "Pod"),
                "checkpointInterval": self.pick("1s", "10m"),
            }
        for field in durations("podgroups"):
            if self.chance(15):
                spec[field] = self.pick("1s", "5m", "10h")
        if self.chance(10):
            spec["preemptible"] = self.chance(50)
        if self.chance(8):
            spec["minResources"] = self.amounts()

    def job(self, name: str) -> Obj:
        """A Job, perhaps one that we start."""
        parallelism = self.pick(1, 2, 3)
        obj: Obj = {
            "metadata": {"name": name, "namespace": "default", "labels": {}, "annotations": {}},
            "spec": {
                "parallelism": parallelism,
                "completions": self.pick(parallelism, 1, 5),
                "completionMode": self.pick("Indexed", "NonIndexed"),
                "suspend": self.chance(50),
                "template": {"metadata": {"labels": {}}, "spec": self.pod_spec()},
            },
            "status": {"succeeded": self.pick(0, 0, 1), "active": 0},
        }
        meta = obj["metadata"]
        if self.chance(60):
            meta["labels"]["gpusched.io/queue"] = self.pick(*QUEUES)
        if self.chance(20):
            meta["annotations"]["gpusched.io/moved"] = self.moved()
        if self.chance(20):
            meta["annotations"]["gpusched.io/admitted"] = self.when()
        if self.chance(20):
            meta["annotations"]["gpusched.io/parallelism"] = self.pick("3", "0", "x", "100000")
        if self.chance(20):
            meta["annotations"]["kueue.x-k8s.io/job-min-parallelism"] = self.pick("1", "9")
        if self.chance(20):
            labels = obj["spec"]["template"]["metadata"]["labels"]
            labels["gpusched.io/pod-group"] = self.pick(*GANGS)
        self.labels(obj, 15)
        return self.finished("Job", obj)

    def pod_spec(self) -> Obj:
        """What a pod asks for, and its rules."""
        gpus = self.pick("8", "4", "2", "1", "0")
        limits = {"cpu": self.pick("1", "500m"), **({GPU: gpus} if self.chance(85) else {})}
        spec: Obj = {
            "schedulerName": "gpusched",
            "containers": [{"name": "c", "resources": {"limits": limits, "requests": limits}}],
            "priority": self.pick(0, 0, 0, 10, 1000, -5, 2_000_000_000),
        }
        if self.chance(10):
            spec["nodeSelector"] = {"pool": self.pick("p1", "p2", "x")}
        if self.chance(12):
            spec["affinity"] = self.affinity()
        if self.chance(8):
            spec["topologySpreadConstraints"] = [
                {
                    "maxSkew": self.pick(1, 2),
                    "topologyKey": self.pick("kubernetes.io/hostname", "example.com/rack", "x"),
                    "whenUnsatisfiable": self.pick("DoNotSchedule", "ScheduleAnyway"),
                    "labelSelector": self.selector(),
                }
            ]
        if self.chance(8):
            spec["tolerations"] = [{"operator": "Exists"}]
        if self.chance(5):
            spec["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "claim"}}]
        if self.chance(5):
            spec["schedulingGates"] = [{"name": "wait"}]
        return spec

    def affinity(self) -> Obj:
        """Rules between pods, or about nodes."""
        term = {
            "labelSelector": self.selector(),
            "topologyKey": self.pick("kubernetes.io/hostname", "example.com/rack", "x"),
        }
        kind = self.pick("podAffinity", "podAntiAffinity")
        if self.chance(30):
            expressions = [{"key": "pool", "operator": "In", "values": ["p1"]}]
            terms = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
            return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        if self.chance(60):
            return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        weighted = [{"weight": 5, "podAffinityTerm": term}]
        return {kind: {"preferredDuringSchedulingIgnoredDuringExecution": weighted}}

    def pod(self, gang: str, number: int) -> Obj:
        """A member of a gang or Job, a lone pod, a foreign one; waiting, promised room, or placed."""
        labels: Obj = {"app": self.pick("x", "y")}
        obj: Obj = {
            "metadata": {
                "name": f"{gang}-{number}",
                "namespace": "default",
                "labels": labels,
                "annotations": {},
            },
            "spec": self.pod_spec(),
            "status": {"phase": "Pending", "conditions": []},
        }
        how = self.rng.randrange(10)
        if how < 6:
            labels["gpusched.io/pod-group"] = gang
            if self.chance(60):
                labels["gpusched.io/role"] = self.pick(*ROLES)
            if self.chance(30):
                labels["gpusched.io/sub-group"] = self.pick(*PARTS)
        elif how < 8:
            owner = {"kind": self.pick("Job", "Job", "ReplicaSet"), "name": gang}
            reference = {**owner, "uid": f"Job-default-{gang}-0", "controller": True}
            obj["metadata"]["ownerReferences"] = [{"apiVersion": "batch/v1", **reference}]
        elif how == 8:
            obj["spec"]["schedulerName"] = "default-scheduler"
        self._share(obj)
        self._place(obj)
        self.labels(obj)
        return self.finished("Pod", obj)

    def rush(self, name: str) -> list[tuple[str, Obj]]:
        """A good gang that cannot wait, of one kind of pods or of several."""
        sizes = self.pick(("8", "8"), ("8",), ("4", "4", "2"), ("8", "4"), ("4", "4"))
        queue = self.pick("default", "default", "a", "b-one")
        spec: Obj = {"minMember": len(sizes), "queue": queue, "priorityClassName": "high"}
        if self.chance(25):
            spec["topology"] = {"required": self.pick("rack", "host", "zone")}
        if self.chance(25):
            spec["subGroups"] = [{"name": part, "minMember": 1} for part in PARTS]
        group = {"apiVersion": _OWN, "metadata": {"name": name, "namespace": "default"}}
        found = [("podgroups", self._sound("PodGroup", {**group, "spec": spec}))]
        for number, size in enumerate(sizes):
            labels = {"gpusched.io/pod-group": name, "gpusched.io/sub-group": PARTS[number % 2]}
            if self.chance(50):
                labels["gpusched.io/role"] = self.pick("driver", "worker")
            limits = {"cpu": "1", GPU: size}
            pod = {
                "metadata": {"name": f"{name}-{number}", "namespace": "default", "labels": labels},
                "spec": {
                    "schedulerName": "gpusched",
                    "containers": [{"name": "c", "resources": {"limits": limits}}],
                    "priority": 1000,
                },
                "status": {"phase": "Pending"},
            }
            found.append(("pods", self._sound("Pod", pod)))
        return found

    def _sound(self, kind: str, obj: Obj) -> Obj:
        """Finished, and not mangled."""
        oddness, self.oddness = self.oddness, 0
        try:
            return self.finished(kind, obj)
        finally:
            self.oddness = oddness

    def _share(self, obj: Obj) -> None:
        if self.chance(15):
            limits = obj["spec"]["containers"][0]["resources"]
            for each in limits.values():
                each.pop(GPU, None)
            notes = obj["metadata"]["annotations"]
            if self.chance(60):
                notes["gpusched.io/gpu-fraction"] = self.pick("0.5", "0.25", "0.1", "1", "0", "x")
            else:
                notes["gpusched.io/gpu-memory"] = self.pick("10Gi", "80Gi", "1", "x")

    def _place(self, obj: Obj) -> None:
        notes, status = obj["metadata"]["annotations"], obj["status"]
        how = self.rng.randrange(12)
        if how < 3:
            obj["spec"]["nodeName"] = self.pick(*NODES, "gone")
            status["phase"] = self.pick("Running", "Running", "Pending", "Succeeded", "Failed")
            condition = {"type": "PodScheduled", "status": "True"}
            status["conditions"] = [{**condition, "lastTransitionTime": self.when()}]
            if self.chance(70):
                slots = sorted(self.rng.sample(range(8), self.rng.randrange(5)))
                notes["gpusched.io/slots"] = ",".join(map(str, slots))
                notes["gpusched.io/plan"] = "0123456789ab"
                notes["gpusched.io/fence"] = "d_0/1"
        elif how < 5:
            status["nominatedNodeName"] = self.pick(*NODES, "gone")
            status["conditions"] = [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": self.pick("PreemptionInProgress", "Unschedulable"),
                    "lastTransitionTime": self.when(),
                }
            ]

    def other(self, kind: str) -> Obj:
        """One of the small kinds."""
        match kind:
            case "namespaces":
                labels = {"gpusched.io/queue": self.pick(*QUEUES)} if self.chance(30) else {}
                obj: Obj = {"metadata": {"name": "default", "labels": labels}}
            case "priorityclasses":
                name, value = self.pick(
                    ("low", -10), ("high", 1000), ("system-node-critical", 2**31 - 1)
                )
                obj = {"metadata": {"name": name}, "value": value}
            case "poddisruptionbudgets":
                obj = {
                    "metadata": {"name": self.pick("b1", "b2"), "namespace": "default"},
                    "spec": {"selector": self.selector()},
                    "status": {"disruptionsAllowed": self.pick(0, 1, 5)},
                }
            case "resourcequotas":
                obj = {
                    "metadata": {"name": "q1", "namespace": "default"},
                    "spec": {"scopes": [self.pick("Terminating", "BestEffort")]},
                    "status": {"hard": {"pods": "5"}, "used": {"pods": "1"}},
                }
            case "persistentvolumeclaims":
                obj = {
                    "metadata": {"name": "claim", "namespace": "default"},
                    "spec": {
                        "storageClassName": "s",
                        "accessModes": ["ReadWriteOnce"],
                        "resources": {"requests": {"storage": "1Gi"}},
                        **({"volumeName": "v1"} if self.chance(40) else {}),
                    },
                    "status": {"phase": self.pick("Pending", "Bound")},
                }
            case "persistentvolumes":
                obj = {
                    "metadata": {"name": "v1"},
                    "spec": {
                        "capacity": {"storage": "1Gi"},
                        "storageClassName": "s",
                        "accessModes": ["ReadWriteOnce"],
                    },
                    "status": {"phase": "Available"},
                }
            case _:
                obj = {
                    "metadata": {"name": "s"},
                    "provisioner": self.pick("kubernetes.io/no-provisioner", "x"),
                    "volumeBindingMode": self.pick("Immediate", "WaitForFirstConsumer"),
                }
        return self.finished(kind, obj)

    def foreign(self, kind: str, source: str) -> Obj:
        """A group, queue or workload of another project, in its own words as far as they go."""
        spec: Obj = {
            "minMember": self.pick(1, 2, 3),
            "queue": self.pick(*QUEUES),
            "minTaskMember": {"worker": self.pick(1, 2)},
            "priorityClassName": self.pick(*CLASSES),
            "minResources": self.amounts(),
            "scheduleTimeoutSeconds": self.pick(1, 60, 0),
            "networkTopology": {"mode": "hard", "highestTierAllowed": self.pick(1, 2, 9)},
            "weight": self.pick(1, 0),
            "capability": self.amounts(),
            "deserved": self.amounts(),
            "parentQueue": self.pick(*QUEUES),
            "schedulingPolicy": {"gang": {"minCount": self.pick(1, 2)}},
            "replicatedJobs": [{"name": "w", "replicas": self.pick(1, 2)}],
            "replicas": self.pick(1, 2),
            "workerGroupSpecs": [{"groupName": "w", "replicas": 1, "minReplicas": 1}],
            "runPolicy": {"schedulingPolicy": {"minAvailable": self.pick(1, 2)}},
            "pytorchReplicaSpecs": {"Worker": {"replicas": self.pick(1, 2)}},
            "suspend": self.chance(30),
        }
        name = self.pick(*QUEUES) if kind == "Queue" else self.pick(*GANGS)
        meta: Obj = {"name": name}
        if kind != "Queue":
            meta["namespace"] = "default"
        del source
        obj = {"metadata": meta, "spec": {k: v for k, v in spec.items() if self.chance(60)}}
        self.labels(obj, 20)
        return self.finished(kind, obj)


def _paths(value: Any, path: tuple[Any, ...]) -> Any:
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _paths(inner, (*path, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _paths(inner, (*path, number))
