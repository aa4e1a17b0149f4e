"""Nobody starts whom the next session would evict, and no victim has a third gang evicted."""

from __future__ import annotations

import pytest

from gpusched.api.gang.pod_group import SubGroup, TopologyRequest
from gpusched.api.meta.identity import format_time
from gpusched.testing import entities
from gpusched.testing.given import Given
from tests.session.running import runs
from tests.shipped_policy import with_arguments


def stability(**arguments):
    """A cluster under the shipped policy with arguments of the plugin ``fairshare``."""
    return Given(config=with_arguments(fairshare=arguments))


@pytest.fixture
def given():
    """An empty cluster under the shipped policy: starts last."""
    return Given()


def owed(c):
    """Half of a node is free; the other half is lent, and its owner waits for all of it."""
    c.node("n0", gpus=4)
    c.queue("owner", limits={"deserved": {entities.GPU: 4}})
    c.queue("guest", limits={"deserved": {entities.GPU: 0}})
    runs(c, "old", "n0", gpus=2, queue="guest")
    c.gang("due", pods=1, gpus=4, queue="owner")
    return c.gang("lent", pods=1, gpus=2, queue="guest")


def test_nobody_is_lent_what_is_taken_back_in_the_next_session(given):
    """The guest's second gang fits, but would go as soon as the owner's claim is decided."""
    c = owed(given)
    c.when.carried_out()
    assert (c.then.started(), c.then.evicted()) == ([], ["old-0"])
    assert c.then.reason("lent") == "Reserved"
    assert c.then.why("lent") == (
        "fits now, but 1 pod would be evicted at once for default/due, which needs room for 1 pod"
    )
    c.now += 1.0
    c.when.bound()
    assert c.then.started() == ["due"]


def test_it_is_lent_for_a_moment_where_the_operator_says_so():
    """With ``starts: any`` the guest starts, and goes in the next session."""
    c = owed(stability(starts="any"))
    c.when.carried_out()
    assert c.then.started() == ["lent"]
    c.now += 1.0
    c.when.one_session()
    assert c.then.evicted() == ["lent-0", "old-0"]


def test_nothing_starts_below_a_gang_that_would_preempt_it(given):
    """Inside one queue it is the same, by priority."""
    c = given.node("n0", gpus=4)
    runs(c, "old", "n0", gpus=2)
    c.gang("high", pods=1, gpus=4, priority=9).gang("low", pods=1, gpus=2)
    c.when.one_session()
    assert (c.then.started(), c.then.evicted()) == ([], ["old-0"])


def test_a_member_above_the_minimum_is_not_lent_for_a_moment(given):
    """A gang that runs grows into room of which its owner is about to be given more."""
    c = given.node("n0", gpus=4)
    c.queue("owner", limits={"deserved": {entities.GPU: 3}})
    c.queue("guest", limits={"deserved": {entities.GPU: 1}})
    runs(c, "old", "n0 n0", min_member=1, queue="guest")
    c.pod("old-2", group="old", gpus=1, rank=2)
    c.gang("due", pods=1, gpus=3, queue="owner")
    c.when.one_session()
    assert (c.then.nodes(), c.then.evicted()) == ({}, ["old-1"])


def test_a_gang_that_is_safe_for_its_minimum_runtime_starts(given):
    """The next session would not evict it: nobody's claim stands in its way."""
    c = owed(given)
    c.group("lent", queue="guest", min_member=1, min_runtime_ns=600 * 10**9)
    c.when.one_session()
    assert c.then.started() == ["lent"]


