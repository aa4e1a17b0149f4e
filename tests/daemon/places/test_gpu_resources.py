"""GPU resources that are configured: another accelerator is placed, counted and limited like a GPU."""

from __future__ import annotations

from typing import Any

from gpusched.api.meta.gpu_resources import gpu_resources_in_force
from gpusched.config.load import load_config

QUEUES = "queues.scheduling.gpusched.io"
NPU, PART = "example.com/npu", "example.com/npu-part-2g"
CONFIG = """
gpuResources:
- name: example.com/npu
  slicePrefix: example.com/npu-part-
  productLabels: [example.com/product]
  memoryLabel: example.com/memory
- name: nvidia.com/gpu
"""


def node(w: Any, name: str, amounts: dict[str, str], **annotations: str) -> None:
    """A fake node that offers so much."""
    offer = {"cpu": "96", "memory": "1Ti", "pods": "110", **amounts}
    w.client.create(
        "nodes",
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "annotations": {"kwok.x-k8s.io/node": "fake", **annotations},
                "labels": {"example.com/memory": "65536"},
            },
            "status": {
                "capacity": offer,
                "allocatable": offer,
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        },
    )


def member(w: Any, name: str, group: str, amounts: dict[str, str]) -> None:
    """A pod of a gang."""
    container = {"name": "c", "image": "i", "resources": {"limits": amounts}}
    labels = {"gpusched.io/pod-group": group}
    w.pod(name, gpus=0, labels=labels, spec={"containers": [container]})


def slots(w: Any, name: str) -> str:
    """The slots that a pod was bound with."""
    return w.client.get("pods", "default", name)["metadata"]["annotations"]["gpusched.io/slots"]


def with_npus(play: Any, tmp_path: Any, story: Any) -> None:
    """Play with a daemon that is configured so, and judge by the same resources."""
    file = tmp_path / "gpusched.yaml"
    file.write_text(CONFIG)

    async def scenario(w: Any) -> None:
        await w.start(nodes=0, stages=False)
        w.daemon(config_file=str(file))
        await story(w)

    with gpu_resources_in_force(load_config(CONFIG, source="test").gpu_resources):
        play(scenario)


def test_a_configured_resource_gets_slots_and_quota(play, tmp_path):
    """Given nodes with NPUs, when gangs ask for them, then they get slots, and queues are limited."""

    async def story(w: Any) -> None:
        for number in range(2):
            node(w, f"n{number}", {NPU: "8"})
        w.client.create(
            QUEUES,
            {
                "apiVersion": "scheduling.gpusched.io/v1alpha1",
                "kind": "Queue",
                "metadata": {"name": "team"},
                "spec": {"deserved": {NPU: "8"}, "capability": {NPU: "8"}},
            },
        )
        w.group("first", queue="team", minMember=2)
        for number in range(2):
            member(w, f"first-{number}", "first", {NPU: "4"})
        await w.until(lambda: len(w.bound("first")) == 2)
        taken = [slots(w, f"first-{number}") for number in range(2)]
        assert sorted(taken) == ["0,1,2,3", "4,5,6,7"]

        w.group("second", queue="team", minMember=2)
        for number in range(2):
            member(w, f"second-{number}", "second", {NPU: "4"})
        await w.until(lambda: w.condition("second").get("reason") == "WaitingForQuota")
        assert w.condition("second")["message"] == (
            f"needs 8 {NPU}; queue team holds 8 of its capability of 8"
        )
        await w.until(
            lambda: (
                (w.client.get(QUEUES, "", "team").get("status") or {}).get("allocated", {}).get(NPU)
                == "8"
            )
        )

    with_npus(play, tmp_path, story)


def test_slices_and_shares_are_of_the_configured_resource(play, tmp_path):
    """Given a list that begins with NPUs, then their parts are slots and fractions are of them."""

    async def story(w: Any) -> None:
        node(w, "whole", {NPU: "1", "nvidia.com/gpu": "1"})
        node(w, "parts", {PART: "3"})
        w.pod("half", gpus=0, annotations={"gpusched.io/gpu-fraction": "0.5"})
        w.pod("by-memory", gpus=0, annotations={"gpusched.io/gpu-memory": "32Gi"})
        w.group("sliced", minMember=1)
        member(w, "sliced-0", "sliced", {PART: "2"})
        await w.until(lambda: len(w.bound()) == 3)
        # Slots are numbered through the resources by name: the NPU is before the GPU.
        assert [slots(w, name) for name in ("half", "by-memory", "sliced-0")] == ["0", "0", "0,1"]

    with_npus(play, tmp_path, story)


def test_what_is_not_listed_is_an_ordinary_resource(play):
    """Given today's list, then NPUs are given without slots, as any extended resource."""

    async def scenario(w: Any) -> None:
        await w.start(nodes=0, stages=False)
        node(w, "n0", {NPU: "8"})
        w.daemon()
        w.group("first", minMember=1)
        member(w, "first-0", "first", {NPU: "4"})
        await w.until(lambda: len(w.bound("first")) == 1)
        assert slots(w, "first-0") == ""

    play(scenario)


def test_another_list_takes_a_restart(play, tmp_path):
    """Given a running daemon, when the list changes in its file, then the old one stays in force."""

    async def story(w: Any) -> None:
        node(w, "n0", {NPU: "8"})
        await w.until(lambda: w.daemons[0].leading)
        (tmp_path / "gpusched.yaml").write_text("gpuResources: [{name: nvidia.com/gpu}]\n")
        w.daemons[0].app.reload()
        await w.until(
            lambda: any(
                "gpuResources changed" in each["message"] for each in w.client.list("events")
            )
        )
        w.group("first", minMember=1)
        member(w, "first-0", "first", {NPU: "4"})
        await w.until(lambda: len(w.bound("first")) == 1)
        assert slots(w, "first-0") == "0,1,2,3"

    with_npus(play, tmp_path, story)
