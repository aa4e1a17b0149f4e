"""Devices of fake nodes: what drivers publish, and that it comes and goes with the node."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpusched.cel.device_selectors import compile_selector, make_device_view
from gpusched.devcluster.controllers.nodes.devices.device_entries import (
    DeviceEntriesError,
    read_device_entries,
    read_device_text,
)
from gpusched.devcluster.controllers.nodes.devices.gpu_models import ENGINES, MODELS
from gpusched.devcluster.controllers.nodes.devices.published_slices import classes_of, slices_of

SLICES = "resourceslices.resource.k8s.io"
CLASSES = "deviceclasses.resource.k8s.io"
POOLS = "nodepools.devcluster.gpusched.io"
ANNOTATION = "devcluster.gpusched.io/devices"
ROOT = "resource.kubernetes.io/pcieRoot"
ALL = read_device_entries(
    [
        {"kind": "gpu", "count": 4},
        {"kind": "mig", "count": 4, "model": "A100"},
        {"kind": "nic", "count": 2},
        {"kind": "channels", "count": 130},
    ]
)


def pool(replicas: int, *devices: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "devcluster.gpusched.io/v1alpha1",
        "kind": "NodePool",
        "metadata": {"name": "p"},
        "spec": {"replicas": replicas, "devices": list(devices), "template": {}},
    }


def devices_by_name(slices: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for one in slices for each in one["spec"].get("devices", ())}


def roots(devices: dict[str, dict[str, Any]], *names: str) -> list[str]:
    return [devices[name]["attributes"][ROOT]["string"] for name in names]


def names(cluster: Any, kind: str = SLICES) -> list[str]:
    return [each["metadata"]["name"] for each in cluster.client.list(kind)]


def test_gpus_and_nics_share_roots() -> None:
    """Eight GPUs and two NICs hang under two roots, four GPUs and a NIC under each."""
    devices = devices_by_name(slices_of("n", ALL))
    first, second = roots(devices, "eth1", "eth2")
    assert first != second
    assert roots(devices, "gpu-0", "gpu-3") == [first, first]
    assert roots(devices, "gpu-4", "gpu-7", "gpu-7-mig-1g10gb-19-0") == [second, second, second]


def test_pools_are_whole() -> None:
    """Each driver has one pool of the node's name, whose slices say how many they are."""
    slices = slices_of("n", ALL)
    drivers = [each["spec"]["driver"] for each in slices]
    for each in slices:
        assert each["spec"]["pool"] == {
            "name": "n",
            "generation": 1,
            "resourceSliceCount": drivers.count(each["spec"]["driver"]),
        }
    found = [device["name"] for each in slices for device in each["spec"].get("devices", ())]
    assert len(found) == len(set(found)) == 8 + 4 * 14 + 2 + 131


@pytest.mark.parametrize("model", [name for name, each in MODELS.items() if each.profiles])
def test_partitions_take_what_the_gpu_has(model: str) -> None:
    """The whole GPU takes every counter; no partition takes one that is not there, or too much."""
    entries = read_device_entries([{"kind": "mig", "model": model}])
    sets, devices = slices_of("n", entries)
    (counters,) = sets["spec"]["sharedCounters"]
    whole, *partitions = devices["spec"]["devices"]
    assert whole["consumesCounters"][0]["counters"] == counters["counters"]
    for each in partitions:
        (used,) = each["consumesCounters"]
        assert used["counterSet"] == counters["name"]
        for name, amount in used["counters"].items():
            most = counters["counters"][name]["value"]
            assert int(amount["value"].removesuffix("Mi")) <= int(most.removesuffix("Mi"))


def test_seven_sevenths_fit_at_once() -> None:
    """The smallest partitions of all seven places fit one GPU together, by every counter."""
    for model in (each for each in MODELS.values() if each.profiles):
        smallest = model.profiles[0]
        assert len(smallest.starts) == 7
        assert 7 * smallest.memory <= model.memory
        for amount, most, name in zip(smallest.engines, model.engines, ENGINES, strict=True):
            assert 7 * amount <= most, name


def test_ids_follow_the_node() -> None:
    """The same node has the same devices in every run, another one has others."""
    assert slices_of("n", ALL) == slices_of("n", ALL)
    ids = [
        each["attributes"]["uuid"]["string"]
        for node in ("n", "m")
        for each in devices_by_name(slices_of(node, ALL)).values()
        if "uuid" in each["attributes"]
    ]
    assert len(ids) == len(set(ids))


