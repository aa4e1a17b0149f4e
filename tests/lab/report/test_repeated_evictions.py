"""Gangs of a run that were evicted again, by hand: what is one eviction of a gang, and what is two."""

from __future__ import annotations

import pytest

from gpusched.engine.run_record import EvictionRecord, JobLife, LifeEnd, PodLife, RunRecord
from gpusched.lab.report.statistics.named import statistic
from gpusched.lab.report.statistics.repeated_evictions import gang_evictions


def job(name, *, size=2, min_member=2):
    """A job of the run."""
    return JobLife(
        key=f"x/{name}", kind="Job", uid=name, queue="q", klass="", priority=0, size=size,
        min_member=min_member, gpus=size * 1000, created=0.0,
    )  # fmt: skip


def pod(job_name, number, bound, told=None, *, end=LifeEnd.EVICTED):
    """A pod that was bound, and told to go or succeeded at a moment."""
    return PodLife(
        name=f"{job_name}-{number}", namespace="x", uid=f"{job_name}-{number}", job=f"x/{job_name}",
        queue="q", gpus=1000, cpu=0, memory=0, created=0.0, bound=bound,
        told=told if end is LifeEnd.EVICTED else None, ended=told,
        end=end if told is not None else LifeEnd.NONE,
    )  # fmt: skip


def eviction(pod_life, whom):
    """That a pod was told to go for another job."""
    return EvictionRecord(
        at=pod_life.told, pod=f"x/{pod_life.name}", job=pod_life.job, queue="q", why="Reclaimed",
        sentence=f"reclaimed for x/{whom}: queue q holds 2 of its deserved 4", lost=5000,
    )  # fmt: skip


def run(jobs, pods, whom):
    """A run in which pods that were told to go left for a job each, by its moment."""
    gone = sorted((each for each in pods if each.told is not None), key=lambda each: each.told)
    return RunRecord(
        name="r", ground="simulated", seed=0, seconds=10_000.0, epoch=0.0, jobs=tuple(jobs),
        pods=tuple(pods), evictions=tuple(eviction(each, whom[each.told]) for each in gone),
    )  # fmt: skip


def test_pods_of_a_gang_that_leave_one_after_the_other_are_one_eviction():
    pods = [pod("a", 0, 10.0, 50.0), pod("a", 1, 10.0, 51.0)]
    (found,) = gang_evictions(run([job("a"), job("b")], pods, {50.0: "b", 51.0: "b"}))
    assert (found.job, found.claimant, found.at, found.times) == ("x/a", "x/b", 50.0, 1)


def test_a_member_above_the_minimum_is_lent_and_no_eviction_of_the_gang():
    pods = [pod("a", 0, 10.0), pod("a", 1, 10.0), pod("a", 2, 10.0, 50.0)]
    record = run([job("a", size=3), job("b")], pods, {50.0: "b"})
    assert gang_evictions(record) == ()
    assert statistic(record, "evictions").value == 1
    assert statistic(record, "repeatedEvictions").value == 0


def test_a_member_that_succeeded_counts_as_there():
    pods = [
        pod("a", 0, 10.0, 40.0, end=LifeEnd.SUCCEEDED), pod("a", 1, 10.0), pod("a", 2, 10.0, 50.0),
    ]  # fmt: skip
    assert gang_evictions(run([job("a", size=3), job("b")], pods, {50.0: "b"})) == ()


@pytest.mark.parametrize(("again", "repeated"), [(3000.0, 1), (9000.0, 0)])
def test_a_gang_that_started_again_and_left_within_the_hour_is_evicted_again(again, repeated):
    pods = [
        pod("a", 0, 10.0, 50.0), pod("a", 1, 10.0, 50.0),
        pod("a", 2, again - 100, again), pod("a", 3, again - 100, again),
    ]  # fmt: skip
    record = run([job("a"), job("b")], pods, {50.0: "b", again: "b"})
    assert [each.times for each in gang_evictions(record)] == [1, 1 + repeated]
    assert statistic(record, "repeatedEvictions").value == repeated
    assert statistic(record, "evictionCycles").value == 0
    assert statistic(record, "longestEvictionChain").value == 1


def test_room_that_goes_round_is_a_cycle_with_its_cost():
    """Given a that left for b and b that left for a; b is named by one of its pods."""
    jobs = [job("a", size=1, min_member=1), job("b", size=1, min_member=1)]
    pods = [pod("a", 0, 10.0, 50.0), pod("b", 0, 60.0, 100.0), pod("a", 1, 110.0)]
    record = run(jobs, pods, {50.0: "b-0", 100.0: "a"})
    first, second = gang_evictions(record)
    assert (first.claimant, first.chain.length, first.chain.is_cycle) == ("x/b", 1, False)
    assert (second.chain.length, second.chain.is_cycle, second.chain.gpu_seconds) == (2, True, 10)
    assert statistic(record, "evictionCycles").value == 1
    assert statistic(record, "longestEvictionChain").value == 2
