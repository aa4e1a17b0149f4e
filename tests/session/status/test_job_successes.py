"""What Jobs tell of members that succeeded, as it is counted for their gang."""

from __future__ import annotations

from gpusched.api.jobs.job import Job
from gpusched.api.meta.identity import Owner, ResourceVersion
from gpusched.api.pod.pod import NO_GANG_ANNOTATIONS, PodPhase
from gpusched.cache.gangs.counting.job_successes import (
    NO_SUCCESSES,
    count_successes,
    jobs_of_this_run,
    without_earlier_runs,
)
from gpusched.testing import entities

RUNS, DONE = PodPhase.RUNNING, PodPhase.SUCCEEDED


def job(name="a", *, completions=4, succeeded=0, created=0.0, ended=0.0, **more):
    """A Job of four pods."""
    return Job(
        namespace="default", name=name, uid=name, resource_version=ResourceVersion("1"), created=created,
        parallelism=4, completions=completions, indexed=False, suspended=False, succeeded=succeeded,
        queue="", group="g", hints=NO_GANG_ANNOTATIONS, finished=bool(ended), ended=ended, **more,
    )  # fmt: skip


def pods(of, *phases):
    """Pods of a Job in these phases."""
    owner = Owner("Job", of.name, of.uid)
    return [
        entities.pod(f"{of.name}-{number}", entities.pod_class(), owner=owner, phase=phase)
        for number, phase in enumerate(phases)
    ]


def counted(jobs, members, **how):
    """What is counted."""
    return count_successes(jobs, members, **{"by_group": False, "by_controller": False, **how})


def test_pods_that_are_there_are_not_counted_twice():
    """Given as many pods that succeeded as the Job says, then nothing is added."""
    of = job(succeeded=2)
    assert counted([of], pods(of, RUNS, RUNS, DONE, DONE)) is NO_SUCCESSES


def test_deleted_ones_count_by_role_and_sub_group():
    """Given two of which no pod is left, then both are counted as what the Job makes."""
    of = job(succeeded=2, role="worker", sub_group="left")
    found = counted([of], pods(of, RUNS, RUNS))
    assert found.deleted == (("worker", "left", 2),)
    assert found.deleted_roles() == ["worker", "worker"]
    assert counted([of], pods(of, RUNS, RUNS), by_group=True).deleted == (("worker", "g", 2),)


def test_a_count_that_comes_before_its_pods_counts_nobody_twice():
    """Given four members that are seen to run, when the Job says that one is done, then it is one of those."""
    of = job(succeeded=1)
    assert counted([of], pods(of, RUNS, RUNS, RUNS, RUNS)) is NO_SUCCESSES


def test_a_controller_asks_for_less_only_of_jobs_that_are_over():
    """Given a finished Job without pods and one with a success, then that success counts for itself."""
    goes_on = job(succeeded=1)
    found = counted([goes_on], pods(goes_on, RUNS, RUNS, RUNS, DONE), by_controller=True)
    assert (found.of_going_on, found.deleted) == (1, ())


def test_a_job_that_was_over_when_the_next_was_made_is_of_an_earlier_run():
    """Given two Jobs one after the other, then only the second and its pods are of this run."""
    first, second = job("a", succeeded=4, ended=50.0), job("b", created=50.0)
    members = [*pods(first, DONE, DONE), *pods(second, RUNS, DONE)]
    assert jobs_of_this_run([second, first]) == [second]
    assert without_earlier_runs(members, [first, second]) == members[2:]


def test_jobs_that_ran_side_by_side_are_of_one_run():
    """Given one that ended while the other was there already, then both count."""
    first, second = job("a", succeeded=4, ended=50.0), job("b", created=49.0)
    members = [*pods(first, DONE), *pods(second, RUNS)]
    assert jobs_of_this_run([second, first]) == [first, second]
    assert without_earlier_runs(members, [first, second]) == members


def test_the_last_run_counts_when_it_is_over():
    """Given that no Job goes on, then a gang that is completed stays so."""
    first, second = job("a", succeeded=4, ended=50.0), job("b", created=50.0, ended=90.0)
    assert jobs_of_this_run([first, second]) == [first, second]
