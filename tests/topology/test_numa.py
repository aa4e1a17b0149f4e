"""Pods on nodes whose kubelets keep them inside NUMA nodes."""

from __future__ import annotations

import random
from itertools import product

import msgspec
import pytest

from gpusched.api.devices import published_devices
from gpusched.api.devices.gpu_layout import FLAT, GpuLayout
from gpusched.api.devices.numa import NumaNode, NumaTopology, aligned_requests
from gpusched.api.meta.resources import Resources
from gpusched.testing import entities
from gpusched.topology.numa_admission import (
    build_numa_topology,
    free_numa_room,
    numa_nodes_that_hold,
    pods_that_fit,
)

GPU = entities.GPU
HALVES = ((0, 1, 2, 3), (4, 5, 6, 7))


def need(gpus=0, **amounts):
    """What one container asks for."""
    return Resources.of({**amounts, **({GPU: gpus * 1000} if gpus else {})})


def two(policy="single-numa-node", *, whole=False, cpu=(8000, 8000), slots=(0x0F, 0xF0)):
    """Two NUMA nodes."""
    cells = tuple(
        NumaNode(mask, Resources.of({"cpu": 8000}), Resources.of({"cpu": free}))
        for mask, free in zip(slots, cpu, strict=True)
    )
    return NumaTopology(policy, whole, cells)


def fit(numa, *needs, free=0xFF, most=99):
    """How many pods fit."""
    return pods_that_fit(numa, needs, free_numa_room(numa, free), most=most)


def test_a_pod_of_one_container_needs_one_numa_node():
    """Four GPUs a half: two pods of 4, none of 5; restricted takes one of 5 over both."""
    assert fit(two(), need(4)) == 2
    assert fit(two(), need(3)) == 2
    assert fit(two(), need(5)) == 0
    assert fit(two("restricted"), need(5)) == 1
    assert fit(two("restricted"), need(9)) == 0


def test_what_is_free_must_be_in_one_place():
    """Four free GPUs, two in each half: no pod of 3, and restricted does not spread it either."""
    assert fit(two(), need(3), free=0b00110011) == 0
    assert fit(two("restricted"), need(3), free=0b00110011) == 0
    assert fit(two("restricted"), need(6), free=0b01110111) == 1


def test_cpus_and_gpus_are_of_the_same_numa_node():
    """GPUs free in one half and CPUs in the other: refused."""
    assert fit(two(cpu=(0, 8000)), need(2, cpu=4000), free=0x0F) == 0
    assert fit(two(cpu=(8000, 0)), need(2, cpu=4000), free=0x0F) == 2
    assert fit(two(cpu=(0, 8000)), need(2), free=0x0F) == 2


def test_scope_decides_what_is_kept_together():
    """Two containers of 3 GPUs: each in its half, or the whole pod in none."""
    assert fit(two(), need(3), need(3)) == 1
    assert fit(two(whole=True), need(3), need(3)) == 0
    assert fit(two(whole=True), need(2), need(2)) == 2


def test_what_no_numa_node_reports_is_kept_nowhere():
    """Memory is not in the report, and no GPU is: nothing keeps the pod away."""
    assert fit(two(), need(1, memory=10**15)) == 8
    assert fit(two(slots=(0, 0)), need(8), most=1) == 1


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_equal_pods_are_counted_exactly(size):
    """Against trying every number of pods in each NUMA node."""
    rng = random.Random(size)
    for _ in range(200):
        free, cpus = rng.randrange(256), (rng.randrange(9000), rng.randrange(9000))
        numa = two(cpu=cpus)
        want = need(size, cpu=rng.randrange(1, 4) * 1000)
        best = max(
            a + b
            for a, b in product(range(9), repeat=2)
            if all(
                n * size <= (cell.slots & free).bit_count() and n * want.get("cpu") <= cpu
                for n, cell, cpu in zip((a, b), numa.cells, cpus, strict=True)
            )
        )
        assert fit(numa, want, free=free) == best


def test_only_numa_nodes_with_room_may_hold_the_slots():
    """The half without CPUs is no choice; a pod that spans has none to be held to."""
    numa = two(cpu=(1000, 8000))
    assert numa_nodes_that_hold(numa, [need(2, cpu=2000)], free_numa_room(numa, 0xFF)) == (0xF0,)
    wide = two("restricted")
    assert numa_nodes_that_hold(wide, [need(6)], free_numa_room(wide, 0xFF)) == ()
    assert numa_nodes_that_hold(numa, [need(1), need(1)], free_numa_room(numa, 0xFF)) == ()


# -- whom it concerns ------------------------------------------------------------------------
def test_gpus_of_every_pod_and_whole_cpus_of_guaranteed_ones():
    """As the kubelet's managers hint: shared CPUs are kept nowhere."""
    both = need(2, cpu=4000, memory=1024)
    half = need(2, cpu=4500, memory=1024)
    assert aligned_requests([(both, both)]) == (need(2, cpu=4000, memory=1024),)
    assert aligned_requests([(half, half)]) == (need(2, memory=1024),)
    assert aligned_requests([(both, need(2))]) == (need(2),)
    assert aligned_requests([(need(cpu=4000), need())]) == ()


# -- reports ---------------------------------------------------------------------------------
def report(*, gpus=(4, 4), attributes=True, policy="single-numa-node", cpu=("8", "8")):
    """A NodeResourceTopology from JSON to entity."""
    zones = [
        {
            "name": f"node-{number}",
            "type": "Node",
            "resources": [
                {"name": GPU, "capacity": str(n), "allocatable": str(n), "available": str(n)},
                {"name": "cpu", "capacity": "8", "allocatable": "8", "available": free},
            ],
        }
        for number, (n, free) in enumerate(zip(gpus, cpu, strict=True))
    ]
    named = [
        {"name": "topologyManagerPolicy", "value": policy},
        {"name": "topologyManagerScope", "value": "pod"},
    ]
    raw = {
        "metadata": {"name": "node-0", "uid": "u", "resourceVersion": "1"},
        "zones": zones,
        **(
            {"attributes": named}
            if attributes
            else {"topologyPolicies": ["SingleNUMANodePodLevel"]}
        ),
    }
    parsed = msgspec.json.decode(
        msgspec.json.encode(raw), type=published_devices.NodeResourceTopology
    )
    return published_devices.decode_numa_zones(parsed)


@pytest.mark.parametrize("attributes", [True, False])
def test_policy_and_scope_are_read_from_either_form(attributes):
    """Attributes, or the older topologyPolicies."""
    numa = build_numa_topology(report(attributes=attributes), FLAT, {GPU: range(8)})
    assert (numa.policy, numa.whole_pods) == ("single-numa-node", True)


@pytest.mark.parametrize("policy", ["none", "best-effort", ""])
def test_other_policies_refuse_nobody(policy):
    """Only single-numa-node and restricted do."""
    assert build_numa_topology(report(policy=policy), FLAT, {GPU: range(8)}) is None


def test_gpus_of_numa_nodes_come_from_the_layout_that_agrees():
    """Else they are counted off in order."""
    crossed = GpuLayout(HALVES, ((0, 2, 4, 6), (1, 3, 5, 7)))
    numa = build_numa_topology(report(), crossed, {GPU: range(8)})
    assert [cell.slots for cell in numa.cells] == [0b01010101, 0b10101010]
    numa = build_numa_topology(report(gpus=(6, 2)), crossed, {GPU: range(8)})
    assert [cell.slots for cell in numa.cells] == [0b00111111, 0b11000000]
