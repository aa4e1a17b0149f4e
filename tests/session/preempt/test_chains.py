"""Victims that would have a third gang evicted: together with others, in parts, or to grow again."""

from __future__ import annotations

import pytest

from gpusched.api.gang.pod_group import SubGroup, TopologyRequest
from gpusched.api.pod.pod import PodPhase
from gpusched.session.preempt.claims import stability
from gpusched.testing import entities
from gpusched.testing.given import Given
from tests.session.running import runs

LATELY = entities.NOW - 10


@pytest.fixture
def given():
    """A cluster under the shipped policy, with a queue that is due six GPUs and one that borrows."""
    c = Given()
    c.queue("owner", limits={"deserved": {entities.GPU: 6}})
    return c.queue("guest", limits={"deserved": {entities.GPU: 0}})


def high(c, name="high", **spec):
    """A gang of one pod and of priority, in the queue that is due."""
    return c.gang(name, pods=1, queue="owner", priority=9, created=c.now, **spec)


def test_a_gang_that_ends_by_two_claims_of_a_session_is_asked_too(given):
    """The first takes a member that it can spare, the second would take its last one."""
    c = given.node("n0", gpus=2).node("n1", gpus=2)
    runs(c, "own", "n0 n0", min_member=1, queue="owner", since=LATELY)
    runs(c, "lent", "n1 n1", queue="guest")
    high(c, "high", gpus=1)
    high(c, "higher", gpus=1)
    c.when.one_session()
    assert c.then.evicted() == ["lent-0", "lent-1", "own-1"]


@pytest.mark.parametrize(("free", "evicted"), [(2, []), (4, ["one-0", "two-0"])])
def test_victims_of_one_claim_do_not_find_the_same_room(given, free, evicted):
    """Either of the two would fit on the free node; together they would have the guest evicted."""
    c = given.node("n0", gpus=4, labels={"kind": "a"}).node("n1", gpus=free).node("n2", gpus=2)
    runs(c, "one", "n0", gpus=2, queue="owner")
    runs(c, "two", "n0", gpus=2, queue="owner")
    runs(c, "lent", "n2", gpus=2, queue="guest")
    c.queue("owner", limits={"deserved": {entities.GPU: 8}})
    high(c, gpus=4, node_selector={"kind": "a"})
    c.when.one_session()
    assert c.then.evicted() == evicted


def test_a_gang_whose_minimum_succeeded_finds_no_room_where_there_is_none(given):
    """Sub-group a has succeeded; nothing is missing then, and still its other members need room."""
    c = given.node("n0", gpus=4).node("n1", gpus=4)
    parts = [SubGroup("a", 1, TopologyRequest()), SubGroup("b", 2, TopologyRequest())]
    group = {"sub_groups": parts, "min_sub_groups": 1}
    runs(c, "own", "n0 n0", gpus=2, min_member=1, queue="owner", since=LATELY, group=group)
    for rank in range(2):
        c.gone(f"own-{rank}")
        c.pod(
            f"own-{rank}", group="own", gpus=2, rank=rank, sub_group="b", node="n0",
            slots=0b11 << 2 * rank, plan="p", phase=PodPhase.RUNNING, scheduled=LATELY,
        )  # fmt: skip
    c.pod("own-2", group="own", gpus=2, rank=2, sub_group="a", phase=PodPhase.SUCCEEDED)
    runs(c, "lent", "n1", gpus=4, queue="guest")
    high(c, gpus=2)
    c.when.one_session()
    assert c.then.evicted() == ["lent-0"]


def test_members_that_a_gang_can_spare_are_asked_whether_they_grow_over_others(given):
    """The member that leaves would take back one that the guest can spare: that one goes at once."""
    c = given.node("n0", gpus=2).node("n1", gpus=2)
    runs(c, "own", "n0 n0", min_member=1, queue="owner", since=LATELY)
    runs(c, "lent", "n1 n1", min_member=1, queue="guest")
    high(c, gpus=1)
    c.when.carried_out()
    assert c.then.evicted() == ["lent-1"]
    c.now += 1.0
    c.when.bound()
    assert (c.then.started(), c.then.evicted()) == (["high"], [])


@pytest.mark.parametrize(("spare", "evicted"), [(1, []), (2, ["own-0", "own-1"])])
def test_a_victim_that_starts_with_its_minimum_does_not_grow_over_others(given, spare, evicted):
    """It fits elsewhere with one member; the other one would take back the guest's, if it can."""
    c = given.node("n0", gpus=2, labels={"kind": "a"}).node("n1", gpus=3)
    runs(c, "own", "n0 n0", min_member=1, queue="owner")
    runs(c, "lent", "n1 n1", min_member=spare, queue="guest")
    high(c, gpus=2, node_selector={"kind": "a"})
    c.when.one_session()
    assert c.then.evicted() == evicted


def test_equal_victims_are_searched_for_once(given, monkeypatch):
    """What stays for a claimant stays with all of its class, and takes one search of the session's."""
    monkeypatch.setattr(stability, "TRIALS_MAX", 1)
    c = given
    for number in range(3):
        c.node(f"n{number}", gpus=2, labels={"kind": "a"})
        runs(c, f"own{number}", f"n{number}", gpus=2, queue="owner")
    c.queue("owner", limits={"deserved": {entities.GPU: 8}})
    runs(c.node("n3", gpus=2), "lent", "n3", gpus=2, queue="guest")
    high(c, gpus=2, node_selector={"kind": "a"})
    c.when.one_session()
    assert c.then.evicted() == []


def test_many_equal_victims_that_stay_do_not_hide_the_one_that_may_leave(given):
    """More would have others evicted than are chosen one after another; the last loses the most work."""
    c = given
    for number in range(12):
        c.node(f"n{number}", gpus=2, labels={"kind": "a"})
        runs(c, f"own{number}", f"n{number}", gpus=2, queue="owner", since=LATELY)
    only_here = {"node_selector": {"kind": "a"}}
    c.node("n12", gpus=2, labels={"kind": "a"})
    runs(c, "stable", "n12", gpus=2, queue="owner", since=LATELY - 86_400, **only_here)
    c.queue("owner", limits={"deserved": {entities.GPU: 28}})
    runs(c.node("n13", gpus=2), "lent", "n13", gpus=2, queue="guest")
    high(c, gpus=2, **only_here)
    c.when.one_session()
    assert c.then.evicted() == ["stable-0"]


def test_after_a_victim_that_stays_the_cheapest_others_go(given):
    """Of those that are found at once, one after the other for each place, two gangs would lose more work than one."""
    c = given.queue("owner", limits={"deserved": {entities.GPU: 14}})
    for number in range(5):
        c.node(f"n{number}", gpus=2, labels={"kind": "a"})
    runs(c.node("n5", gpus=2), "lent", "n5", gpus=2, queue="guest")
    here = {"node_selector": {"kind": "a"}, "gpus": 2, "queue": "owner"}
    runs(c, "stays", "n0", gpus=2, queue="owner", since=entities.NOW - 1)
    runs(c, "first", "n1", since=entities.NOW - 100, **here)
    runs(c, "second", "n2", since=entities.NOW - 200, **here)
    runs(c, "both", "n3 n4", since=entities.NOW - 120, **here)
    c.gang("high", pods=2, priority=9, created=c.now, **here)
    c.when.one_session()
    assert c.then.evicted() == ["both-0", "both-1"]
