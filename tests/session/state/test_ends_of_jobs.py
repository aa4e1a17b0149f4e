"""What a Job, or a queue, tells that pods have told before begins no session at once."""

from __future__ import annotations

import attrs
import msgspec
import pytest

from gpusched.api.meta.identity import ObjectKey, ResourceVersion
from gpusched.api.meta.status import Condition
from gpusched.api.pod.pod import PodPhase
from gpusched.api.queue.queue import QueueUsage

TRAIN, BATCH = ObjectKey("default", "train"), ObjectKey("", "batch")


def cluster(given, *, succeeded, runs=0, pods=None, **more):
    """A Job that was started a second ago, of whose pods some have succeeded and some run."""
    c, total = given.nodes(1, gpus=8), succeeded + runs
    about = {"parallelism": total, "completions": total, "queue": "default", "gpus": 1, **more}
    c.job("train", **about, pods=pods, node="node-0", started={"admitted": c.now - 1})
    for number in range(succeeded):
        pod = c.cache.pods[ObjectKey("default", f"train-{number}")]
        version = ResourceVersion(c._next())
        over = msgspec.structs.replace(pod, phase=PodPhase.SUCCEEDED, resource_version=version)
        c.cache.put_pod(over)
    return c


def told_of(cache, put):
    """What kind of change the cache told of, or ``echo``."""
    told = []
    cache.on_change.append(lambda: told.append(cache.change.name))
    cache.on_echo.append(lambda: told.append("echo"))
    put()
    return told


def job_changes(c, **fields):
    """Whom the cache tells of another status of the Job."""
    job = c.cache.jobs.items[TRAIN]
    fields = {"resource_version": ResourceVersion(c._next()), **fields}
    return told_of(c.cache, lambda: c.cache.put_job(TRAIN, attrs.evolve(job, **fields)))


@pytest.mark.parametrize("fields", [{"succeeded": 2}, {"finished": True, "ran_s": 60}])
def test_the_end_of_a_job_whose_pods_have_ended_is_told_late(given, fields):
    """Its room was free when its pods ended; runs of which lengths are learned may come a moment later."""
    assert job_changes(cluster(given, succeeded=2), **fields) == ["LATE"]


def test_a_job_of_which_pods_run_is_told_at_once(given):
    """It may have been ended from outside, and what it says of its pods may be wrong."""
    assert job_changes(cluster(given, succeeded=1, runs=1), finished=True) == ["ANY"]


@pytest.mark.parametrize(
    "fields",
    [{"succeeded": 1}, {"failed": "BackoffLimitExceeded", "finished": True}, {"suspended": True}],
)
def test_other_news_of_a_job_are_told_at_once(given, fields):
    """One that makes further pods, that has failed or was paused."""
    assert job_changes(cluster(given, succeeded=2), **fields) == ["ANY"]


def test_pods_that_succeeded_are_not_expected_again(given):
    """The controller counts them a moment after they ended; until then the Job tells of none."""
    c = cluster(given, succeeded=2)
    c.gang("next", pods=1, gpus=8).when.one_session()
    assert c.then.started() == ["next"]


def test_pods_that_are_to_replace_failed_ones_are_expected(given):
    """Of three that are to succeed one has, one runs and one does not exist."""
    c = cluster(given, succeeded=1, runs=2, pods=2)
    c.gang("next", pods=1, gpus=7).when.one_session()
    assert c.then.started() == []


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"status": b"{}", "conditions": (Condition("A", "True", "B", "c", 0, 0.0),)}, []),
        ({"usage": QueueUsage(as_of=5.0)}, ["echo"]),
        ({"generation": 2, "weight": 3}, ["ANY"]),
    ],
)
def test_what_a_queue_tells_people_begins_no_session(given, fields, told):
    """Our own words come back a moment after they were written; what is read again does begin one."""
    c = given.queue("batch")
    changed = attrs.evolve(c.cache.queues.items[BATCH], resource_version=ResourceVersion("9"))
    changed = attrs.evolve(changed, **fields)
    assert told_of(c.cache, lambda: c.cache.put_queue(BATCH, changed)) == told
    assert c.cache.queues.items[BATCH] == changed
