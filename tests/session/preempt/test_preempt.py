"""Preemption inside a queue: for whom, of whom, and never in vain."""

from __future__ import annotations

import pytest

from gpusched.api.gang.pod_group import TopologyRequest
from gpusched.testing import entities
from gpusched.testing.given import Given
from tests.session.running import budget, runs


def nodes(c: Given, **gpus: int) -> Given:
    """Nodes by name with so many GPUs."""
    for name, count in gpus.items():
        c.node(name, gpus=count)
    return c


def test_nobody_leaves_for_a_gang_of_the_same_priority(given):
    """Scenarios 11 and 37: equals never displace each other."""
    c = runs(nodes(given, n1=4), "a", "n1 n1 n1 n1")
    c.gang("b", pods=4, gpus=1)
    c.when.one_session()
    assert c.then.evicted() == []
    c2 = runs(runs(nodes(Given(), n1=4), "a", "n1 n1", priority=9), "b", "n1 n1", priority=1)
    c2.gang("c", pods=4, gpus=1, priority=5)
    c2.when.one_session()
    assert c2.then.evicted() == []
    assert c2.then.why("c").partition("; default/")[0].endswith("would leave room for 2 of 4")


def test_extras_evict_nobody(given):
    """Scenario 16: what is above the minimum waits for room that others leave."""
    c = runs(nodes(given, n1=4), "a", "n1 n1", min_member=2, priority=9)
    runs(c, "low", "n1 n1", min_member=1)
    c.pods("a-more", 2, group="a", gpus=1, priority=9)
    c.when.one_session()
    assert c.then.evicted() == []


def test_an_elastic_gang_shrinks_by_its_last_ranks(given):
    """Scenario 17: three are needed, the three of the highest rank leave, five go on."""
    c = runs(nodes(given, n1=8), "a", " ".join(["n1"] * 8), min_member=4)
    c.gang("b", pods=3, gpus=1, priority=9)
    plan = c.when.one_session()
    assert c.then.evicted() == ["a-5", "a-6", "a-7"]
    (claim,) = plan.preemptions
    assert [node for _, _, node in claim.nominations] == ["n1"] * 3
    assert c.then.reason("b") == "PreemptionInProgress"


def test_a_role_keeps_its_minimum(given):
    """Scenario 18: a worker goes, the parameter server stays."""
    c = runs(
        nodes(given, n1=4), "v", "n1 n1 n1 n1", min_member=3, roles={"ps": 1, "worker": 2},
        role_of=("worker", "worker", "worker", "ps"),
    )  # fmt: skip
    c.gang("p", pods=1, gpus=1, priority=9)
    c.when.one_session()
    assert c.then.evicted() == ["v-2"]


def test_spare_members_go_before_any_gang_ends(given):
    """Scenario 38: one pod of each elastic gang; where none is spare, exactly one gang whole."""
    c = runs(runs(nodes(given, n1=4), "a", "n1 n1", min_member=1), "b", "n1 n1", min_member=1)
    c.gang("c", pods=2, gpus=1, priority=9)
    c.when.one_session()
    assert c.then.evicted() == ["a-1", "b-1"]
    c2 = runs(runs(nodes(Given(), n1=4), "a", "n1 n1"), "b", "n1 n1")
    c2.gang("c", pods=2, gpus=1, priority=9)
    c2.when.one_session()
    assert c2.then.evicted() in (["a-0", "a-1"], ["b-0", "b-1"])


def test_free_and_freed_room_are_used_together(given):
    """Scenario 39: one node is free, so one eviction does for a gang of two."""
    c = runs(nodes(given, n1=8, n2=8), "low", "n1", gpus=8)
    c.gang("high", pods=2, gpus=8, priority=9)
    plan = c.when.one_session()
    assert c.then.evicted() == ["low-0"]
    assert sorted(node for _, _, node in plan.preemptions[0].nominations) == ["n1", "n2"]


def test_nobody_leaves_where_it_does_not_help(given):
    """Scenario 40: two of eight GPUs a node could be freed: no use for eight, enough for one."""
    c = nodes(given, n1=8, n2=8)
    for node in ("n1", "n2"):
        runs(c, f"h{node}", " ".join([node] * 6), priority=9)
        runs(c, f"l{node}", f"{node} {node}", min_member=1)
    c.gang("big", pods=1, gpus=8, priority=9)
    c.when.one_session()
    assert c.then.evicted() == []
    assert c.then.why("big").partition("; default/")[0].endswith("would leave room for 0 of 1")
    c.gang("small", pods=1, gpus=1, priority=9)
    c.when.one_session()
    assert len(c.then.evicted()) == 1


