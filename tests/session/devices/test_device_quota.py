"""Devices of claims count against the quota of queues."""

from __future__ import annotations

from contextlib import contextmanager

import attrs
import pytest

from gpusched.api.devices.dynamic.claims import PodClaim
from gpusched.api.meta.gpu_resources import (
    DEFAULT_GPU_RESOURCES,
    DeviceQuota,
    GpuResources,
    gpu_resources_in_force,
)
from gpusched.api.meta.identity import ObjectKey
from gpusched.api.meta.resources import Resources
from gpusched.api.queue.queue import NodePool
from gpusched.testing import entities
from tests.session.devices.conftest import exactly, gpu

GPU = "nvidia.com/gpu"
KIND = 'device.attributes["gpu.example.com"].kind'


@contextmanager
def table(*rows):
    """A table in force."""
    resources = GpuResources(DEFAULT_GPU_RESOURCES.listed, device_quota=rows)
    with gpu_resources_in_force(resources):
        yield


@pytest.fixture(autouse=True)
def whole_gpus():
    """A device of class ``gpu`` counts as a GPU."""
    with table(DeviceQuota(device_class="gpu", amounts=((GPU, 1000),))):
        yield


def charged(given, queue="a"):
    """GPUs in thousandths that a queue holds, as its status tells."""
    return given.then.queue(queue).allocated.get(GPU)


def requested(given, queue="a"):
    """GPUs in thousandths that a queue holds or waits for."""
    return given.then.queue(queue).requested.get(GPU)


def test_devices_of_running_pods_are_in_the_status_of_the_queue(given, devices):
    given.nodes(1).queue("a")
    devices.on_node("node-0", [gpu(0), gpu(1), gpu(2)])
    devices.template("two", exactly("r", "gpu", 2))
    devices.pod("p", template="two", queue="a")
    given.when.bound()
    given.when.one_session()
    assert charged(given) == 2000


def test_a_gang_above_the_capability_is_refused_by_its_devices(given, devices):
    given.nodes(1).queue("a", limits={"capability": {GPU: 3}})
    devices.on_node("node-0", [gpu(number) for number in range(8)])
    devices.template("two", exactly("r", "gpu", 2))
    devices.gang("g", 2, template="two", queue="a")
    given.group("g", min_member=2, queue="a")
    given.when.one_session()
    assert given.then.started() == []
    assert given.then.reason("g") == "QuotaExceeded"
    assert (
        "needs 4 nvidia.com/gpu for 4 devices of class gpu; queue a never gets more than its "
        "capability of 3" in given.then.why("g")
    )


def test_fair_shares_divide_the_devices_that_there_are(given, devices):
    given.nodes(2).queue("a").queue("b")
    for node in ("node-0", "node-1"):
        devices.on_node(node, [gpu(number) for number in range(4)])
    devices.template("one", exactly("r", "gpu"))
    for number in range(8):
        for queue in ("a", "b"):
            devices.pod(f"{queue}-{number}", template="one", queue=queue)
    given.when.one_session()
    held = list(given.then.started())
    assert sorted(name[0] for name in held) == ["a"] * 4 + ["b"] * 4
    assert given.then.queue("a").fair_share.get(GPU) == 4000


def part(name, amount, kind):
    """A partition of a card with seven slots."""
    consumed = [{"counterSet": "slots", "counters": {"slot": {"value": amount}}}]
    return {
        "name": name, "consumesCounters": consumed, "attributes": {"kind": {"string": kind}},
    }  # fmt: skip


SLOTS = [{"name": "slots", "counters": {"slot": {"value": "7"}}}]


def subrequest(kind):
    """An alternative that takes partitions of one kind."""
    return {
        "name": kind,
        "deviceClassName": "gpu",
        "selectors": [{"cel": {"expression": f'{KIND} == "{kind}"'}}],
    }


def test_a_partition_counts_as_its_part_of_the_card(given, devices):
    given.nodes(1).queue("a")
    parts = [part("whole", "7", "whole"), *(part(f"s{n}", "1", "seventh") for n in range(7))]
    devices.on_node("node-0", parts, counters=SLOTS)
    devices.template("seventh", {"name": "r", "firstAvailable": [subrequest("seventh")]})
    for number in range(7):
        devices.pod(f"p-{number}", template="seventh", queue="a")
    given.when.bound()
    given.when.one_session()
    assert charged(given) == 7 * 142  # never more than the card
    assert given.snapshot.device_totals["node-0"].get(GPU) == 1000


def test_an_alternative_counts_as_the_dearest_until_it_is_placed(given, devices):
    given.nodes(1).queue("a", limits={"capability": {GPU: 2}})
    parts = [part("whole", "7", "whole"), *(part(f"s{n}", "2", "small") for n in range(3))]
    devices.on_node("node-0", parts, counters=SLOTS)
    devices.template(
        "any", {"name": "r", "firstAvailable": [subrequest("whole"), subrequest("small")]}
    )
    for number in range(2):
        devices.pod(f"p-{number}", template="any", queue="a")
    given.when.one_session()
    assert requested(given) == 2000
    given.when.bound()
    given.when.one_session()
    assert charged(given) in (1000, 2 * 285)


