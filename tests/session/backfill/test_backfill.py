"""Reservations and backfill: who may pass a gang that waits, and when it will start."""

from __future__ import annotations

import attrs
import pytest

from gpusched.api.gang.pod_group import TopologyRequest
from gpusched.api.meta.identity import ObjectKey, Owner
from gpusched.config.model import DEFAULT, LimitsConfig, PluginChoice, PluginTier
from gpusched.pluginhost.registry import load_policy
from gpusched.testing import entities
from gpusched.testing.given import Given

NOW = entities.NOW
S = 10**9
PREEMPTING = attrs.evolve(DEFAULT, actions=("enqueue", "allocate", "preempt", "backfill"))


def running(
    c: Given, name: str, on: list[str], *, since=NOW - 10, gpus=8, length=0, **how
) -> Given:
    """A gang that runs one pod on each of these nodes."""
    spec = {key: how.pop(key) for key in ("queue", "preemptible") if key in how}
    c.group(name, min_member=len(on), expected_duration_ns=length * S, phase="Running", **spec)
    for number, node in enumerate(on):
        c.pod(
            f"{name}-{number}", group=name, node=node, gpus=gpus, scheduled=since,
            phase="Running", **how,
        )  # fmt: skip
    return c


def waiting(c: Given, name: str, pods: int, *, length=0, born=NOW - 5, gpus=8, **how) -> Given:
    """A gang whose pods all wait."""
    spec = {k: how.pop(k) for k in ("queue", "preemptible", "topology", "status") if k in how}
    c.group(name, min_member=pods, expected_duration_ns=length * S, created=born, **spec)
    return c.pods(name, pods, group=name, gpus=gpus, created=born, **how)


@pytest.fixture
def blocked(given) -> Given:
    """Four nodes; R holds three of them until 100 s from its start; H needs all four."""
    given.nodes(4, gpus=8)
    running(given, "r", ["node-0", "node-1", "node-2"], since=NOW - 10, length=100)
    return waiting(given, "h", 4, born=NOW - 8)


def test_a_short_job_starts_beside_a_reservation(blocked):
    """S ends before H's nodes are free, so it starts on the idle one."""
    waiting(blocked, "s", 1, length=90)
    blocked.when.one_session()
    assert blocked.then.started() == ["s"]
    assert "4 nodes are held for it from 2026-01-01T00:01:30Z on, when " in blocked.then.why("h")
    assert "default/r is to have ended" in blocked.then.why("h")


@pytest.mark.parametrize("length", [200, 91, 0])
def test_a_long_job_waits_for_the_holder(blocked, length):
    """What would still run when H can start does not start, nor what runs nobody knows how long."""
    waiting(blocked, "s", 1, length=length)
    blocked.when.one_session()
    assert blocked.then.started() == []
    assert blocked.then.reason("s") == "Reserved"
    untold = "a time that it does not tell (expectedDuration, or annotation gpusched.io/expected-duration)"
    how_long = "for " + {200: "3m20s", 91: "1m31s", 0: untold}[length]
    assert blocked.then.why("s") == (
        f"fits now and would run {how_long}, but 4 nodes are held from 2026-01-01T00:01:30Z on "
        "for default/h, which needs room for 4 pods"
    )


@pytest.mark.parametrize("limits", [{"reservations": 0}, {"reservation_window_s": 60.0}], ids=str)
def test_nothing_is_held_beyond_the_configured_reservations(blocked, limits):
    """Given none at all, or none for starts later than in a minute, then a long job starts."""
    blocked.cache.use_limits(LimitsConfig(**limits))
    waiting(blocked, "s", 1, length=200)
    blocked.when.one_session()
    assert blocked.then.started() == ["s"]


def test_a_long_job_starts_on_nodes_that_nobody_holds(blocked):
    """A fifth node is not part of H's hold."""
    blocked.node("node-9", gpus=8)
    waiting(blocked, "s", 1, length=0)
    blocked.when.one_session()
    assert blocked.then.nodes() == {"s-0": "node-9"}


def test_without_walltimes_nothing_is_held(given):
    """Nobody knows when R ends: the free node is given to whoever fits, as ever."""
    given.nodes(4, gpus=8)
    running(given, "r", ["node-0", "node-1", "node-2"])
    waiting(given, "h", 4, born=NOW - 8)
    waiting(given, "s", 1)
    given.when.one_session()
    assert given.then.started() == ["s"]