def test_classes_choose_by_type() -> None:
    """A device of each type is of the class of its name alone."""
    chosen: dict[str, list[str]] = {}
    for one in slices_of(
        "n", read_device_entries([{"kind": k} for k in ("mig", "nic", "channels")])
    ):
        driver = one["spec"]["driver"]
        for device in one["spec"].get("devices", ()):
            values = {
                name if "/" in name else f"{driver}/{name}": next(iter(value.values()))
                for name, value in device["attributes"].items()
            }
            view = make_device_view(driver, values, {}, shareable=False)
            for each in classes_of(ALL):
                text = each["spec"]["selectors"][0]["cel"]["expression"]
                if driver in text and compile_selector(text).matches(view):
                    chosen.setdefault(each["metadata"]["name"], []).append(device["name"])
    assert len(chosen.pop("mig.nvidia.com")) == 18
    assert chosen == {
        "gpu.nvidia.com": ["gpu-0"],
        "dranet": ["eth1"],
        "compute-domain-daemon.nvidia.com": ["daemon-0"],
        "compute-domain-default-channel.nvidia.com": ["channel-0"],
    }


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nothing", "a list in JSON"),
        ('{"kind": "gpu"}', "a list in JSON"),
        ('[{"kind": "tpu"}]', r"devices\[0\].kind: must be one of gpu, mig, nic, channels"),
        ('[{"kind": "gpu", "count": 0}]', r"devices\[0\].count: must be a whole number of 1"),
        ('[{"kind": "mig", "model": "L40S"}]', "L40S has no MIG; H100, A100, A100-40 have"),
        ('[{"kind": "gpu", "size": 1}]', "size is unknown; known: kind, count, model"),
        ('[{"kind": "gpu", "count": 60}, {"kind": "mig", "count": 5}]', "65 of kind gpu and mig"),
    ],
)
def test_entries_that_mean_nothing(text: str, why: str) -> None:
    """The sentence names the entry and what it may say."""
    with pytest.raises(DeviceEntriesError, match=why):
        read_device_text(text)


async def test_slices_come_and_go_with_their_nodes(start: Any) -> None:
    """A pool's nodes have slices; those of a node that goes are collected, and come back with it."""
    cluster = await start(stages=True)
    devices = ({"kind": "mig", "count": 3}, {"kind": "nic"}, {"kind": "channels"})
    cluster.client.create(POOLS, pool(2, *devices))
    await cluster.clock.advance(1)
    assert names(cluster) == sorted(
        each["metadata"]["name"]
        for node in ("p-0", "p-1")
        for each in slices_of(node, read_device_entries(devices))
    )
    assert names(cluster, CLASSES) == sorted(
        each["metadata"]["name"] for each in classes_of(read_device_entries(devices))
    )
    cluster.client.patch(POOLS, None, "p", {"spec": {"replicas": 1}}, subresource=None)
    await cluster.clock.advance(1)
    assert {each["spec"]["nodeName"] for each in cluster.client.list(SLICES)} == {"p-0"}
    cluster.client.delete("nodes", None, "p-0")
    await cluster.clock.advance(1)
    node = cluster.client.get("nodes", None, "p-0")
    owners = {
        owner["uid"]
        for each in cluster.client.list(SLICES)
        for owner in each["metadata"]["ownerReferences"]
    }
    assert owners == {node["metadata"]["uid"]}


async def test_changed_devices_are_a_new_generation(start: Any) -> None:
    """A failed device leaves the pool in its next generation; a slice that is deleted comes back."""
    cluster = await start(stages=True)
    cluster.client.create(POOLS, pool(1, {"kind": "gpu", "count": 2}))
    await cluster.clock.advance(1)
    less = json.dumps([{"kind": "gpu", "count": 2, "without": ["gpu-1"]}])
    patch = {"metadata": {"annotations": {ANNOTATION: less}}}
    cluster.client.patch("nodes", None, "p-0", patch)
    await cluster.clock.advance(1)
    (after,) = cluster.client.list(SLICES)
    assert [each["name"] for each in after["spec"]["devices"]] == ["gpu-0"]
    assert after["spec"]["pool"]["generation"] == 2
    cluster.client.delete(SLICES, None, after["metadata"]["name"])
    await cluster.clock.advance(1)
    assert names(cluster) == ["p-0-gpu.nvidia.com-0"]
    cluster.client.patch("nodes", None, "p-0", {"metadata": {"annotations": {ANNOTATION: None}}})
    await cluster.clock.advance(1)
    assert names(cluster) == []


async def test_wrong_devices_of_a_node_are_an_event(start: Any) -> None:
    """An annotation that means nothing is told on the node, and nothing else is held up."""
    cluster = await start(stages=True)
    for name, text in (("bad", "[3]"), ("good", '[{"kind": "nic"}]')):
        node = {"metadata": {"name": name, "annotations": {ANNOTATION: text}}}
        cluster.client.create("nodes", {"apiVersion": "v1", "kind": "Node", **node})
    await cluster.clock.advance(1)
    assert names(cluster) == ["good-dra.net-0"]
    (told,) = [e for e in cluster.client.list("events") if e["reason"] == "DevicesRefused"]
    assert told["involvedObject"]["name"] == "bad"
    assert "devices[0]: must be a mapping" in told["message"]
