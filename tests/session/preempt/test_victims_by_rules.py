"""Gangs that rules between pods keep out, not a lack of room: who is in their way leaves."""

from __future__ import annotations

import pytest

from gpusched.api.affinity.pod_terms import HostPort, PodTerm, SpreadTerm
from tests.session.framework.test_pod_rules import APART, HOST, PORT, WORK, ZONE, app, hosts
from tests.session.running import runs

AWAY = {"pod_anti_affinity": [PodTerm(HOST, app("loud"))]}
LOUD = {"labels": {"app": "loud"}}


def test_a_pod_from_which_the_claimant_keeps_apart_leaves(given):
    """There is room for both, but the claimant may not be where the other is."""
    c = runs(hosts(given, 1, gpus=8), "low", "h0", **LOUD)
    c.gang("g", pods=1, gpus=1, priority=9, **AWAY)
    c.when.one_session()
    assert c.then.evicted() == ["low-0"]
    assert c.then.reason("g") == "PreemptionInProgress"


def test_only_those_in_the_way_leave(given):
    """Others of lower priority on the same node and elsewhere stay."""
    c = runs(hosts(given, 2, gpus=8), "low", "h0", **LOUD)
    runs(c, "calm", "h0 h0 h0", min_member=1)
    runs(c, "high", "h1", priority=9, **LOUD)
    c.gang("g", pods=1, gpus=1, priority=9, **AWAY)
    c.when.one_session()
    assert c.then.evicted() == ["low-0"]


def test_a_pod_that_keeps_apart_from_the_claimant_leaves(given):
    """The rule may be the victim's: it counts both ways."""
    c = runs(hosts(given, 1, gpus=8), "low", "h0", pod_anti_affinity=[PodTerm(HOST, app("work"))])
    c.gang("g", pods=1, gpus=1, priority=9, labels=WORK)
    c.when.one_session()
    assert c.then.evicted() == ["low-0"]


def test_who_holds_the_port_leaves(given):
    """One of two nodes has the port free: one eviction makes it two."""
    c = runs(hosts(given, 2, gpus=8), "low", "h0", ports=[PORT])
    c.gang("g", pods=2, gpus=1, priority=9, ports=[PORT])
    c.when.one_session()
    assert c.then.evicted() == ["low-0"]


def test_another_port_is_in_nobodys_way(given):
    """Nobody leaves when there is room and no rule is broken."""
    c = runs(hosts(given, 1, gpus=8), "low", "h0", ports=[HostPort("0.0.0.0", "TCP", 1)])
    c.gang("g", pods=1, gpus=1, priority=9, ports=[PORT])
    c.when.one_session()
    assert c.then.evicted() == []
    assert c.then.started() == ["g"]


def test_members_that_keep_apart_get_a_node_each(given):
    """Two nodes are free of their kind, the third is full: its lower pod leaves."""
    c = runs(hosts(given, 3, gpus=2), "low", "h0", gpus=2)
    c.gang("g", pods=3, gpus=1, priority=9, **APART)
    c.when.one_session()
    assert c.then.evicted() == ["low-0"]


def test_who_tips_the_balance_of_zones_leaves(given):
    """Zone z0 has two of the lower gang, z1 is full of others: both must go

    The claimant may not enlarge the difference, and only z0 has room for it.
    """
    c = hosts(given, 2, zones=2, gpus=4)
    runs(c, "low", "h0 h0", min_member=1, labels=WORK)
    runs(c, "high", "h1 h1 h1 h1", priority=9)
    c.gang("g", pods=1, gpus=1, priority=9, labels=WORK, spread=[SpreadTerm(ZONE, 1, app("work"))])
    c.when.one_session()
    assert c.then.evicted() == ["low-0", "low-1"]


def test_nobody_leaves_where_the_rule_would_still_be_broken(given):
    """One of those in the way is of higher priority: the other stays too."""
    c = runs(hosts(given, 1, gpus=8), "low", "h0", **LOUD)
    runs(c, "high", "h0", priority=10, **LOUD)
    c.gang("g", pods=1, gpus=1, priority=9, **AWAY)
    c.when.one_session()
    assert c.then.evicted() == []
    assert "pod anti-affinity" in c.then.why("g")
    assert "would leave the room" not in c.then.why("g")


def test_a_queue_claims_its_due_from_who_is_in_the_way(given):
    """Across queues as well: what b deserves is held back by a's port."""
    c = hosts(given, 1, gpus=2)
    c.queue("a", limits={"deserved": {"nvidia.com/gpu": 0}})
    c.queue("b", limits={"deserved": {"nvidia.com/gpu": 2}})
    runs(c, "low", "h0", queue="a", ports=[PORT])
    c.gang("g", pods=1, gpus=1, queue="b", ports=[PORT])
    c.when.one_session()
    assert c.then.evicted() == ["low-0"]


@pytest.mark.parametrize("count", [40])
def test_many_in_the_way_cost_a_bounded_search(given, count):
    """Forty nodes, each with somebody in the way: one leaves for a gang of one."""
    c = hosts(given, count, gpus=2)
    for number in range(count):
        runs(c, f"low{number}", f"h{number}", **LOUD)
    c.gang("g", pods=1, gpus=1, priority=9, **AWAY)
    c.when.one_session()
    assert len(c.then.evicted()) == 1
