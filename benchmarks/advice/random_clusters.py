"""Clusters some hours after jobs of all kinds began to come, with gangs that wait; equal seeds give equal ones."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any, Final

import attrs

from gpusched.api.meta.gpu_resources import gpu_resources_in_force
from gpusched.config.model import DEFAULT, Config
from gpusched.engine.objects import Obj
from gpusched.engine.simulation import Arrival, Simulation, SimulationCase
from gpusched.io.watch.informers import KINDS

API: Final = "scheduling.gpusched.io/v1alpha1"
BEGIN: Final = 1_800_000_000.0
GPU: Final = "nvidia.com/gpu"
PRODUCT: Final = "nvidia.com/gpu.product"
H100: Final = "NVIDIA-H100-80GB-HBM3"
A100: Final = "NVIDIA-A100-SXM4-80GB"
RACK_NODES: Final = 4
NODE_GPUS: Final = 8
PLAYED_S: Final = 3 * 3600.0
QUEUES: Final = "abcd"
CLASSES: Final = (("low", 1), ("mid", 100), ("high", 1000))


@attrs.frozen
class RandomCluster:
    """A cluster as a snapshot would hold it.

    Attributes:
        objects: in an order in which they can be applied.
        now: seconds since the Unix epoch.
    """

    objects: tuple[Obj, ...]
    now: float


def make_cluster(
    seed: int, *, nodes: int | None = None, gangs: int = 24, config: Config = DEFAULT
) -> RandomCluster:
    """Queues in a tree, two types of GPUs, taints, and gangs of every kind, hours after the first came.

    Args:
        seed: of everything that is drawn.
        nodes: how many; None for 8 to 30.
        gangs: that come at least.
        config: of the daemon that started what runs.
    """
    draw = random.Random(seed)
    count = nodes if nodes is not None else draw.choice([8, 12, 16, 30])
    tainted = count >= 12 and draw.random() < 0.3
    arrivals, asked = list[Arrival](), 0
    room = NODE_GPUS * count
    while asked < room * 1.1 or len(arrivals) < gangs:
        made, gpus = DrawnGang(draw, len(arrivals), tainted=tainted).objects()
        at = draw.random() * 600 if asked < room else 1000 + draw.random() * 3600
        arrivals.append(Arrival(at, tuple(made)))
        asked += gpus
    case = SimulationCase(
        name="before",
        config=config,
        objects=[
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}},
            *(make_priority_class(name, value) for name, value in CLASSES),
            *draw_queues(draw, room),
            *(make_node(index, tainted=tainted and index % 6 == 5) for index in range(count)),
        ],
        until=PLAYED_S,
        epoch=BEGIN,
        arrivals=sorted(arrivals, key=lambda each: each.at),
    )
    return RandomCluster(objects_after(case), BEGIN + PLAYED_S)


def objects_after(case: SimulationCase) -> tuple[Obj, ...]:
    """What a cluster holds at the end of a simulation, pods last."""
    with gpu_resources_in_force(case.config.gpu_resources):
        simulation = Simulation(case)
        simulation.run()
    objects = simulation.world.objects
    return in_order(obj for plural in KINDS for obj in objects.all(plural))


def in_order(objects: Iterable[Obj]) -> tuple[Obj, ...]:
    """The objects, pods last: what they refer to is there before them."""
    return tuple(sorted(objects, key=lambda obj: obj["kind"] == "Pod"))


# -- what there is -----------------------------------------------------------------------------
def make_node(index: int, *, tainted: bool = False) -> Obj:
    """A node with eight GPUs, four of which make a rack and sixteen a block; every third has A100s."""
    name = f"n{index:04}"
    amounts = {"cpu": "96", "memory": "1000Gi", "pods": "110", GPU: str(NODE_GPUS)}
    spec = {"taints": [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}]}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "gpusched.io/rack": f"r{index // RACK_NODES}",
                "gpusched.io/block": f"b{index // (4 * RACK_NODES)}",
                PRODUCT: A100 if index % 3 == 2 else H100,
            },
        },
        "spec": spec if tainted else {},
        "status": {
            "allocatable": amounts,
            "capacity": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def make_priority_class(name: str, value: int) -> Obj:
    """A priority class."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }


