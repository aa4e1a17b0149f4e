"""Limits of queues in node pools: caps, shares and claims of a resource on some of the nodes."""

from __future__ import annotations

import pytest

from gpusched.api.affinity.selector import NodeTerm, Requirement
from gpusched.api.meta.resources import Resources
from gpusched.api.meta.units import DEVICE
from gpusched.api.pod.pod import PodPhase
from gpusched.api.queue.queue import NodePool
from gpusched.testing.entities import GPU, NOW
from gpusched.testing.given import Given
from tests.session.running import runs

H100, A100 = {"gpu": "h100"}, {"gpu": "a100"}


def pools(**limits):
    """Pools of a queue by name, with ``deserved`` and ``cap`` in GPUs; labels are ``gpu=name``."""
    return tuple(
        NodePool(
            name=name,
            node_selector=(("gpu", name),),
            deserved=amounts(each.get("deserved")),
            capability=amounts(each.get("cap")),
        )
        for name, each in limits.items()
    )


def amounts(gpus):
    """So many GPUs, or no word about them."""
    return Resources() if gpus is None else Resources.of({GPU: gpus * DEVICE})


def two_pools(c, h100=1, a100=1):
    """So many nodes of 8 GPUs of each kind: ``h0`` and on, ``a0`` and on."""
    for kind, labels, count in (("h", H100, h100), ("a", A100, a100)):
        for number in range(count):
            c.node(f"{kind}{number}", gpus=8, labels=labels)
    return c


def nodes_of(c, gang):
    """Where the plan binds members of a gang, sorted."""
    return sorted(node for pod, node in c.then.nodes().items() if pod.startswith(gang))


# -- capability ------------------------------------------------------------------------------
def test_a_gang_of_one_pool_stays_within_its_queues_cap_there(given):
    """A gang that selects a pool waits for the cap there, whatever is free, and is told so."""
    c = two_pools(given).queue("q", node_pools=pools(h100={"cap": 4}))
    runs(c, "old", "h0", gpus=3, queue="q", node_selector=H100)
    c.gang("new", pods=1, gpus=2, queue="q", node_selector=H100)
    c.when.one_session()
    assert c.then.started() == []
    assert (c.then.reason("new"), c.then.why("new")) == (
        "WaitingForQuota",
        "needs 2 nvidia.com/gpu of node pool h100; queue q holds 3 of its capability of 4",
    )


def test_more_than_the_cap_of_a_pool_is_never_given(given):
    """A minimum above the cap can never start: that is another reason."""
    c = two_pools(given).queue("q", node_pools=pools(h100={"cap": 4}))
    c.gang("big", pods=5, gpus=1, queue="q", node_selector=H100)
    c.when.one_session()
    assert c.then.reason("big") == "QuotaExceeded"
    assert "queue q never gets more than its capability of 4" in c.then.why("big")


@pytest.mark.parametrize(
    "pinned",
    [
        pytest.param({"node_selector": H100}, id="by node selector"),
        pytest.param(
            {"affinity": [NodeTerm(labels=(Requirement("gpu", "In", ("h100",)),))]},
            id="by node affinity",
        ),
        pytest.param({"node_selector": {"host": "h"}}, id="by a label of some of its nodes"),
    ],
)
def test_who_may_run_in_one_pool_alone_belongs_to_it(given, pinned):
    """However pods are kept to the nodes of one pool, its cap is asked before they are placed."""
    c = given.node("h0", gpus=8, labels={**H100, "host": "h"}).node("a0", gpus=8, labels=A100)
    c.queue("q", node_pools=pools(h100={"cap": 1}))
    c.gang("g", pods=2, gpus=1, queue="q", **pinned)
    c.when.one_session()
    assert c.then.reason("g") == "QuotaExceeded"


def test_every_level_counts(given):
    """The cap of a queue above binds all below it together."""
    c = two_pools(given).queue("p", node_pools=pools(h100={"cap": 4}))
    c.queue("x", parent="p").queue("y", parent="p")
    for name in ("x", "y"):
        c.gang(f"{name}-g", pods=3, gpus=1, queue=name, node_selector=H100)
    c.when.one_session()
    assert c.then.started() == ["x-g"]
    assert "queue p holds 3 of its capability of 4" in c.then.why("y-g")


def test_another_queue_does_not_mind(given):
    """A cap binds the queue that has it and nobody else."""
    c = two_pools(given).queue("q", node_pools=pools(h100={"cap": 1})).queue("free")
    c.gang("g", pods=8, gpus=1, queue="free", node_selector=H100)
    c.when.one_session()
    assert c.then.started() == ["g"]