def test_exactly_one_is_enough(given):
    """Scenario 41: eleven low pods fill the node, one high pod costs one of them."""
    c = runs(nodes(given, n1=11), "low", " ".join(["n1"] * 11), min_member=1)
    c.gang("high", pods=1, gpus=1, priority=9)
    c.when.one_session()
    assert c.then.evicted() == ["low-10"]


def test_a_queue_at_its_capability_preempts_inside_itself(given):
    """Scenario 41: the node has room, the queue has not; the low gang makes room in the quota."""
    c = nodes(given, n1=8).queue("q", limits={"capability": {entities.GPU: 3}})
    runs(c, "low", "n1", gpus=2, queue="q")
    c.gang("high", pods=1, gpus=2, queue="q", priority=9)
    c.when.carried_out()
    assert c.then.evicted() == ["low-0"]
    c.when.one_session()
    assert c.then.started() == ["high"]


def test_who_is_not_preemptible_stays(given):
    """Scenario 42: of three pods the two preemptible ones go."""
    c = nodes(given, n1=6)
    runs(c, "a", "n1")
    runs(c, "b", "n1")
    runs(c, "safe", "n1", group={"preemptible": False})
    c.gang("high", pods=1, gpus=5, priority=9)
    c.when.one_session()
    assert c.then.evicted() == ["a-0", "b-0"]


@pytest.mark.parametrize(("least", "evicted"), [(2, []), (1, ["low-0"])])
def test_a_pod_that_may_not_preempt_gets_no_room_made(least, evicted):
    """Scenario 43: with preemptionPolicy Never on one of two pods only a minimum of one can."""
    c = nodes(Given(), n1=2)
    runs(c, "low", "n1")
    runs(c, "safe", "n1", group={"preemptible": False})
    c.group("high", min_member=least)
    c.pod("high-0", group="high", gpus=1, priority=9, rank=0, may_preempt=False)
    c.pod("high-1", group="high", gpus=1, priority=9, rank=1)
    c.when.one_session()
    assert c.then.evicted() == evicted


@pytest.mark.parametrize(
    ("may_not", "evicted"), [("launcher", []), ("spare", ["low-0"]), ("", ["low-0"])]
)
def test_room_is_made_for_whole_roles_only(may_not, evicted):
    """Where the members of one role may not preempt, the others would not start without them."""
    c = nodes(Given(), n1=4)
    runs(c, "low", "n1", gpus=4)
    c.group("high", min_member=3, roles={"launcher": 1, "worker": 1})
    for number, role in enumerate(("launcher", "worker", "worker", "spare")):
        c.pod(
            f"high-{number}", group="high", gpus=1, priority=9, role=role,
            may_preempt=role != may_not,
        )  # fmt: skip
    c.when.one_session()
    assert c.then.evicted() == evicted


@pytest.mark.parametrize(("allowed", "evicted"), [(0, 0), (1, 0), (2, 2)])
def test_a_disruption_budget_is_never_overdrawn(allowed, evicted):
    """Scenario 44: two must leave; a budget that allows fewer keeps both."""
    c = runs(nodes(Given(), n1=2), "low", "n1 n1", min_member=1)
    budget(c, "guard", allowed=allowed)
    c.gang("high", pods=2, gpus=1, priority=9)
    c.when.one_session()
    assert len(c.then.evicted()) == evicted


def test_claims_of_one_session_share_a_budget(given):
    """The budget allows one eviction: the second claimant finds nobody."""
    c = runs(nodes(given, n1=2), "low", "n1 n1", min_member=1)
    budget(c, "guard", allowed=1)
    c.gang("one", pods=1, gpus=1, priority=9)
    c.gang("two", pods=1, gpus=1, priority=9)
    c.when.one_session()
    assert len(c.then.evicted()) == 1


def test_a_gated_gang_evicts_nobody_before_its_gate_opens(given):
    """Scenario 45."""
    c = runs(nodes(given, n1=1), "low", "n1")
    c.group("high", min_member=1)
    c.pod("high-0", group="high", gpus=1, priority=9, gated=True)
    c.when.one_session()
    assert c.then.evicted() == []
    c.pod("high-0", group="high", gpus=1, priority=9)
    c.when.one_session()
    assert c.then.evicted() == ["low-0"]


