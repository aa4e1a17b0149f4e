"""What is wrong with a queue is said with numbers, on the queue, and stops only what is below it."""

from __future__ import annotations

from gpusched.testing.entities import GPU, NOW

GPUS = "nvidia.com/gpu"


def gpus(**amounts):
    """Limits in GPUs."""
    return {kind: {GPU: amount} for kind, amount in amounts.items()}


def ready(c, name):
    """Whether the queue is Ready, and what it says."""
    status = c.then.queue(name)
    return status.is_ready, status.ready.message


def test_a_guarantee_that_its_parent_cannot_keep(given):
    """The youngest child is frozen, the parent says why, the older sibling goes on."""
    c = given.nodes(2, gpus=8).queue("p", limits=gpus(deserved=8))
    c.queue("old", parent="p", limits=gpus(guarantee=6))
    c.queue("young", parent="p", limits=gpus(guarantee=4))
    c.gang("a", pods=1, gpus=1, queue="old").gang("b", pods=1, gpus=1, queue="young")
    assert c.when.one_session()
    assert c.then.started() == ["a"]
    assert ready(c, "young") == (
        False,
        (
            f"queue 'young': guarantee of 4 {GPUS} does not fit: parent 'p' deserves 8, of which 6 are "
            "guaranteed to older children"
        ),
    )
    assert c.then.reason("b") == "QueueStopped"
    assert ready(c, "p") == (
        False,
        f"queue 'p': guarantees of its children sum to 10 {GPUS}, above its deserved of 8",
    )
    assert ready(c, "old") == (True, "the queue takes jobs")


def test_guarantees_that_sum_to_all_that_their_parent_deserves(given):
    """The last GPU may be guaranteed as well."""
    c = given.nodes(1, gpus=8).queue("p", limits=gpus(deserved=8))
    c.queue("old", parent="p", limits=gpus(guarantee=6))
    c.queue("young", parent="p", limits=gpus(guarantee=2))
    c.when.one_session()
    assert [ready(c, name)[0] for name in ("p", "old", "young")] == [True, True, True]


def test_guarantees_that_exceed_the_cluster_are_void(given):
    """The queue says so and goes on without one; nobody else is kept out for it."""
    c = given.nodes(1, gpus=8).queue("a", limits=gpus(guarantee=6))
    c.queue("b", limits=gpus(guarantee=4)).queue("c")
    c.gang("g", pods=1, gpus=1, queue="b").gang("h", pods=1, gpus=1, queue="c")
    c.when.one_session()
    assert ready(c, "a")[0]
    assert ready(c, "b") == (
        False,
        (
            f"queue 'b': guarantee of 4 {GPUS} cannot be kept: the cluster has 8, 6 of it for others; "
            "the queue goes on without it"
        ),
    )
    assert c.then.started() == ["g", "h"]


def test_a_node_that_is_down_makes_no_guarantee_void(given):
    """What is registered counts: a queue is not wrong because a node is rebooting."""
    c = given.nodes(1, gpus=8).node("away", gpus=8, not_ready="NodeStatusUnknown")
    c.queue("a", limits=gpus(guarantee=16))
    c.when.one_session()
    assert ready(c, "a") == (True, "the queue takes jobs")


def test_contradictions_have_numbers(given):
    """The sentence names both amounts."""
    c = given.nodes(1).queue("a", limits={"guarantee": {"cpu": 5000}, "deserved": {"cpu": 1500}})
    c.when.one_session()
    assert ready(c, "a") == (
        False,
        "queue 'a': guarantee of cpu is above deserved: 5 > 1.5",
    )


def test_weights_of_zero_everywhere(given):
    """Nobody gets what is idle there; each of them says so."""
    c = given.nodes(1).queue("p").queue("a", parent="p", weight=0).queue("b", parent="p", weight=0)
    c.when.one_session()
    told = "all 2 queues below 'p' have weight 0: what is idle there is nobody's share"
    assert ready(c, "a") == (True, f"the queue takes jobs; {told}")
    assert ready(c, "p") == (True, "the queue takes jobs")


def test_a_quota_cut_below_use(given):
    """Nothing is evicted, nothing new starts, and the queue says how much too much it holds."""
    c = given.nodes(1, gpus=8).queue("a", limits=gpus(capability=2)).gang("g", pods=1, queue="a")
    c.gang("h", pods=1, queue="a", gpus=1)
    c.pod("g-0", group="g", gpus=4, node="node-0", slots=15, plan="p", scheduled=NOW)
    c.when.one_session()
    assert c.then.started() == []
    assert ready(c, "a") == (
        True,
        (
            f"the queue takes jobs; holds 4 {GPUS}, above its limit of 2: nothing that asks for it "
            "starts until it holds less"
        ),
    )


def test_a_capability_above_that_of_a_queue_above(given):
    """The smaller one counts, which is remarked on; nothing is frozen."""
    c = given.nodes(1, gpus=8).queue("p", limits=gpus(capability=2))
    c.queue("a", parent="p", limits=gpus(capability=4)).gang("g", pods=1, gpus=1, queue="a")
    c.when.one_session()
    assert c.then.started() == ["g"]
    assert (
        "its capability of 4 nvidia.com/gpu is above the 2 of a queue above it" in ready(c, "a")[1]
    )


def test_a_queue_deleted_with_jobs_in_it(given):
    """What runs goes on; what waits is told which queue is missing; others go on."""
    c = given.nodes(2, gpus=8).queue("a").gang("runs", pods=1, queue="a")
    c.pod("runs-0", group="runs", gpus=8, node="node-0", slots=255, plan="p", scheduled=NOW)
    c.gang("waits", pods=1, gpus=1, queue="a").gang("other", pods=1, gpus=1)
    c.cache.drop_queue(c.cache.queues.items[next(iter(c.cache.queues.items))].key)
    plan = c.when.one_session()
    assert c.then.started() == ["other"]
    assert not plan.stops
    assert c.then.reason("waits") == "QueueNotFound"
    assert c.then.status("runs").phase == "Running"


def test_states_of_stopped_queues(given):
    """A stop covers what is below; a draining queue is closed once it is empty."""
    c = given.nodes(2, gpus=8).queue("org", stop_policy="Hold").queue("team", parent="org")
    c.queue("drain", stop_policy="HoldAndDrain").queue("empty", stop_policy="HoldAndDrain")
    c.gang("runs", pods=1, queue="drain")
    c.pod("runs-0", group="runs", gpus=8, node="node-0", slots=255, plan="p", scheduled=NOW)
    c.when.one_session()
    states = {name: c.then.queue(name).state for name in ("org", "team", "drain", "empty")}
    assert states == {"org": "Closed", "team": "Closed", "drain": "Draining", "empty": "Closed"}
    assert ready(c, "team") == (True, "the queue is closed")