def test_all_devices_count_as_what_is_allocated(given, devices):
    given.nodes(1).nodes(1, labels={"disk": "ssd"}).queue("a")
    devices.on_node("node-0", [gpu(number) for number in range(4)])
    devices.on_node("node-1", [gpu(number) for number in range(2)])
    devices.template(
        "all", {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}
    )
    devices.pod("p", template="all", queue="a", node_selector={"disk": "ssd"})
    given.when.one_session()
    assert requested(given) == 4000  # no node has more
    given.when.bound()
    given.when.one_session()
    assert charged(given) == 2000


def test_devices_for_administration_count_as_nothing(given, devices):
    given.nodes(1).queue("a", limits={"capability": {GPU: 0}})
    devices.on_node("node-0", [gpu(0)])
    devices.template(
        "admin", {"name": "r", "exactly": {"deviceClassName": "gpu", "adminAccess": True}}
    )
    devices.pod("p", template="admin", queue="a")
    given.when.bound()
    assert given.then.nodes() == {"p": "node-0"}
    given.when.one_session()
    assert charged(given) == 0


def test_what_others_hold_is_not_divided(given, devices):
    given.nodes(1).queue("a")
    devices.on_node("node-0", [gpu(number) for number in range(4)])
    devices.template("one", exactly("r", "gpu"))
    devices.put(
        "ResourceClaim", "theirs", namespace="default",
        spec={"devices": {"requests": [exactly("r", "gpu")]}},
        status={
            "reservedFor": [{"resource": "pods", "name": "x", "uid": "not-ours"}],
            "allocation": {
                "devices": {
                    "results": [
                        {"request": "r", "driver": "gpu.example.com", "pool": "node-0", "device": "gpu-0"}
                    ]
                }
            },
        },
    )  # fmt: skip
    given.when.one_session()
    assert given.snapshot.device_totals["node-0"].get(GPU) == 3000


def test_a_selector_counts_devices_of_any_class(given, devices):
    given.nodes(1).queue("a")
    devices.on_node("node-0", [gpu(0)])
    devices.a_class("anything", "true")
    devices.template("one", exactly("r", "anything"))
    devices.pod("p", template="one", queue="a")
    with table(DeviceQuota(selector='device.driver == "gpu.example.com"', amounts=((GPU, 2000),))):
        given.when.bound()
        given.when.one_session()
        assert charged(given) == 2000


def test_a_capacity_is_an_amount(given, devices):
    given.nodes(1).queue("a", limits={"capability": {"example.com/memory": 150 * 2**30}})
    devices.on_node(
        "node-0", [gpu(number, capacity={"memory": {"value": "80Gi"}}) for number in range(4)]
    )
    devices.template("one", exactly("r", "gpu"))
    for number in range(3):
        devices.pod(f"p-{number}", template="one", queue="a")
    with table(DeviceQuota(device_class="gpu", capacities=(("example.com/memory", "memory"),))):
        given.when.one_session()
        (started,) = given.then.started()
        (waits, _) = sorted({"p-0", "p-1", "p-2"} - {started})
        assert "queue a holds" in given.then.why(waits)


def test_a_share_counts_as_its_part_of_the_capacity(given, devices):
    given.nodes(1).queue("a")
    shared = gpu(0, capacity={"memory": {"value": "80Gi"}}, allowMultipleAllocations=True)
    devices.on_node("node-0", [shared])
    request = exactly("r", "gpu")
    request["exactly"]["capacity"] = {"requests": {"memory": "20Gi"}}
    devices.template("quarter", request)
    for number in range(3):
        devices.pod(f"p-{number}", template="quarter", queue="a")
    given.when.one_session()
    assert requested(given) == 750
    given.when.bound()
    given.when.one_session()
    assert charged(given) == 750


def shared(devices, name, *users):
    """A claim that pods name, with a device of node-0."""
    given = [{"request": "r", "driver": "gpu.example.com", "pool": "node-0", "device": "gpu-0"}]
    users = [{"resource": "pods", "name": each, "uid": given_uid(devices, each)} for each in users]
    return devices.put(
        "ResourceClaim", name, namespace="default",
        spec={"devices": {"requests": [exactly("r", "gpu")]}},
        status={"reservedFor": users, "allocation": {"devices": {"results": given}}},
    )  # fmt: skip


def given_uid(devices, name):
    """UID of a pod by its name."""
    return devices.given.cache.pods[ObjectKey("default", name)].uid