def test_without_the_action_nothing_is_held():
    """Who does not configure backfill keeps what was."""
    c = Given(config=attrs.evolve(DEFAULT, actions=("enqueue", "allocate")))
    c.nodes(4, gpus=8)
    running(c, "r", ["node-0", "node-1", "node-2"], length=100)
    waiting(c, "h", 4, born=NOW - 8)
    waiting(c, "s", 1)
    c.when.one_session()
    assert c.then.started() == ["s"]


def test_waiting_gangs_are_told_when_they_start(blocked):
    """H when R ends; the next, as H runs for an hour, an hour after that; positions in order."""
    blocked.group("h", min_member=4, created=NOW - 8, expected_duration_ns=3600 * S)
    waiting(blocked, "n", 4, length=60, born=NOW - 4)
    blocked.when.one_session()
    h, n = blocked.then.status("h"), blocked.then.status("n")
    assert (h.queue_position, n.queue_position) == (1, 2)
    assert (h.estimated_start, n.estimated_start) == (NOW + 90, NOW + 3690)


def test_a_start_told_before_is_kept_while_it_is_about_right(blocked):
    """A start that moves by seconds is not written again."""
    waiting(blocked, "n", 4, length=60, born=NOW - 4,
            status=b'{"estimatedStartTime":"2026-01-01T00:02:00Z"}')  # fmt: skip
    blocked.group("h", min_member=4, created=NOW - 8, status=b'{"estimatedStartTime":"nonsense"}')
    blocked.group("n", min_member=4, created=NOW - 9, expected_duration_ns=60 * S,
                  status=b'{"estimatedStartTime":"2026-01-01T00:01:50Z"}')  # fmt: skip
    blocked.when.one_session()
    assert blocked.then.status("n").estimated_start == NOW + 110
    assert blocked.then.status("h").estimated_start == NOW + 150


def test_a_gang_over_its_walltime_is_not_promised_to_end(given):
    """R should have ended: H's nodes stay held for it, but no time is told."""
    given.nodes(4, gpus=8)
    running(given, "r", ["node-0", "node-1", "node-2"], since=NOW - 500, length=100)
    waiting(given, "h", 4, born=NOW - 8)
    waiting(given, "s", 1, length=300)
    given.when.one_session()
    assert given.then.started() == []
    assert "default/r ends, which is over its walltime" in given.then.why("h")
    assert given.then.status("h").estimated_start == 0.0


def test_who_runs_far_over_its_walltime_is_not_waited_for(given):
    """R said 100 s and runs for an hour: nobody knows when it ends, so nothing is held."""
    given.nodes(4, gpus=8)
    running(given, "r", ["node-0", "node-1", "node-2"], since=NOW - 3600, length=100)
    waiting(given, "h", 4, born=NOW - 8)
    waiting(given, "s", 1, length=300)
    given.when.one_session()
    assert given.then.started() == ["s"]


def test_the_deadline_of_pods_counts(given):
    """ActiveDeadlineSeconds of every pod is a walltime; of some it is none."""
    given.nodes(2, gpus=8)
    running(given, "r", ["node-0"], deadline_s=100)
    waiting(given, "h", 2, born=NOW - 8)
    waiting(given, "s", 1, length=300)
    given.when.one_session()
    assert given.then.status("h").estimated_start == NOW + 90
    assert given.then.reason("s") == "Reserved"


def test_the_longest_runtime_of_a_queue_counts(given):
    """MaxRuntime of the nearest queue that has one ends its jobs."""
    given.queue("top", max_runtime_ns=100 * S).queue("a", parent="top")
    given.nodes(2, gpus=8)
    running(given, "r", ["node-0"], queue="a")
    waiting(given, "h", 2, born=NOW - 8)
    given.when.one_session()
    assert given.then.status("h").estimated_start == NOW + 90


def finished(c: Given, name: str, took: int) -> None:
    """A Job of two pods that completed, as the API still shows it."""
    c.job(name, parallelism=2, completions=2, pods=0, queue="a")
    key = ObjectKey("default", name)
    c.cache.put_job(key, attrs.evolve(c.cache.jobs.items[key], finished=True, ran_s=took))


