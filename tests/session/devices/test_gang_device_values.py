"""Devices of all members of a gang under one value of an attribute, or of one type."""

from __future__ import annotations

import itertools
import random

import pytest

from gpusched.api.devices.device_match import DeviceMatchRequest
from gpusched.testing.given import Given
from tests.populations import one_of
from tests.session.devices.conftest import Devices, exactly, gpu
from tests.session.devices.test_gangs_with_claims import given_devices

RAIL = "dra.net/rail"


def nic(number, rail):
    """A NIC on a rail; on several where a list is given."""
    value = {"strings": rail} if isinstance(rail, list) else {"string": rail}
    return {"name": f"nic-{number}", "attributes": {RAIL: value}}


def typed(number, product):
    """A GPU of a product."""
    return {"name": f"gpu-{number}", "attributes": {"productName": {"string": product}}}


def one_rail(*requests):
    """All devices of some requests on one rail."""
    return DeviceMatchRequest(match_attribute=RAIL, requests=requests)


def gang(given, devices, name, pods, *, template, match, minimum=None):
    """A gang with something that its devices have in common."""
    given.group(name, min_member=minimum or pods, devices=match)
    for number in range(pods):
        devices.pod(f"{name}-{number}", group=name, template=template, rank=number)


def rails_of(plan, rails):
    """Rails of the NICs that pods were given."""
    return {rails[each.pool, each.device] for held in given_devices(plan).values() for each in held
            if (each.pool, each.device) in rails}  # fmt: skip


def on_rails(devices, by_node):
    """NICs of nodes, and the rail of each."""
    rails = {}
    for node, found in by_node.items():
        devices.on_node(
            node,
            [nic(number, rail) for number, rail in enumerate(found)],
            driver="nic.example.com",
        )
        rails |= {(node, f"nic-{number}"): rail for number, rail in enumerate(found)}
    return rails


def test_all_members_get_devices_of_one_value(given, devices):
    """The first node has more of rail a, but only rail b has one on each of three nodes."""
    given.nodes(3)
    found = {"node-0": ["a", "a", "b"], "node-1": ["a", "b"], "node-2": ["c", "b"]}
    rails = on_rails(devices, found)
    devices.template("t", exactly("n", "nic"))
    for number in range(3):  # one pod a node
        devices.on_node(f"node-{number}", [gpu(0)])
    devices.template("both", exactly("g", "gpu"), exactly("n", "nic"))
    gang(given, devices, "g", 3, template="both", match=one_rail("n"))
    plan = given.when.one_session()
    assert rails_of(plan, rails) == {"b"}, given.then.why("g")
    assert len(given_devices(plan)) == 3


def test_without_the_wish_rails_are_mixed(given, devices):
    given.nodes(2)
    rails = on_rails(devices, {"node-0": ["a"], "node-1": ["b"]})
    devices.template("t", exactly("n", "nic"))
    gang(given, devices, "g", 2, template="t", match=DeviceMatchRequest())
    assert rails_of(given.when.one_session(), rails) == {"a", "b"}


def test_a_refusal_tells_how_far_the_best_value_came(given, devices):
    given.nodes(3)
    on_rails(devices, {"node-0": ["a", "b"], "node-1": ["a", "b"], "node-2": ["b", "c"]})
    devices.template("t", exactly("n", "nic"))
    gang(given, devices, "g", 4, template="t", match=one_rail())
    given.when.one_session()
    assert given.then.started() == []
    assert "needs 4 free devices of one dra.net/rail for 4 pods; best dra.net/rail b has 3" in (
        given.then.why("g")
    )


def test_a_refusal_for_nodes_names_the_value_that_came_furthest(given, devices):
    """Devices enough of each rail, but pods find no room where they are."""
    given.nodes(2)
    on_rails(devices, {"node-0": ["a"] * 4, "node-1": ["b"] * 4})
    for number, gpus in enumerate((3, 1)):
        devices.on_node(f"node-{number}", [gpu(at) for at in range(gpus)])
    devices.template("both", exactly("g", "gpu"), exactly("n", "nic"))
    gang(given, devices, "g", 4, template="both", match=one_rail("n"))
    given.when.one_session()
    why = given.then.why("g")
    assert "of 2 tried dra.net/rail a comes furthest, with room for 3 of 4 pods" in why


def test_an_attribute_that_no_device_has_is_told(given, devices):
    given.nodes(1)
    devices.on_node("node-0", [gpu(0)])
    devices.template("t", exactly("g", "gpu"))
    gang(given, devices, "g", 1, template="t", match=one_rail())
    given.when.one_session()
    assert "none of 1 devices that its claims select has one dra.net/rail" in given.then.why("g")


def test_lists_match_by_a_common_element(given, devices):
    given.nodes(2)
    devices.on_node("node-0", [nic(0, ["a", "b"])], driver="nic.example.com")
    devices.on_node("node-1", [nic(0, ["b", "c"])], driver="nic.example.com")
    devices.template("t", exactly("n", "nic"))
    gang(given, devices, "g", 2, template="t", match=one_rail())
    assert len(given_devices(given.when.one_session())) == 2


