"""Slots, and room, on nodes whose kubelets keep pods inside NUMA nodes."""

from __future__ import annotations

from gpusched.api.devices import published_devices
from gpusched.api.meta.identity import UID, ObjectKey, ResourceVersion
from gpusched.api.meta.resources import Resources
from gpusched.testing import entities

GPU = entities.GPU
HALVES = ((0, 1, 2, 3), (4, 5, 6, 7))


def need(gpus, **amounts):
    """What one container asks for."""
    return Resources.of({**amounts, GPU: gpus * 1000})


def report(cpu):
    """Two NUMA nodes of four GPUs and eight CPUs, of which so many thousandths are free."""
    offered = Resources.of({GPU: 4000, "cpu": 8000})
    return published_devices.NumaZones(
        name="node-0",
        uid=UID("u"),
        resource_version=ResourceVersion("1"),
        policy="single-numa-node",
        scope="container",
        zones=tuple(
            published_devices.NumaZone(f"node-{n}", offered, Resources.of({GPU: 4000, "cpu": free}))
            for n, free in enumerate(cpu)
        ),
    )


def seen(given, cpu=(8000, 8000)):
    """One node of eight GPUs in two halves with a report about it."""
    c = given.nodes(1, gpus=8, numa=HALVES, layout=[list(range(8))])
    c.cache.rows.zones.put(ObjectKey("", "node-0"), report(cpu))
    return c


def test_a_gang_waits_where_the_kubelet_would_refuse_it(given):
    """A pod of 5 GPUs needs one half; a gang of three pods of 3 needs three of them."""
    c = seen(given).gang("g", pods=1, gpus=5, aligned=[need(5)])
    c.gang("h", pods=3, gpus=2, aligned=[need(3)])
    c.when.one_session()
    assert "2 fit now" in c.then.why("h")
    assert "has no NUMA node with room for it" in c.then.why("g")
    assert c.then.plan.binds == ()


def test_slots_are_of_the_numa_node_that_has_the_cpus(given):
    """Half 0 has no CPUs left: the GPUs of half 1 are taken, although 0 would be lower."""
    want = need(2, cpu=4000)
    c = seen(given, cpu=(1000, 8000)).gang("g", pods=2, gpus=2, aligned=[want])
    c.when.bound()
    assert sorted(c.then.slots().values()) == [(4, 5), (6, 7)]


def test_room_taken_in_the_same_session_counts(given):
    """Each half has CPUs for one pod: two pods go to both halves, a third one waits."""
    want = need(1, cpu=5000)
    c = seen(given).gang("g", pods=2, gpus=1, cpu=5000, aligned=[want], created=1.0)
    c.gang("h", pods=1, gpus=1, cpu=5000, aligned=[want], created=2.0)
    c.when.one_session()
    halves = sorted(slots[0] // 4 for slots in c.then.slots().values())
    assert halves == [0, 1]
    assert c.then.started() == ["g"]