def test_members_go_around_a_pool_that_is_used_up(given):
    """A gang that may run anywhere takes of each pool what its queue may hold there."""
    c = two_pools(given).queue("q", node_pools=pools(h100={"cap": 3}, a100={"cap": 5}))
    c.gang("g", pods=8, gpus=1, queue="q")
    c.when.one_session()
    assert nodes_of(c, "g") == ["a0"] * 5 + ["h0"] * 3


def test_nobody_starts_where_all_pools_together_are_too_little(given):
    """One more than the caps allow can never start; one that waits for others is told whom."""
    c = two_pools(given).queue("q", node_pools=pools(h100={"cap": 3}, a100={"cap": 5}))
    runs(c, "old", "a0 a0", queue="q")
    c.gang("big", pods=9, gpus=1, queue="q")
    c.gang("fits", pods=7, gpus=1, queue="q")
    c.when.one_session()
    assert c.then.started() == []
    assert c.then.reason("big") == "QuotaExceeded"
    assert (c.then.reason("fits"), c.then.why("fits")) == (
        "WaitingForQuota",
        (
            "needs room for 7 pods in node pools, which have it for 6: queue q holds 2 nvidia.com/gpu "
            "of node pool a100 of its capability of 5; queue q holds 0 nvidia.com/gpu of node pool "
            "h100 of its capability of 3"
        ),
    )


def test_a_pool_without_a_cap_is_open(given):
    """Where one of the pools has no cap, and where nodes are in none, members go there."""
    c = two_pools(given).queue("q", node_pools=pools(h100={"cap": 3}))
    c.node("free", gpus=2)
    c.gang("g", pods=13, gpus=1, queue="q")
    c.when.one_session()
    assert sorted(set(nodes_of(c, "g"))) == ["a0", "free", "h0"]


def test_different_members_that_do_not_fit_are_told_of_the_pools(given):
    """A gang of several kinds of pods is told how many nodes its queue may not use."""
    c = two_pools(given).queue("q", node_pools=pools(h100={"cap": 3}, a100={"cap": 5}))
    c.group("g", queue="q", min_member=5)
    c.pods("g-large", 3, group="g", gpus=2).pods("g-small", 2, group="g", gpus=1)
    c.pods("g-huge", 1, group="g", gpus=4)
    c.group("h", queue="q", min_member=6)
    c.pods("h-large", 4, group="h", gpus=2).pods("h-small", 2, group="h", gpus=1)
    c.when.one_session()
    assert "h" not in c.then.started()
    assert "are in a node pool of which its queue has its capability" in c.then.why("h")


def test_members_that_select_a_pool_count_with_those_that_do_not(given):
    """The cap of a pool holds for a gang of both kinds as a whole."""
    c = two_pools(given).queue("q", node_pools=pools(h100={"cap": 4}))
    c.group("mixed", queue="q", min_member=11)
    c.pods("mixed-h", 3, group="mixed", gpus=1, node_selector=H100)
    c.pods("mixed-x", 8, group="mixed", gpus=1)
    c.when.one_session()
    placed = c.then.nodes()
    assert len(placed) == 11
    assert sum(node == "h0" for node in placed.values()) <= 4


def test_extras_stop_at_the_cap(given):
    """A gang grows where its queue may hold more, and no further."""
    c = two_pools(given, a100=0).queue("q", node_pools=pools(h100={"cap": 5}))
    c.gang("g", pods=8, min_member=2, gpus=1, queue="q", node_selector=H100)
    c.gang("h", pods=4, min_member=1, gpus=1, queue="q")
    c.when.one_session()
    assert len(c.then.nodes()) == 5


def test_the_next_pool_is_tried_for_a_job_that_waits(given):
    """A suspended Job goes to the first pool whose cap and nodes have room for it."""
    c = two_pools(given).queue("q", node_pools=pools(h100={"cap": 2}, a100={"cap": 4}))
    c.job("j", parallelism=4, completions=4, indexed=True, suspended=True, queue="q", gpus=1)
    plan = c.when.one_session()
    assert [each.node_selector for each in plan.job_changes] == [(("gpu", "a100"),)]


def test_extras_of_a_started_job_stay_in_its_pool(given):
    """All pods of a Job get the labels of one pool: none is placed in another."""
    c = two_pools(given).queue("q", node_pools=pools(h100={}, a100={}))
    runs(c, "busy", "h0 h0 h0 h0 h0")
    c.job(
        "j", parallelism=6, completions=6, indexed=True, suspended=True, queue="q", gpus=1,
        started={"min_parallelism": 2},
    )  # fmt: skip
    plan = c.when.one_session()
    assert [(each.node_selector, each.parallelism) for each in plan.job_changes] == [
        ((("gpu", "h100"),), 3)
    ]


