"""Devices of one claim lie together where no rule tells them apart."""

from __future__ import annotations

import pytest

from gpusched.devices.search.nearness import choose_near
from tests.session.devices.conftest import Devices, exactly

ROOT = "resource.kubernetes.io/pcieRoot"
NUMA = "resource.kubernetes.io/numaNode"


def device(number, *, numa, root, name="gpu"):
    """A device with its NUMA node and PCIe root."""
    attributes = {NUMA: {"int": numa}, ROOT: {"string": f"pci{root}"}}
    return {"name": f"{name}-{number}", "attributes": attributes}


@pytest.fixture
def devices(given):
    """One node with eight GPUs in two NUMA nodes of two roots each, and a NIC under each root."""
    given.nodes(1)
    found = Devices(given)
    found.a_class("gpu", 'device.driver == "gpu.example.com"')
    found.a_class("nic", 'device.driver == "nic.example.com"')
    gpus = [device(number, numa=number // 4, root=number // 2) for number in range(8)]
    found.on_node("node-0", gpus)
    nics = [device(number, numa=number // 2, root=number, name="nic") for number in range(4)]
    return found.on_node("node-0", nics, driver="nic.example.com")


def hold(devices, *names):
    """GPUs that somebody else has."""
    results = [
        {"request": "r", "driver": "gpu.example.com", "pool": "node-0", "device": name}
        for name in names
    ]
    devices.put(
        "ResourceClaim", "held", namespace="other", status={"allocation": {"devices": {"results": results}}}
    )  # fmt: skip


def given_names(plan):
    """Names of devices by pod."""
    return {
        bind.key.name: [each.device for claim in bind.claims for each in claim.allocation.devices]
        for gang in plan.binds
        for bind in gang.binds
    }


@pytest.mark.parametrize(
    ("held", "asked", "expected"),
    [
        ([1, 2, 3], 4, [4, 5, 6, 7]),  # not gpu-0 and three of the other NUMA node
        ([1, 2, 3], 1, [0]),  # the whole NUMA node stays whole
        ([0], 2, [2, 3]),  # one root, in the NUMA node that is broken already
        ([0, 2], 2, [6, 7]),  # gpu-1 and gpu-3 have one NUMA node and two roots
        ([], 6, [2, 3, 4, 5, 6, 7]),
        ([0, 5], 5, [2, 3, 4, 6, 7]),
    ],
)
def test_a_claim_gets_devices_that_lie_together(given, devices, held, asked, expected):
    hold(devices, *(f"gpu-{number}" for number in held))
    devices.template("some", exactly("r", "gpu", asked))
    devices.gang("g", 1, template="some")
    found = given_names(given.when.one_session())
    assert found == {"g-0": [f"gpu-{number}" for number in expected]}


def test_pods_that_start_together_share_no_numa_node_where_none_must(given, devices):
    devices.template("three", exactly("r", "gpu", 3))
    devices.gang("g", 2, template="three")
    found = given_names(given.when.one_session())
    assert sorted(found.values()) == [["gpu-1", "gpu-2", "gpu-3"], ["gpu-5", "gpu-6", "gpu-7"]]


def test_a_nic_is_taken_beside_the_gpus(given, devices):
    hold(devices, "gpu-0", "gpu-1", "gpu-2", "gpu-3")
    devices.template("pair", exactly("g", "gpu", 2), exactly("n", "nic"))
    devices.gang("g", 1, template="pair")
    found = given_names(given.when.one_session())
    assert found == {"g-0": ["gpu-6", "gpu-7", "nic-3"]}


def test_items_without_any_locality_keep_their_order():
    items = ["a", "b", "c"]
    assert choose_near(items, 2, lambda _: ("", "", "", "")) == ["a", "b"]
