"""What problems are made of follows the workbench: free amounts, slots left and tightness."""

from __future__ import annotations

import random

import numpy as np

from gpusched.api.meta.resources import Resources
from gpusched.arrays.columns import request_vector
from gpusched.arrays.node_usage import NodeUsage
from gpusched.session.state.nodes.cluster_map import ClusterMap
from gpusched.session.state.nodes.slot_states import KeptSlotStates
from gpusched.testing import entities
from gpusched.topology.levels import TopologyLevel

NODES = 12


def bench_of(given):
    """A workbench of nodes with GPUs and two without."""
    given.nodes(NODES - 2, gpus=8, layout=[[0, 1, 2, 3], [4, 5, 6, 7]])
    given.nodes(2)
    return NodeUsage(given.cache.take_snapshot(0.0).nodes)


def level(label, domain):
    """A level whose domains are named by number; -1 for nodes without a label."""
    names = tuple(str(number) for number in range(max(domain) + 1))
    return TopologyLevel(label, label, np.array(domain, dtype=np.int64), names)


LEVELS = (
    level("zone", [0] * 6 + [1] * 6),
    level("rack", [0, 0, 0, 1, 1, 1, 2, 2, 3, 3, -1, -1]),
)


def as_counted(node_usage, narrow):
    """Steps of tightness, counted node by node."""
    gpu = node_usage.nodes.columns[entities.GPU]
    free = np.maximum(node_usage.nodes.allocatable[:, gpu] - node_usage.used[:, gpu], 0).tolist()
    total = []
    for row in range(NODES):
        peers = [
            [other for other in range(NODES) if numbers[other] == numbers[row]]
            for numbers in narrow
        ]
        total.append(sum(free[other] for each in peers for other in each))
    return [sorted(set(total)).index(each) for each in total]


def test_after_any_moves_they_are_those_of_a_fresh_look(given):
    """Nothing is forgotten that was touched, and what was handed out before stays as it was."""
    node_usage = bench_of(given)
    followed = ClusterMap(node_usage, LEVELS, (), KeptSlotStates())
    narrow = [each.domain.tolist() for each in followed.problem_levels()]
    rng = random.Random(5)
    ask = request_vector(Resources.of({entities.GPU: 1, "cpu": 500}), node_usage.nodes.columns)
    slotted = (entities.GPU,)
    for _ in range(80):
        row, slot = rng.randrange(NODES - 2), 1 << rng.randrange(8)
        if node_usage.free_slots[row] & slot:
            node_usage.add(row, ask, slots=slot)
        else:
            node_usage.remove_pod(row, ask, slots=slot)
        if rng.random() < 0.3:
            continue
        fresh = ClusterMap(node_usage, LEVELS, (), KeptSlotStates())
        free = followed.free_amounts(ask.columns, slotted)
        before = free.tolist()
        assert before == fresh.free_amounts(ask.columns, slotted).tolist()
        assert followed.domain_tightness().tolist() == as_counted(node_usage, narrow)
        for size in (1, 3):
            assert (
                followed.pods_by_free_slots(size).tolist()
                == fresh.pods_by_free_slots(size).tolist()
            )
        node_usage.add(0, ask, slots=0)
        followed.free_amounts(ask.columns, slotted)
        assert free.tolist() == before
        node_usage.remove_pod(0, ask, slots=0)