def test_the_cheapest_rack_is_chosen(given):
    """Scenario 64: one eviction in rack A, where a node is free, rather than two in rack B."""
    c = given
    for rack, names in (("a", ("a1", "a2")), ("b", ("b1", "b2"))):
        for name in names:
            c.node(name, gpus=8, labels={"gpusched.io/rack": rack})
    for node in ("a1", "b1", "b2"):
        runs(c, f"low-{node}", node, gpus=8)
    c.gang("high", pods=2, gpus=8, priority=9, topology=TopologyRequest(required="rack"))
    plan = c.when.one_session()
    assert c.then.evicted() == ["low-a1-0"]
    assert sorted(node for _, _, node in plan.preemptions[0].nominations) == ["a1", "a2"]


def test_lost_work_decides_among_equals(given):
    """The gang that ran shortest since its start or its checkpoint leaves."""
    c = nodes(given, n1=3)
    runs(c, "old", "n1", since=entities.NOW - 7200.0)
    runs(c, "saves", "n1", since=entities.NOW - 7205.0, group={"checkpoint_ns": 600 * 10**9})
    runs(c, "young", "n1", since=entities.NOW - 100.0)
    c.gang("high", pods=1, gpus=1, priority=9)
    plan = c.when.one_session()
    assert c.then.evicted() == ["saves-0"]
    assert plan.preemptions[0].stops[0].evictions[0].gpu_seconds == 5


def test_the_lowest_priority_leaves_first_whatever_it_loses(given):
    """Priority is compared before lost work."""
    c = nodes(given, n1=2)
    runs(c, "low", "n1", since=entities.NOW - 90_000.0, priority=1)
    runs(c, "middle", "n1", since=entities.NOW - 1.0, priority=2)
    c.gang("high", pods=1, gpus=1, priority=9)
    c.when.one_session()
    assert c.then.evicted() == ["low-0"]


def test_a_group_leaves_as_a_whole(given):
    """disruption.mode Group has no spare members, although its minimum is below its size."""
    c = runs(nodes(given, n1=4), "g", "n1 n1 n1 n1", min_member=1, group={"disruption": "Group"})
    c.gang("high", pods=1, gpus=1, priority=9)
    c.when.one_session()
    assert c.then.evicted() == ["g-0", "g-1", "g-2", "g-3"]


def test_room_that_an_eviction_left_over_serves_the_next(given):
    """A whole gang had to go for the first claimant: the second needs no more victims."""
    c = runs(nodes(given, n1=4), "low", "n1 n1 n1 n1")
    c.gang("one", pods=2, gpus=1, priority=9)
    c.gang("two", pods=2, gpus=1, priority=9)
    plan = c.when.one_session()
    assert len(c.then.evicted()) == 4
    assert [claim.gang.name for claim in plan.preemptions] == ["one", "two"]
    assert plan.preemptions[1].stops == ()


def test_a_gang_of_two_kinds_of_pods_gets_its_room(given):
    """Members of several classes are proven together: a CPU pod and a GPU pod, one victim each."""
    c = given
    c.node("g1", gpus=8, cpu=8000)
    c.node("c1", cpu=8000)
    runs(c, "low-g", "g1", gpus=8, cpu=1000)
    runs(c, "low-c", "c1", gpus=0, cpu=8000)
    runs(c, "low-d", "g1", gpus=0, cpu=1000)
    c.group("high", min_member=2)
    c.pod("high-0", group="high", gpus=8, cpu=4000, priority=9, role="worker")
    c.pod("high-1", group="high", gpus=0, cpu=6000, priority=9, role="ps")
    c.when.one_session()
    assert c.then.evicted() == ["low-c-0", "low-g-0"]


def test_who_leaves_already_is_no_victim(given):
    """A pod that is being deleted is waited for; the other stays."""
    c = runs(nodes(given, n1=2), "low", "n1 n1", min_member=1)
    c.gang("high", pods=1, gpus=1, priority=9)
    c.when.carried_out(gone=False)
    assert c.then.evicted() == ["low-1"]
    c.when.one_session()
    assert c.then.evicted() == []
    assert c.then.reason("high") == "PreemptionInProgress"
