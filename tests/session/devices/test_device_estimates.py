"""Estimates and reservations see devices that walltimes free."""

from __future__ import annotations

import pytest

from tests.session.devices.conftest import exactly, gpu

S = 10**9


@pytest.fixture
def held(given, devices):
    """Two nodes of two GPUs, held by A for 1000 s and by B for 3000 s; CPUs are free."""
    given.nodes(2)
    devices.template("one", exactly("r", "gpu"))
    for node, name, length in (("node-0", "a", 1000), ("node-1", "b", 3000)):
        devices.on_node(node, [gpu(0), gpu(1)])
        claimants(given, devices, name, 2, length=length)
        given.when.bound()
        assert given.then.started() == [name]
        assert set(given.then.nodes().values()) == {node}
    return given


def claimants(given, devices, name, pods, *, length=0, age=0):
    """A gang of pods with a device each, and its walltime."""
    devices.gang(name, pods, template="one", created=given.now - age)
    given.group(name, min_member=pods, expected_duration_ns=length * S, created=given.now - age)


def test_a_gang_is_told_when_devices_are_free(held, devices):
    claimants(held, devices, "first", 2, length=500, age=9)
    claimants(held, devices, "second", 2, length=500, age=5)
    held.when.one_session()
    first, second = held.then.status("first"), held.then.status("second")
    assert first.estimated_start == held.now + 1000
    assert second.estimated_start == held.now + 1500
    assert "default/a is to have ended" in held.then.why("first")


def test_devices_are_reserved_for_the_gang_that_waits_longest(held, devices):
    """Big needs all four when B ends; what ends before may have those of A meanwhile."""
    held.gone("a-0").gone("a-1")
    devices.ends("a-0", "a-1")
    claimants(held, devices, "big", 4, length=500, age=9)
    claimants(held, devices, "long", 1, length=5000, age=5)
    claimants(held, devices, "short", 1, length=100, age=4)
    held.when.one_session()
    assert held.then.started() == ["short"]
    assert held.then.status("big").estimated_start == held.now + 3000
    assert held.then.reason("long") == "Reserved"


def test_a_gang_without_claims_starts_beside_reserved_devices(held, devices):
    claimants(held, devices, "waits", 2, length=500, age=9)
    held.gang("cpus", pods=1, cpu=1000)
    held.when.one_session()
    assert held.then.started() == ["cpus"]


def test_a_cluster_that_has_lost_its_nodes_still_decides(held, devices):
    """Given gangs that run and wait with devices, when all nodes are gone, then waits are told and nothing breaks."""
    claimants(held, devices, "waits", 1, length=500, age=9)
    held.gang("plain", pods=1, cpu=1000)
    for node in ("node-0", "node-1"):
        held.cache.drop_node(node)
    held.when.one_session()
    assert held.decision.contained == ()
    assert "node" in held.then.why("waits")
    assert held.then.reason("plain") == held.then.reason("waits")
