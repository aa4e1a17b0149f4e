"""Reclaim and preempt among holders of devices."""

from __future__ import annotations

import pytest

from gpusched.api.meta.gpu_resources import (
    DEFAULT_GPU_RESOURCES,
    DeviceQuota,
    GpuResources,
    gpu_resources_in_force,
)
from tests.session.devices.conftest import ROOT, exactly, gpu, nic

GPU = "nvidia.com/gpu"


@pytest.fixture(autouse=True)
def whole_gpus():
    """A device of class ``gpu`` counts as a GPU."""
    rows = (DeviceQuota(device_class="gpu", amounts=((GPU, 1000),)),)
    with gpu_resources_in_force(GpuResources(DEFAULT_GPU_RESOURCES.listed, device_quota=rows)):
        yield


def queues(given):
    """Two queues that deserve half of eight devices each."""
    for name in ("a", "b"):
        given.queue(name, limits={"deserved": {GPU: 4}})


def running(given, devices, name, pods, *, template="one", age=0, **fields):
    """A gang that got its places so many seconds ago."""
    devices.gang(name, pods, template=template, **fields)
    before, given.now = given.now, given.now - age
    given.when.bound()
    given.now = before
    assert name in given.then.started(), given.then.why(name)


def test_reclaim_takes_the_devices_whose_holders_lose_least(given, devices):
    given.nodes(2)
    queues(given)
    for node in ("node-0", "node-1"):
        devices.on_node(node, [gpu(number) for number in range(4)])
    devices.template("one", exactly("r", "gpu"))
    for number, age in enumerate((5000, 100, 4000, 200)):
        running(given, devices, f"b-{number}", 2, queue="b", age=age)
    devices.gang("claims", 4, template="one", queue="a")
    given.when.one_session()
    assert given.then.evicted() == ["b-1-0", "b-1-1", "b-3-0", "b-3-1"]
    assert given.then.reason("claims") == "PreemptionInProgress"


def test_nobody_is_evicted_whose_devices_are_of_another_class(given, devices):
    given.nodes(1)
    queues(given)
    devices.on_node("node-0", [gpu(0), gpu(1)])
    devices.on_node("node-0", [nic(0), nic(1)], driver="nic.example.com")
    devices.template("one", exactly("r", "gpu"))
    devices.template("nic", exactly("r", "nic"))
    running(given, devices, "young-nics", 2, template="nic", queue="b", age=10)
    running(given, devices, "old-gpus", 2, queue="b", age=9000)
    devices.pod("claims", template="one", queue="a", priority=5)
    given.queue("b", limits={"deserved": {GPU: 0}})
    given.when.one_session()
    assert given.then.evicted() == ["old-gpus-0", "old-gpus-1"]


def test_nobody_is_evicted_on_nodes_that_the_claimant_may_not_use(given, devices):
    given.nodes(1, labels={"disk": "hdd"}).nodes(1, labels={"disk": "ssd"})
    for name in ("a", "b"):
        given.queue(name, limits={"deserved": {GPU: 2}})
    for node in ("node-0", "node-1"):
        devices.on_node(node, [gpu(number) for number in range(2)])
    devices.template("one", exactly("r", "gpu"))
    running(given, devices, "first", 2, queue="b", age=10)
    running(given, devices, "second", 2, queue="b", age=9000)
    (node,) = {pod.node for pod in given.cache.by_uid.values() if pod.name.startswith("second")}
    selector = {"disk": "ssd" if node == "node-1" else "hdd"}
    devices.gang("claims", 2, template="one", queue="a", node_selector=selector)
    given.when.one_session()
    assert given.then.evicted() == ["second-0", "second-1"]


def test_cpus_that_leave_are_no_devices(given, devices):
    """The cheapest victims by amounts hold no device at all."""
    given.nodes(1, cpu=64_000)
    queues(given)
    devices.on_node("node-0", [gpu(0), gpu(1)])
    devices.template("one", exactly("r", "gpu"))
    running(given, devices, "holder", 2, queue="b", age=9000)
    given.gang("cpus", pods=4, queue="b", cpu=1000)
    given.when.bound()
    given.queue("b", limits={"deserved": {GPU: 0, "cpu": 0}})
    devices.pod("claims", template="one", queue="a")
    given.when.one_session()
    assert given.then.evicted() == ["holder-0", "holder-1"]


