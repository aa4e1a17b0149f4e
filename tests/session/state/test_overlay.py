"""What is under way is shown at once, and never longer than until the watch knows better."""

from __future__ import annotations

import random

import attrs
import msgspec
import pytest

from gpusched.api.meta.identity import ObjectKey, ResourceVersion
from gpusched.api.pod.pod import PodPhase
from gpusched.cache.assumed_changes import Nomination
from gpusched.cache.snapshot import Snapshot
from gpusched.session.state.decided.nominations import read_nominations
from gpusched.testing import entities
from gpusched.testing.given import Given

REASON = "PreemptionInProgress"


def nominations_in(snapshot: Snapshot):
    """The nominations of the snapshot's gangs."""
    return read_nominations(snapshot, snapshot.gangs)


def running(c: Given) -> Given:
    """A node of 8 GPUs with a gang of two that runs on it."""
    c.nodes(1, gpus=8).group("old", min_member=2)
    for number in range(2):
        c.pod(
            f"old-{number}", group="old", gpus=4, node="node-0", slots=15 << 4 * number, plan="p",
            phase=PodPhase.RUNNING, scheduled=entities.BORN,
        )  # fmt: skip
    return c


def shown(c: Given, name: str):
    return c.cache.pods[ObjectKey("default", name)]


def watch(c: Given, name: str, **fields) -> None:
    """The watch shows the pod as the API has it, whatever marks there are."""
    truth = msgspec.structs.replace(
        shown(c, name), deleting=False, nominated="", unschedulable_reason=""
    )
    version = ResourceVersion(c._next())
    c.cache.put_pod(msgspec.structs.replace(truth, resource_version=version, **fields))


def test_a_victim_counts_as_leaving_at_once(given):
    """Its room is free later, its gang has it no more; until that is taken back."""
    c = running(given)
    uid = c.then.uid("old-0")
    before = c.cache.take_snapshot(c.now)
    c.cache.mark_leaving(uid)
    marked = c.cache.take_snapshot(c.now)
    assert [gang.leaving for gang in marked.gangs if gang.key.name == "old"] == [1]
    assert marked.nodes.leaving[0].sum() > 0
    c.cache.mark_leaving(uid, leaving=False)
    after = c.cache.take_snapshot(c.now)
    assert [gang.leaving for gang in after.gangs if gang.key.name == "old"] == [0]
    assert (after.nodes.leaving == before.nodes.leaving).all()
    assert not shown(c, "old-0").deleting


def test_a_mark_survives_other_news_and_ends_with_what_it_waits_for(given):
    """A pod that changed otherwise still leaves; once its deletion is shown the mark is spent."""
    c = running(given)
    uid = c.then.uid("old-0")
    c.cache.mark_leaving(uid)
    watch(c, "old-0", phase=PodPhase.RUNNING)
    assert shown(c, "old-0").deleting
    watch(c, "old-0", deleting=True)
    c.cache.mark_leaving(uid, leaving=False)
    assert shown(c, "old-0").deleting
    watch(c, "old-0", deleting=False)
    assert not shown(c, "old-0").deleting


def test_a_promise_is_shown_until_the_api_shows_it_or_it_failed(given):
    """Older promises of the same node do not count as this one; a bound pod needs none."""
    c = given.nodes(1, gpus=8).gang("new", pods=1, gpus=8)
    uid = c.then.uid("new-0")
    c.cache.assume_nomination(uid, Nomination("node-0", REASON, "waits", c.now))
    assert (shown(c, "new-0").nominated, shown(c, "new-0").unschedulable_since) == (
        "node-0",
        c.now,
    )
    old = {"nominated": "node-0", "unschedulable_reason": REASON}
    watch(c, "new-0", **old, unschedulable_since=c.now - 100)
    assert shown(c, "new-0").unschedulable_since == c.now
    watch(c, "new-0", **old, unschedulable_since=float(int(c.now)))
    c.cache.assume_nomination(uid, None)
    assert shown(c, "new-0").nominated == "node-0"
    c.cache.assume_nomination(uid, Nomination("node-1", REASON, "waits", c.now))
    c.cache.assume_nomination(uid, None)
    assert shown(c, "new-0").nominated == "node-0"
    c.cache.assume_nomination(uid, Nomination("node-1", REASON, "waits", c.now))
    watch(c, "new-0", node="node-0")
    assert shown(c, "new-0").nominated == ""


