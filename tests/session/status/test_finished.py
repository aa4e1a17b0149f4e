"""Gangs at their end: finished members count, and what is over is not talked about."""

from __future__ import annotations

from gpusched.api.meta.identity import Owner
from gpusched.api.pod.pod import PodPhase
from gpusched.testing import entities
from gpusched.testing.given import Given


def with_pods(c: Given, job: str, **phases: PodPhase) -> Given:
    """Bound pods of a Job in these phases."""
    owner = Owner("Job", job, entities.uid("Job", job, "default"))
    for name, phase in phases.items():
        c.pod(f"{job}-{name}", owner=owner, gpus=1, node="n", phase=phase)
    return c


def test_a_pod_that_succeeded_before_its_job_says_so_still_counts() -> None:
    """Between a pod's end and the Job's count the gang is not short of a member."""
    c = Given().node("n", gpus=8).job("train", parallelism=2, completions=2, pods=0)
    with_pods(c, "train", a=PodPhase.SUCCEEDED, b=PodPhase.RUNNING)
    c.when.one_session()
    assert c.then.status("train").is_scheduled


def test_a_finished_job_is_not_waiting() -> None:
    """When all pods of a Job have succeeded, nobody is told that it lacks members."""
    c = Given().node("n", gpus=8).job("train", parallelism=2, completions=2, succeeded=2, pods=0)
    with_pods(c, "train", a=PodPhase.SUCCEEDED, b=PodPhase.SUCCEEDED)
    plan = c.when.one_session()
    assert plan.gangs == ()


def test_a_completed_group_stays_completed_when_its_pods_are_deleted() -> None:
    """A PodGroup that ran to its end keeps that status after its pods are cleaned up."""
    c = Given().node("n", gpus=8).group("llm", min_member=2, phase="Completed")
    plan = c.when.one_session()
    assert plan.gangs == ()


def test_a_group_completes_when_its_minimum_succeeded() -> None:
    """Phase Completed comes with the last member's success, not before."""
    c = Given().node("n", gpus=8).group("llm", min_member=2, phase="Running")
    c.pod("a", group="llm", gpus=1, node="n", phase=PodPhase.SUCCEEDED)
    c.pod("b", group="llm", gpus=1, node="n", phase=PodPhase.RUNNING)
    c.when.one_session()
    assert c.then.status("llm").phase == "Running"
    c.pod("b", group="llm", gpus=1, node="n", phase=PodPhase.SUCCEEDED)
    c.when.one_session()
    assert c.then.status("llm").phase == "Completed"


def test_a_gang_that_lost_its_only_launcher_is_not_whole() -> None:
    """Role minima count for running gangs too: as many members as needed, but not of each role."""
    c = Given().node("n", gpus=8).group("mpi", min_member=3, roles={"launcher": 1}, phase="Running")
    for number in range(3):
        c.pod(f"w{number}", group="mpi", gpus=1, node="n", phase=PodPhase.RUNNING, role="worker")
    c.when.one_session()
    assert not c.then.status("mpi").is_scheduled
    assert c.then.status("mpi").phase == "Unknown"
    assert c.then.why("mpi") == "needs 1 pod of role launcher; 0 can run"
    c.pod("again", group="mpi", gpus=1, role="launcher")
    assert [bind.key.name for bind in c.when.one_session().binds[0].binds] == ["again"]