def test_what_leaves_counts_until_it_is_gone(given):
    """A pod that is being deleted is charged to its pool as long as it is there."""
    c = two_pools(given).queue("q", node_pools=pools(h100={"cap": 4}))
    runs(c, "old", "h0", gpus=3, queue="q", node_selector=H100)
    c.pod(
        "old-0", group="old", gpus=3, node="h0", plan="p", slots=7, node_selector=H100, deleting=True,
        phase=PodPhase.RUNNING, scheduled=NOW, rank=0,
    )  # fmt: skip
    c.gang("new", pods=1, gpus=2, queue="q", node_selector=H100)
    c.when.one_session()
    assert c.then.started() == []
    assert c.then.reason("new") == "PreemptionInProgress"
    c.gone("old-0")
    c.when.one_session()
    assert c.then.started() == ["new"]


@pytest.mark.parametrize("pinned", [{"node_selector": H100}, {}])
def test_a_start_is_known_when_the_cap_of_a_pool_is_free_again(given, pinned):
    """A gang that waits for the cap of a pool starts when who uses it up comes to its end."""
    c = two_pools(given).queue("q", node_pools=pools(h100={"cap": 4}, a100={"cap": 1}))
    runs(
        c, "old", "h0", gpus=4, queue="q", node_selector=H100, since=NOW - 40,
        group={"expected_duration_ns": 100 * 10**9},
    )  # fmt: skip
    c.gang("new", pods=2, gpus=1, queue="q", **pinned)
    c.when.one_session()
    assert c.then.reason("new") == "WaitingForQuota"
    assert c.then.status("new").estimated_start == NOW + 60


