"""Shares, guarantees and orders as whole sessions keep them."""

from __future__ import annotations

import attrs

from gpusched.api.meta.units import unit_of
from gpusched.config.model import DEFAULT, PluginChoice, PluginTier
from gpusched.pluginhost.registry import load_policy
from gpusched.testing.entities import BORN, GPU, NOW
from gpusched.testing.given import Given
from tests.shipped_policy import with_arguments


def gpus(**amounts):
    """Limits in GPUs."""
    return {kind: {GPU: amount} for kind, amount in amounts.items()}


def under(**arguments):
    """A cluster whose fairshare, quota or priority plugin has other arguments."""
    return Given(config=with_arguments(**arguments))


def due(c, *queues, resource=GPU):
    """Fair shares as the status tells them."""
    return [c.then.queue(name).fair_share.get(resource) // unit_of(resource) for name in queues]


def test_shares_down_the_tree(given):
    """Children divide what their parent is due; every level says it in its status."""
    c = given.nodes(2, gpus=8).queue("p", limits=gpus(deserved=4)).queue("q")
    c.queue("a", parent="p", weight=3).queue("b", parent="p")
    for name in ("a", "b", "q"):
        c.gang(f"{name}-g", pods=16, min_member=16, gpus=1, queue=name)
    c.when.one_session()
    assert due(c, "p", "q", "a", "b") == [10, 6, 8, 2]


def test_a_guarantee_stays_free(given):
    """The whole cluster is guaranteed to one: the other waits beside idle GPUs (scenario 26)."""
    c = given.nodes(1, gpus=8).queue("q1", limits=gpus(guarantee=8)).queue("q2")
    c.gang("g", pods=1, gpus=1, queue="q2")
    c.when.one_session()
    assert c.then.started() == []
    assert (c.then.reason("g"), c.then.why("g")) == (
        "QuotaExceeded",
        (
            "needs 1 nvidia.com/gpu; of the 8 of queue root, 8 are guaranteed to others, the most to "
            "queue q1"
        ),
    )
    c.gang("mine", pods=8, gpus=1, queue="q1")
    c.when.one_session()
    assert c.then.started() == ["mine"]


def test_a_guarantee_below_a_department_is_kept_from_its_siblings(given):
    """Of the 6 that the department may hold, 4 are kept for the child that has none yet."""
    c = given.nodes(2, gpus=8).queue("p", limits=gpus(capability=6))
    c.queue("a", parent="p", limits=gpus(guarantee=4)).queue("b", parent="p")
    c.gang("fits", pods=2, gpus=1, queue="b").gang("waits", pods=1, gpus=1, queue="b")
    c.when.one_session()
    assert c.then.started() == ["fits"]
    assert "of the 6 of queue p, 2 are held and 4 are kept free" in c.then.why("waits")


def test_only_what_is_asked_for_counts(given):
    """A queue that is over in memory still serves a gang that asks for CPU alone (27)."""
    c = given.nodes(1, cpu=8000).queue("q", limits={"capability": {"cpu": 2000, "memory": 1}})
    c.gang("old", pods=1, cpu=1000, memory=5, queue="q")
    c.pod("old-0", group="old", cpu=1000, memory=5, node="node-0", plan="p", scheduled=NOW)
    c.gang("g", pods=1, cpu=1000, memory=0, queue="q")
    c.when.one_session()
    assert c.then.started() == ["g"]


def test_the_cap_of_a_parent_is_named(given):
    """Two leaves without caps, a gang that fills the parent in each (28)."""
    c = given.nodes(1, gpus=8).queue("p", limits=gpus(capability=2)).queue("a", parent="p")
    c.queue("b", parent="p").gang("g", pods=1, gpus=2, queue="a")
    c.gang("h", pods=1, gpus=2, queue="b")
    c.when.one_session()
    assert c.then.started() == ["g"]
    assert "queue p holds 2 of its capability of 2" in c.then.why("h")


def test_a_blocked_queue_blocks_nobody(given):
    """The head of one queue does not fit, another queue's does (32); nor the next in Priority."""
    c = given.nodes(1, cpu=2000).queue("q1").queue("q2")
    c.gang("huge", pods=1, cpu=3000, queue="q1").gang("g", pods=1, cpu=1000, queue="q2")
    c.gang("next", pods=1, cpu=1000, queue="q1", created=BORN + 5)
    c.when.one_session()
    assert c.then.started() == ["g", "next"]


def test_the_emptier_queue_goes_first(given):
    """Of 5 CPUs the first queue runs 1 and asks 2, the other asks 3 (33)."""
    c = given.nodes(1, cpu=5000).queue("q1").queue("q2")
    c.gang("runs", pods=1, cpu=1000, queue="q1")
    c.pod("runs-0", group="runs", cpu=1000, node="node-0", plan="p", scheduled=NOW)
    c.gang("more", pods=1, cpu=2500, queue="q1").gang("first", pods=1, cpu=2500, queue="q2")
    c.when.one_session()
    assert c.then.started() == ["first"]


def test_departments_share_by_dominant_resource(given):
    """CPU pods of one leaf and memory pods of the other count as one department (34)."""
    c = given.nodes(1, cpu=10_000, memory=10**10).queue("sci", weight=50)
    c.queue("eng", weight=50).queue("dev", parent="eng", weight=50)
    c.queue("prod", parent="eng", weight=50)
    for number in range(10):
        age = BORN + number
        c.gang(f"s{number}", pods=1, cpu=1000, memory=10**9, queue="sci", created=age)
        c.gang(f"d{number}", pods=1, cpu=1000, memory=0, queue="dev", created=age)
        c.gang(f"p{number}", pods=1, cpu=0, memory=10**9, queue="prod", created=age)
    c.when.one_session()
    started = c.then.started()
    assert [sum(name[0] == kind for name in started) for kind in "sdp"] == [5, 5, 5]


def test_firm_gangs_do_not_borrow_unless_told(given):
    """What may not be evicted stays within what is deserved, at every level; that is an option."""

    def cluster(c):
        c.nodes(1, gpus=8).queue("q", limits=gpus(deserved=2))
        return c.gang("g", pods=1, gpus=3, queue="q").group("g", queue="q", preemptible=False)

    c = cluster(given)
    c.when.one_session()
    assert c.then.started() == []
    assert c.then.reason("g") == "QuotaExceeded"
    lenient = cluster(under(quota={"nonPreemptibleWithinDeserved": False}))
    lenient.when.one_session()
    assert lenient.then.started() == ["g"]


def test_priority_of_queues_before_their_shares_is_an_option():
    """By default who is within its share goes first, whatever its priority."""

    def first(c):
        c.nodes(1, gpus=4).queue("high", priority=5, limits=gpus(deserved=1))
        c.queue("low", limits=gpus(deserved=3))
        c.gang("runs", pods=1, gpus=1, queue="high")
        c.pod("runs-0", group="runs", gpus=1, slots=1, node="node-0", plan="p", scheduled=NOW)
        c.gang("h", pods=1, gpus=2, queue="high").gang("l", pods=1, gpus=2, queue="low")
        c.when.one_session()
        return c.then.started()

    assert first(under()) == ["l"]
    assert first(under(fairshare={"order": "priority"})) == ["h"]
    assert first(under(priority={"queues": True})) == ["h"]


def test_fifo_knows_no_priority_and_patience_ends(given):
    """In line the older goes first; past maxWait a gang goes before higher priority."""
    c = given.nodes(1, gpus=1).queue("line", ordering="Fifo", limits=gpus(capability=1))
    c.gang("old", pods=1, gpus=1, queue="line").gang(
        "high", pods=1, gpus=1, queue="line", priority=9, created=BORN + 1
    )
    c.when.one_session()
    assert c.then.started() == ["old"]
    c = Given().nodes(1, gpus=1).queue("q", max_wait_ns=60 * 10**9)
    c.gang("patient", pods=1, gpus=1, queue="q", created=NOW - 61)
    c.gang("high", pods=1, gpus=1, queue="q", priority=9, created=NOW - 59)
    c.when.one_session()
    assert c.then.started() == ["patient"]


def test_a_plugin_without_shares_tells_none():
    """Nobody divides: status and metrics say nothing rather than zero."""
    tiers = tuple(
        PluginTier(tuple(each for each in tier.plugins if each.name != "fairshare"))
        for tier in DEFAULT.tiers
    )
    c = Given(policy=load_policy(attrs.evolve(DEFAULT, tiers=tiers))).nodes(1, gpus=1).queue("q")
    c.when.one_session()
    assert c.then.queue("q").fair_share.items == ()
    assert PluginChoice("fairshare") in [each for tier in DEFAULT.tiers for each in tier.plugins]


def test_gangs_that_wait_for_quota_are_counted_as_they_are_told(given):
    """Given a full queue, then those behind are not admitted, for themselves and in the numbers of the queue."""
    c = given.nodes(4, gpus=8).queue("q", limits=gpus(capability=8))
    c.gang("one", pods=1, gpus=8, queue="q", created=1.0)
    c.gang("two", pods=1, gpus=8, queue="q", created=2.0)
    c.gang("never", pods=2, gpus=8, queue="q", created=3.0)
    c.when.carried_out()
    for _ in range(2):
        c.now += 1.0
        plan = c.when.one_session()
        told = next(each for each in plan.queues if each.name == "q")
        assert (told.running, told.inqueue, told.pending) == (1, 0, 2)
        assert {each.phase for each in plan.gangs if not each.is_scheduled} == {"Pending"}