def test_a_start_in_sub_groups_is_taken_back_by_whole_ones(given):
    """One of two sub-groups suffices: the owner's claim takes the other one, not a member of each."""
    c = given.node("n0", gpus=8)
    c.queue("owner", limits={"deserved": {entities.GPU: 6}})
    c.queue("guest", limits={"deserved": {entities.GPU: 0}})
    runs(c, "old", "n0", gpus=4, queue="guest", since=c.now - 100)
    parts = [SubGroup(name, 2, TopologyRequest()) for name in "ab"]
    c.group("lent", queue="guest", min_member=1, sub_groups=parts, min_sub_groups=1)
    for rank in range(4):
        c.pod(f"lent-{rank}", group="lent", gpus=1, rank=rank, sub_group="ab"[rank % 2])
    c.gang("due", pods=1, gpus=6, queue="owner")
    c.when.one_session()
    assert c.then.evicted() == ["old-0"]
    assert sorted(c.then.nodes()) == ["lent-1", "lent-3"]


@pytest.mark.parametrize("starts", ["lasting", "any"])
def test_a_gang_made_whole_again_loses_no_member_as_if_it_were_broken(starts):
    """Its last member gets a place, and in the same session a claim for one GPU asks who leaves."""
    c = stability(starts=starts).node("n0", gpus=4)
    c.queue("owner", limits={"deserved": {entities.GPU: 1}})
    c.queue("guest", limits={"deserved": {entities.GPU: 0}})
    runs(c, "torn", "n0 n0 n0", min_member=4, queue="guest")
    c.pod("torn-3", group="torn", gpus=1, rank=3)
    c.gang("due", pods=1, gpus=1, queue="owner", created=entities.NOW - 1)
    c.when.carried_out()
    c.now += 1.0
    c.when.one_session()
    stays = [pod for pod in c.cache.pods.values() if pod.group == "torn" and pod.node]
    assert len(stays) in (0, 4)


def test_in_a_line_no_gang_is_preempted_for_a_younger_one(given):
    """Priority does not count in it: the older gang starts, and stays."""
    c = given.node("n0", gpus=1).queue("line", ordering="Fifo")
    c.gang("old", pods=1, gpus=1, queue="line")
    c.gang("high", pods=1, gpus=1, queue="line", priority=9, created=entities.BORN + 1)
    c.when.carried_out()
    assert c.then.started() == ["old"]
    c.now += 1.0
    c.when.one_session()
    assert c.then.evicted() == []


@pytest.mark.parametrize(("later", "evicted"), [(59, []), (60, ["patient-0"])])
def test_who_waited_too_long_is_safe_from_preemption_for_as_long(given, later, evicted):
    """Past maxWait it goes before higher priority, and its turn lasts longer than a moment."""
    c = given.node("n0", gpus=1).queue("q", max_wait_ns=60 * 10**9)
    c.gang("patient", pods=1, gpus=1, queue="q", created=c.now - 61)
    c.gang("high", pods=1, gpus=1, queue="q", priority=9, created=c.now)
    c.when.carried_out()
    assert c.then.started() == ["patient"]
    c.now += float(later)
    c.when.one_session()
    assert c.then.evicted() == evicted


def test_nobody_is_kept_from_a_start_for_a_claim_that_is_not_made(given):
    """What the owner waits for is more than all that guests hold: the room is of use to them."""
    c = given.node("n0", gpus=4).node("n1", gpus=4)
    c.queue("owner", limits={"deserved": {entities.GPU: 8}})
    c.queue("guest", limits={"deserved": {entities.GPU: 0}})
    runs(c, "own", "n1", gpus=1, queue="owner")
    c.gang("due", pods=2, gpus=4, queue="owner").gang("lent", pods=1, gpus=2, queue="guest")
    c.when.one_session()
    assert (c.then.started(), c.then.evicted()) == (["lent"], [])


def three(c):
    """A gang of priority waits; in its queue one of less runs, in another a guest."""
    c.node("n0", gpus=2).node("n1", gpus=2)
    c.queue("owner", limits={"deserved": {entities.GPU: 4}})
    c.queue("guest", limits={"deserved": {entities.GPU: 0}})
    runs(c, "own", "n0", gpus=2, queue="owner", since=entities.NOW - 10)
    runs(c, "guest", "n1", gpus=2, queue="guest")
    return c.gang("high", pods=1, gpus=2, queue="owner", priority=9)


