"""Jobs that are submitted suspended wait in their queue as gangs, and are started in their turn."""

from __future__ import annotations

import attrs
import pytest

from gpusched.api.gang.eviction_record import GangEvictions, PastEviction
from gpusched.api.gang.turn_record import TurnRecord
from gpusched.api.meta.identity import Owner
from gpusched.api.meta.resources import NOTHING
from gpusched.api.pod.pod import PodPhase
from gpusched.api.queue.queue import NodePool
from gpusched.base import limits
from gpusched.testing import entities


def job(c, name, parallelism, **more):
    """An indexed Job of pods with 8 GPUs, suspended unless told."""
    fields = {"suspended": True, "queue": "default", "gpus": 8, **more}
    return c.job(name, parallelism=parallelism, completions=parallelism, indexed=True, **fields)


def switched(c):
    """Suspend or not, by Job."""
    return {each.key.name: each.suspend for each in c.then.plan.job_changes}


def test_a_suspended_job_is_started_when_all_its_pods_fit(given):
    """Nothing is started that would wait for GPUs with half of its pods."""
    c = job(job(given.nodes(2, gpus=8), "fits", 2), "large", 3)
    plan = c.when.one_session()
    assert plan.binds == ()
    assert switched(c) == {"fits": False}
    assert c.then.reason("large") == "InsufficientResources"
    assert "needs 3 pods with 8 nvidia.com/gpu" in c.then.why("large")


def test_a_job_waits_for_its_turn(given):
    """A gang that is due first gets the room, although its pods exist and the Job is older."""
    c = given.nodes(1, gpus=8).priority_class("high", 100)
    c.gang("urgent", pods=1, gpus=8, priority=100)
    job(c, "idle", 1)
    c.when.one_session()
    assert c.then.started() == ["urgent"]
    assert switched(c) == {}
    c2 = c.gone("urgent-0")
    c2.when.one_session()
    assert switched(c2) == {"idle": False}


def test_room_is_held_for_pods_that_are_still_to_come(given):
    """Between its start and the birth of its pods nobody takes a Job's room; later, anybody may."""
    c = given.nodes(1, gpus=8)
    job(c, "started", 1, suspended=False, pods=0, started={"admitted": c.now - 1})
    c.gang("quick", pods=1, gpus=8, created=entities.BORN + 100)
    c.when.one_session()
    assert c.then.started() == []
    assert switched(c) == {}
    c.now += limits.EXPECTED_PODS_MAX_S + 1
    c.when.one_session()
    assert c.then.started() == ["quick"]


def _started_beside_one_that_is_served_first(given, **started):
    """A Job of queue b, which holds half of its due, was started; a gang of queue a asks for the last node, too."""
    c = given.nodes(2, gpus=8)
    for name in "ab":
        c.queue(name, limits={"deserved": {entities.GPU: 16}})
    c.pod("runs", queue="b", gpus=8, node="node-0", phase=PodPhase.RUNNING, scheduled=c.now - 900)
    about = {"admitted": c.now - 1, **started}
    job(c, "started", 1, queue="b", suspended=False, started=about)
    c.gang("quick", pods=1, gpus=8, queue="a")
    return c


def test_a_job_that_was_started_has_its_turn_before_all_that_is_new(given):
    """Its queue's turn came when it was started: none of a queue that holds less takes the room before its pods."""
    c = _started_beside_one_that_is_served_first(given)
    c.when.one_session()
    assert c.then.nodes() == {"started-0": "node-1"}


@pytest.mark.parametrize("left", ["evicted", "at the end of its turn"])
@pytest.mark.parametrize(
    ("after_s", "has_its_turn"), [(0.0, True), (5.0, True), (-5.0, False)],
    ids=["in the same second", "later", "before"],
)  # fmt: skip
def test_a_job_that_left_has_its_turn_once_it_is_started_again(given, left, after_s, has_its_turn):
    """What is written of both moments has whole seconds: of one that left, a start in the same second is the later one.

    A Job that is evicted is no started one until then.
    """
    at = float(int(given.now) - 10)
    record = {
        "evictions": GangEvictions((PastEviction(at=at, action="preempt", reason="Preempted"),))
    }
    if left == "at the end of its turn":
        record = {"turn": TurnRecord(at, 60)}
    c = _started_beside_one_that_is_served_first(given, admitted=at + after_s, **record)
    c.when.one_session()
    assert c.then.nodes() == {"started-0" if has_its_turn else "quick-0": "node-1"}


@pytest.mark.parametrize("why", ["higher in its queue", "too late", "some pods succeeded"])
def test_a_job_that_was_started_has_no_other_privilege(given, why):
    """It waits as all do behind a higher priority of its queue, and once it has run or did not come in time."""
    c = given.nodes(1, gpus=8).priority_class("high", 100)
    started = {"admitted": c.now - 1 - (why == "too late") * limits.ADMITTED_MAX_S}
    c.queue("a").queue("b")
    job(c, "started", 1, queue="b", suspended=False, started=started)
    if why == "some pods succeeded":
        made = next(iter(c.cache.jobs.items.values()))
        c.cache.put_job(made.key, attrs.evolve(made, completions=2, succeeded=1))
    above = why == "higher in its queue"
    c.gang("other", pods=1, gpus=8, queue="b" if above else "a", priority=100 if above else 0)
    c.when.one_session()
    assert c.then.started() == ["other"]


