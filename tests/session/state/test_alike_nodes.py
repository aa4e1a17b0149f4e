"""Nodes that offer and hold the same amounts are counted and rated once, and decisions stay what they are."""

from __future__ import annotations

import random
from typing import Any, ClassVar

import attrs
import numpy as np
import pytest

from gpusched.arrays.alike_rows import AlikeRows
from gpusched.arrays.columns import RequestVector
from gpusched.arrays.node_usage import NodeUsage
from gpusched.config.model import DEFAULT
from gpusched.pluginhost.registry import load_policy
from gpusched.testing import entities
from gpusched.testing.authors import cluster_under
from gpusched.testing.given import Given

NODES = 60


def cluster(seed: int) -> Given:
    """Nodes of three kinds, some in use, and gangs of which no two ask for the same."""
    rng = random.Random(seed)
    c = Given(policy=load_policy(DEFAULT)).queue("q")
    for number in range(NODES):
        c.node(f"node-{number}", gpus=rng.choice((0, 4, 8)), cpu=16_000, memory=64 * entities.GIB)
    for number in range(20):
        c.pod(f"runs-{number}", cpu=1000, node=f"node-{rng.randrange(NODES)}", queue="q")
    for number in range(40):
        asks = {"gpus": rng.randrange(3), "cpu": 500 + number, "memory": entities.GIB + number}
        c.gang(f"waits-{number}", pods=rng.choice((1, 1, 2)), queue="q", **asks)
    return c


@pytest.mark.parametrize("seed", range(6))
def test_groups_follow_usage(seed):
    """Whatever is added, removed, released and looked at: rows of a group are equal, of two are not."""
    rng = random.Random(seed)
    usage = NodeUsage(cluster(seed).cache.take_snapshot(0.0).nodes)
    ask = RequestVector(np.array([0, 1]), np.array([1000, 2000]), "")
    added: list[int] = []
    for step in range(80):
        usage.show_usage(later=rng.random() < 0.5)
        if added and rng.random() < 0.5:
            row = added.pop(rng.randrange(len(added)))
            usage.release_later(row, ask) if rng.random() < 0.3 else usage.remove_pod(
                row, ask, slots=0
            )
        else:
            added.append(rng.randrange(NODES))
            usage.add(added[-1], ask, slots=0)
        if step % 3:
            continue
        firsts, group = usage.alike.groups()
        amounts = np.hstack([usage.nodes.allocatable, usage.used])
        assert (amounts[firsts[group]] == amounts).all()
        assert len(np.unique(amounts, axis=0)) == len(firsts)
        free = usage.free_amounts(firsts, ask.columns)
        assert (usage.alike.free_amounts(ask.columns) == free).all()


@pytest.mark.parametrize("seed", range(4))
def test_groups_go_on_with_the_usage_of_another_moment(seed):
    """Given groups of one moment, when pods came, left and nodes changed, then those of the next are exact."""
    rng = random.Random(seed)
    c = cluster(seed)
    before = None
    for step in range(6):
        usage = NodeUsage(c.cache.take_snapshot(float(step)).nodes, alike_before=before)
        firsts, group = usage.alike.groups()
        amounts = np.hstack([usage.nodes.allocatable, usage.used])
        assert (amounts[firsts[group]] == amounts).all()
        assert len(np.unique(amounts, axis=0)) == len(firsts)
        assert before is None or usage.alike is before
        ask = RequestVector(np.array([0, 1]), np.array([1000, 2000]), "")
        usage.add(rng.randrange(NODES), ask, slots=0)  # of a session, whose places come to nothing
        usage.alike.groups()
        usage.add(rng.randrange(NODES), ask, slots=0)
        before = usage.release_alike()
        assert before is not None
        c.node(f"node-{rng.randrange(NODES)}", gpus=rng.choice([4, 8]))


def test_groups_begin_anew_where_most_nodes_changed():
    """Given groups of another cluster, or of none of these amounts, then nothing goes on with them."""
    before = NodeUsage(cluster(0).cache.take_snapshot(0.0).nodes).alike
    other = Given().nodes(3, gpus=8).cache.take_snapshot(0.0).nodes
    for nodes in (other, cluster(1).nodes(NODES, gpus=3).cache.take_snapshot(0.0).nodes):
        assert NodeUsage(nodes, alike_before=before).alike is not before


@pytest.mark.parametrize("seed", range(6))
def test_plans_are_those_of_nodes_looked_at_one_by_one(seed, monkeypatch):
    """Given unlike gangs on many nodes, then groups change neither places nor sentences."""
    grouped = cluster(seed).when.one_session()
    monkeypatch.setattr(AlikeRows, "few_groups", lambda _self: None)
    assert cluster(seed).when.one_session() == grouped
    assert grouped.binds


def rating(asked: list[int], rate: Any, only_with: tuple[str, ...] = ()) -> Any:
    """A policy whose score says that it is alike, and notes how many nodes it is asked about."""

    @attrs.frozen
    class Rating:
        name: ClassVar[str] = "rating"
        api: ClassVar[int] = 1

        def open(self, hooks, _view):
            def score(_pod_class, rows):
                asked.append(len(rows))
                return rate(rows)

            hooks.node_score(score, alike=True, only_with=only_with)

    return Rating()


def test_one_node_of_each_group_is_rated():
    """Given equal nodes, then a score that is alike is asked about one of them."""
    asked: list[int] = []
    c = Given(policy=load_policy(DEFAULT))
    rates = rating(asked, lambda rows: rows.used("nvidia.com/gpu"))
    c.policy = attrs.evolve(c.policy, tiers=((rates,), *c.policy.tiers))
    c.queue("q").nodes(NODES, gpus=8).gang("g", pods=1, gpus=1, queue="q")
    assert c.when.one_session().binds
    assert asked == [1]


@pytest.mark.parametrize(
    ("rate", "told"),
    [
        (lambda rows: rows.used("nvidia.com/gpu"), ""),
        (lambda rows: np.arange(len(rows)), "rates node-0 and node-1 unlike"),
    ],
)
def test_a_score_that_is_not_alike_fails_where_it_is_tried(rate, told):
    """Given equal nodes that a score rates differently, then trials for authors find it."""
    c = cluster_under(rating([], rate)).queue("q")
    c.nodes(4, gpus=8).gang("g", pods=1, gpus=1, queue="q")
    c.when.one_session()
    faults = " ".join(c.then.faults())
    assert told in faults
    assert bool(faults) == bool(told)


def test_a_score_is_asked_about_classes_with_its_fields():
    """Given pods of which one has what a score looks at, then it is asked about that one."""
    asked: list[int] = []
    c = Given(policy=load_policy(DEFAULT))
    rates = rating(asked, lambda rows: rows.used("nvidia.com/gpu"), ("node_selector",))
    c.policy = attrs.evolve(c.policy, tiers=((rates,), *c.policy.tiers))
    c.queue("q").nodes(NODES, gpus=8, labels={"kind": "a"}).pod("plain", gpus=1, queue="q")
    c.when.one_session()
    assert asked == []
    c.pod("chooses", gpus=1, queue="q", node_selector={"kind": "a"}).when.one_session()
    assert asked == [1]


def test_a_score_of_other_classes_fails_where_it_is_tried():
    """Given a score that rates what it is said to have no opinion on, then trials for authors find it."""
    c = cluster_under(rating([], lambda rows: rows.used("nvidia.com/gpu") + 1, ("node_selector",)))
    c.queue("q").nodes(4, gpus=8).gang("g", pods=1, gpus=1, queue="q")
    c.when.one_session()
    assert "only_with node_selector, but rates a class without" in " ".join(c.then.faults())
