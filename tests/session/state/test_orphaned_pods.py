"""Pods that leave their Job's family for one of their own are counted once, whichever is counted first."""

from __future__ import annotations

import pytest

from gpusched.api.meta.identity import GangKey, Owner
from gpusched.api.meta.units import DEVICE
from gpusched.testing import entities
from gpusched.testing.given import Given

JOBS = 24


def running(cluster, job, number, *, orphan=False):
    """A pod of a Job whose pods are independent, or one that the Job has left behind."""
    owner = None if orphan else Owner("Job", job, entities.uid("Job", job, "default"))
    cluster.pod(
        f"{job}-{number}", gpus=1, node=f"node-{number}", slots=1 << int(job[1:]), plan="p",
        queue="team", owner=owner,
    )  # fmt: skip


@pytest.mark.parametrize("left", [1, 2])
def test_orphans_hold_their_gpus_in_their_queue(left):
    """Given Jobs of two independent pods that run, of which some or all are orphaned."""
    cluster = Given().nodes(2, gpus=JOBS).queue("team")
    for number in range(JOBS):
        cluster.job(f"j{number}", parallelism=2, completions=9, queue="team", pods=0)
        for pod in range(2):
            running(cluster, f"j{number}", pod)
    cluster.when.one_session()
    for number in range(JOBS):
        for pod in range(left):
            running(cluster, f"j{number}", pod, orphan=True)
    snapshot = cluster.cache.take_snapshot(cluster.now)
    held = snapshot.queues.queues["team"].allocated
    assert held.get(entities.GPU) == 2 * JOBS * DEVICE
    names = {f"j{number}-{pod}" for number in range(JOBS) for pod in range(2)}
    assert set(snapshot.placed_gangs) == {GangKey("Pod", "default", name) for name in names}
    assert snapshot.running_gangs == {"team": 2 * JOBS}


def test_an_orphan_in_another_queue_is_charged_there_alone():
    """Given a Job that alone names the queue, and no record on its pod."""
    cluster = Given().nodes(1, gpus=1).queue("team")
    cluster.job("j0", parallelism=1, completions=9, queue="team", pods=0)
    owner = Owner("Job", "j0", entities.uid("Job", "j0", "default"))
    cluster.pod("j0-0", gpus=1, node="node-0", slots=1, plan="p", owner=owner)
    cluster.when.one_session()
    cluster.pod("j0-0", gpus=1, node="node-0", slots=1, plan="p")
    queues = cluster.cache.take_snapshot(cluster.now).queues.queues
    assert queues["team"].allocated.get(entities.GPU) == 0
    assert queues["default"].allocated.get(entities.GPU) == DEVICE