def test_preempt_takes_the_devices_of_lower_priority_in_the_queue(given, devices):
    given.nodes(1)
    devices.on_node("node-0", [gpu(number) for number in range(4)])
    devices.template("one", exactly("r", "gpu"))
    running(given, devices, "old", 2, queue="default", age=9000)
    running(given, devices, "young", 2, queue="default", age=10)
    devices.gang("urgent", 2, template="one", queue="default", priority=10)
    given.when.one_session()
    assert given.then.evicted() == ["young-0", "young-1"]
    assert {b for c in given.then.plan.preemptions for _, _, b in c.nominations} == {"node-0"}


def test_constraints_are_seen_when_victims_are_chosen(given, devices):
    """Two GPUs under one root: one by one the cheapest are under two, and pairs cost 101 and 150."""
    given.nodes(1)
    devices.on_node("node-0", [gpu(number) for number in range(4)])
    devices.template("two", exactly("r", "gpu", 2), constraints=[{"matchAttribute": ROOT}])
    for number, age in enumerate((1, 100, 60, 90)):
        text = f'device.attributes["resource.kubernetes.io"].pcieRoot == "pci{number // 2}"'
        request = exactly("r", "gpu")
        request["exactly"]["selectors"] = [{"cel": {"expression": text}}]
        devices.template(f"of-root-{number}", request)
        running(given, devices, f"g-{number}", 1, template=f"of-root-{number}", age=age)
    devices.gang("urgent", 1, template="two", queue="default", priority=10)
    given.when.one_session()
    assert given.then.evicted() == ["g-0-0", "g-1-0"]


def test_devices_of_victims_are_kept_for_the_gang_they_were_taken_for(given, devices):
    """Also after a restart: what is nominated stands on the pods."""
    given.nodes(1)
    devices.on_node("node-0", [gpu(0), gpu(1)])
    devices.template("one", exactly("r", "gpu"))
    running(given, devices, "old", 2, queue="default", age=9000)
    devices.gang("urgent", 2, template="one", queue="default", priority=10)
    given.when.carried_out(gone=False)
    assert given.then.evicted() == ["old-0", "old-1"]
    devices.gang("thief", 1, template="one", queue="default", priority=10)
    given.session_cache = type(given.session_cache)()  # a daemon that knows nothing yet
    given.when.one_session()
    assert given.then.started() == []
    for name in ("old-0", "old-1"):
        given.gone(name)
    devices.ends("old-0", "old-1")
    given.when.one_session()
    assert given.then.started() == ["urgent"], given.then.why("urgent")


def test_a_claimant_whose_devices_nobody_holds_evicts_nobody(given, devices):
    given.nodes(1)
    devices.on_node("node-0", [gpu(0)])
    devices.template("one", exactly("r", "gpu"))
    devices.template("two", exactly("r", "gpu", 2))
    running(given, devices, "old", 1, queue="default", age=10)
    devices.gang("urgent", 1, template="two", queue="default", priority=10)
    given.when.one_session()
    assert given.then.evicted() == []


def test_a_gang_of_several_classes_takes_the_cheapest_devices(given, devices):
    """Several classes: a gang of a launcher without devices and workers with them."""
    given.nodes(1)
    devices.on_node("node-0", [gpu(number) for number in range(4)])
    devices.template("one", exactly("r", "gpu"))
    running(given, devices, "old", 2, queue="default", age=9000)
    running(given, devices, "young", 2, queue="default", age=10)
    given.group("mixed", min_member=3)
    given.pod("mixed-0", group="mixed", priority=10, rank=0, cpu=500)
    for number in (1, 2):
        devices.pod(f"mixed-{number}", group="mixed", template="one", priority=10, rank=number)
    given.when.one_session()
    assert given.then.evicted() == ["young-0", "young-1"]
