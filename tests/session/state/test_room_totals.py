"""Room of all nodes together, followed from snapshot to snapshot."""

from __future__ import annotations

import attrs
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gpusched.api.devices.gpu_share import GpuShare
from gpusched.api.meta.resources import Resources
from gpusched.session.state.equivalence import EquivalenceClasses
from gpusched.session.state.order.room_totals import Asking, GangRoom, RoomTotals
from gpusched.testing.given import Given

_AMOUNTS = st.integers(0, 12)


def _nodes(rows):
    """Columns of five nodes, of which so much is used and leaves."""
    c = Given().nodes(5, gpus=8, cpu=10)
    nodes = c.cache.take_snapshot(c.now).nodes
    used, leaving = np.zeros_like(nodes.allocatable), np.zeros_like(nodes.allocatable)
    names = ("cpu", "nvidia.com/gpu")
    for row, (cpu, gpus, leaves) in enumerate(rows):
        used[row, [nodes.columns[name] for name in names]] = cpu, gpus
        leaving[row, nodes.columns["nvidia.com/gpu"]] = min(gpus, leaves)
    return attrs.evolve(nodes, used=used, leaving=leaving)


def _fits(nodes, request):
    """Pods that fit, counted node by node."""
    found = 0
    for row in range(len(nodes)):
        free = nodes.allocatable[row] - nodes.used[row] + nodes.leaving[row]
        found += max(0, min(int(free[nodes.columns[name]]) // much for name, much in request.items))
    return found


@given(
    st.lists(
        st.lists(st.tuples(_AMOUNTS, _AMOUNTS, _AMOUNTS), min_size=5, max_size=5),
        min_size=2,
        max_size=5,
    ),
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 9)), min_size=1, max_size=4, unique=True),
)
def test_what_is_followed_is_what_would_be_counted_anew(moments, asked):
    """Given nodes that change, what is followed of each request is the sum of what fits each node."""
    requests = [
        Resources(
            tuple((name, much) for name, much in (("cpu", cpu), ("nvidia.com/gpu", gpus)) if much)
        )
        for cpu, gpus in asked
    ]
    totals = RoomTotals()
    for number, rows in enumerate(moments):
        nodes = _nodes(rows)
        totals.follow(nodes)
        for request in requests[: number + 1]:  # some are asked about later than others
            assert totals.totals[totals.number_of(request)] == _fits(nodes, request)


def test_what_no_node_offers_has_no_room():
    """Given a resource that no node has, there is room for none; for what asks nothing there is no end of it."""
    totals = RoomTotals()
    totals.follow(_nodes([(0, 0, 0)] * 5))
    assert totals.number_of(Resources((("example.com/fpga", 1),))) == -1
    assert totals.number_of(Resources(())) is None


def test_gangs_that_are_compared_together_are_told_what_each_is_told():
    """Given gangs of one and of several kinds of pods, of none that fit and of nothing that nodes offer, then a table says of each what is said of it alone."""
    c = Given().nodes(5, gpus=8, cpu=10)
    for number, (pods, gpus) in enumerate(
        [(1, 1), (3, 8), (6, 8), (40, 1), (41, 1), (1, 9), (2, 0)]
    ):
        c.gang(f"g-{number}", pods=pods, gpus=gpus)
    c.gang("shared", pods=1, share=GpuShare(thousandths=500))
    totals, kinds = RoomTotals(), EquivalenceClasses()
    for used in (0, 3, 1):
        nodes = _nodes([(0, used, 0)] * 5)
        gangs = c.cache.take_snapshot(c.now).gangs
        asking = Asking([(gang, [gang.key]) for gang in gangs])
        room = GangRoom(totals, nodes, kinds, {})
        alone = [GangRoom(totals, nodes, kinds, {}).may_suffice(gang) for gang in gangs]
        assert room.each_may_suffice(asking) == alone
        assert room.each_may_suffice_beside(asking) == alone
    assert True in alone
    assert False in alone


@given(
    st.lists(st.tuples(_AMOUNTS, _AMOUNTS, _AMOUNTS), min_size=5, max_size=5),
    st.dictionaries(
        st.sampled_from(["node-0", "node-3", "gone"]),
        st.tuples(_AMOUNTS, st.none() | _AMOUNTS),
        max_size=3,
    ),
)
def test_room_beside_reservations_is_what_fits_beside_them(rows, spare):
    """Given nodes of which no more than so much may be taken, then that, or what is free where it is less, is what counts."""
    nodes, request = _nodes(rows), Resources((("cpu", 2), ("nvidia.com/gpu", 1)))
    told = {
        name: Resources.of({"cpu": cpu} | ({} if gpus is None else {"nvidia.com/gpu": gpus}))
        for name, (cpu, gpus) in spare.items()
    }
    totals = RoomTotals()
    totals.follow(nodes)
    number = totals.number_of(request)
    used, leaving = nodes.used.copy(), nodes.leaving.copy()
    for name, most in told.items():
        for resource, amount in most.items:
            if name in nodes.row:
                at = nodes.row[name], nodes.columns[resource]
                free = nodes.allocatable[at] - used[at] + leaving[at]
                used[at] += max(0, free - amount)
    assert totals.counts_beside(told)[number] == _fits(
        attrs.evolve(nodes, used=used, leaving=leaving), request
    )
