"""Orders of queues and gangs that fail for whatever they are asked about: others start without them."""

from __future__ import annotations

import attrs
import pytest
from gpusched_plugins.queues.fairshare import shares

from gpusched.config.model import DEFAULT
from gpusched.pluginhost.registry import load_policy
from gpusched.session.framework.accounts import gang_lines
from gpusched.testing.given import Given
from tests.session.containment.test_containment import crowd, outcome, set_aside
from tests.session.containment.test_failing_hooks import Asked, Foreign
from tests.session.planting import plant

pytestmark = [pytest.mark.contains, pytest.mark.long]

SHARES_OF_ALL = [
    pytest.param((shares.Shares, "_divide"), id="divide"),
    pytest.param((shares, "division_step"), id="step"),
    pytest.param((shares, "deserved_amount"), id="deserved"),
    pytest.param((shares, "divide_fairly"), id="fairly"),
]


def sessions(c, count=1):
    """So many sessions, half a minute apart, each carried out."""
    for _ in range(count):
        c.when.one_session()
        yield c
        c.now += 30.0


@pytest.mark.parametrize("place", SHARES_OF_ALL)
def test_shares_that_nobody_can_compute(monkeypatch, place):
    """Gangs start by all other orders; no queue gives anything back; it is told."""
    fired = []
    c = crowd()
    plant(monkeypatch, *place, on=None, fired=fired)
    for _ in sessions(c, 3):
        assert fired
        assert {"good", "late"} == set(c.then.started())
        assert c.then.evicted() == []
        assert set_aside(c) == []
        assert c.decision.degraded.mode.omitted_parts == ("fairshare.queue_turn",)
        assert "sessions go without fairshare.queue_turn" in c.decision.degraded.message
        assert "Planted: planted in" in c.decision.degraded.message
        assert "needs 9 pods" in c.then.why("huge")


def test_it_is_tried_in_full_again(monkeypatch):
    """Within a minute after it was mended shares count again."""
    c = crowd()
    with monkeypatch.context() as patch:
        plant(patch, shares.Shares, "_divide", on=None)
        c.when.one_session()
        assert c.decision.degraded is not None
    c.now += 61.0
    expected = crowd()
    c.when.one_session()
    expected.when.one_session()
    assert c.decision.degraded is None
    assert outcome(c) == outcome(expected)


@pytest.mark.parametrize("alone_first", [False, True])
def test_demand_that_one_gang_breaks(monkeypatch, alone_first):
    """It is set aside by itself, and shares count for all others."""
    plant(monkeypatch, gang_lines, "is_startable", on="bad")
    c = crowd("bad") if not alone_first else Given(now=1100.0).nodes(4, gpus=8).queue("a")
    if alone_first:
        c.gang("bad", pods=1, gpus=8, queue="a", created=1.0)
        c.when.one_session()
        c.gang("good", pods=1, gpus=8, queue="a", created=2.0)
    c.when.one_session()
    assert "good" in c.then.started()
    assert set_aside(c) == ["bad"]
    assert c.then.reason("bad") == "SchedulerError"
    assert c.decision.degraded is None


@pytest.mark.parametrize("hook", ["queue_turn", "gang_order"])
@pytest.mark.parametrize("kind", [Asked, Foreign])
def test_orders_of_whatever_policy(hook, kind):
    """A policy of another author is gone without in the same way."""
    policy = load_policy(DEFAULT)
    policy = attrs.evolve(policy, tiers=((kind(hook, None),), *policy.tiers))
    c = Given(now=1100.0, policy=policy).nodes(2, gpus=8).queue("a").queue("b")
    c.gang("one", pods=1, gpus=8, queue="a", created=1.0)
    c.gang("two", pods=1, gpus=8, queue="b", created=2.0)
    for _ in sessions(c, 8):
        assert {"one", "two"} == set(c.then.started())
        assert c.decision.degraded.mode.omitted_parts == (f"asked.{hook}",)


def test_an_order_of_others_that_fails_for_one_gang_leaves_it_out_and_says_so():
    """The gang is told which policy failed, not that its turn will come."""
    policy = load_policy(DEFAULT)
    policy = attrs.evolve(policy, tiers=((Foreign("gang_order", "bad"),), *policy.tiers))
    c = Given(now=1100.0, policy=policy).nodes(2, gpus=8).queue("a")
    c.gang("bad", pods=1, gpus=8, queue="a", created=1.0)
    c.gang("good", pods=1, gpus=8, queue="a", created=2.0)
    c.when.one_session()
    assert c.then.started() == ["good"]
    assert c.then.reason("bad") == "BackOff"
    assert "plugin asked failed in hook gang_order: Planted" in c.then.why("bad")
    assert c.decision.degraded is None


def with_order(hook, bad, kind):
    """Two nodes and two queues under a policy whose order raises for these gangs."""
    policy = load_policy(DEFAULT)
    policy = attrs.evolve(policy, tiers=((kind(hook, bad),), *policy.tiers))
    return Given(now=1100.0, policy=policy).nodes(2, gpus=8).queue("a").queue("b")


@pytest.mark.parametrize("hook", ["queue_turn", "gang_order", "queue_order"])
@pytest.mark.parametrize("kind", [Asked, Foreign])
def test_a_gang_that_waits_alone_needs_no_order(hook, kind):
    """Whatever its order would be, it is the first: it starts, and the fault is told."""
    c = with_order(hook, None, kind)
    c.gang("only", pods=1, gpus=8, queue="a", created=1.0)
    for _ in sessions(c, 4):
        assert c.then.started() == ["only"]
        assert set_aside(c) == []
        assert c.decision.degraded.mode.omitted_parts == (f"asked.{hook}",)
        assert "tried in full again in the next session" in c.decision.degraded.message


@pytest.mark.parametrize("kind", [Asked, Foreign])
def test_queues_need_no_order_where_one_of_them_waits(kind):
    """Its gangs start by their own order."""
    c = with_order("queue_order", None, kind)
    c.gang("one", pods=1, gpus=8, queue="a", created=1.0)
    c.gang("two", pods=1, gpus=8, queue="a", created=2.0)
    for _ in sessions(c, 3):
        assert {"one", "two"} == set(c.then.started())
        assert set_aside(c) == []


def test_a_gang_of_which_orders_fail_is_found_when_another_one_comes():
    """Alone it waited for room; beside another it is set aside, and the order counts again."""
    c = with_order("gang_order", "bad", Asked)
    c.gang("bad", pods=3, gpus=8, queue="a", created=1.0)
    for _ in sessions(c, 2):
        assert set_aside(c) == []
        assert "needs 3 pods" in c.then.why("bad")
    c.gang("good", pods=1, gpus=8, queue="a", created=2.0)
    c.when.one_session()
    assert c.then.started() == ["good"]
    assert set_aside(c) == ["bad"]
    assert c.decision.degraded is None
