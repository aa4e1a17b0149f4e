"""What is said of a gang that finds no devices: which request, how many match, what keeps them away."""

from __future__ import annotations

import pytest

from gpusched.api.gang.pod_group import TopologyRequest
from tests.session.devices.conftest import ROOT, exactly, gpu, nic


def allocated(*devices, pod="", request="r", driver="gpu.example.com", pool="node-0", **more):
    """Status of a claim whose devices a pod uses."""
    results = [
        {"request": request, "driver": driver, "pool": pool, "device": name, **more}
        for name in devices
    ]
    status = {"allocation": {"devices": {"results": results}}}
    if pod:
        status["reservedFor"] = [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"}]
    return status


def kind_is(kind):
    """A request for a partition of one kind."""
    text = f'device.attributes["gpu.example.com"].kind == "{kind}"'
    selectors = [{"cel": {"expression": text}}]
    return {"name": "r", "exactly": {"deviceClassName": "gpu", "selectors": selectors}}


def test_the_biggest_holders_are_named(given, devices):
    given.nodes(1)
    devices.on_node("node-0", [gpu(number) for number in range(8)])
    devices.template("one", exactly("r", "gpu"))
    for name, held in (
        ("a", ["gpu-0"]),
        ("b", ["gpu-1", "gpu-2", "gpu-3"]),
        ("c", ["gpu-4", "gpu-5"]),
    ):
        devices.put(
            "ResourceClaim", name, namespace="team", status=allocated(*held, pod=f"pod-{name}")
        )
    devices.gang("g", 4, template="one")
    given.when.one_session()
    assert given.then.why("g") == (
        "needs devices for 4 pods; 2 fit now on 1 node: claim c, request r: 8 devices match, 2 free, "
        "6 held (3 by team/pod-b, 2 by team/pod-c, 1 by 1 more)"
    )


def test_pods_of_a_gang_hold_in_its_name(given, devices):
    given.nodes(1)
    devices.on_node("node-0", [gpu(0), gpu(1)])
    devices.template("one", exactly("r", "gpu"))
    devices.gang("first", 2, template="one")
    devices.gang("second", 1, template="one")
    given.when.one_session()
    assert given.then.why("second").endswith("2 devices match, 0 free, 2 held (2 by default/first)")


def test_a_claim_that_no_pod_uses_holds_in_its_own_name(given, devices):
    given.nodes(1)
    devices.on_node("node-0", [gpu(0)])
    devices.template("one", exactly("r", "gpu"))
    devices.put("ResourceClaim", "left", namespace="team", status=allocated("gpu-0"))
    devices.gang("g", 1, template="one")
    given.when.one_session()
    assert "0 free, 1 held (1 by claim team/left)" in given.then.why("g")


def test_taints_are_named(given, devices):
    given.nodes(1)
    taint = {"key": "example.com/broken", "value": "yes", "effect": "NoSchedule"}
    devices.on_node("node-0", [gpu(0, taints=[taint]), gpu(1)])
    devices.template("one", exactly("r", "gpu"))
    devices.gang("g", 2, template="one")
    given.when.one_session()
    assert given.then.why("g").endswith(
        "2 devices match, 1 free, 1 tainted (example.com/broken:NoSchedule)"
    )


def test_a_counter_is_named_with_what_is_left_and_who_uses_it(given, devices):
    given.nodes(1)

    def part(name, kind, amount):
        consumed = [{"counterSet": "gpu-0", "counters": {"memory": {"value": amount}}}]
        return {
            "name": name, "consumesCounters": consumed, "attributes": {"kind": {"string": kind}}
        }  # fmt: skip

    parts = [
        part("whole", "whole", "80Gi"),
        part("half-0", "half", "40Gi"),
        part("ten", "ten", "10Gi"),
    ]
    devices.on_node(
        "node-0", parts, counters=[{"name": "gpu-0", "counters": {"memory": {"value": "80Gi"}}}]
    )
    devices.template("whole", kind_is("whole"))
    devices.put("ResourceClaim", "x", namespace="team", status=allocated("ten", pod="small"))
    devices.gang("g", 1, template="whole")
    given.when.one_session()
    assert given.then.why("g").endswith(
        "1 device matches, 0 free, 1 short of a counter "
        "(nearest: 80Gi memory needed, 70Gi of 80Gi left in gpu-0 of pool node-0; used by team/small)"
    )


def test_a_capacity_is_named_with_what_is_left_and_who_shares_it(given, devices):
    given.nodes(1)
    shared = {
        "name": "gpu-0", "allowMultipleAllocations": True,
        "capacity": {"memory": {"value": "80Gi"}},
    }  # fmt: skip
    devices.on_node("node-0", [shared])
    request = exactly("r", "gpu")
    request["exactly"]["capacity"] = {"requests": {"memory": "60Gi"}}
    devices.template("share", request)
    devices.put(
        "ResourceClaim", "x", namespace="team",
        status=allocated("gpu-0", pod="small", shareID="9d7d2c2e-38a1-4d2b-9d3c-6f4a8c4a6a10",
                         consumedCapacity={"memory": "30Gi"}),
    )  # fmt: skip
    devices.gang("g", 1, template="share")
    given.when.one_session()
    assert given.then.why("g").endswith(
        "1 device matches, 0 free, 1 short of capacity "
        "(nearest: 60Gi memory needed, 50Gi of 80Gi left in node-0/gpu-0; shared by team/small)"
    )


@pytest.mark.parametrize("rule", ["matchAttribute", "distinctAttribute"])
def test_the_constraint_that_cannot_be_met_is_named_with_what_it_costs(given, devices, rule):
    """GPUs stand under root 0 alone, NICs under root 1 alone; two GPUs under one root are not distinct."""
    given.nodes(1)
    devices.on_node("node-0", [gpu(0), gpu(1)])
    devices.on_node("node-0", [nic(1)], driver="nic.example.com")
    pair = {
        "matchAttribute": [exactly("g", "gpu"), exactly("n", "nic")],
        "distinctAttribute": [exactly("g", "gpu", 2)],
    }[rule]
    devices.template("pair", *pair, constraints=[{rule: ROOT}])
    devices.gang("g", 1, template="pair")
    given.when.one_session()
    why = given.then.why("g")
    assert f"without {rule} {ROOT} of claim c 1 pod would fit; claim c, request g: " in why, why


def test_devices_on_different_nodes_are_told_by_the_request_that_they_miss(given, devices):
    given.nodes(2)
    devices.on_node("node-0", [gpu(0)])
    devices.on_node("node-1", [nic(0)], driver="nic.example.com")
    devices.template("pair", exactly("g", "gpu"), exactly("n", "nic"))
    devices.gang("g", 1, template="pair")
    given.when.one_session()
    why = given.then.why("g")
    assert "without request g of claim c 1 pod would fit" in why, why
    assert "without request n of claim c 1 pod would fit" in why, why


def test_only_the_request_that_is_short_is_told(given, devices):
    given.nodes(1)
    devices.on_node("node-0", [gpu(0), gpu(1)])
    devices.on_node("node-0", [nic(0)], driver="nic.example.com")
    devices.template("pair", exactly("g", "gpu"), exactly("n", "nic"))
    devices.gang("g", 2, template="pair")
    given.when.one_session()
    assert given.then.why("g").endswith(
        "1 fits now on 1 node: claim c, request n: 1 device matches, 1 free"
    )


def test_devices_spread_over_nodes_are_told_with_the_best_node(given, devices):
    given.nodes(2)
    devices.on_node("node-0", [gpu(0), gpu(1)])
    devices.on_node("node-1", [gpu(0), gpu(1)])
    devices.template("four", exactly("r", "gpu", 4))
    devices.gang("g", 1, template="four")
    given.when.one_session()
    assert given.then.why("g").endswith("4 devices match, 4 free (at most 2 on one node, 4 needed)")


def relabel(given):
    for name in "abc":
        given.node(name, labels={"hall": "other"})


@pytest.mark.parametrize(
    ("change", "match", "most"),
    [
        (lambda given: given.cache.drop_node("a"), 5, 3),
        (lambda given: given.node("d", labels={"hall": "north"}).cache.drop_node("a"), 5, 3),
        (relabel, 6, 2),
    ],
)
def test_devices_of_nodes_that_came_went_or_moved_are_told_as_they_are(
    given, devices, change, match, most
):
    """Given slices that nodes reach by their names or labels, when other nodes reach them, then devices are counted again."""
    for name in "abc":
        given.node(name, labels={"hall": "north"})
        devices.on_node(name, [gpu(0), gpu(1)])
    terms = [{"matchExpressions": [{"key": "hall", "operator": "In", "values": ["north"]}]}]
    spec = {
        "driver": "gpu.example.com", "nodeSelector": {"nodeSelectorTerms": terms}, "devices": [gpu(9)],
        "pool": {"name": "rack", "generation": 1, "resourceSliceCount": 1},
    }  # fmt: skip
    devices.put("ResourceSlice", "rack", spec=spec)
    devices.template("nine", exactly("r", "gpu", 9))
    devices.gang("g", 1, template="nine")
    for after in (lambda _given: None, change):
        after(given)
        given.when.one_session()
        found, best = (match, most) if after is change else (7, 3)
        told = f"{found} devices match, {found} free (at most {best} on one node, 9 needed)"
        assert given.then.why("g").endswith(told)


def test_pools_that_are_not_complete_are_told(given, devices):
    given.nodes(1)
    spec = {
        "driver": "gpu.example.com", "nodeName": "node-0", "devices": [gpu(0)],
        "pool": {"name": "node-0", "generation": 1, "resourceSliceCount": 2},
    }  # fmt: skip
    devices.put("ResourceSlice", "one-of-two", spec=spec)
    devices.template("one", exactly("r", "gpu"))
    devices.gang("g", 1, template="one")
    given.when.one_session()
    assert given.then.why("g").endswith(
        "1 device matches, 0 free, 1 in pools that are not complete or contradict themselves"
    )


def test_a_selector_without_a_value_is_told(given, devices):
    given.nodes(1)
    devices.on_node("node-0", [gpu(0)])
    devices.template("whole", kind_is("whole"))
    devices.gang("g", 1, template="whole")
    given.when.one_session()
    assert "a selector has no value for gpu.example.com/node-0/gpu-0: " in given.then.why("g")


def test_a_required_domain_that_lacks_devices_says_which(given, devices):
    given.nodes(2, rack="r0")
    given.nodes(1, rack="r1")
    for number in range(3):
        devices.on_node(f"node-{number}", [gpu(0)])
    devices.template("one", exactly("r", "gpu"))
    devices.gang("g", 3, template="one")
    given.group("g", min_member=3, topology=TopologyRequest(required="rack"))
    given.when.one_session()
    assert given.then.why("g").startswith(
        "needs 3 pods with 1 cpu, 1Gi memory in one rack; best rack r0 has room for 2: "
        "claim c, request r: 2 devices match, 2 free"
    ), given.then.why("g")


def test_nodes_that_lack_devices_are_not_said_to_lack_numa_nodes(given, devices):
    """One node lacks CPUs, the other devices: both causes are told."""
    given.nodes(1, cpu=1)
    given.nodes(1)
    devices.on_node("node-0", [gpu(0), gpu(1)])
    devices.template("one", exactly("r", "gpu"))
    devices.gang("g", 70, template="one")
    given.when.one_session()
    why = given.then.why("g")
    assert "1 lacks free devices for its claims" in why, why
    assert "NUMA" not in why
