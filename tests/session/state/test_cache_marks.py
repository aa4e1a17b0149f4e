"""What the cache has counted is what it would count anew, in whatever order its objects come and change."""

from __future__ import annotations

import attrs
import pytest

from gpusched.api.meta.identity import GangKey, ObjectKey
from gpusched.api.pod.pod import PodPhase
from gpusched.api.queue.user_limits import UserLimit, UserLimits
from gpusched.testing.given import Given


def with_a_running_job(given: Given) -> Given:
    """A full node, held by a Job of whose priority class nothing is known."""
    given.nodes(1, gpus=8)
    return given.job(
        "runs", parallelism=1, completions=1, node="node-0", slots=0xFF, gpus=8, plan="p",
        phase=PodPhase.RUNNING, scheduled=given.now - 900, priority_class="kept",
    )  # fmt: skip


def with_a_running_pod(given: Given) -> Given:
    """The same of a pod without any controller."""
    given.nodes(1, gpus=8)
    return given.pod(
        "runs", node="node-0", slots=0xFF, gpus=8, plan="p", phase=PodPhase.RUNNING,
        scheduled=given.now - 900, priority_class="kept",
    )  # fmt: skip


@pytest.mark.parametrize("running", [with_a_running_job, with_a_running_pod])
def test_a_priority_class_protects_what_runs_when_it_comes_to_say_so(running, given):
    """Given what runs in a class, when that says that it is not preemptible, then nothing is evicted for others."""
    running(given)
    given.when.one_session()
    given.priority_class("kept", 0, preemptible=False)
    given.gang("urgent", pods=1, gpus=8, priority=1000)
    given.when.one_session()
    assert given.then.evicted() == []
    given.cache.drop_priority(ObjectKey("", "kept"))
    given.when.one_session()
    assert given.then.evicted() != []


def test_a_suspended_job_has_the_priority_of_a_class_that_comes_later(given):
    """Given a Job in a class that is not there, when it comes, then the Job goes before others."""
    given.nodes(1, gpus=8).queue("q")
    given.job(
        "urgent", parallelism=1, completions=1, suspended=True, queue="q", gpus=8, cpu=100,
        priority_class="high",
    )  # fmt: skip
    key = GangKey("Job", "default", "urgent")
    found = {gang.key: gang.priority for gang in given.cache.take_snapshot(given.now).gangs}
    assert found[key] == 0
    given.priority_class("high", 1000)
    found = {gang.key: gang.priority for gang in given.cache.take_snapshot(given.now).gangs}
    assert found[key] == 1000


@pytest.mark.parametrize("gone", [True, False])
def test_no_gang_keeps_the_accounts_of_limits_that_are_gone(given, gone):
    """Given the only queue that limits users, when it is gone or limits none, then gangs have no accounts."""
    limits = UserLimits(per_user=UserLimit(max_running=3))
    given.nodes(1, gpus=8).queue("q", user_limits=limits)
    given.gang("waits", pods=1, gpus=16, queue="q")
    (gang,) = given.cache.take_snapshot(given.now).gangs
    assert gang.accounts
    if gone:
        given.cache.drop_queue(ObjectKey("", "q"))
    else:
        queue = given.cache.queues.items[ObjectKey("", "q")]
        changed = attrs.evolve(queue, generation=2, user_limits=UserLimits())
        given.cache.put_queue(changed.key, changed)
    gangs = given.cache.take_snapshot(given.now).gangs
    assert [each.accounts for each in gangs if each.key == gang.key] == [()]


def test_members_that_leave_stand_in_one_order(given):
    """Given two members that are being deleted, whichever came first, then a gang is the same."""
    orders = []
    for names in (("g-0", "g-1"), ("g-1", "g-0")):
        cluster = Given().nodes(1, gpus=8).group("g", min_member=1)
        for name in names:
            slot = int(name[-1])
            cluster.pod(
                name, group="g", node="node-0", slots=1 << slot, gpus=1, plan="p", deleting=True,
                phase=PodPhase.RUNNING, scheduled=given.now,
            )  # fmt: skip
        key = GangKey("PodGroup", "default", "g")
        gang = cluster.cache.take_snapshot(given.now).placed_gangs[key]
        orders.append([member.pod.name for member in gang.leaving_placed])
    assert orders == [["g-0", "g-1"]] * 2
