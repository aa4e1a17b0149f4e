"""Gangs that have lost members, run too long, or are to leave their queue."""

from __future__ import annotations

import pytest
from gpusched_plugins.eviction.drain import Drain
from gpusched_plugins.eviction.lifetime import Lifetime, LifetimeArgs

from gpusched.api.gang.pod_group import SubGroup, TopologyRequest
from gpusched.api.meta.identity import Owner
from gpusched.api.meta.status import Condition
from gpusched.api.pod.pod import PodPhase
from gpusched.base import limits
from gpusched.config.model import DEFAULT
from gpusched.pluginhost.registry import load_policy
from gpusched.session.state.policy import Policy
from gpusched.testing import entities, invariants
from gpusched.testing.given import Given

MINUTE_NS = 60 * 10**9


def cluster(grace: float | None = 60.0) -> Given:
    """An empty one, with the policies about lives of gangs."""
    shipped = load_policy(DEFAULT)
    names = {"lifetime", "drain"}
    tiers = tuple(tuple(p for p in tier if p.name not in names) for tier in shipped.tiers)
    lives = (Lifetime(LifetimeArgs(stale_after_s=grace)), Drain())
    return Given(policy=Policy(shipped.actions, (*tiers, lives)))


@pytest.fixture
def c():
    """A cluster whose invariants hold in the end."""
    made = cluster()
    yield made
    assert invariants.check(made.objects(), now=made.now) == []


def started(
    c: Given,
    name: str,
    have: int,
    *,
    need: int,
    since: float | None = None,
    first: int = 0,
    gpus: int = 8,
    phase: str = "Running",
    **fields,
) -> Given:
    """A gang that was whole; ``have`` of its members still run, one a node from ``first`` on.

    ``since``: when its PodGroup was told that it is broken.
    """
    told = ()
    if since is not None:
        told = (Condition("Scheduled", "False", "NotEnoughMembers", "", 1, since),)
    c.group(name, min_member=need, phase=phase, conditions=told, **fields)
    for number in range(have):
        c.pod(
            f"{name}-{number}", group=name, gpus=gpus, node=f"node-{first + number}", plan="p",
            slots=2**gpus - 1, phase=PodPhase.RUNNING, scheduled=entities.BORN + 10, rank=number,
        )  # fmt: skip
    return c


def test_a_replacement_goes_before_equal_work_that_waits_longer(c):
    """Also before work of another queue: whoever is broken holds GPUs that do nothing."""
    c.nodes(4, gpus=8).queue("other")
    c.queue("default", limits={"deserved": {entities.GPU: 32}})
    started(c, "a", 3, need=4)
    c.gang("single", pods=1, gpus=8, queue="other", created=entities.BORN - 100)
    c.gang("mine", pods=1, gpus=8, created=entities.BORN - 100)
    c.pod("a-new", group="a", gpus=8)
    c.when.bound()
    assert c.then.nodes() == {"a-new": "node-3"}


def test_room_is_held_for_a_member_that_nobody_made_again_yet(c):
    """Its slot goes to nobody else; what is free beyond it does; and not for ever."""
    c.nodes(5, gpus=8)
    started(c, "a", 3, need=4, since=c.now - 5)
    c.gang("one", pods=1, gpus=8, created=entities.BORN - 100)
    c.gang("two", pods=1, gpus=8, created=entities.BORN - 99)
    c.when.bound()
    assert c.then.started() == ["one"]
    assert c.then.status("a").phase == "Unknown"
    assert c.then.reason("a") == "NotEnoughMembers"
    never = cluster(grace=None).nodes(4, gpus=8)
    started(never, "a", 3, need=4, since=never.now - limits.REPAIR_ROOM_MAX_S - 1)
    never.gang("one", pods=1, gpus=8)
    never.when.one_session()
    assert never.then.started() == ["one"]


def test_a_member_that_is_still_ending_leaves_its_room_to_its_successor(c):
    """The gap is only a pod that ends: nobody is called unschedulable, nobody else gets it."""
    c.nodes(4, gpus=8)
    started(c, "a", 4, need=4)
    c.pod(
        "a-3", group="a", gpus=8, node="node-3", slots=255, plan="p", phase=PodPhase.RUNNING,
        scheduled=entities.BORN + 10, deleting=True,
    )  # fmt: skip
    c.gang("one", pods=1, gpus=8, created=entities.BORN - 100)
    c.pod("a-new", group="a", gpus=8)
    plan = c.when.carried_out()
    assert plan.binds == ()
    assert c.then.reason("a") == "PreemptionInProgress"
    c.gone("a-3")
    c.when.carried_out()
    assert c.then.nodes() == {"a-new": "node-3"}


