"""Gangs of all shapes through a session, against the independent model of ``oracle``."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import pytest

from gpusched.testing.given import Given
from tests.placement.whole.clusters import (
    apart,
    apart_roles,
    cluster,
    elastic,
    judged,
    places_of,
    roles,
    sub_groups,
    together,
)
from tests.placement.whole.oracle import Question, best
from tests.populations import one_of

pytestmark = pytest.mark.long

CLUSTERS = 40
RACKS, PARTS, NODES = 4, 5, 6
"""Terms that are compared: up to racks, up to those of sub-groups, all."""


def proof_of(c: Given) -> str:
    """What the gang's pods say of their places."""
    plan = c.then.plan
    return plan.binds[0].proof if plan.binds else ""


def complaints(
    draw: Callable[[random.Random], Question], *, terms: int, by_affinity: bool = False
) -> list[str]:
    """What is wrong on so many random clusters, each with its seed."""
    found = []
    for seed in one_of(3, range(CLUSTERS)):
        asked = draw(random.Random(f"{draw.__name__}-{seed}"))
        c = cluster(asked, by_affinity=by_affinity)
        c.when.bound()
        wrong = judged(asked, places_of(asked, c), best(asked), terms)
        if wrong:
            found.append(f"seed {seed}: {wrong}, proof {proof_of(c)!r}")
    return found


def test_elastic_gangs_get_the_most_members_in_the_fewest_domains() -> None:
    """As many as fit start at once, as compact as that many can be."""
    assert complaints(elastic, terms=NODES) == []


def test_elastic_gangs_of_two_roles() -> None:
    """Members of two sizes compete for the same nodes."""
    assert complaints(roles, terms=RACKS) == []


def test_ranks_change_domains_no_more_often_than_they_must() -> None:
    """Along the ranks each domain of each level is entered once."""
    found = []
    for seed in one_of(3, range(CLUSTERS)):
        asked = elastic(random.Random(f"ranks-{seed}"))
        c = cluster(asked)
        c.when.bound()
        path = {machine.name: machine.path for machine in asked.machines}
        nodes = c.then.nodes()
        names = [f"g-0-{rank}" for rank in range(asked.kinds[0].pods)]
        order = [path[nodes[name]] for name in names if name in nodes]
        for depth in range(1, asked.levels + 1):
            entered = sum(a[:depth] != b[:depth] for a, b in pairwise(order))
            if order and entered != len({each[:depth] for each in order}) - 1:
                found.append((seed, depth, order))
    assert found == []


def test_pods_that_keep_apart_are_as_compact_as_others() -> None:
    """One a host, one a rack, or spread evenly over hosts: still in the fewest domains."""
    assert complaints(apart, terms=NODES) == []


def test_pods_of_two_sizes_that_keep_apart() -> None:
    """One cap counts the members of both roles."""
    assert complaints(apart_roles, terms=RACKS) == []


def test_pods_that_want_to_be_near_each_other() -> None:
    """Affinity by a level is one domain of it, and the best one."""
    assert complaints(together, terms=NODES, by_affinity=True) == []


def test_sub_groups_without_a_preference_use_few_racks() -> None:
    """Racks used by each sub-group are the third thing that counts."""
    assert complaints(sub_groups, terms=PARTS) == []
