"""States of free slots follow the workbench."""

from __future__ import annotations

import random

import numpy as np

from gpusched.api.devices.slots import slot_mask
from gpusched.api.meta.gpu_resources import GpuResource, GpuResources, gpu_resources_in_force
from gpusched.api.meta.resources import Resources
from gpusched.arrays.columns import request_vector
from gpusched.arrays.node_usage import NodeUsage
from gpusched.session.state.nodes.slot_states import KeptSlotStates, SlotStates
from gpusched.testing import entities
from gpusched.testing.given import Given


def bench_of(given):
    """A workbench of some nodes with and without layouts."""
    given.nodes(3, gpus=8, layout=[[0, 1, 2, 3], [4, 5, 6, 7]])
    given.nodes(2, gpus=8).nodes(1)
    return NodeUsage(given.cache.take_snapshot(0.0).nodes)


def test_states_after_any_moves_are_those_of_a_fresh_look(given):
    """Taking and giving back slots changes the states of these rows and of no other."""
    node_usage = bench_of(given)
    states = SlotStates(node_usage, KeptSlotStates())
    rng = random.Random(3)
    ask = request_vector(Resources.of({entities.GPU: 1}), node_usage.nodes.columns)
    for _ in range(60):
        row = rng.randrange(5)
        slot = 1 << rng.randrange(8)
        if node_usage.free_slots[row] & slot:
            node_usage.add(row, ask, slots=slot)
        else:
            node_usage.remove_pod(row, ask, slots=slot)
        numbers, tables = states.current_states()
        fresh, fresh_tables = SlotStates(node_usage, KeptSlotStates()).current_states()
        assert [tables.states[number] for number in numbers] == [
            fresh_tables.states[number] for number in fresh
        ]


def test_nodes_that_look_alike_share_a_state(given):
    """Which of two equal islands is used makes no difference; a node without GPUs has nothing."""
    node_usage = bench_of(given)
    ask = request_vector(Resources.of({entities.GPU: 2}), node_usage.nodes.columns)
    node_usage.add(0, ask, slots=slot_mask((0, 1)))
    node_usage.add(1, ask, slots=slot_mask((5, 7)))
    numbers, tables = SlotStates(node_usage, KeptSlotStates()).current_states()
    assert numbers[0] == numbers[1] != numbers[2]
    assert numbers[3] == numbers[4]
    assert tables.states[int(numbers[5])] == ()
    assert tables.slot_cost(int(numbers[0]), (4, 2))[0] == 0


def test_states_handed_out_stay_as_they_were(given):
    """A problem keeps the states of its moment while others go on placing."""
    node_usage = bench_of(given)
    states = SlotStates(node_usage, KeptSlotStates())
    before, _ = states.current_states()
    kept = before.copy()
    node_usage.add(
        0, request_vector(Resources.of({entities.GPU: 1}), node_usage.nodes.columns), slots=1
    )
    after, _ = states.current_states()
    assert np.array_equal(before, kept)
    assert after[0] != before[0]


def test_states_kept_from_session_to_session_are_those_of_a_fresh_look():
    """Pods come and go, nodes come, go and change; numbers are in the order of the rows, whatever was met before."""
    given = Given()  # pods may share slots here
    rng, kept, made = random.Random(5), KeptSlotStates(), 0
    given.nodes(6, gpus=8, layout=[[0, 1, 2, 3], [4, 5, 6, 7]])
    for step in range(60):
        change = rng.randrange(6)
        if change < 3:
            given.pod(
                f"runs-{step}", gpus=1, node=f"node-{rng.randrange(6)}", slots=1 << rng.randrange(8)
            )
        elif change == 3:
            given.gone(f"runs-{rng.randrange(step + 1)}")
        elif change == 4:
            made += 1
            given.node(f"more-{made}", gpus=rng.choice((0, 4, 8)))
        else:
            given.node(
                f"node-{rng.randrange(6)}",
                gpus=8,
                layout=rng.choice((None, [[0, 1], [2, 3, 4, 5, 6, 7]])),
            )
        node_usage = NodeUsage(given.cache.take_snapshot(0.0).nodes)
        numbers, tables = SlotStates(node_usage, kept).current_states()
        fresh, fresh_tables = SlotStates(node_usage, KeptSlotStates()).current_states()
        assert np.array_equal(numbers, fresh)
        assert tables.states == fresh_tables.states


def test_states_of_another_list_of_gpus_are_found_anew(given):
    """Which resources are numbered is the configuration's to say."""
    node_usage, kept = bench_of(given), KeptSlotStates()
    SlotStates(node_usage, kept).current_states()
    with gpu_resources_in_force(GpuResources(listed=(GpuResource(name="example.com/other"),))):
        other = NodeUsage(given.cache.take_snapshot(0.0).nodes)
        numbers, tables = SlotStates(other, kept).current_states()
    assert {tables.states[number] for number in numbers} == {()}
