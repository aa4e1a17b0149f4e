"""Gangs whose pods claim devices: nodes and devices are one decision."""

from __future__ import annotations

import pytest

from gpusched.devices.allocator import Allocation, AllocationOutcome
from gpusched.devices.inventory import DeviceId
from gpusched.session.state.nodes.devices import device_search
from tests.session.devices.conftest import ROOT, exactly, gpu, nic


def given_devices(plan):
    """Devices by pod, as the plan has them."""
    return {
        bind.key.name: [
            DeviceId(each.driver, each.pool, each.device)
            for claim in bind.claims
            for each in claim.allocation.devices
        ]
        for gang in plan.binds
        for bind in gang.binds
    }


def test_each_pod_of_a_gang_gets_a_device_of_its_own(given, devices):
    given.nodes(2)
    for node in ("node-0", "node-1"):
        devices.on_node(node, [gpu(number) for number in range(2)])
    devices.template("one", exactly("r", "gpu"))
    devices.gang("g", 4, template="one")
    plan = given.when.one_session()
    found = given_devices(plan)
    assert sorted(found) == ["g-0", "g-1", "g-2", "g-3"]
    assert len({each for held in found.values() for each in held}) == 4
    for gang in plan.binds:
        for bind in gang.binds:
            assert bind.claims[0].allocation.devices[0].pool == bind.node


def test_a_gang_that_finds_too_few_devices_starts_no_pod(given, devices):
    given.nodes(2)
    devices.on_node("node-0", [gpu(0), gpu(1)])
    devices.template("one", exactly("r", "gpu"))
    devices.gang("g", 3, template="one")
    given.when.one_session()
    assert given.then.started() == []
    assert "claim c, request r: 2 devices match, 2 free" in given.then.why("g")


def test_devices_that_others_hold_are_not_given(given, devices):
    given.nodes(1)
    devices.on_node("node-0", [gpu(0), gpu(1)])
    devices.template("one", exactly("r", "gpu"))
    devices.put(
        "ResourceClaim", "theirs", namespace="default",
        status={
            "allocation": {
                "devices": {
                    "results": [
                        {"request": "r", "driver": "gpu.example.com", "pool": "node-0", "device": "gpu-0"}
                    ]
                }
            }
        },
    )  # fmt: skip
    devices.pod("a", template="one", queue="default")
    devices.pod("b", template="one", queue="default")
    found = given_devices(given.when.one_session())
    assert list(found.values()) == [[DeviceId("gpu.example.com", "node-0", "gpu-1")]]
    (waits,) = {"a", "b"} - set(found)
    assert "2 devices match, 0 free" in given.then.why(waits)


def test_gpu_and_nic_are_under_one_root(given, devices):
    """Two GPUs and one NIC a root: only two of four GPUs find a NIC beside them."""
    given.nodes(3)
    for number in range(3):
        devices.on_node(f"node-{number}", [gpu(at) for at in range(4)])
        devices.on_node(f"node-{number}", [nic(0), nic(1)], driver="nic.example.com")
    devices.template(
        "pair", exactly("g", "gpu"), exactly("n", "nic"), constraints=[{"matchAttribute": ROOT}]
    )
    devices.gang("big", 7, template="pair")
    devices.gang("fits", 6, template="pair")
    found = given_devices(given.when.one_session())
    assert sorted(found) == [f"fits-{number}" for number in range(6)]
    for first, second in found.values():
        assert int(first.device[-1]) // 2 == int(second.device[-1])


def whole_or_halves(given, devices, nodes):
    """Nodes of a device that is given whole or in halves, and a template that takes either."""
    given.nodes(nodes)
    slots = [{"name": "slots", "counters": {"slot": {"value": "4"}}}]

    def part(name, amount):
        consumed = [{"counterSet": "slots", "counters": {"slot": {"value": amount}}}]
        kind = {"kind": {"string": "whole" if amount == "4" else "half"}}
        return {"name": name, "consumesCounters": consumed, "attributes": kind}

    parts = [part("whole", "4"), part("half-0", "2"), part("half-1", "2")]
    for number in range(nodes):
        devices.on_node(f"node-{number}", parts, counters=slots)

    def alternative(kind):
        text = f'device.attributes["gpu.example.com"].kind == "{kind}"'
        return {
            "name": kind, "deviceClassName": "gpu", "selectors": [{"cel": {"expression": text}}]
        }  # fmt: skip

    devices.template(
        "any", {"name": "r", "firstAvailable": [alternative("whole"), alternative("half")]}
    )


def test_whole_or_half_takes_halves_where_both_pods_start_so(given, devices):
    """The wish for a whole device keeps no other member of the gang from running."""
    whole_or_halves(given, devices, 1)
    devices.gang("g", 2, template="any")
    found = given_devices(given.when.one_session())
    assert sorted(held[0].device for held in found.values()) == ["half-0", "half-1"], (
        given.then.why("g")
    )


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_search_that_ends_early_is_told_and_sets_no_gang_aside(
    given, devices, monkeypatch, nodes
):
    def out_of_steps(*_anything):
        return Allocation(outcome=AllocationOutcome.BOUNDED)

    # given: pods that would have to change devices, and a search for that which ends early
    monkeypatch.setattr(device_search, "allocate_on_node", out_of_steps)
    whole_or_halves(given, devices, nodes)
    devices.gang("g", 2, template="any")
    plan = given.when.one_session()
    if nodes == 1:
        # then: the gang waits, and says that more may fit than was found
        assert given_devices(plan) == {}
        assert "1 fits now on 1 node, more were not found in time" in given.then.why("g")
    else:
        # or: it is placed where no pod has to change, and nothing is called proven
        found = given_devices(plan)
        assert sorted(held[0].pool for held in found.values()) == ["node-0", "node-1"]
        assert [gang.proof for gang in plan.binds] == [""]


