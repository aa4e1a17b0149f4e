"""Claims that pods of a gang share: their devices are chosen once, and decide where the pods may be."""

from __future__ import annotations

import itertools
import random

import msgspec
import pytest

from gpusched.api.devices.dynamic.claims import PodClaim
from gpusched.testing import entities
from gpusched.testing.given import Given
from tests.session.devices.conftest import Devices, exactly, gpu

SEEDS = 100


def named_claim(devices, name, *requests, **status):
    """A claim of the namespace ``default`` that pods name."""
    spec = {"devices": {"requests": list(requests)}}
    devices.put("ResourceClaim", name, namespace="default", spec=spec, **status)


def sharer(devices, name, *claims, group, cpu=1000, template="", rank=-1):
    """A pod that names claims, and has one of its own where there is a template."""
    own = [PodClaim(name=each, claim=each) for each in claims]
    made = ()
    if template:
        devices.pod(name, template=template)  # for its claim; the pod is put again below
        own.append(PodClaim(name="own", template=template))
        made = (("own", f"{name}-claim"),)
    pod_class = entities.pod_class(claims=tuple(own), namespace="default", cpu=cpu)
    pod = entities.pod(name, pod_class, version=devices.given._next(), group=group, rank=rank)
    devices.given.cache.put_pod(msgspec.structs.replace(pod, generated_claims=made))


def network(devices, name, count, *, nodes=()):
    """A pool that all nodes reach, or those with a label ``net`` of these values."""
    reach = {"allNodes": True}
    if nodes:
        values = {"key": "net", "operator": "In", "values": list(nodes)}
        reach = {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [values]}]}}
    spec = {
        "driver": "net.example.com",
        "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": f"{name}-{number}"} for number in range(count)],
        **reach,
    }
    devices.put("ResourceSlice", name, spec=spec)


def places(plan):
    """Node of each pod that is bound."""
    return {bind.key.name: bind.node for gang in plan.binds for bind in gang.binds}


def shared_devices(plan):
    """Devices of every claim by its name, the same in all pods that have it."""
    found = {}
    for gang in plan.binds:
        for bind in gang.binds:
            for claim in bind.claims:
                held = tuple(
                    (each.driver, each.pool, each.device) for each in claim.allocation.devices
                )
                assert found.setdefault(claim.key.name, held) == held
    return found


def test_two_pods_share_one_gpu(given, devices):
    given.nodes(2)
    devices.on_node("node-1", [gpu(0)])
    named_claim(devices, "both", exactly("r", "gpu"))
    given.group("g", min_member=2)
    for number in range(2):
        sharer(devices, f"g-{number}", "both", group="g")
    plan = given.when.one_session()
    assert places(plan) == {"g-0": "node-1", "g-1": "node-1"}
    assert shared_devices(plan) == {"both": (("gpu.example.com", "node-1", "gpu-0"),)}


def test_the_node_with_room_for_both_is_found(given, devices):
    """Not the first that has the device."""
    for name, cpu in (("node-0", 1000), ("node-1", 1500), ("node-2", 2000)):
        given.node(name, cpu=cpu)
        devices.on_node(name, [gpu(0)])
    named_claim(devices, "both", exactly("r", "gpu"))
    given.group("g", min_member=2)
    for number in range(2):
        sharer(devices, f"g-{number}", "both", group="g")
    assert set(places(given.when.one_session()).values()) == {"node-2"}


def test_a_device_of_the_network_leaves_its_users_all_nodes(given, devices):
    given.nodes(3, cpu=1000)
    devices.a_class("net", 'device.driver == "net.example.com"')
    network(devices, "storage", 1)
    named_claim(devices, "all", exactly("r", "net"))
    given.group("g", min_member=3)
    for number in range(3):
        sharer(devices, f"g-{number}", "all", group="g")
    plan = given.when.one_session()
    assert sorted(places(plan).values()) == ["node-0", "node-1", "node-2"]
    assert shared_devices(plan) == {"all": (("net.example.com", "storage", "storage-0"),)}


def test_what_pods_have_of_their_own_is_decided_with_what_they_share(given, devices):
    """A shared GPU takes one of two, so a node with two has one for the pods' own claims."""
    given.nodes(2)
    devices.on_node("node-0", [gpu(0), gpu(1)])
    devices.on_node("node-1", [gpu(0), gpu(1), gpu(2)])
    devices.template("one", exactly("r", "gpu"))
    named_claim(devices, "both", exactly("r", "gpu"))
    given.group("g", min_member=2)
    for number in range(2):
        sharer(devices, f"g-{number}", "both", group="g", template="one")
    plan = given.when.one_session()
    assert set(places(plan).values()) == {"node-1"}
    assert len(set(shared_devices(plan).values())) == 3


def test_pairs_of_pods_get_nodes_of_their_own(given, devices):
    given.nodes(4)
    for number in range(4):
        devices.on_node(f"node-{number}", [gpu(0)])
    given.group("g", min_member=8)
    for pair in range(4):
        named_claim(devices, f"pair-{pair}", exactly("r", "gpu"))
        for number in range(2):
            sharer(devices, f"g-{pair}-{number}", f"pair-{pair}", group="g")
    found = places(given.when.one_session())
    assert len(found) == 8
    assert all(found[f"g-{pair}-0"] == found[f"g-{pair}-1"] for pair in range(4))


def test_two_gangs_share_a_claim(given, devices):
    given.nodes(2)
    for number in range(2):
        devices.on_node(f"node-{number}", [gpu(0)])
    named_claim(devices, "both", exactly("r", "gpu"))
    for name in ("a", "b"):
        given.group(name, min_member=2)
        for number in range(2):
            sharer(devices, f"{name}-{number}", "both", group=name)
    plan = given.when.one_session()
    assert len(places(plan)) == 4
    assert len(set(places(plan).values())) == 1
    assert len(shared_devices(plan)["both"]) == 1