def make_queue(name: str, **spec: Any) -> Obj:
    """A queue."""
    return {"apiVersion": API, "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def draw_queues(draw: random.Random, room: int) -> list[Obj]:
    """Two departments with two queues each; some have limits, some give nothing back."""
    found = []
    for department, teams in (("x", "ab"), ("y", "cd")):
        above: dict[str, Any] = {"deserved": {GPU: str(room // 2)}}
        if draw.random() < 0.4:
            above["capability"] = {GPU: str(room // 2 + draw.choice([0, room // 4]))}
        found.append(make_queue(department, **above))
        for team in teams:
            spec: dict[str, Any] = {"parent": department, "deserved": {GPU: str(room // 4)}}
            if draw.random() < 0.4:
                spec["capability"] = {GPU: str(room // 4 + draw.choice([0, room // 8]))}
            if draw.random() < 0.2:
                spec["reclaimable"] = False
            if draw.random() < 0.2:
                spec["guarantee"] = {"resource": {GPU: str(room // 8)}}
            if draw.random() < 0.2:
                spec["ordering"] = draw.choice(["Fifo", "StrictFifo"])
            found.append(make_queue(team, **spec))
    return found


# -- what comes --------------------------------------------------------------------------------
class DrawnGang:
    """One gang: a PodGroup of one of four forms, a Job that waits suspended, or a lone pod."""

    def __init__(
        self,
        draw: random.Random,
        number: int,
        *,
        tainted: bool,
        queue: str = "",
        priority_class: str = "",
    ) -> None:
        self._draw = draw
        self._name = f"g{number}"
        self.queue = queue or draw.choice(QUEUES)
        self._class = priority_class or draw.choice(["low", "low", "mid"])
        self._pods = draw.choice([1, 1, 2, 2, 4, 6])
        self._gpus = draw.choice([1, 2, 4, 8])
        hours = draw.randint(4, 12)
        self._run_for = f"{hours}h"
        self._expected = self._run_for if draw.random() < 0.5 else ""
        product = draw.choice([None, None, H100, A100])
        self._selector = {PRODUCT: product} if product else {}
        self._tolerates = tainted and draw.random() < 0.3

    def objects(self) -> tuple[list[Obj], int]:
        """Its manifests, and the GPUs that it asks for."""
        form = self._draw.choice(
            ["plain", "plain", "plain", "elastic", "roles", "parts", "job", "pod"]
        )
        if form == "pod":
            return self._lone_pod(), self._gpus
        if form == "job":
            return self._job(), self._pods * self._gpus
        return self._group(form), self._pods * self._gpus

    def _terms(self) -> dict[str, Any]:
        draw, spec = self._draw, dict[str, Any]()
        if draw.random() < 0.3:
            spec["preemptible"] = False
        if draw.random() < 0.2:
            spec["minRuntime"] = draw.choice(["1h", "4h"])
        if self._expected:
            spec["expectedDuration"] = self._expected
        return spec

    def _group(self, form: str) -> list[Obj]:
        draw, pods = self._draw, self._pods
        spec: dict[str, Any] = {
            "queue": self.queue,
            "priorityClassName": self._class,
            **self._terms(),
        }
        labels: list[dict[str, str]] = [{} for _ in range(pods)]
        if form == "roles" and pods > 1:
            spec["minTaskMember"] = {"leader": 1, "worker": pods - 1}
            spec["minMember"] = pods
            labels = [
                {"gpusched.io/role": "leader" if not each else "worker"} for each in range(pods)
            ]
        elif form == "parts" and pods > 1:
            half = pods // 2
            level = {"required": "rack"} if draw.random() < 0.7 else {}
            spec["subGroups"] = [
                {"name": part, "minMember": half, **({"topology": level} if level else {})}
                for part in ("left", "right")
            ]
            spec["minMember"] = pods
            labels = [
                {"gpusched.io/sub-group": "left" if each < half else "right"}
                for each in range(pods)
            ]
        else:
            spec["minMember"] = max(1, pods // 2) if form == "elastic" else pods
            if draw.random() < 0.3:
                spec["topology"] = {"required": draw.choice(["rack", "rack", "block"])}
        group = {
            "apiVersion": API, "kind": "PodGroup",
            "metadata": {"name": self._name, "namespace": "team"}, "spec": spec,
        }  # fmt: skip
        members = [
            self._pod(f"{self._name}-{each}", {"gpusched.io/pod-group": self._name, **labels[each]})
            for each in range(pods)
        ]
        return [group, *members]

    def _lone_pod(self) -> list[Obj]:
        notes = {"gpusched.io/expected-duration": self._expected} if self._expected else {}
        return [self._pod(self._name, {"gpusched.io/queue": self.queue}, notes)]

    def _job(self) -> list[Obj]:
        notes: dict[str, str] = {}
        if self._expected:
            notes["gpusched.io/expected-duration"] = self._expected
        if self._draw.random() < 0.3:
            notes["gpusched.io/topology-required"] = "rack"
        labels = {"gpusched.io/queue": self.queue}
        template = self._pod("", labels, notes)
        del template["apiVersion"], template["kind"], template["metadata"]["name"]
        template["spec"]["restartPolicy"] = "Never"
        return [
            {
                "apiVersion": "batch/v1", "kind": "Job",
                "metadata": {
                    "name": self._name, "namespace": "team", "labels": labels, "annotations": notes,
                },
                "spec": {
                    "parallelism": self._pods, "completions": self._pods, "suspend": True,
                    "completionMode": "Indexed", "template": template,
                },
            }
        ]  # fmt: skip

    def _pod(
        self, name: str, labels: dict[str, str], notes: dict[str, str] | None = None
    ) -> dict[str, Any]:
        container = {"name": "c", "image": "i", "resources": {"limits": {GPU: str(self._gpus)}}}
        spec: dict[str, Any] = {
            "schedulerName": "gpusched", "containers": [container],
            "priorityClassName": self._class,
        }  # fmt: skip
        if self._selector:
            spec["nodeSelector"] = dict(self._selector)
        if self._tolerates:
            spec["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": "team",
                "labels": labels,
                "annotations": {"gpusched.io/run-for": self._run_for, **(notes or {})},
            },
            "spec": spec,
        }
