"""Plays scenarios of native gangs through the whole daemon on an embedded cluster.

A scenario has ``nodes`` (GPUs by name, or ``gpus`` and a ``rack``) and ``steps``, one after
another:

* ``group``: a PodGroup; ``minCount`` or ``basic``, ``disruptionMode``, ``topology`` (a node label),
  ``priorityClass`` (low 10, mid 50, high 100).
* ``pods``: ``a-0..3`` are four pods with 1 CPU and 1 GiB, and one GPU unless ``gpu`` says else.
* ``addNode``, ``deleteNode``, ``finishPods``, ``deletePods``, ``patchGroup``, ``deleteGroup``, ``recreateGroup``,
  ``sleep``.
* ``halvedDevice``: a device of two halves on a node, and claims for it or one of them.
* ``look``: so many seconds ``after``, counts of pods by name before the last dash, or by whole name,
  that are ``running`` and ``waiting``; ``oneValueOf``: the running ones share one value of that
  node label; ``sameNode``: those of these names are on one node; ``groupSays``: a pattern that its conditions
  match, as type, status, reason and message; ``podSays``: the same of a pod's message;
  ``refused``, ``taken``: what holds after the group's last patch was refused or not.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from pathlib import Path
from typing import Any, Final

import yaml

from gpusched.devcluster.apimachinery.status import StatusError

Obj = dict[str, Any]
GROUPS: Final = "podgroups.scheduling.k8s.io"
RACK: Final = "topology.example.com/rack"
CLASSES: Final = {"low": 10, "mid": 50, "high": 100}
CONDITION: Final = {
    "v1alpha2": "PodGroupScheduled",
    "v1beta1": "PodGroupInitiallyScheduled",
}
"""Condition of a native PodGroup, by the versions that are played."""


def load_scenarios(name: str) -> dict[str, Obj]:
    """Scenarios of a file beside this one, by name."""
    return yaml.safe_load((Path(__file__).parent / name).read_text(encoding="utf-8"))


def pod_names(text: str) -> list[str]:
    """``a-0..2`` is a-0, a-1 and a-2."""
    found = re.fullmatch(r"(.*?)(\d+)\.\.(\d+)", text)
    if found is None:
        return [text]
    return [f"{found[1]}{n}" for n in range(int(found[2]), int(found[3]) + 1)]


class Player:
    """Acts on one cluster.

    Args:
        world: the cluster and its daemons.
        version: of the native groups.
        scheduler: to which pods are given that name none.
    """

    def __init__(self, world: Any, version: str = "v1alpha2", scheduler: str = "gpusched") -> None:
        self.world = world
        self.version = version
        self.scheduler = scheduler
        self.patch_taken = True

    async def prepare(self, scenario: Obj) -> None:
        """Nodes and priority classes."""
        for name, value in CLASSES.items():
            body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
            body |= {"metadata": {"name": name}, "value": value}
            self.world.client.create("priorityclasses.scheduling.k8s.io", body)
        for name, node in scenario["nodes"].items():
            self.add_node(name, **(node if isinstance(node, dict) else {"gpus": node}))

    async def play(self, scenario: Obj) -> None:
        """All steps; at each look what it wants must hold."""
        looks = 0
        for step in scenario["steps"]:
            if "look" not in step:
                await self.act(step)
                continue
            await self.world.clock.sleep(step["after"])
            self.check(step)
            looks += 1
        assert looks, "nobody looks at this scenario"

    async def act(self, step: Obj) -> None:
        """One step that changes something."""
        ((what, how),) = ((k, v) for k, v in step.items() if k not in {"phase", "body"})
        client = self.world.client
        match what:
            case "group":
                self.group(**how)
            case "recreateGroup":
                with contextlib.suppress(StatusError):  # its name may be taken still
                    self.group(**how)
            case "pods":
                self.pods(**how)
            case "addNode":
                self.add_node(**how)
            case "deleteNode":
                client.delete("nodes", None, how)
            case "sleep":
                await self.world.clock.sleep(how)
            case "finishPods" | "deletePods":
                self.end_pods(how, step.get("phase", "Succeeded") if what == "finishPods" else "")
            case "patchGroup":
                self.patch_group(how, step["body"])
            case "deleteGroup":
                client.delete(GROUPS, "default", how)
            case "halvedDevice":
                self.halved_device(how)
            case _:
                raise AssertionError(f"unknown step {what}")

    # -- objects ----------------------------------------------------------------------------
    def add_node(self, name: str, gpus: int = 1, rack: str = "", **labels: str) -> None:
        """A fake node of 64 CPUs and 512 GiB."""
        if rack:
            labels[RACK] = rack
        amounts = {"cpu": "64", "memory": "512Gi", "pods": "110"}
        if gpus:
            amounts["nvidia.com/gpu"] = str(gpus)
        head = {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {"kubernetes.io/hostname": name, **labels},
        }
        status = {"capacity": amounts, "allocatable": amounts}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": head, "status": status}
        self.world.client.create("nodes", body)

    def group(
        self,
        name: str,
        minCount: int = 0,  # noqa: N803 - as the scenarios spell it
        *,
        basic: bool = False,
        disruptionMode: str = "",  # noqa: N803
        topology: str = "",
        priorityClass: str = "",  # noqa: N803
        annotations: Obj | None = None,
        **spec: Any,
    ) -> Obj:
        """A native PodGroup in the words of its version."""
        spec["schedulingPolicy"] = {"basic": {}} if basic else {"gang": {"minCount": minCount}}
        if topology:
            spec["schedulingConstraints"] = {"topology": [{"key": topology}]}
        if disruptionMode:
            words = {"Pod": {"single": {}}, "PodGroup": {"all": {}}}
            old = self.version == "v1alpha2"
            spec["disruptionMode"] = disruptionMode if old else words[disruptionMode]
        if priorityClass:
            spec["priorityClassName"] = priorityClass
        head = {"name": name, "namespace": "default", "annotations": annotations or {}}
        body = {"apiVersion": f"scheduling.k8s.io/{self.version}", "kind": "PodGroup"}
        return self.world.client.create(GROUPS, body | {"metadata": head, "spec": spec})

    def pods(
        self,
        name: str,
        *,
        group: str = "",
        gpu: int = 1,
        priorityClass: str = "",  # noqa: N803
        labels: Obj | None = None,
        claims: list[Obj] | None = None,
        scheduler: str = "",
        **spec: Any,
    ) -> None:
        """Pods of a group, or of none."""
        limits = {"cpu": "1", "memory": "1Gi"} | ({"nvidia.com/gpu": str(gpu)} if gpu else {})
        container: Obj = {"name": "c", "image": "i", "resources": {"limits": limits}}
        if claims:
            spec["resourceClaims"] = claims
            container["resources"]["claims"] = [{"name": each["name"]} for each in claims]
        if group:
            spec["schedulingGroup"] = {"podGroupName": group}
        if priorityClass:
            spec["priorityClassName"] = priorityClass
        spec = {"schedulerName": scheduler or self.scheduler, "restartPolicy": "Never", **spec}
        for each in pod_names(name):
            head = {
                "name": each,
                "namespace": "default",
                "labels": {"app": group or "single", **(labels or {})},
                "annotations": {"gpusched.io/run-for": "10h"},
            }
            body = {"apiVersion": "v1", "kind": "Pod", "metadata": head}
            self.world.client.create("pods", body | {"spec": {**spec, "containers": [container]}})

    def end_pods(self, names: str, phase: str) -> None:
        """Pods end in a phase, or are deleted at once where none is given."""
        for name in pod_names(names):
            if phase:
                body = {"status": {"phase": phase}}
                self.world.client.patch("pods", "default", name, body, subresource="status")
            else:
                self.world.client.delete("pods", "default", name, grace_s=0)

    def patch_group(self, name: str, body: Obj) -> None:
        """Change a group, where its version lets that be."""
        try:
            self.world.client.patch(GROUPS, "default", name, body)
        except StatusError:
            self.patch_taken = False

    def halved_device(self, how: Obj) -> None:
        """A device of two halves, in slices of its driver, and claims that prefer the whole."""
        driver, node = how["class"], how["node"]
        api = {"apiVersion": "resource.k8s.io/v1"}
        chosen = {"selectors": [{"cel": {"expression": f"device.driver == '{driver}'"}}]}
        self.world.client.create(
            "deviceclasses.resource.k8s.io",
            {**api, "kind": "DeviceClass", "metadata": {"name": driver}, "spec": chosen},
        )
        pool = {"name": node, "generation": 1, "resourceSliceCount": 2}
        counters = [{"name": "cs", "counters": {"w": {"value": "2"}}}]
        sizes = {"whole": ("whole", "2"), "half-1": ("half", "1"), "half-2": ("half", "1")}
        devices = [
            {
                "name": name,
                "attributes": {f"{driver}/size": {"string": size}},
                "consumesCounters": [{"counterSet": "cs", "counters": {"w": {"value": amount}}}],
            }
            for name, (size, amount) in sizes.items()
        ]
        parts = {"counters": {"sharedCounters": counters}, "devices": {"devices": devices}}
        for name, part in parts.items():
            spec = {"driver": driver, "nodeName": node, "pool": pool, **part}
            body = {**api, "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}
            self.world.client.create("resourceslices.resource.k8s.io", body)
        wants = [
            {
                "name": size,
                "deviceClassName": driver,
                "selectors": [
                    {"cel": {"expression": f"device.attributes['{driver}'].size == '{size}'"}}
                ],
            }
            for size in ("whole", "half")
        ]
        spec = {"devices": {"requests": [{"name": "r", "firstAvailable": wants}]}}
        for name in how["claims"]:
            head = {"name": name, "namespace": "default"}
            self.world.client.create(
                "resourceclaims.resource.k8s.io",
                {**api, "kind": "ResourceClaim", "metadata": head, "spec": spec},
            )

    # -- looking ----------------------------------------------------------------------------
    def conditions(self, group: str) -> dict[str, Obj]:
        """Conditions of a native group, by type."""
        status = self.world.client.get(GROUPS, "default", group).get("status") or {}
        return {each["type"]: each for each in status.get("conditions", ())}

    def condition(self, group: str) -> Obj:
        """The scheduler's condition of a native group; empty before its first cycle."""
        return self.conditions(group).get(CONDITION[self.version], {})

    def group_says(self, group: str) -> str:
        """Type, status, reason and message of all conditions of a native group."""
        return "; ".join(
            f"{name} {each['status']} {each.get('reason')}: {each.get('message')}"
            for name, each in sorted(self.conditions(group).items())
        )

    def check(self, look: Obj) -> None:
        """What a look wants holds."""
        pods = self.world.pods()
        running, waiting = Counter[str](), Counter[str]()
        for pod in pods:
            name, phase = pod["metadata"]["name"], pod["status"].get("phase")
            keys = {name, name.rpartition("-")[0] or name}
            if phase == "Running" and not pod["metadata"].get("deletionTimestamp"):
                running.update(keys)
            elif phase == "Pending" and not pod["spec"].get("nodeName"):
                waiting.update(keys)
        story = self.story(pods, look)
        wants = [look, look.get("taken" if self.patch_taken else "refused", {})]
        if "anyOf" in look:
            wants.append(self._the_one_that_holds(look["anyOf"], running, waiting))
        for want in wants:
            for kind, seen in (("running", running), ("waiting", waiting)):
                for name, count in want.get(kind, {}).items():
                    assert seen[name] == count, f"{kind} {name}: {seen[name]}, not {count}. {story}"
        for name, label in look.get("oneValueOf", {}).items():
            assert len(self.values_of(pods, name, label)) == 1, story
        for name in look.get("sameNode", ()):
            assert len(self.values_of(pods, name, "kubernetes.io/hostname")) == 1, story
        says = [pair for want in wants for pair in want.get("groupSays", {}).items()]
        for name, pattern in says:
            assert re.search(pattern, self.group_says(name)), story
        for name, pattern in look.get("podSays", {}).items():
            assert re.search(pattern, self.world.told(name).get("message", "")), story

    def _the_one_that_holds(self, wants: list[Obj], running: Any, waiting: Any) -> Obj:
        """The first alternative that holds, else the first one, which then fails the test."""
        for want in wants:
            if all(running[n] == c for n, c in want.get("running", {}).items()) and all(
                waiting[n] == c for n, c in want.get("waiting", {}).items()
            ):
                return want
        return wants[0]

    def values_of(self, pods: list[Obj], name: str, label: str) -> set[str]:
        """Values of a node label under the running pods of a name."""
        nodes = {
            pod["spec"]["nodeName"]
            for pod in pods
            if pod["metadata"]["name"].rpartition("-")[0] == name
            and pod["status"].get("phase") == "Running"
        }
        found = [self.world.client.get("nodes", None, node)["metadata"] for node in nodes]
        return {each["labels"].get(label, "") for each in found}

    def story(self, pods: list[Obj], look: Obj) -> str:
        """What a person would look at when a want is missed."""
        lines = [f"At {look['look']!r}:"]
        for pod in pods:
            name = pod["metadata"]["name"]
            where = pod["spec"].get("nodeName") or self.world.told(name).get("message")
            lines.append(f"  {name} {pod['status'].get('phase')}: {where}")
        for group in self.world.client.list(GROUPS, "default"):
            name = group["metadata"]["name"]
            lines.append(f"  group {name}: {self.group_says(name)}")
        return "\n".join(lines)