def test_types_are_not_mixed(given, devices):
    given.nodes(2)
    devices.on_node("node-0", [typed(0, "H100"), typed(1, "A100"), typed(2, "A100")])
    devices.on_node("node-1", [typed(0, "H100"), typed(1, "A100")])
    devices.template("t", exactly("g", "gpu"))
    gang(given, devices, "three", 3, template="t", match=DeviceMatchRequest(same_type=True))
    found = given_devices(given.when.one_session())
    assert {(each.pool, each.device) for held in found.values() for each in held} == {
        ("node-0", "gpu-1"), ("node-0", "gpu-2"), ("node-1", "gpu-1")
    }  # fmt: skip


def test_members_that_come_later_get_the_value_of_the_others(given, devices):
    """Extras: two are needed, rail a has three, rail b four of which two are held."""
    given.nodes(1)
    rails = on_rails(devices, {"node-0": ["a", "a", "a", "b", "b"]})
    devices.template("t", exactly("n", "nic"))
    gang(given, devices, "g", 5, template="t", match=one_rail(), minimum=2)
    plan = given.when.one_session()
    assert rails_of(plan, rails) == {"a"}
    assert len(given_devices(plan)) == 3


def test_all_devices_of_a_node_are_taken_only_where_they_share_the_value(given, devices):
    given.nodes(3)
    on_rails(devices, {"node-0": ["a", "b"], "node-1": ["a", "a"], "node-2": ["a"]})
    request = {"name": "n", "exactly": {"deviceClassName": "nic", "allocationMode": "All"}}
    devices.template("t", request)
    gang(given, devices, "g", 2, template="t", match=one_rail())
    found = given_devices(given.when.one_session())
    assert sorted({each.pool for held in found.values() for each in held}) == ["node-1", "node-2"]
    assert sum(map(len, found.values())) == 3


def random_cluster(seed):
    """Nodes of two racks with NICs on rails and GPUs of types, and a gang; what each node has."""
    rng = random.Random(seed)
    c = Given()
    devices = Devices(c)
    devices.a_class("gpu", 'device.driver == "gpu.example.com"')
    devices.a_class("nic", 'device.driver == "nic.example.com"')
    nodes = []
    for number in range(rng.randint(2, 5)):
        name, rack = f"n{number}", rng.choice("xy")
        c.node(name, labels={"gpusched.io/rack": rack})
        nics = [rng.choice("abc") for _ in range(rng.randint(0, 3))]
        gpus = [rng.choice(("H", "A")) for _ in range(rng.randint(0, 3))]
        devices.on_node(name, [nic(i, r) for i, r in enumerate(nics)], driver="nic.example.com")
        devices.on_node(name, [typed(i, t) for i, t in enumerate(gpus)])
        nodes.append((rack, nics, gpus))
    devices.template("t", exactly("g", "gpu"), exactly("n", "nic"))
    rail, same = rng.choice(((True, False), (True, True), (False, True)))
    pods = rng.randint(2, 4)
    match = DeviceMatchRequest(
        match_attribute=RAIL if rail else "", requests=() if same and not rail else ("g", "n") if same else ("n",),
        same_type=same,
    )  # fmt: skip
    if rail and same:  # the GPUs have no rail: types of NICs are not told, so NICs alone
        match = DeviceMatchRequest(match_attribute=RAIL, requests=("n",), same_type=True)
        same = False
    gang(c, devices, "g", pods, template="t", match=match)
    return c, nodes, pods, rail, same


def best_place(nodes, pods, *, rail, same):
    """Racks and nodes that the most compact place takes, by all ways; None for no place."""
    found = None
    for value, product in itertools.product("abc" if rail else "*", "HA" if same else "*"):
        room = [
            min(
                sum(value in ("*", each) for each in nics),
                sum(product in ("*", each) for each in gpus),
            )
            for _, nics, gpus in nodes
        ]
        for counts in itertools.product(*(range(each + 1) for each in room)):
            if sum(counts) == pods:
                used = [at for at, count in enumerate(counts) if count]
                key = (len({nodes[at][0] for at in used}), len(used))
                found = key if found is None else min(found, key)
    return found


@pytest.mark.parametrize("first", one_of(2, range(0, 120, 30)))
def test_the_best_value_of_all_is_taken_and_a_refusal_is_true(first):
    for seed in range(first, first + 30):
        c, nodes, pods, rail, same = random_cluster(seed)
        expected = best_place(nodes, pods, rail=rail, same=same)
        plan = c.when.one_session()
        if expected is None:
            assert not plan.binds, seed
            continue
        assert plan.binds, (seed, c.then.why("g"))
        (bound,) = plan.binds
        used = {int(bind.node[1:]) for bind in bound.binds}
        assert (len({nodes[at][0] for at in used}), len(used)) == expected, seed
        assert bound.proof == "optimal", seed