@pytest.mark.parametrize(("racks", "starts"), [(2, True), (1, False)])
def test_room_is_held_for_a_member_of_the_sub_group_that_lost_one(c, racks, starts):
    """Given sub-groups in a rack each: room is held in the rack of the one that is short.

    With a free node in another rack the single goes there; where there is none it waits.
    """
    c.nodes(2, gpus=8, rack="r0").nodes(2, gpus=8, rack="r1")
    if racks == 2:
        c.nodes(1, gpus=8, rack="r2")
    rack = TopologyRequest(required="rack")
    parts = (SubGroup("left", 2, rack), SubGroup("right", 2, rack))
    told = (Condition("Scheduled", "False", "NotEnoughMembers", "", 1, c.now - 5),)
    c.group("a", min_member=4, phase="Running", conditions=told, sub_groups=parts, min_sub_groups=2)
    for number, part in enumerate(("left", "left", "right")):
        c.pod(
            f"a-{number}", group="a", sub_group=part, gpus=8, node=f"node-{number}", plan="p",
            slots=255, phase=PodPhase.RUNNING, scheduled=entities.BORN + 10,
        )  # fmt: skip
    c.gang("single", pods=1, gpus=8, created=entities.BORN - 100)
    c.when.one_session()
    assert c.then.nodes() == ({"single-0": "node-4"} if starts else {})


def test_a_higher_gang_of_its_own_queue_goes_before_a_repair(c):
    """Priority is what the queue's owner said; being broken only breaks ties."""
    c.nodes(4, gpus=8)
    started(c, "a", 3, need=4)
    c.pod("a-new", group="a", gpus=8)
    c.gang("high", pods=1, gpus=8, priority=10)
    c.when.bound()
    assert c.then.started() == ["high"]


def test_a_replacement_stays_in_the_domain_of_the_others(c):
    """Another rack is empty, and of no use; full here means to wait, with a reason."""
    c.nodes(2, gpus=8, rack="r0").nodes(4, gpus=8, rack="r1")
    started(c, "a", 1, need=2, topology=TopologyRequest(required="rack"))
    c.pod("a-new", group="a", gpus=8)
    c.when.one_session()
    assert c.then.nodes() == {"a-new": "node-1"}
    c.pod("x", gpus=8, node="node-1", slots=255, plan="q", phase=PodPhase.RUNNING)
    assert c.when.one_session().binds == ()
    assert c.then.reason("a") == "TopologyUnsatisfiable"


def test_a_preferred_domain_is_kept_while_it_has_room_and_left_when_not(c):
    """The nearest level that can take the replacement."""
    c.nodes(2, gpus=8, rack="r0").nodes(2, gpus=8, rack="r1")
    started(c, "a", 1, need=2, topology=TopologyRequest(preferred="rack"))
    c.pod("a-new", group="a", gpus=8)
    c.when.one_session()
    assert c.then.nodes() == {"a-new": "node-1"}
    c.pod("x", gpus=8, node="node-1", slots=255, plan="q", phase=PodPhase.RUNNING)
    c.when.one_session()
    assert c.then.nodes()["a-new"] in {"node-2", "node-3"}


@pytest.mark.parametrize(("age", "stopped"), [(59, False), (60, True)])
def test_a_gang_that_stays_broken_is_stopped_as_a_whole(c, age, stopped):
    """Sixty seconds after its condition said so; not a second before."""
    c.nodes(4, gpus=8)
    started(c, "a", 3, need=4, since=c.now - age, phase="Unknown")
    plan = c.when.one_session()
    assert [len(stop.evictions) for stop in plan.stops] == ([3] if stopped else [])
    if stopped:
        (stop,) = plan.stops
        assert {each.reason for each in stop.evictions} == {"StaleGang"}
        assert "had 3 of 4 pods it needs for 60 s" in stop.evictions[0].message
        assert c.then.reason("a") == "StaleGang"


def test_a_stopped_gang_is_not_repaired_in_the_same_breath(c):
    """Its replacement waits: it starts again with all the others."""
    c.nodes(4, gpus=8)
    started(c, "a", 2, need=4, since=c.now - 100, phase="Unknown")
    c.pods("new", 2, group="a", gpus=8)
    plan = c.when.carried_out()
    assert plan.binds == ()
    assert len(plan.stops) == 1
    c.pods("again", 2, group="a", gpus=8)
    assert [len(bind.binds) for bind in c.when.one_session().binds] == [4]
    assert c.when.one_session().stops == ()