def test_a_claim_with_devices_pins_its_pods(given, devices):
    given.nodes(3)
    devices.on_node("node-1", [gpu(0)])
    where = {"key": "metadata.name", "operator": "In", "values": ["node-1"]}
    result = {"request": "r", "driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0"}
    named_claim(
        devices,
        "both",
        exactly("r", "gpu"),
        status={
            "allocation": {
                "devices": {"results": [result]},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [where]}]},
            }
        },
    )
    given.group("g", min_member=2)
    for number in range(2):
        sharer(devices, f"g-{number}", "both", group="g")
    assert places(given.when.one_session()) == {"g-0": "node-1", "g-1": "node-1"}


def test_users_that_no_node_holds_together_wait_and_say_so(given, devices):
    given.nodes(3, cpu=2000)
    for number in range(3):
        devices.on_node(f"node-{number}", [gpu(0)])
    named_claim(devices, "all", exactly("r", "gpu"))
    given.group("g", min_member=3)
    for number in range(3):
        sharer(devices, f"g-{number}", "all", group="g")
    given.when.one_session()
    assert given.then.started() == []
    assert (
        "3 pods share ResourceClaim all, whose devices are used from one node: the best of "
        "3 nodes takes 2 of them now"
    ) in given.then.why("g")


def test_a_claim_has_at_most_256_users(given, devices):
    given.nodes(3, cpu=10**6)
    devices.on_node("node-0", [gpu(0)])
    named_claim(devices, "all", exactly("r", "gpu"))
    given.group("g", min_member=257)
    for number in range(257):
        sharer(devices, f"g-{number}", "all", group="g")
    given.when.one_session()
    assert given.then.started() == []
    assert "257 pods name ResourceClaim all" in given.then.why("g")


# -- random clusters -------------------------------------------------------------------------
def cluster(seed):
    """A cluster with a gang of which some pods share claims, and a model of it."""
    rng = random.Random(seed)
    c = Given()
    devices = Devices(c)
    devices.a_class("gpu", 'device.driver == "gpu.example.com"')
    devices.a_class("net", 'device.driver == "net.example.com"')
    devices.a_class("any", "true")
    nodes = [f"node-{number}" for number in range(rng.randint(1, 4))]
    room, sort_of = {}, {}
    found = []  # (driver, nodes that reach it)
    for node in nodes:
        room[node], sort_of[node] = rng.randint(1, 3), rng.choice("ab")
        c.node(node, cpu=room[node] * 1000, labels={"net": sort_of[node]})
        gpus = rng.randint(0, 2)
        if gpus:
            devices.on_node(node, [gpu(number) for number in range(gpus)])
        found += [("gpu", frozenset([node]))] * gpus
    for name, kind in (("wide", ""), ("some", rng.choice("ab"))):
        count = rng.choice((0, 0, 1))
        if count:
            network(devices, name, count, nodes=kind)
            reach = frozenset(node for node in nodes if not kind or sort_of[node] == kind)
            found += [("net", reach)] * count
    claims = {}
    for number in range(rng.randint(1, 2)):
        kind, count = rng.choice(("gpu", "gpu", "net", "any")), rng.choice((1, 1, 2))
        claims[f"s{number}"] = (kind, count)
        named_claim(devices, f"s{number}", exactly("r", kind, count))
    devices.template("one", exactly("r", "gpu"))
    pods = []
    count = rng.randint(2, 4)
    c.group("g", min_member=count)
    for number in range(count):
        used = rng.choice([(), ("s0",), ("s0",), tuple(claims)])
        own = rng.random() < 0.3
        pods.append((used, own))
        sharer(devices, f"g-{number}", *used, group="g", template="one" if own else "")
    return c, nodes, room, found, claims, pods


def witness(nodes, room, devices, claims, pods):
    """Whether nodes and devices exist for all pods: every way is gone through."""
    for where in itertools.product(nodes, repeat=len(pods)):
        if any(where.count(node) > room[node] for node in nodes):
            continue
        asked = []  # (kind, nodes that must reach the devices)
        for name, (kind, count) in claims.items():
            users = {at for at, (used, _) in zip(where, pods, strict=True) if name in used}
            asked.append((kind, count, users))
            if not users:
                asked.pop()
        asked += [("gpu", 1, {at}) for at, (_, own) in zip(where, pods, strict=True) if own]
        if served(asked, devices):
            return True
    return False


def served(asked, free):
    if not asked:
        return True
    (kind, count, users), *rest = asked
    fitting = [
        number
        for number, (driver, reach) in enumerate(free)
        if kind in ("any", driver) and users <= reach
    ]
    return any(
        served(rest, [each for number, each in enumerate(free) if number not in chosen])
        for chosen in itertools.combinations(fitting, count)
    )


@pytest.mark.parametrize("first", range(0, SEEDS, 20))
def test_a_gang_starts_where_its_shared_claims_can_be_served(first):
    for seed in range(first, first + 20):
        c, *model = cluster(seed)
        feasible = witness(*model)
        plan = c.when.one_session()
        assert len(places(plan)) == (len(model[-1]) if feasible else 0), seed
        held = [device for devices in shared_devices(plan).values() for device in devices]
        assert len(set(held)) == len(held), seed


def test_some_of_these_gangs_start_and_some_do_not():
    started = sum(witness(*cluster(seed)[1:]) for seed in range(SEEDS))
    assert SEEDS // 5 < started < SEEDS * 4 // 5