def test_a_claim_that_several_pods_share_counts_once(given, devices):
    given.nodes(1).queue("a").queue("b")
    devices.on_node("node-0", [gpu(0), gpu(1)])
    named = entities.pod_class(claims=(PodClaim(name="c", claim="s"),), namespace="default")
    for name, queue, born in (("old", "a", 1), ("young", "b", 2)):
        given.pod(name, spec=named, queue=queue, created=entities.BORN + born)
    shared(devices, "s")
    given.when.one_session()
    assert (requested(given, "a"), requested(given, "b")) == (1000, 0)
    shared(devices, "s", "young")
    given.when.one_session()
    assert (requested(given, "a"), requested(given, "b")) == (0, 1000)
    given.gone("young")
    given.when.one_session()
    assert (requested(given, "a"), requested(given, "b")) == (1000, 0)


def test_a_gang_that_shares_a_claim_is_placed_and_charged_once(given, devices):
    """The pod that is charged is of another class, and told apart by nothing else."""
    given.nodes(2, cpu=3000).queue("a", limits={"capability": {GPU: 1}})
    for node in ("node-0", "node-1"):
        devices.on_node(node, [gpu(0)])
    named = entities.pod_class(claims=(PodClaim(name="c", claim="s"),), namespace="default")
    devices.put(
        "ResourceClaim", "s", namespace="default",
        spec={"devices": {"requests": [exactly("r", "gpu")]}},
    )  # fmt: skip
    given.group("g", min_member=4, queue="a")
    for number in range(4):
        given.pod(f"g-{number}", spec=named, group="g", rank=number)
    given.when.one_session()
    assert requested(given) == 1000
    assert "the best of 2 nodes takes 3 of them now" in given.then.why("g")
    given.gone("g-3").group("g", min_member=3, queue="a")
    given.when.bound()
    assert len(set(given.then.nodes().values())) == 1
    given.when.one_session()
    assert charged(given) == 1000


def test_without_a_table_devices_count_as_nothing(given, devices):
    given.nodes(1).queue("a", limits={"capability": {GPU: 0}})
    devices.on_node("node-0", [gpu(0)])
    devices.template("one", exactly("r", "gpu"))
    devices.pod("p", template="one", queue="a")
    with table():
        given.when.bound()
        assert given.then.nodes() == {"p": "node-0"}
        given.when.one_session()
        assert charged(given) == 0


def test_a_pod_without_claims_keeps_its_class(given, devices):
    given.nodes(1).queue("a").pod("p", queue="a")
    devices.on_node("node-0", [gpu(0)])
    before = given.cache.pods[ObjectKey("default", "p")].pod_class
    given.when.one_session()
    assert given.cache.pods[ObjectKey("default", "p")].pod_class is before
    assert before.charged is before.requests


def test_devices_count_in_the_node_pool_of_their_node(given, devices):
    labels = {"nvidia.com/gpu.product": "H100"}
    given.nodes(1, labels=labels).nodes(1, labels={"nvidia.com/gpu.product": "A100"})
    pool = NodePool(
        name="h100",
        node_selector=tuple(labels.items()),
        deserved=Resources(),
        capability=Resources.of({GPU: 2000}),
    )
    given.queue("a", node_pools=(pool,))
    for node in ("node-0", "node-1"):
        devices.on_node(node, [gpu(number) for number in range(4)])
    devices.template("one", exactly("r", "gpu"))
    for number in range(8):
        devices.pod(f"p-{number}", template="one", queue="a")
    given.when.one_session()
    assert sorted(given.then.nodes().values()) == ["node-0"] * 2 + ["node-1"] * 4


def test_devices_of_heavier_nodes_weigh_more(given, devices):
    rows = (DeviceQuota(device_class="gpu", amounts=((GPU, 1000),)),)
    heavy = GpuResources(
        DEFAULT_GPU_RESOURCES.listed, type_weights=(("h100", 2500),), device_quota=rows
    )
    given.nodes(1, labels={"nvidia.com/gpu.product": "H100"}).queue("a")
    devices.on_node("node-0", [gpu(0), gpu(1)])
    devices.template("two", exactly("r", "gpu", 2))
    devices.pod("p", template="two", queue="a")
    with gpu_resources_in_force(heavy):
        given.when.bound()
        given.when.one_session()
        assert charged(given) == 5000


def test_a_suspended_job_requests_devices_of_its_templates(given, devices):
    given.nodes(1).queue("a", limits={"capability": {GPU: 3}})
    devices.on_node("node-0", [gpu(number) for number in range(8)])
    devices.template("two", exactly("r", "gpu", 2))
    given.job("j", parallelism=2, completions=2, suspended=True, queue="a")
    key = ObjectKey("default", "j")
    job = given.cache.jobs.items[key]
    named = entities.pod_class(claims=(PodClaim(name="c", template="two"),), namespace="default")
    template = attrs.evolve(job.template, pod_class=named)
    given.cache.put_job(key, attrs.evolve(job, template=template))
    given.when.one_session()
    assert requested(given) == 4000
    assert given.then.plan.job_changes == ()