def test_a_gang_is_not_preempted_that_would_take_back_elsewhere(given):
    """Its own queue is within its share: the guest goes in its place, and one gang loses work."""
    c = three(given)
    c.when.carried_out()
    assert c.then.evicted() == ["guest-0"]
    c.now += 1.0
    c.when.bound()
    assert (c.then.started(), c.then.evicted()) == (["high"], [])


def test_chains_are_made_where_the_operator_says_so():
    """With ``chains: allow`` the gang of its own queue goes, and comes back for the guest."""
    c = three(stability(chains="allow"))
    c.when.carried_out()
    assert c.then.evicted() == ["own-0"]
    c.now += 1.0
    c.pod("own-again", group="own", gpus=2)
    c.when.one_session()
    assert c.then.evicted() == ["guest-0"]


def only_one_victim(c):
    """Only one node suits the gang of priority; its victim would take back from the guest."""
    c.node("n0", gpus=2, labels={"kind": "a"}).node("n1", gpus=2)
    c.queue("owner", limits={"deserved": {entities.GPU: 4}})
    c.queue("guest", limits={"deserved": {entities.GPU: 0}})
    runs(c, "own", "n0", gpus=2, queue="owner")
    runs(c, "guest", "n1", gpus=2, queue="guest")
    return c.gang(
        "high", pods=1, gpus=2, queue="owner", priority=9, node_selector={"kind": "a"},
        created=c.now,
    )  # fmt: skip


def test_a_gang_waits_for_ten_minutes_where_its_only_victim_would_evict(given):
    """It is told from when on the victim may go, and then it goes."""
    c = only_one_victim(given)
    begin = c.now
    c.now = begin + 599
    c.when.one_session()
    assert c.then.evicted() == []
    assert (
        "default/own stays: once made again, it would have a third gang evicted; it may be "
        f"evicted for this gang from {format_time(begin + 600)} on"
    ) in c.then.why("high")
    c.now = begin + 600
    c.when.one_session()
    assert c.then.evicted() == ["own-0"]


@pytest.mark.parametrize(("wait", "evicted"), [("0s", ["own-0"]), (None, [])])
def test_how_long_a_gang_waits_for_another_victim_is_an_argument(wait, evicted):
    """None is for ever, and nothing is told then that would never come."""
    c = only_one_victim(stability(chainWait=wait))
    c.now += 86_400
    c.when.one_session()
    assert c.then.evicted() == evicted
    assert "it may be evicted" not in c.then.why("high")


def test_the_victim_that_evicts_none_goes_first_however_long_the_gang_waited(given):
    """Two gangs lose work only where there is no other way."""
    c = three(given)
    c.now += 86_400
    c.when.carried_out()
    assert c.then.evicted() == ["guest-0"]


@pytest.mark.parametrize(("free", "evicted"), [(0, []), (2, ["own-0"])])
def test_a_victim_that_finds_room_elsewhere_is_no_chain(given, free, evicted):
    """Only one node suits the gang of priority; where its victim finds another room, it goes."""
    c = given.node("n0", gpus=2, labels={"kind": "a"}).node("n1", gpus=2)
    if free:
        c.node("n2", gpus=free)
    c.queue("owner", limits={"deserved": {entities.GPU: 4}})
    c.queue("guest", limits={"deserved": {entities.GPU: 0}})
    runs(c, "own", "n0", gpus=2, queue="owner")
    runs(c, "guest", "n1", gpus=2, queue="guest")
    c.gang(
        "high",
        pods=1,
        gpus=2,
        queue="owner",
        priority=9,
        node_selector={"kind": "a"},
        created=c.now,
    )
    c.when.one_session()
    assert c.then.evicted() == evicted
