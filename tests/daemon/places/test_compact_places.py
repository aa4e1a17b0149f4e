"""Gangs on fragmented clusters get the most compact place that exists; judged through the API.

A script makes a cluster of racks that others have used, and then gang after gang. What is right
comes from ``places_oracle``, which tries everything on what the API shows as free.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.daemon.places.places_oracle import LEVELS, Ask, Gang, Host, best, used
from tests.populations import one_of

Obj = dict[str, Any]
LABELS = {
    "zone": "topology.kubernetes.io/zone",
    "block": "gpusched.io/block",
    "rack": "gpusched.io/rack",
}
GPU = "nvidia.com/gpu"
GPUS, CPU = 8, 64
WAITS = {"TopologyUnsatisfiable", "InsufficientResources", "NoFeasibleNode"}
ONE_KIND = [(4, 8), (6, 8), (5, 4), (9, 2), (3, 8), (10, 1), (4, 5), (3, 7), (6, 3)]
SEVERAL = [
    ((4, 4, 8), (2, 1, 4), (2, 0, 8)),
    ((2, 8, 40), (3, 5, 8), (2, 2, 8)),
    ((5, 3, 8), (3, 2, 6)),
    ((3, 6, 10), (4, 2, 12)),
    ((2, 7, 8), (4, 4, 30), (3, 1, 20)),
]


class Fragmented:
    """A cluster that others have used.

    Args:
        world: runs it.
        seed: of everything that is random.
        shape: zones, blocks a zone, racks a block, hosts a rack.
        bare: hosts without labels of racks.
    """

    def __init__(self, world, seed, *, shape=(2, 2, 2, 3), bare=0):
        self.world = world
        self.rng = random.Random(seed)
        self.shape, self.bare = shape, bare
        self.number = 0

    async def start(self, *, plant=None, **daemon):
        """Nodes, what others left on them, and a daemon.

        Args:
            plant: what hosts of one rack have free, GPUs and cores; none is like them by chance.
            daemon: see ``World.daemon``.
        """
        await self.world.start(nodes=0)
        zones, blocks, racks, hosts = self.shape
        paths = [
            (f"z{z}", f"b{z}{b}", f"r{z}{b}{r}")
            for z in range(zones)
            for b in range(blocks)
            for r in range(racks)
        ]
        for path in paths:
            for host in range(hosts):
                self.host(f"{path[2]}-h{host}", path)
        for number in range(self.bare):
            self.host(f"bare-{number}", (paths[0][0], paths[0][1], ""))
        hidden = f"r{zones - 1}{self.rng.randrange(blocks)}{self.rng.randrange(racks)}"
        for host in self.hosts():
            if plant and host.path[2] == hidden:
                gpus, cpu = plant[int(host.name[-1])]
                if (gpus, cpu) != (GPUS, CPU):
                    self.pod(gpus=GPUS - gpus, cpu=CPU - cpu, node=host.name)
            else:
                self.age(host)
        self.world.daemon(**daemon)

    def host(self, name, path):
        """A node with the labels that it has."""
        labels = {LABELS[level]: value for level, value in zip(LEVELS, path, strict=True) if value}
        amounts = {"cpu": str(CPU), "memory": "1Ti", "pods": "110", GPU: str(GPUS)}
        meta = {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {**labels, "kubernetes.io/hostname": name},
        }
        status = {"capacity": amounts, "allocatable": amounts}
        self.world.client.create(
            "nodes", {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": status}
        )

    def age(self, host):
        """Somebody else's pods, of odd sizes."""
        free = GPUS
        while free and self.rng.random() < 0.6:
            size = min(free, self.rng.choice([1, 1, 2, 3, 4, 8]))
            free -= size
            self.pod(gpus=size, cpu=self.rng.choice([1, 4, 6]) * size, node=host.name)

    def pod(self, *, gpus, cpu, node="", group="", role="", part=""):
        """A member of a gang, or somebody else's pod that runs on a node."""
        self.number += 1
        labels = {"gpusched.io/pod-group": group} if group else {}
        labels |= {"gpusched.io/role": role} if role else {}
        labels |= {"gpusched.io/sub-group": part} if part else {}
        amounts = {"cpu": str(cpu), **({GPU: str(gpus)} if gpus else {})}
        name = f"{group or 'used'}-{self.number}"
        spec = {
            "schedulerName": "other" if node else "gpusched",
            "containers": [
                {"name": "c", "image": "i", "resources": {"requests": amounts, "limits": amounts}}
            ],
            **({"nodeName": node} if node else {}),
        }
        meta = {
            "name": name,
            "namespace": "default",
            "labels": labels,
            "annotations": {"gpusched.io/run-for": "100h"},
        }
        self.world.client.create(
            "pods", {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
        )

    def submit(self, name, gang):
        """A PodGroup and its pods, in any order."""
        topology = {
            key: value
            for key, value in (("required", gang.required), ("preferred", gang.preferred))
            if value
        }
        parts: dict[str, int] = {}
        for ask in gang.asks:
            parts[ask.part] = parts.get(ask.part, 0) + ask.count
        inner = {"topology": {"required": gang.part_required}} if gang.part_required else {}
        groups = [
            {"name": part, "minMember": count, **inner} for part, count in parts.items() if part
        ]
        self.world.group(
            name,
            minMember=sum(ask.count for ask in gang.asks),
            **({"topology": topology} if topology else {}),
            **({"subGroups": groups} if groups else {}),
        )
        pods = [
            {
                "gpus": ask.gpus,
                "cpu": ask.cpu,
                "role": f"role-{index}" if not ask.part else "",
                "part": ask.part,
            }
            for index, ask in enumerate(gang.asks)
            for _ in range(ask.count)
        ]
        self.rng.shuffle(pods)
        for each in pods:
            self.pod(group=name, **each)

    def hosts(self):
        """The nodes with what the API shows as free of them."""
        taken: dict[str, list[int]] = {}
        for pod in self.world.pods():
            node = pod["spec"].get("nodeName")
            if node and pod["status"].get("phase") not in ("Succeeded", "Failed"):
                sums = taken.setdefault(node, [0, 0])
                for container in pod["spec"]["containers"]:
                    amounts = container["resources"]["requests"]
                    sums[0] += int(amounts.get(GPU, 0))
                    sums[1] += int(amounts["cpu"])
        made = []
        for node in self.world.client.list("nodes"):
            name, labels = node["metadata"]["name"], node["metadata"]["labels"]
            path = tuple(labels.get(LABELS[level], "") for level in LEVELS)
            gpus, cpu = taken.get(name, (0, 0))
            made.append(Host(name, path, GPUS - gpus, CPU - cpu))
        return made

    def places(self, name):
        """Nodes of the bound members by sub-group, empty for none."""
        at: dict[str, list[str]] = {}
        for pod in self.world.bound(name):
            part = pod["metadata"]["labels"].get("gpusched.io/sub-group", "")
            at.setdefault(part, []).append(pod["spec"]["nodeName"])
        return at

    async def judge(self, name, gang, *, proven=True):
        """Submit a gang, and see whether what became of it is right; whether it was placed.

        Args:
            name: of the gang.
            gang: what it asks.
            proven: whether the best is due; else anything that breaks no rule, waiting too.
        """
        before = {host.name: host for host in self.hosts()}
        right = best(list(before.values()), gang)
        self.submit(name, gang)
        await self.world.clock.sleep(4)
        at = self.places(name)
        rows = [before[node] for nodes in at.values() for node in nodes]
        story = (name, gang, before, at)
        if right is None or not (rows or proven):
            assert rows == [], story
            assert self.world.condition(name)["reason"] in WAITS, story
            return False
        assert len(rows) == sum(ask.count for ask in gang.asks), (
            story, right, self.world.condition(name),
        )  # fmt: skip
        assert used(rows, gang.preferred) == right or not proven, (story, right)
        if gang.required:
            assert all(row.labelled(gang.required) for row in rows), story
            assert len({row.domain(gang.required) for row in rows}) == 1, story
        if gang.part_required:
            for nodes in at.values():
                inside = {before[node].domain(gang.part_required) for node in nodes}
                assert len(inside) == 1, story
                assert all(before[node].labelled(gang.part_required) for node in nodes), story
        assert all(host.gpus >= 0 and host.cpu >= 0 for host in self.hosts()), story
        return True

    def end(self, name):
        """The gang leaves."""
        for pod in self.world.pods(name):
            self.world.client.delete("pods", "default", pod["metadata"]["name"])
        self.world.client.delete("podgroups.scheduling.gpusched.io", "default", name)


def one_kind(rng):
    count, gpus = rng.choice(ONE_KIND)
    required = rng.choice(["", "", "zone", "block", "rack"])
    return Gang((Ask(count, gpus, rng.choice([1, 4])),), required, rng.choice(["rack", "block"]))


def several_kinds(rng):
    asks = tuple(Ask(*each) for each in rng.choice(SEVERAL))
    return Gang(asks, rng.choice(["", "", "zone", "block"]), "rack")


def sub_groups(rng):
    """Tensor-parallel groups, each in one rack; the whole job in one block or zone."""
    size, gpus = rng.choice([(2, 4), (3, 2), (2, 8), (4, 1), (2, 3)])
    asks = tuple(Ask(size, gpus, 2, part=f"p{number}") for number in range(rng.choice([2, 3])))
    return Gang(asks, rng.choice(["block", "zone"]), "", "rack")


def tight(rng):
    """A gang and what four hosts need to hold exactly it, which no other combination does."""
    kinds = [(7, 9), (6, 30), (5, 11), (4, 17), (3, 40), (2, 5), (1, 28)]
    counts, rooms = [0] * len(kinds), []
    for _ in range(4):
        gpus, cpu = GPUS, CPU
        for index in sorted(range(len(kinds)), key=lambda _: rng.random()):
            size, cores = kinds[index]
            if size <= gpus and cores <= cpu and counts[index] < 3:
                gpus, cpu = gpus - size, cpu - cores
                counts[index] += 1
        rooms.append((GPUS - gpus, CPU - cpu))
    asks = tuple(Ask(count, *kind) for count, kind in zip(counts, kinds, strict=True) if count)
    return Gang(asks, "", "rack"), rooms


def play_gangs(play, seed, make, *, proven=True, config_file="", **shape):
    """Gang after gang; some leave."""

    async def scenario(world):
        cluster = Fragmented(world, seed, **shape)
        await cluster.start(config_file=config_file)
        rng, placed = random.Random(f"{seed}/gangs"), []
        for number in range(6):
            name = f"g{number}"
            if await cluster.judge(name, make(rng), proven=proven):
                placed.append(name)
            else:
                cluster.end(name)
            if placed and rng.random() < 0.4:
                cluster.end(placed.pop(rng.randrange(len(placed))))
            await world.clock.sleep(2)

    play(scenario)


@pytest.mark.parametrize("seed", one_of(3, range(8)))
def test_equal_pods_get_the_fewest_zones_blocks_and_racks(play, seed):
    """And are told to wait only where trying everything finds no place."""
    play_gangs(play, seed, one_kind, shape=(2, 2, 2, 3), bare=seed % 3)


@pytest.mark.parametrize("seed", one_of(3, range(6)))
def test_pods_of_several_kinds_get_the_fewest_zones_blocks_and_racks(play, seed):
    """Where one pass over nodes misses it too."""
    play_gangs(play, 100 + seed, several_kinds, shape=(2, 2, 2, 2), bare=seed % 2)


@pytest.mark.parametrize("seed", one_of(3, range(6)))
def test_each_sub_group_gets_a_rack_and_the_job_a_block(play, seed):
    """Exactly where that is possible."""
    play_gangs(play, 200 + seed, sub_groups, shape=(2, 2, 2, 3), bare=seed % 2)


@pytest.mark.parametrize("seed", one_of(3, range(6)))
def test_the_only_rack_that_holds_a_gang_is_found(play, seed):
    """Each of its hosts has room for one combination of members and nothing else."""

    async def scenario(world):
        gang, rooms = tight(random.Random(seed))
        cluster = Fragmented(world, 300 + seed, shape=(2, 2, 2, 4))
        await cluster.start(plant=rooms)
        assert best(cluster.hosts(), gang) == (1, 1, 1)
        assert await cluster.judge("tight", gang)

    play(scenario)


@pytest.mark.parametrize("placement", ["solver: greedy", "timeBudget: 1ms", "timeBudget: 10s"])
@pytest.mark.parametrize("make", [several_kinds, sub_groups, one_kind])
def test_with_little_or_much_time_no_rule_is_broken(play, tmp_path, placement, make):
    """Equal pods get their best place without any solver, and all do with time."""
    file = tmp_path / "gpusched.yaml"
    file.write_text(f"placement: {{{placement}}}\n")
    proven = make is one_kind or placement.endswith("10s")
    play_gangs(play, 400, make, proven=proven, config_file=str(file), bare=1)
