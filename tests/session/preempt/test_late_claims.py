"""A start lasts also when a claim that is made after it lets another gang evict it."""

from __future__ import annotations

import attrs
import pytest

from gpusched.config.model import DEFAULT
from gpusched.session.preempt.claims import late_claims
from gpusched.session.preempt.preemption import Preemption
from gpusched.testing import entities
from gpusched.testing.given import Given
from tests.session.planting import plant
from tests.session.running import runs
from tests.shipped_policy import with_arguments


def room_of_a_later_claim(c):
    """``high`` finds too few victims, until a claim of another queue frees more than it takes."""
    c.node("n0", gpus=2).node("n1", gpus=2)
    c.queue("owner", limits={"deserved": {entities.GPU: 2}})
    for name in ("guest", "other"):
        c.queue(name, limits={"deserved": {entities.GPU: 0}})
    runs(c, "old", "n0 n1 n1", min_member=3, queue="other")
    c.gang("low", pods=1, gpus=1, queue="guest")
    c.gang("high", pods=2, gpus=1, queue="guest", priority=9)
    return c.gang("due", pods=2, gpus=1, queue="owner")


@pytest.mark.parametrize("running", [late_claims.RUNNING_MAX, 0])
def test_nobody_starts_whom_room_of_a_later_claim_has_evicted(monkeypatch, running):
    """The room is held for ``high`` from then on, so that ``low`` does not come back either."""
    monkeypatch.setattr(late_claims, "RUNNING_MAX", running)
    c = room_of_a_later_claim(Given())
    c.when.carried_out()
    assert (c.then.started(), c.then.evicted()) == ([], ["old-0", "old-1", "old-2"])
    assert c.then.reason("low") == "Reserved"
    assert c.then.why("low") == (
        "fits now, but 1 pod would be evicted at once for default/high, which needs room for 2 pods"
    )
    c.now += 1.0
    c.when.carried_out()
    assert (c.then.started(), c.then.evicted()) == (["due", "high"], [])
    c.now += 1.0
    c.when.one_session()
    assert (c.then.started(), c.then.evicted()) == ([], [])


def test_it_starts_for_a_moment_where_the_operator_says_so():
    """With ``starts: any`` the next session evicts it."""
    c = room_of_a_later_claim(Given(config=with_arguments(fairshare={"starts": "any"})))
    c.when.carried_out()
    assert c.then.started() == ["low"]
    c.now += 1.0
    c.when.one_session()
    assert c.then.evicted() == ["low-0"]


def test_a_gang_whose_start_is_taken_back_takes_back_others():
    """``mid`` asks for room only since its own is claimed, when all others have asked."""
    c = Given().node("n0", gpus=3, labels={"kind": "a"}).node("n1", gpus=2, labels={"kind": "b"})
    for name, deserved in (("owner", 3), ("m", 2), ("guest", 0)):
        c.queue(name, limits={"deserved": {entities.GPU: deserved}})
    runs(c, "old", "n0", gpus=2, queue="m")
    runs(c, "stays", "n1", queue="m", group={"preemptible": False})
    c.gang("low", pods=1, gpus=1, queue="guest", node_selector={"kind": "b"})
    c.gang("mid", pods=1, gpus=1, queue="m")
    c.gang("due", pods=1, gpus=3, queue="owner", node_selector={"kind": "a"})
    c.when.carried_out()
    assert (c.then.started(), c.then.evicted()) == ([], ["old-0"])
    assert c.then.why("mid") == "room for 1 pod is being freed on 1 node and is held for it"
    assert "would be evicted at once for default/mid" in c.then.why("low")
    c.now += 1.0
    c.when.carried_out()
    assert (c.then.started(), c.then.evicted()) == (["due", "mid"], [])


def test_members_to_grow_take_back_starts_late_too():
    """The owner's extra needs two GPUs of one node: one is freed by a claim made after it asked."""
    actions = ("enqueue", "allocate", "reclaim", "preempt", "backfill")
    c = Given(config=attrs.evolve(DEFAULT, actions=actions))
    c.node("n0", gpus=2, labels={"kind": "a"}).node("n1", gpus=3, labels={"kind": "b"})
    for name, deserved in (("owner", 3), ("x", 2), ("guest", 0)):
        c.queue(name, limits={"deserved": {entities.GPU: deserved}})
    runs(c, "old", "n0 n1", queue="x")
    runs(c, "own", "n1", queue="owner")
    c.pod("own-more", group="own", gpus=2, rank=1, node_selector={"kind": "a"})
    runs(c, "lent", "n1", queue="guest")
    c.pod("lent-more", group="lent", gpus=1, rank=1, node_selector={"kind": "a"})
    c.gang("high", pods=1, gpus=1, queue="x", priority=9, node_selector={"kind": "b"})
    c.when.carried_out()
    assert (c.then.nodes(), c.then.evicted()) == ({}, ["old-0", "old-1"])
    c.now += 1.0
    c.when.carried_out()
    assert sorted(c.then.nodes()) == ["high-0", "own-more"]
    assert c.then.evicted() == []


@pytest.mark.contains
def test_who_fails_in_a_late_claim_is_set_aside_alone(monkeypatch):
    """The others are decided as if it were not there: its claim takes back nothing."""
    c = room_of_a_later_claim(Given())
    plant(monkeypatch, Preemption, "_serve_late", on="high")
    c.when.one_session()
    assert [each.suspect.key.name for each in c.decision.set_aside] == ["high"]
    assert (c.then.started(), c.then.evicted()) == (["low"], ["old-0", "old-1", "old-2"])


@pytest.mark.contains
def test_late_claims_that_fail_whatever_is_asked_are_left_out(monkeypatch):
    """Claims and starts are as they were without them; what is off is told."""
    c = room_of_a_later_claim(Given())
    plant(monkeypatch, late_claims.LateClaims, "make", on=None)
    c.when.one_session()
    assert c.decision.set_aside == ()
    assert c.decision.degraded.mode.skipped == ("late claims",)
    assert (c.then.started(), c.then.evicted()) == (["low"], ["old-0", "old-1", "old-2"])