def test_jobs_of_which_nothing_is_said_are_judged_by_those_before(given):
    """Nine of ten Jobs of this queue and size took 100 s at most; a deleted Job teaches nothing."""
    given.queue("a")
    given.nodes(1, gpus=8)
    for number in range(5):
        finished(given, f"old-{number}", 100 - number)
    given.job("now", parallelism=2, completions=2, queue="a", gpus=4, node="node-0",
              scheduled=NOW - 10, phase="Running")  # fmt: skip
    waiting(given, "h", 1, born=NOW - 8, queue="a")
    given.when.one_session()
    assert given.then.status("h").estimated_start == NOW + 90
    given.cache.drop_job(ObjectKey("default", "old-0"))
    given.when.one_session()
    assert given.then.status("h").estimated_start == 0.0


def test_quota_that_comes_back_is_waited_for(given):
    """The queue is full until R ends: then H starts, and a long job of the queue may not pass."""
    given.queue("a", limits={"capability": {entities.GPU: 12}})
    given.nodes(4, gpus=8)
    running(given, "r", ["node-0"], queue="a", length=100)
    waiting(given, "h", 1, born=NOW - 8, queue="a")
    waiting(given, "s", 1, gpus=4, born=NOW - 7, queue="a", length=200)
    waiting(given, "t", 1, gpus=4, born=NOW - 6, queue="a", length=50)
    given.when.one_session()
    assert given.then.status("h").estimated_start == NOW + 90
    assert given.then.started() == ["s"] or given.then.reason("s") == "Reserved"
    assert given.then.started() == ["s"]


def test_quota_is_held_too(given):
    """A job that leaves the nodes whole but takes the quota that the holder needs may not pass."""
    given.queue("a", limits={"capability": {entities.GPU: 12}})
    given.nodes(4, gpus=8)
    running(given, "r", ["node-0"], queue="a", length=100)
    running(given, "q", ["node-1"], queue="a", gpus=1)
    waiting(given, "h", 1, born=NOW - 8, queue="a")
    waiting(given, "s", 1, gpus=4, born=NOW - 7, queue="a", length=200)
    waiting(given, "t", 1, gpus=3, born=NOW - 6, queue="a", length=50)
    given.when.one_session()
    assert given.then.reason("s") == "WaitingForQuota"
    assert given.then.started() == ["t"]
    waiting(given, "u", 1, gpus=3, born=NOW - 8, queue="a", length=200)
    given.when.one_session()
    assert given.then.reason("h") == "WaitingForQuota"


def test_who_yields_to_preemption_may_pass():
    """Lower priority, preemptible, same queue: it starts, and leaves when the holder is due."""
    c = Given(config=PREEMPTING)
    c.nodes(4, gpus=8)
    running(c, "r", ["node-0", "node-1", "node-2"], length=100, preemptible=False, priority=10)
    waiting(c, "h", 4, born=NOW - 8, priority=10)
    waiting(c, "s", 1, length=200, priority=1)
    waiting(c, "firm", 1, length=200, priority=1, born=NOW - 4, preemptible=False)
    c.when.one_session()
    assert c.then.started() == ["s"]


# -- what is shown ----------------------------------------------------------------------------


def test_reserved_room_is_shown(blocked):
    """Given H, which needs all nodes when R ends: these are reserved for it from then on, and for nobody else."""
    waiting(blocked, "s", 1, length=200)
    blocked.when.one_session()
    (room,) = blocked.decision.reserved
    assert (room.gang.name, room.nodes) == ("h", ("node-0", "node-1", "node-2", "node-3"))
    assert (room.begins, room.ends) == (NOW + 90, 0.0)  # nobody knows how long H runs


def test_room_that_preemption_makes_is_shown():
    """Given a gang for which others are evicted: its room is kept from now on, until it starts."""
    c = Given(config=PREEMPTING)
    c.nodes(2, gpus=8)
    running(c, "low", ["node-0", "node-1"], priority=0)
    waiting(c, "high", 2, priority=10)
    c.when.one_session()
    (room,) = c.decision.reserved
    assert (room.gang.name, room.nodes, room.begins) == ("high", ("node-0", "node-1"), 0.0)
    c.when.carried_out()
    c.when.one_session()
    assert (c.then.started(), c.decision.reserved) == (["high"], ())


# -- waiting too long --------------------------------------------------------------------------


def endless(c: Given, nodes: int) -> Given:
    """A full cluster of jobs that nobody knows the end of."""
    c.nodes(nodes, gpus=8)
    for number in range(nodes):
        running(c, f"e{number}", [f"node-{number}"], since=NOW - 9000, queue="a", preemptible=False)
    return c