def test_pods_that_have_come_are_bound_with_all_the_others(given):
    """A Job of which one pod of two exists keeps the room of both and binds none."""
    c = given.nodes(2, gpus=8)
    job(c, "started", 2, suspended=False, pods=1, started={"admitted": c.now - 1})
    assert c.when.one_session().binds == ()
    c.pod("started-1", owner=c.cache.pods[next(iter(c.cache.pods))].owner, gpus=8, rank=1)
    assert [len(gang.binds) for gang in c.when.one_session().binds] == [2]


def test_a_job_may_start_with_less(given):
    """With a least parallelism it gets as many as fit, and when paused asks for all again."""
    c = given.nodes(5, gpus=8)
    job(c, "elastic", 8, started={"min_parallelism": 3})
    (switch,) = c.when.one_session().job_changes
    assert (switch.suspend, switch.parallelism) == (False, 5)
    assert dict(switch.annotations)["gpusched.io/parallelism"] == "8"
    assert "room for 5 pods of 8" in switch.message


def test_less_than_the_least_does_not_start_a_job(given):
    """Two of the three that it needs at least are not enough."""
    c = job(given.nodes(2, gpus=8), "elastic", 8, started={"min_parallelism": 3})
    assert c.when.one_session().job_changes == ()
    assert "needs 3 pods" in c.then.why("elastic")


def test_the_first_pool_with_room_decides(given):
    """The queue's pools are tried in order; the Job's pods are given the pool's labels."""
    c = given.nodes(1, gpus=8, labels={"gpu": "h100"}).nodes(1, gpus=8, labels={"gpu": "a100"})
    pools = tuple(
        NodePool(name=name, node_selector=(("gpu", name),), deserved=NOTHING, capability=NOTHING)
        for name in ("h100", "a100")
    )
    c.queue("research", node_pools=pools)
    job(job(c, "first", 1, queue="research"), "second", 1, queue="research")
    plan = c.when.one_session()
    assert [each.node_selector for each in plan.job_changes] == [
        (("gpu", "h100"),),
        (("gpu", "a100"),),
    ]


def test_a_job_that_got_no_place_is_suspended_again(given):
    """Its admission is given back after a while, and it pauses before the next."""
    c = given.nodes(1, gpus=8)
    started = {"admitted": c.now - limits.ADMITTED_MAX_S - 1}
    job(c, "unlucky", 2, suspended=False, started=started)
    (switch,) = c.when.one_session().job_changes
    assert switch.suspend
    assert switch.annotations == ()
    job(c, "unlucky", 2, started=started)
    c.node("more", gpus=8)
    c.gone("unlucky-0").gone("unlucky-1")
    assert c.when.one_session().job_changes == ()
    assert c.then.reason("unlucky") == "BackOff"
    c.now += limits.ADMIT_AGAIN_S
    c.when.one_session()
    assert switched(c) == {"unlucky": False}


@pytest.mark.parametrize("why", ["no queue", "another scheduler", "finished"])
def test_jobs_that_are_not_ours_to_start_are_left_alone(given, why):
    """Without a queue, with another scheduler or when they have ended, Jobs stay as they are."""
    c = given.nodes(4, gpus=8)
    job(c, "other", 1, queue="" if why == "no queue" else "default")
    made = next(iter(c.cache.jobs.items.values()))
    if why == "another scheduler":
        made = attrs.evolve(
            made, template=attrs.evolve(made.template, scheduler="default-scheduler")
        )
    elif why == "finished":
        made = attrs.evolve(made, finished=True)
    c.cache.put_job(made.key, made)
    assert c.when.one_session().job_changes == ()


def grouped(c, name, members, **more):
    """A Job of the default queue whose pods are members of a PodGroup of its name."""
    c.group(name, min_member=members)
    return job(c, name, members, group=name, **more)


def test_pods_of_a_started_job_that_join_its_pod_group_are_not_waited_for_twice(given):
    """Room is held for those that are still to come, and for nobody who has come."""
    c = given.nodes(2, gpus=8)
    grouped(c, "trained", 2, suspended=False, pods=0, started={"admitted": c.now - 1})
    c.gang("other", pods=1, gpus=8, created=entities.BORN + 100)
    assert c.when.one_session().binds == ()
    made = next(iter(c.cache.jobs.items.values()))
    for rank in range(2):
        owner = Owner("Job", made.name, made.uid)
        c.pod(f"trained-{rank}", owner=owner, group="trained", gpus=8, rank=rank)
    c.when.one_session()
    assert c.then.started() == ["trained"]
    assert len(c.then.nodes()) == 2


def test_a_pod_group_that_is_one_job_is_paused_with_it(given):
    """Reclaim suspends the Job: shot pod by pod it would use up its retries."""
    c = given.nodes(2, gpus=8)
    c.queue("lends", limits={"deserved": {entities.GPU: 0}})
    c.queue("takes", limits={"deserved": {entities.GPU: 16}})
    c.group("lent", queue="lends", min_member=2)
    job(c, "lent", 2, queue="lends", group="lent", suspended=False, pods=0)
    made = next(iter(c.cache.jobs.items.values()))
    for rank in range(2):
        c.pod(
            f"lent-{rank}", owner=Owner("Job", made.name, made.uid), group="lent", gpus=8, rank=rank,
            node=f"node-{rank}", slots=255, plan="p", phase=PodPhase.RUNNING, scheduled=c.now - 900,
        )  # fmt: skip
    c.gang("claim", pods=2, gpus=8, queue="takes")
    (claim,) = c.when.one_session().preemptions
    (stop,) = claim.stops
    assert stop.pause is not None
    assert stop.pause.key.name == "lent"
