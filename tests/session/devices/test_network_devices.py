"""Gangs of two roles on random clusters with network-attached devices, against every joint allocation.

The witness shares no code with the product: it goes through all ways to put the pods on nodes, and for
each through all ways to give them devices. A gang starts where there is a way, at the most compact one
where its places are called optimal, and nowhere else.
"""

from __future__ import annotations

import itertools
import random

import attrs
import pytest

from gpusched.testing.given import Given
from tests.populations import one_of
from tests.session.devices.conftest import ROOT, Devices, exactly

SLOTS = {"whole": 2, "half": 1}


@attrs.frozen
class Role:
    """What a pod of a role claims: a kind of GPU or none, a NIC under its root, network devices."""

    gpu: str
    nic: bool
    net: int


@attrs.frozen
class Cluster:
    """Racks of nodes, roots of each with their NICs, and network pools with the nodes that reach them."""

    racks: list[str]
    roots: list[list[int]]
    pools: list[tuple[int, frozenset[int]]]
    roles: list[Role]
    pods: list[int]


def random_cluster(seed):
    """Two or three nodes, one or two pools, four pods at most."""
    rng = random.Random(seed)
    nodes = rng.randint(2, 3)
    pools = []
    for _ in range(rng.randint(1, 2)):
        reached = [node for node in range(nodes) if rng.random() < 0.7] or [0]
        everywhere = rng.random() < 0.4
        pools.append((rng.randint(1, 4), frozenset(range(nodes) if everywhere else reached)))
    roles = [
        Role(rng.choice(("whole", "half", "")), rng.random() < 0.4, rng.randint(0, 2))
        for _ in range(rng.randint(1, 2))
    ]
    roles[0] = attrs.evolve(roles[0], net=rng.randint(1, 2))
    roles = [attrs.evolve(each, nic=each.nic and bool(each.gpu)) for each in roles]
    roles = [each if each.gpu or each.net else attrs.evolve(each, net=1) for each in roles]
    return Cluster(
        racks=[rng.choice("xy") for _ in range(nodes)],
        roots=[[rng.randint(0, 1) for _ in range(rng.randint(1, 2))] for _ in range(nodes)],
        pools=pools,
        roles=roles,
        pods=[rng.randint(1, 3 if len(roles) == 1 else 2) for _ in roles],
    )


def built(cluster):
    """The same as objects of the API, and a gang that waits."""
    c = Given()
    devices = Devices(c)
    for name in ("gpu", "nic", "net"):
        devices.a_class(name, f'device.driver == "{name}.example.com"')
    for number, roots in enumerate(cluster.roots):
        labels = {
            f"pool-{at}": "yes" for at, (_, nodes) in enumerate(cluster.pools) if number in nodes
        }
        c.node(f"n{number}", labels={"gpusched.io/rack": cluster.racks[number], **labels})
        parts, sets, nics = [], [], []
        for root, count in enumerate(roots):
            sets.append({"name": f"c{root}", "counters": {"slot": {"value": "2"}}})
            for kind, at in (("whole", 0), ("half", 0), ("half", 1)):
                used = {"counterSet": f"c{root}", "counters": {"slot": {"value": str(SLOTS[kind])}}}
                attributes = {"kind": {"string": kind}, ROOT: {"string": f"pci{root}"}}
                parts.append(
                    {"name": f"g{root}-{kind}-{at}", "attributes": attributes, "consumesCounters": [used]}
                )  # fmt: skip
            nics += [
                {"name": f"nic{root}-{at}", "attributes": {ROOT: {"string": f"pci{root}"}}}
                for at in range(count)
            ]
        devices.on_node(f"n{number}", parts, counters=sets)
        if nics:
            devices.on_node(f"n{number}", nics, driver="nic.example.com")
    for at, (count, nodes) in enumerate(cluster.pools):
        terms = [{"matchExpressions": [{"key": f"pool-{at}", "operator": "Exists"}]}]
        everywhere = len(nodes) == len(cluster.roots)
        reach = {"allNodes": True} if everywhere else {"nodeSelector": {"nodeSelectorTerms": terms}}
        devices.put(
            "ResourceSlice", f"net-{at}",
            spec={
                "driver": "net.example.com", **reach,
                "pool": {"name": f"net-{at}", "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": f"d{number}"} for number in range(count)],
            },
        )  # fmt: skip
    for number, role in enumerate(cluster.roles):
        requests, rules = [], []
        if role.gpu:
            text = f'device.attributes["gpu.example.com"].kind == "{role.gpu}"'
            selectors = [{"cel": {"expression": text}}]
            requests.append(
                {"name": "g", "exactly": {"deviceClassName": "gpu", "selectors": selectors}}
            )
        if role.nic:
            requests.append(exactly("n", "nic"))
            rules = [{"matchAttribute": ROOT, "requests": ["g", "n"]}]
        if role.net:
            requests.append(exactly("w", "net", role.net))
        devices.template(f"t{number}", *requests, constraints=rules)
    c.group("g", min_member=sum(cluster.pods))
    for number, count in enumerate(cluster.pods):
        for at in range(count):
            devices.pod(f"g-{number}-{at}", group="g", template=f"t{number}")
    return c