def test_freed_nodes_are_held_for_who_waited_too_long(given):
    """From maxWait on a node that is freed is given to nobody else, until there are enough."""
    given.queue("a", max_wait_ns=600 * S)
    endless(given, 4)
    waiting(given, "h", 4, born=NOW - 599, queue="a", priority=0)
    waiting(given, "s", 1, born=NOW - 5, queue="a", priority=5)
    given.gone("e1-0")
    given.when.one_session()
    assert given.then.started() == ["s"]
    given.now = NOW + 2
    given.when.one_session()
    assert given.then.started() == []
    assert given.then.reason("s") == "Reserved"
    assert "it is its turn, so 4 nodes are held for it" in given.then.why("h")
    for number in (0, 2, 3):
        given.gone(f"e{number}-0")
    given.when.one_session()
    assert given.then.started() == ["h"]


def test_parts_of_nodes_are_held_as_well(given):
    """Pieces of a node add up: nobody enters the node that is closest to being empty."""
    given.queue("a", max_wait_ns=600 * S)
    given.nodes(2, gpus=8)
    for number in range(8):
        running(given, f"e{number}", [f"node-{number // 4}"], gpus=2, since=NOW - 9000, queue="a")
    waiting(given, "h", 1, born=NOW - 700, queue="a")
    waiting(given, "s", 1, gpus=2, born=NOW - 5, queue="a")
    given.gone("e1-0")
    given.when.one_session()
    assert given.then.reason("s") == "Reserved"
    given.gone("e6-0")
    given.when.one_session()
    assert given.then.nodes() == {"s-0": "node-1"}


# -- groups of Kubernetes itself -----------------------------------------------------------------


def native(c: Given, name: str, pods: int, *, born=NOW - 5, **how) -> Given:
    """A gang of a PodGroup of Kubernetes itself, which tells no walltime and no patience."""
    c.group(name, min_member=pods, created=born, source="native", queue="a")
    return c.pods(name, pods, group=name, gpus=8, created=born, **how)


def test_newer_pods_do_not_pass_a_native_gang(given):
    """What becomes free is held for it in its turn; what has a higher priority does not wait."""
    endless(given.queue("a"), 3)
    native(given, "h", 3, born=NOW - 5)
    waiting(given, "s", 1, born=NOW - 4, queue="a")
    given.gone("e1-0")
    given.when.one_session()
    assert given.then.started() == []
    assert given.then.reason("s") == "Reserved"
    assert "it is its turn, so 3 nodes are held for it" in given.then.why("h")
    waiting(given, "p", 1, born=NOW - 3, queue="a", priority=5)
    given.when.one_session()
    assert given.then.started() == ["p"]


@pytest.mark.parametrize("argument", [0.0, 4.0])
def test_how_long_room_is_kept_for_native_gangs_is_an_argument(argument):
    """With 0s never, else from its creation on for so long."""
    tiers = tuple(
        PluginTier(
            tuple(
                PluginChoice("sla", {"keepRoomForNative": f"{argument:.0f}s"})
                if each.name == "sla"
                else each
                for each in tier.plugins
            )
        )
        for tier in DEFAULT.tiers
    )
    c = Given(policy=load_policy(attrs.evolve(DEFAULT, tiers=tiers)))
    endless(c.queue("a"), 3)
    native(c, "h", 3, born=NOW - 5)
    waiting(c, "s", 1, born=NOW - 4, queue="a")
    c.gone("e1-0")
    c.when.one_session()
    assert c.then.started() == ["s"]


def test_nobody_waits_for_services_to_end(given):
    """Pods of a ReplicaSet are made anew: the nodes beside them stay open to others."""
    given.queue("a").nodes(3, gpus=8)
    given.pod(
        "web", node="node-0", gpus=8, phase="Running", scheduled=NOW - 10, priority=9,
        owner=Owner("ReplicaSet", "web-1", entities.uid("ReplicaSet", "web-1")),
    )  # fmt: skip
    native(given, "h", 3, born=NOW - 5)
    waiting(given, "s", 1, born=NOW - 4, queue="a")
    given.when.one_session()
    assert given.then.started() == ["s"]


# -- strict order ------------------------------------------------------------------------------


def pools(c: Given) -> Given:
    """Two nodes of each model; the queue takes its jobs strictly in order."""
    c.queue("a", ordering="StrictFifo").queue("b")
    c.nodes(2, prefix="h100", gpus=8, labels={"model": "h100"})
    return c.nodes(2, prefix="a100", gpus=8, labels={"model": "a100"})