def test_a_withdrawn_promise_holds_no_room_while_the_api_still_shows_it(given):
    """The next session must not count on room that the last one gave to another gang."""
    c = given.nodes(1, gpus=8).gang("new", pods=1, gpus=8)
    uid = c.then.uid("new-0")
    promise = {"nominated": "node-0", "unschedulable_reason": REASON}
    watch(c, "new-0", **promise, unschedulable_since=50.0)
    assert nominations_in(c.cache.take_snapshot(60.0))
    c.cache.withdraw_nomination(uid, "Reserved")
    assert not nominations_in(c.cache.take_snapshot(60.0))
    watch(c, "new-0", **promise, unschedulable_since=50.0)
    assert not nominations_in(c.cache.take_snapshot(60.0))
    assert shown(c, "new-0").nominated == "node-0", "the API has it yet, and it is to be cleared"
    watch(c, "new-0", **promise, unschedulable_since=61.0)
    assert nominations_in(c.cache.take_snapshot(62.0)), "a later promise is another one"


def test_a_promise_withdrawn_before_the_api_shows_it_never_holds_room(given):
    """What is being written arrives later than the decision that took it back."""
    c = given.nodes(1, gpus=8).gang("new", pods=1, gpus=8)
    uid = c.then.uid("new-0")
    c.cache.assume_nomination(uid, Nomination("node-0", REASON, "waits", 50.5))
    c.cache.withdraw_nomination(uid, "Reserved")
    assert shown(c, "new-0").nominated == ""
    promise = {"nominated": "node-0", "unschedulable_reason": REASON}
    watch(c, "new-0", **promise, unschedulable_since=50.0)
    assert not nominations_in(c.cache.take_snapshot(60.0))
    c.cache.assume_nomination(uid, Nomination("node-0", REASON, "waits", 60.0))
    assert nominations_in(c.cache.take_snapshot(60.0)), "promised anew"


def test_a_withdrawn_promise_whose_write_failed_is_forgotten(given):
    """Nothing is to be hidden of a promise that never came to be."""
    c = given.nodes(1, gpus=8).gang("new", pods=1, gpus=8)
    uid = c.then.uid("new-0")
    c.cache.assume_nomination(uid, Nomination("node-0", REASON, "waits", 50.0))
    c.cache.withdraw_nomination(uid, "Reserved")
    c.cache.assume_nomination(uid, None)
    watch(c, "new-0", nominated="node-0", unschedulable_reason=REASON, unschedulable_since=50.0)
    assert nominations_in(c.cache.take_snapshot(60.0))


def test_a_job_is_shown_as_it_will_be(given):
    """Paused at once; what the watch shows of another Job of that name is its own."""
    c = given.nodes(1, gpus=8).job("train", parallelism=1, completions=1, gpus=1, queue="default")
    key = ObjectKey("default", "train")
    job = c.cache.jobs.items[key]
    c.cache.switch_job(key, job.uid, attrs.evolve(job, suspended=True))
    assert c.cache.jobs.items[key].suspended
    c.cache.put_job(key, attrs.evolve(job, resource_version=ResourceVersion("77")))
    assert c.cache.jobs.items[key].suspended
    c.cache.switch_job(key, job.uid, None)
    assert not c.cache.jobs.items[key].suspended
    assert c.cache.jobs.items[key].resource_version == "77"


def test_the_end_of_an_assumption_that_the_watch_has_shown_wakes_nobody(given):
    """As after each Job that is started: sessions would follow in which nothing has changed."""
    c = given.nodes(1, gpus=8).job("train", parallelism=1, completions=1, gpus=1, queue="default")
    key, told = ObjectKey("default", "train"), []
    job = c.cache.jobs.items[key]
    paused = attrs.evolve(job, suspended=True)
    c.cache.switch_job(key, job.uid, paused)
    c.cache.put_job(key, attrs.evolve(paused, resource_version=ResourceVersion("77")))
    c.cache.on_change.append(lambda: told.append("changed"))
    c.cache.switch_job(key, job.uid, None)
    assert c.cache.jobs.items[key].suspended
    assert told == []


@pytest.mark.parametrize("seed", range(20))
def test_what_is_shown_depends_on_state_and_marks_not_on_their_order(seed):
    """Marks and news in any order end in the same view (I16)."""
    rng = random.Random(seed)
    views = []
    for _ in range(2):
        c = running(Given())
        uid = c.then.uid("old-0")
        steps = [
            lambda c=c, uid=uid: c.cache.mark_leaving(uid),
            lambda c=c: watch(c, "old-0"),
            lambda c=c: watch(c, "old-1", phase=PodPhase.SUCCEEDED),
        ]
        rng.shuffle(steps)
        for step in steps:
            step()
        gang = next(g for g in c.cache.take_snapshot(c.now).gangs if g.key.name == "old")
        views.append((gang.leaving, gang.succeeded, shown(c, "old-0").deleting))
    assert views[0] == views[1] == (1, 1, True)
