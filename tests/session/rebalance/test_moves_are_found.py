"""A move that exists is made, and none is cheaper: against all subsets, with code of its own."""

from __future__ import annotations

import random
from itertools import combinations

import attrs
import pytest

from gpusched.api.devices.gpu_types import GpuTypeRequest
from gpusched.api.gang.pod_group import TopologyRequest
from gpusched.api.meta.identity import UID, Owner
from gpusched.testing import entities
from gpusched.testing.given import Given
from tests.populations import one_of
from tests.session.running import runs
from tests.shipped_policy import with_arguments

ACTIONS = ("enqueue", "allocate", "consolidate")
FREELY = with_arguments(topology={"compact": "gangs", "mixGpuTypes": "freely"})
PRODUCT = "nvidia.com/gpu.product"
TYPE = {"a": "A100", "b": "H100"}
ZONE = {f"n{n}": "abb"[n % 3] for n in range(9)}
OWNER = Owner("ReplicaSet", "r", UID("r"))


@attrs.define
class Fragments:
    """A cluster with holes: GPUs of each node, gangs that run, and the gang that waits.

    Attributes:
        running: by name, GPUs of each pod, the node of each and seconds since their start.
        zones: of nodes that a gang may use, by name; all where it is not there.
        wide: number of pods that wait and GPUs of each.
    """

    gpus: dict[str, int]
    racks: dict[str, str]
    running: dict[str, tuple[int, list[str], int]]
    zones: dict[str, str]
    wide: tuple[int, int]
    in_rack: bool = False

    def able(self, gang):
        """Nodes that a gang may use."""
        zone = self.zones.get(gang)
        return tuple(n for n in self.gpus if zone is None or ZONE[n] == zone)


def draw(seed):
    """A random cluster in which a gang waits for room that is free in pieces; most have a way."""
    rng = random.Random(f"fragments {seed}")
    while True:
        world = draw_any(rng)
        if not fits(world, ()) and (rng.random() < 0.05 or fits(world, tuple(world.running))):
            return world


def draw_any(rng):
    """A random cluster with a gang that waits."""
    gpus = {f"n{n}": rng.choice((2, 4, 4, 8)) for n in range(rng.randint(2, 6))}
    racks = {name: f"r{n % 2}" for n, name in enumerate(gpus)}
    free, running, zones = dict(gpus), {}, {}
    for number in range(rng.randint(2, 8)):
        each, at = rng.choice((1, 1, 2, 2, 3)), []
        for _ in range(rng.choice((1, 1, 2, 3))):
            able = [name for name, left in free.items() if left >= each]
            if able:
                at.append(rng.choice(able))
                free[at[-1]] -= each
        if at:
            running[f"g{number}"] = (each, at, rng.randint(5, 100))
            if len({ZONE[node] for node in at}) == 1 and rng.random() < 0.5:
                zones[f"g{number}"] = ZONE[at[0]]
    wide = (rng.choice((1, 1, 2, 3)), rng.choice((2, 3, 4)))
    return Fragments(gpus, racks, running, zones, wide, in_rack=rng.random() < 0.3)


def packs(free, items):
    """Whether items, each a size and the nodes that it may use, fit; larger ones first."""
    states = {tuple(free.values())}
    place = {name: number for number, name in enumerate(free)}
    for size, able in items:
        states = {
            (*state[: place[name]], state[place[name]] - size, *state[place[name] + 1 :])
            for state in states
            for name in able
            if state[place[name]] >= size
        }
    return bool(states)


def fits(world, moved):
    """Whether the gang that waits fits beside all, when these gangs leave and come back."""
    free = dict(world.gpus)
    for name, (each, nodes, _) in world.running.items():
        for node in nodes if name not in moved else ():
            free[node] -= each
    count, each = world.wide
    everywhere = tuple(world.gpus)
    back = [
        (world.running[name][0], world.able(name)) for name in moved for _ in world.running[name][1]
    ]
    areas = [everywhere]
    if world.in_rack:
        areas = [
            tuple(n for n in everywhere if world.racks[n] == rack)
            for rack in sorted(set(world.racks.values()))
        ]
    return any(
        packs(free, sorted([*back, *[(each, area)] * count], key=lambda item: -item[0]))
        for area in areas
    )


def lost(world, moved):
    """GPU-seconds that are done again."""
    return sum(
        each * len(nodes) * since for each, nodes, since in (world.running[name] for name in moved)
    )


def cheapest(world):
    """What moves lose at least; None where none help, 0 where none are needed."""
    choices = [
        moved
        for size in range(len(world.running) + 1)
        for moved in combinations(sorted(world.running), size)
    ]
    choices.sort(key=lambda moved: lost(world, moved))
    return next((lost(world, moved) for moved in choices if fits(world, moved)), None)


def bound_to(world, name, *, by_type):
    """What holds a gang to its zone: a node selector, or that it takes one type of GPUs alone."""
    zone = world.zones.get(name)
    if zone is None:
        return {}
    if by_type:
        return {"group": {"gpu_types": GpuTypeRequest(speeds=((TYPE[zone], 1000),))}}
    return {"node_selector": {"zone": zone}}


def decide(world, *, by_type=False):
    """What the product loses by moves; None where it makes none, 0 where the gang starts."""
    c = Given(config=attrs.evolve(FREELY, actions=ACTIONS))
    for name, gpus in world.gpus.items():
        zone = {"zone": ZONE[name], **({PRODUCT: TYPE[ZONE[name]]} if by_type else {})}
        c.node(name, gpus=gpus, labels={"gpusched.io/rack": world.racks[name], **zone})
    for name, (each, nodes, since) in world.running.items():
        bound = bound_to(world, name, by_type=by_type)
        runs(c, name, " ".join(nodes), gpus=each, owner=OWNER, since=entities.NOW - since, **bound)
    count, each = world.wide
    wish = TopologyRequest(required="rack" if world.in_rack else "")
    c.gang("wide", pods=count, gpus=each, topology=wish)
    plan = c.when.one_session()
    if "wide" in c.then.started():
        return 0
    moved = [order.gang.name for claim in plan.preemptions for order in claim.moves]
    return lost(world, moved) if moved else None


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_the_cheapest_move_is_made(first):
    """Where gangs can make room by moving they do, and they are those that lose least."""
    found = {
        seed: (decide(draw(seed)), cheapest(draw(seed)))
        for seed in one_of(4, range(first, first + 20))
    }
    assert {seed: each for seed, each in found.items() if each[0] != each[1]} == {}


@pytest.mark.parametrize("first", range(0, 120, 40))
def test_gangs_that_move_stay_on_their_types_of_gpus(first):
    """The same clusters, each zone of one type: a gang that takes one type is held to its nodes."""
    found = {
        seed: (decide(draw(seed), by_type=True), cheapest(draw(seed)))
        for seed in one_of(4, range(first, first + 40))
    }
    assert {seed: each for seed, each in found.items() if each[0] != each[1]} == {}