def has_devices(cluster, where):
    """Whether pods find devices on the nodes where they are: role and node of each."""
    slots = {(n, root): 2 for n, roots in enumerate(cluster.roots) for root in range(len(roots))}
    nics = {(n, r): count for n, roots in enumerate(cluster.roots) for r, count in enumerate(roots)}
    left = [count for count, _ in cluster.pools]

    def give(number):
        if number == len(where):
            return True
        role, node = where[number]
        roots = range(len(cluster.roots[node])) if role.gpu else [None]
        for root in roots:
            if root is not None:
                size = SLOTS[role.gpu]
                if slots[node, root] < size or (role.nic and not nics[node, root]):
                    continue
                slots[node, root] -= size
                nics[node, root] -= role.nic
            if network(role.net, node, 0, number):
                return True
            if root is not None:
                slots[node, root] += size
                nics[node, root] += role.nic
        return False

    def network(needed, node, pool, number):
        if needed == 0:
            return give(number + 1)
        if pool == len(left):
            return False
        most = min(needed, left[pool]) if node in cluster.pools[pool][1] else 0
        for count in range(most, -1, -1):
            left[pool] -= count
            if network(needed - count, node, pool + 1, number):
                return True
            left[pool] += count
        return False

    return give(0)


def best_place(cluster):
    """Racks and nodes of the most compact place of all pods; None for no place."""
    roles = [
        role for role, count in zip(cluster.roles, cluster.pods, strict=True) for _ in range(count)
    ]
    found = None
    for nodes in itertools.product(range(len(cluster.roots)), repeat=len(roles)):
        key = (len({cluster.racks[node] for node in nodes}), len(set(nodes)))
        if (found is None or key < found) and has_devices(
            cluster, list(zip(roles, nodes, strict=True))
        ):
            found = key
    return found


@pytest.mark.parametrize("first", one_of(2, range(0, 240, 40)))
def test_gangs_start_where_all_pods_find_devices_together(first):
    for seed in range(first, first + 40):
        cluster = random_cluster(seed)
        expected = best_place(cluster)
        c = built(cluster)
        plan = c.when.one_session()
        if expected is None:
            assert not plan.binds, (seed, cluster)
            continue
        assert plan.binds, (seed, cluster, c.then.why("g"))
        (bound,) = plan.binds
        taken = [
            (each.driver, each.pool, each.device)
            for bind in bound.binds for claim in bind.claims for each in claim.allocation.devices
        ]  # fmt: skip
        assert len(set(taken)) == len(taken), seed
        where = [
            (cluster.roles[int(bind.key.name.split("-")[1])], int(bind.node[1:]))
            for bind in bound.binds
        ]
        assert has_devices(cluster, where), seed
        if bound.proof == "optimal":
            used = {node for _, node in where}
            assert (len({cluster.racks[node] for node in used}), len(used)) == expected, (
                seed,
                cluster,
            )


def test_a_pod_on_another_node_makes_way_where_only_it_can():
    """Both nodes reach the one device of a pool; the first node reaches four more of another."""
    cluster = Cluster(
        racks=["x", "x"], roots=[[1], [1]],
        pools=[(4, frozenset({0})), (1, frozenset({0, 1}))],
        roles=[Role("whole", nic=False, net=1)], pods=[2],
    )  # fmt: skip
    c = built(cluster)
    c.when.one_session()
    assert sorted(c.then.nodes().values()) == ["n0", "n1"], c.then.why("g")
