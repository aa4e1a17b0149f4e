"""Which share of the free GPUs typical requests cannot use, on nodes and in domains."""

from __future__ import annotations

import random

import pytest

from gpusched.session.state.session_cache import SessionCache
from gpusched.session.status.fragmentation import fragmentation_by_level
from gpusched.testing.entities import NOW
from gpusched.testing.given import Given


def measured(given: Given) -> dict[str, float]:
    snapshot = given.cache.take_snapshot(NOW)
    levels = SessionCache().topology_levels(snapshot.nodes, snapshot.topologies)
    return fragmentation_by_level(snapshot.nodes, snapshot.gangs, levels)


def test_left_over_slots_of_a_node_are_wasted(given):
    """Three free GPUs hold one pod of two: a third is wasted, half of the pods being such."""
    given.nodes(1, gpus=8).pod("held", gpus=5, node="node-0", slots=0b11111, scheduler="other")
    given.pod("one", gpus=1).pod("two", gpus=2)
    assert measured(given)["host"] == pytest.approx((0 + 1) / (2 * 3))


def test_a_typical_gang_wastes_what_no_domain_offers_whole(given):
    """Two racks with three and four free nodes hold one gang of three nodes each."""
    given.nodes(3, gpus=8, rack="a").nodes(4, gpus=8, rack="b")
    given.gang("g", pods=3, gpus=8)
    told = measured(given)
    assert told["host"] == 0
    assert told["rack"] == pytest.approx(1 / 7)


def test_nodes_of_no_domain_are_of_no_use_to_gangs_there(given):
    """What is free outside every rack counts as wasted for racks."""
    given.nodes(2, gpus=8, rack="a").nodes(2, gpus=8)
    given.gang("g", pods=2, gpus=8)
    assert measured(given)["rack"] == pytest.approx(1 / 2)


def test_islands_count_where_the_layout_is_known(given):
    """Two free GPUs in different islands hold no pod of two unspanned."""
    pair = ((0, 1), (2, 3))
    given.node("n", gpus=4, layout=pair).pod("a", gpus=2, node="n", slots=0b0101)
    given.pod("b", gpus=2)
    assert measured(given)["host"] == 1


def test_without_gpu_requests_there_is_no_answer(given):
    """Nothing is typical where nobody asks."""
    given.nodes(2, gpus=8).pod("p", cpu=1000)
    assert measured(given) == {}


def test_a_full_cluster_wastes_nothing(given):
    """Nothing free is not divided by."""
    given.nodes(1, gpus=1).pod("a", gpus=1, node="node-0", slots=1).pod("b", gpus=1)
    assert measured(given) == {"host": 0.0}


@pytest.mark.parametrize("seed", range(15))
def test_ratios_are_what_counting_one_by_one_gives(seed):
    """The definition, gang shape by gang shape and rack by rack."""
    rng = random.Random(seed)
    given = Given()
    free: dict[int, list[int]] = {}
    for index in range(rng.randint(2, 9)):
        rack, used = rng.randrange(3), rng.randrange(9)
        given.nodes(1, gpus=8, rack=f"r{rack}")
        if used:
            slots = (1 << used) - 1
            given.pod(f"h{index}", gpus=used, node=f"node-{index}", slots=slots, scheduler="other")
        free.setdefault(rack, []).append(8 - used)
    shapes = [(rng.randint(1, 3), rng.choice((1, 2, 4, 8))) for _ in range(4)]
    for index, (pods, gpus) in enumerate(shapes):
        given.gang(f"g{index}", pods=pods, gpus=gpus)
    total = sum(map(sum, free.values()))
    wasted = sum(
        total
        - pods * gpus * sum(sum(left // gpus for left in nodes) // pods for nodes in free.values())
        for pods, gpus in shapes
    )
    sizes = [gpus for pods, gpus in shapes for _ in range(pods)]
    left_over = sum(left % gpus for gpus in sizes for nodes in free.values() for left in nodes)
    told = measured(given)
    assert told["rack"] == pytest.approx(wasted / (4 * total) if total else 0, abs=2e-3)
    assert told["host"] == pytest.approx(left_over / (len(sizes) * total) if total else 0, abs=5e-3)