def test_a_pod_whose_claim_is_not_made_yet_waits_with_the_reason(given, devices):
    given.nodes(1)
    devices.on_node("node-0", [gpu(0)])
    devices.template("one", exactly("r", "gpu"))
    devices.pod("a", template="one", made=False, queue="default")
    given.when.one_session()
    assert "waits for its claim c to be made" in given.then.why("a")


def test_a_template_that_is_not_there_is_named(given, devices):
    given.nodes(1)
    devices.template("one", exactly("r", "gpu"))
    devices.pod("a", template="one", queue="default")
    devices.given.cache.devices.templates.drop(
        next(iter(devices.given.cache.devices.templates.items))
    )
    given.when.one_session()
    assert "names ResourceClaimTemplate one, which is not there" in given.then.why("a")


def test_a_class_that_is_not_there_is_named(given, devices):
    given.nodes(1)
    devices.template("one", exactly("r", "tpu"))
    devices.pod("a", template="one", queue="default")
    given.when.one_session()
    assert "there is no DeviceClass tpu" in given.then.why("a")


def test_pods_of_two_kinds_share_nodes_as_their_devices_allow(given, devices):
    """Each node takes two whole GPUs, or one and two halves, or four halves: three and two need all of two."""
    given.nodes(2)

    def part(gpu_number, kind, number):
        amount = "2" if kind == "whole" else "1"
        return {
            "name": f"gpu-{gpu_number}-{kind}-{number}",
            "consumesCounters": [
                {"counterSet": f"s{gpu_number}", "counters": {"slot": {"value": amount}}}
            ],
            "attributes": {"kind": {"string": kind}},
        }

    for node in ("node-0", "node-1"):
        parts = [part(at, "whole", 0) for at in range(2)]
        parts += [part(at, "half", number) for at in range(2) for number in range(2)]
        sets = [{"name": f"s{at}", "counters": {"slot": {"value": "2"}}} for at in range(2)]
        devices.on_node(node, parts, counters=sets)

    def of_kind(kind):
        text = f'device.attributes["gpu.example.com"].kind == "{kind}"'
        selectors = [{"cel": {"expression": text}}]
        return {"name": "r", "exactly": {"deviceClassName": "gpu", "selectors": selectors}}

    devices.template("whole", of_kind("whole"))
    devices.template("half", of_kind("half"))
    given.group("g", min_member=5)
    for number in range(2):
        devices.pod(f"g-half-{number}", group="g", template="half", rank=number)
    for number in range(3):
        devices.pod(f"g-whole-{number}", group="g", template="whole", rank=2 + number)
    found = given_devices(given.when.one_session())
    assert len(found) == 5, given.then.why("g")
    (both,) = {held[0].pool for name, held in found.items() if "half" in name}
    assert sum(held[0].pool == both for held in found.values()) == 3


def test_a_gang_with_claims_gets_the_most_compact_place(given, devices):
    """As with GPUs of a device plugin: four nodes of one rack rather than of three."""
    for rack, nodes in enumerate((3, 4, 3)):
        labels = {"gpusched.io/rack": f"rack-{rack}"}
        for number in range(nodes):
            given.node(f"r{rack}-{number}", labels=labels)
            devices.on_node(f"r{rack}-{number}", [gpu(0), gpu(1)])
    devices.template("two", exactly("r", "gpu", 2))
    devices.gang("g", 4, template="two")
    plan = given.when.one_session()
    (gang,) = plan.binds
    assert {bind.node[:2] for bind in gang.binds} == {"r1"}
    assert gang.proof == "optimal"


def test_a_node_with_other_labels_reaches_other_devices(given, devices):
    """The slice is for nodes of one zone; the inventory is kept from session to session."""
    given.node("a", labels={"zone": "1"})
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["2"]}]}
    spec = {
        "driver": "gpu.example.com", "nodeSelector": {"nodeSelectorTerms": [term]},
        "pool": {"name": "far", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0"}],
    }  # fmt: skip
    devices.put("ResourceSlice", "far", spec=spec)
    devices.template("one", exactly("r", "gpu"))
    devices.pod("p", template="one", queue="default")
    assert not given.when.one_session().binds
    given.node("a", labels={"zone": "2"})
    assert list(given_devices(given.when.one_session())) == ["p"]


def test_a_pod_placed_before_changes_its_device_for_one_that_has_no_choice(given, devices):
    """The first takes any device, the fast one by the order of names; the second needs the fast one."""
    given.nodes(1)
    slow, fast = (
        {"name": name, "attributes": {"kind": {"string": kind}}}
        for name, kind in (("b", "slow"), ("a", "fast"))
    )
    devices.on_node("node-0", [fast, slow])
    devices.template("any", exactly("r", "gpu"))
    text = 'device.attributes["gpu.example.com"].kind == "fast"'
    request = exactly("r", "gpu")
    request["exactly"]["selectors"] = [{"cel": {"expression": text}}]
    devices.template("fast", request)
    devices.pod("p", template="any", queue="default", priority=10)
    devices.pod("q", template="fast", queue="default")
    found = given_devices(given.when.one_session())
    assert {name: held[0].device for name, held in found.items()} == {"p": "b", "q": "a"}