def test_who_is_not_stale(c):
    """Finished members, gangs that never were whole, no time known yet, and a grace of never."""
    c.nodes(12, gpus=8)
    old = c.now - 1000
    started(c, "done", 1, need=2, since=old)
    c.pod("done-1", group="done", gpus=8, phase=PodPhase.SUCCEEDED)
    started(c, "unknown", 1, need=2, first=4)
    assert c.when.one_session().stops == ()
    partial = cluster().nodes(2, gpus=8)
    started(partial, "partial", 1, need=2, since=old, phase="Inqueue")
    assert partial.when.one_session().stops == ()
    never = cluster(grace=None).nodes(2, gpus=8)
    started(never, "a", 1, need=2, since=old)
    assert never.when.one_session().stops == ()


def test_a_job_without_a_pod_group_counts_from_its_oldest_replacement(c):
    """A member that waits for a minute means that the gang is broken for a minute."""
    c.nodes(1, gpus=8)
    c.job("j", parallelism=2, completions=2, pods=0)
    owner = c.cache.jobs.items[next(iter(c.cache.jobs.items))]
    of = Owner("Job", "j", owner.uid)
    c.pod(
        "j-0", owner=of, gpus=8, node="node-0", slots=255, plan="p", phase=PodPhase.RUNNING,
        scheduled=c.now - 500,
    )  # fmt: skip
    c.pod("j-1", owner=of, gpus=8, created=c.now - 59)
    assert c.when.one_session().stops == ()
    c.now += 1
    (stop,) = c.when.one_session().stops
    assert [each.key.name for each in stop.evictions] == ["j-0"]


def test_a_queue_that_drains_stops_all_that_runs_below_it(c):
    """Its own gangs and those of its children, with the queue's name; Hold stops nobody."""
    c.nodes(6, gpus=8)
    c.queue("org", stop_policy="HoldAndDrain").queue("team", parent="org")
    c.queue("held", stop_policy="Hold").queue("open")
    for number, queue in enumerate(("team", "held", "open")):
        started(c, f"in-{queue}", 2, need=2, first=2 * number, queue=queue)
    plan = c.when.one_session()
    assert c.then.evicted() == ["in-team-0", "in-team-1"]
    message = plan.stops[0].evictions[0].message
    assert message == "queue org has stopPolicy HoldAndDrain: what runs in it is stopped"
    assert c.then.queue("org").state == "Draining"
    c.when.carried_out()
    c.when.one_session()
    assert c.then.queue("org").state == "Closed"
    assert c.then.queue("team").state == "Closed"


def test_a_gang_runs_as_long_as_the_nearest_queue_allows(c):
    """Counted from when it was whole; the limit of the leaf wins over that of its parent."""
    c.nodes(6, gpus=8)
    c.queue("org", max_runtime_ns=5 * MINUTE_NS).queue("team", parent="org")
    c.queue("long", parent="org", max_runtime_ns=60 * MINUTE_NS)
    started(c, "a", 2, need=2, queue="team")
    started(c, "b", 2, need=2, first=2, queue="long")
    started(c, "c", 2, need=2, first=4)
    plan = c.when.one_session()
    assert c.then.evicted() == ["a-0", "a-1"]
    assert plan.stops[0].evictions[0].reason == "Preempted"
    assert plan.stops[0].evictions[0].message == "ran for 590 s; queue org lets jobs run for 300 s"


def test_a_gang_that_lost_everybody_waits_like_a_new_one(c):
    """Unknown is who is broken; who has nothing left queues up again."""
    c.nodes(1, gpus=8)
    started(c, "a", 0, need=2, phase="Unknown")
    c.pods("a", 2, group="a", gpus=8)
    c.when.one_session()
    assert c.then.status("a").phase == "Inqueue"


def test_an_extra_stays_where_its_gang_is(c):
    """The gang runs in a rack that is full; the other rack is free, and of no use to it."""
    c.nodes(2, gpus=8, rack="r0").nodes(2, gpus=8, rack="r1")
    started(c, "a", 2, need=2, topology=TopologyRequest(required="rack"))
    c.pod("a-extra", group="a", gpus=8)
    assert c.when.one_session().binds == ()
    assert c.then.reason("a") == "InsufficientResources"
    assert "in one rack" in c.then.why("a")