def test_a_strict_queue_is_blocked_in_the_heads_pool_only(given):
    """The head waits for H100 nodes: others of its queue get none of them, but A100 nodes."""
    pools(given)
    running(given, "r", ["h100-0"], queue="b")
    waiting(given, "head", 2, queue="a", born=NOW - 9, node_selector={"model": "h100"})
    waiting(given, "one", 1, queue="a", born=NOW - 8, node_selector={"model": "h100"})
    waiting(given, "two", 1, queue="a", born=NOW - 7, node_selector={"model": "a100"})
    waiting(given, "any", 1, queue="a", born=NOW - 6)
    given.when.one_session()
    assert given.then.started() == ["any", "two"]
    assert sorted(given.then.nodes().values()) == ["a100-2", "a100-3"]
    assert given.then.reason("one") == "Reserved"
    assert "default/head is before it in queue a, which is StrictFifo" in given.then.why("one")


def test_a_strict_queue_lends_its_nodes(given):
    """What the head cannot use now other queues may."""
    pools(given)
    running(given, "r", ["h100-0"], queue="b")
    waiting(given, "head", 2, queue="a", born=NOW - 9, node_selector={"model": "h100"})
    waiting(given, "other", 1, queue="b", born=NOW - 8, node_selector={"model": "h100"})
    given.when.one_session()
    assert given.then.started() == ["other"]


def test_a_strict_queue_backfills_around_its_head(given):
    """With a known start of the head, what ends before it may pass."""
    pools(given)
    running(given, "r", ["h100-0"], queue="b", length=100)
    waiting(given, "head", 2, queue="a", born=NOW - 9, node_selector={"model": "h100"})
    waiting(given, "long", 1, queue="a", born=NOW - 8, node_selector={"model": "h100"})
    waiting(given, "short", 1, queue="a", born=NOW - 7, node_selector={"model": "h100"}, length=60)
    given.when.one_session()
    assert given.then.started() == ["short"]
    assert given.then.reason("long") == "Reserved"


def test_a_head_for_nodes_that_do_not_exist_blocks_nobody(given):
    """A head competes for the nodes that filters allow it: for none here."""
    pools(given)
    waiting(given, "head", 1, queue="a", born=NOW - 9, node_selector={"model": "b200"})
    waiting(given, "one", 1, queue="a", born=NOW - 8)
    given.when.one_session()
    assert given.then.started() == ["one"]


# -- topology ----------------------------------------------------------------------------------


def test_a_reservation_keeps_the_topology(given):
    """The hold lies in one rack, also where another rack is free sooner in parts."""
    given.nodes(2, rack="r1", gpus=8).nodes(2, rack="r2", gpus=8)
    running(given, "long", ["node-0"], length=1000)
    running(given, "one", ["node-2"], length=100)
    running(given, "two", ["node-3"], length=200)
    waiting(given, "h", 2, born=NOW - 8, topology=TopologyRequest(required="rack"))
    waiting(given, "s", 1, born=NOW - 7)
    given.when.one_session()
    assert given.then.status("h").estimated_start == NOW + 190
    assert given.then.nodes() == {"s-0": "node-1"}


def test_a_gang_that_holds_out_for_a_level_is_told_when_it_gives_up(given):
    """Preferred rack, 300 s at most: without any other end it starts across racks then."""
    given.nodes(2, rack="r1", gpus=8).nodes(2, rack="r2", gpus=8)
    running(given, "one", ["node-0"], length=9000)
    running(given, "two", ["node-2"], length=9000)
    wish = TopologyRequest(preferred="rack", max_wait_ns=300 * S)
    waiting(given, "h", 2, born=NOW - 8, topology=wish)
    given.when.one_session()
    assert given.then.status("h").estimated_start == NOW + 292


def test_a_gang_behind_its_equal_starts_before_a_reservation_that_begins_later():
    """What is reserved from later on takes no room from one that has ended by then."""
    c = Given().nodes(1, gpus=8)
    running(c, "soon", ["node-0"], since=NOW, gpus=4, length=100)
    running(c, "later", ["node-0"], since=NOW, gpus=4, length=1000)
    waiting(c, "first", 1, born=NOW - 9, gpus=2, length=500)
    waiting(c, "large", 1, born=NOW - 8, gpus=6, length=500)
    waiting(c, "second", 1, born=NOW - 7, gpus=2, length=500)
    c.when.one_session()
    starts = [c.then.status(name).estimated_start - NOW for name in ("first", "large", "second")]
    assert starts == [100, 1000, 100]