# -- shares and claims -----------------------------------------------------------------------
def test_each_pool_is_divided_by_itself(given):
    """What is deserved in one pool is no part of another: status tells both."""
    c = two_pools(given)
    c.queue("a", node_pools=pools(h100={"deserved": 6}, a100={"deserved": 2}))
    c.queue("b", node_pools=pools(h100={"deserved": 2}, a100={"deserved": 6}))
    for queue in ("a", "b"):
        for kind in ("h100", "a100"):
            c.gang(f"{queue}-{kind}", pods=8, gpus=1, queue=queue, node_selector={"gpu": kind})
    c.when.one_session()
    told = {
        name: [
            (pool.name, pool.fair_share.get(GPU) // DEVICE)
            for pool in c.then.queue(name).node_pools
        ]
        for name in ("a", "b")
    }
    assert told == {"a": [("h100", 6), ("a100", 2)], "b": [("h100", 2), ("a100", 6)]}
    assert [c.then.queue(name).fair_share.get(GPU) // DEVICE for name in ("a", "b")] == [8, 8]


def test_what_is_deserved_in_a_pool_is_taken_back_there(given):
    """A queue below its share of one pool reclaims there, although it has its part as a whole."""
    c = two_pools(given)
    c.queue("a", node_pools=pools(h100={"deserved": 4}))
    c.queue("b", node_pools=pools(h100={"deserved": 4}))
    runs(c, "a-other", "a0 a0 a0 a0 a0 a0 a0 a0", queue="a", node_selector=A100, min_member=1)
    runs(c, "b-runs", "h0 h0 h0 h0 h0 h0 h0 h0", queue="b", node_selector=H100, min_member=1)
    c.gang("a-new", pods=4, gpus=1, queue="a", node_selector=H100)
    c.when.one_session()
    assert c.then.evicted() == ["b-runs-4", "b-runs-5", "b-runs-6", "b-runs-7"]


def test_no_more_than_is_deserved_is_taken_in_a_pool(given):
    """The other's share of the pool is safe, whatever the claimant lacks elsewhere."""
    c = two_pools(given)
    c.queue("a", node_pools=pools(h100={"deserved": 4}))
    c.queue("b", node_pools=pools(h100={"deserved": 4}))
    runs(c, "b-runs", "h0 h0 h0 h0 h0 h0 h0 h0", queue="b", node_selector=H100, min_member=1)
    c.gang("a-new", pods=5, gpus=1, queue="a", node_selector=H100)
    c.when.one_session()
    assert c.then.evicted() == []


@pytest.mark.parametrize(("asks", "gone"), [(2, 2), (3, 0)])
def test_a_claim_on_the_whole_spares_what_is_deserved_in_a_pool(given, asks, gone):
    """Who may run anywhere takes back from a pool only what nobody deserves there."""
    c = two_pools(given)
    c.queue("a", limits={"deserved": {GPU: 16}})
    c.queue("b", node_pools=pools(h100={"deserved": 6}))
    c.queue("c", reclaimable=False)
    runs(c, "c-a", "a0", gpus=8, queue="c", node_selector=A100)
    for number in range(8):
        runs(c, f"b-{number}", "h0", queue="b", node_selector=H100)
    c.gang("a-new", pods=asks, gpus=1, queue="a")
    c.when.one_session()
    assert len(c.then.evicted()) == gone


@pytest.mark.parametrize(("asks", "gone"), [(2, 2), (3, 0)])
def test_a_share_of_a_pool_spares_what_is_deserved_as_a_whole(given, asks, gone):
    """Deserved in the pool is the better right, due in the pool is not."""
    c = two_pools(given)
    c.queue("a", node_pools=pools(h100={"deserved": 2}))
    c.queue("b", limits={"deserved": {GPU: 8}})
    for number in range(8):
        runs(c, f"b-{number}", "h0", queue="b")
    c.gang("a-new", pods=asks, gpus=1, queue="a", node_selector=H100)
    c.when.one_session()
    assert c.then.queue("a").node_pools[0].fair_share.get(GPU) == asks * DEVICE
    assert len(c.then.evicted()) == gone


def test_two_claims_never_take_back_from_each_other(given):
    """A claim in a pool and one on the whole: evictions end, though both queues still wait."""
    c = two_pools(given)
    c.queue("a", node_pools=pools(h100={"deserved": 4}))
    c.queue("b", limits={"deserved": {GPU: 12}})
    runs(c, "b-h", "h0 h0 h0 h0 h0 h0 h0 h0", queue="b", min_member=1)
    runs(c, "a-a", "a0 a0 a0 a0 a0 a0 a0 a0", queue="a", node_selector=A100, min_member=1)
    for number in range(12):
        c.gang(f"a-{number}", pods=1, gpus=1, queue="a", node_selector=H100)
        c.gang(f"b-{number}", pods=1, gpus=1, queue="b")
    evictions = []
    for _ in range(5):
        c.when.carried_out()
        evictions.append(len(c.then.evicted()))
    assert evictions == [12, 0, 0, 0, 0]


# -- what pools are ----------------------------------------------------------------------------
def test_a_name_means_the_same_nodes_in_all_queues(given):
    """The first queue by name says which; the other is told so and takes jobs as ever."""
    c = two_pools(given).queue("a", node_pools=pools(h100={"cap": 1}))
    other = NodePool(
        name="h100", node_selector=(("gpu", "a100"),), deserved=Resources(), capability=amounts(2)
    )
    c.queue("b", node_pools=(other,))
    c.gang("g", pods=3, gpus=1, queue="b", node_selector=A100)
    c.gang("h", pods=3, gpus=1, queue="b", node_selector=H100)
    c.when.one_session()
    assert c.then.started() == ["g"]
    assert c.then.reason("h") == "QuotaExceeded"
    status = c.then.queue("b")
    assert status.is_ready
    assert (
        "node pool 'h100' means nodes with gpu=h100, as queue 'a' says, and not those with gpu=a100"
        in status.ready.message
    )


def test_a_node_belongs_to_one_pool(given):
    """Of two pools whose labels it has, the first by name: nothing is counted twice."""
    c = given.node("n", gpus=8, labels={"gpu": "h100", "spot": "yes"})
    spot = NodePool(
        name="spot", node_selector=(("spot", "yes"),), deserved=Resources(), capability=amounts(1)
    )
    c.queue("q", node_pools=(*pools(h100={"cap": 6}), spot))
    c.gang("g", pods=6, gpus=1, queue="q")
    c.when.one_session()
    assert c.then.started() == ["g"]


def test_a_pool_without_nodes_is_asked_for_by_its_labels(given):
    """Whoever selects all labels of a pool whose nodes are still to come waits in its cap."""
    c = two_pools(given, h100=0).queue("q", node_pools=pools(h100={"cap": 1}))
    c.gang("g", pods=2, gpus=1, queue="q", node_selector=H100)
    c.when.one_session()
    assert c.then.reason("g") == "QuotaExceeded"


def test_nodes_change_pools(given):
    """Labels count as they are now: what is kept between sessions follows them."""
    c = two_pools(given).queue("q", node_pools=pools(h100={"cap": 4}))
    runs(c, "old", "h0", gpus=4, queue="q")
    c.gang("new", pods=1, gpus=4, queue="q", node_selector=H100)
    c.when.one_session()
    assert c.then.started() == []
    c.node("a0", gpus=8, labels=H100)
    c.node("h0", gpus=8, labels=A100)
    c.when.one_session()
    assert c.then.started() == ["new"]


def test_pools_without_limits_cost_and_change_nothing():
    """Pools that only say where Jobs go: nothing is counted by pool."""
    c = two_pools(Given()).queue("q", node_pools=pools(h100={}, a100={}))
    c.gang("g", pods=16, gpus=1, queue="q")
    c.when.one_session()
    assert c.then.started() == ["g"]
    assert [pool.allocated for pool in c.then.queue("q").node_pools] == [Resources()] * 2
