"""Starts of gangs that wait, by a play of the line: who is evicted on the way, Jobs that are suspended, and who never starts."""

from __future__ import annotations

import pytest

from gpusched.advice.service.waiting_starts import play_waiting_starts
from gpusched.advice.start_answer import StartKind
from tests.advice.clusters import API, NOW, gang, in_namespace, node, queue, trial_of, waiting_gang
from tests.advice.submission.manifests import ask, job, only_gang, template

HOUR_S = 3600
WINDOW = {
    "apiVersion": API, "kind": "Reservation", "metadata": {"name": "repair"},
    "spec": {
        "purpose": "Maintenance", "from": "2027-01-15T08:30:00Z", "duration": "4h", "nodeNames": ["n0"],
    },
}  # fmt: skip


def gang_of_trainer(name, *, says, on):
    """A gang that takes a node, whose pods a PyTorchJob makes anew."""
    group, *pods = gang(name, 8, 1, on=[on] * 8, expectedDuration=says)
    owner = {
        "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": name, "uid": f"of-{name}",
    }  # fmt: skip
    for pod in pods:
        pod["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    return [group, *pods]


def gang_of_job(name, *, says, on=None):
    """A gang that takes a node, whose pods a Job makes anew."""
    group, *pods = gang(name, 8, 1, on=on and [on] * 8, expectedDuration=says)
    labels = pods[0]["metadata"]["labels"]
    spec = {name: value for name, value in pods[0]["spec"].items() if name != "nodeName"}
    made = {
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": "team", "uid": f"job-{name}"},
        "spec": {
            "parallelism": 8, "completions": 8, "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }  # fmt: skip
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": f"job-{name}"}
    for pod in pods:
        pod["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    return [group, made, *pods]


def played(trial):
    """Seconds until each gang starts, by name; None for never."""
    starts = play_waiting_starts(trial).starts
    return {gang.name: at - NOW if at else None for (gang, _), at in starts.items()}


def told(trial, name):
    """Seconds until a gang starts, as a session works it out."""
    return trial.decide().expected_starts.estimates[waiting_gang(trial, name).key].start - NOW


@pytest.mark.parametrize(("window", "hours"), [((), 2 / 3), ((WINDOW,), 2 / 3 + 2)])
def test_who_is_evicted_for_announced_maintenance_comes_before_who_waits_already(window, hours):
    """Given a gang whose node is drained in half an hour, then it gets the next free node, and who waits the one after.

    A session knows nothing of its eviction, and tells the same either way.
    """
    trial = trial_of(
        queue("a"), node("n0"), node("n1"), *window, gang_of_job("keep", says="2h", on="n0"),
        gang_of_job("other", says="40m", on="n1"), gang_of_job("new", says="1h"),
    )  # fmt: skip
    assert told(trial, "new") == 2 / 3 * HOUR_S
    assert played(trial)["new"] == pytest.approx(hours * HOUR_S, abs=5)


def test_a_suspended_job_is_told_when_it_is_started():
    made = in_namespace(job(1, suspend=True))
    trial = trial_of(queue("a"), node("n0"), gang_of_job("runs", says="1h", on="n0"), made)
    assert played(trial)["new"] == pytest.approx(HOUR_S, abs=5)


def test_what_fake_nodes_know_is_not_known():
    """Given pods that fake nodes run for half an hour, of which nobody announces it, then no start is told."""
    trial = trial_of(
        queue("a"), node("n0"), gang("runs", 8, 1, on=["n0"] * 8, run_for="30m"),
        in_namespace(job(1, template_=template(annotations={"gpusched.io/run-for": "5m"}))),
        gang("last", 8, 1, queue="a"),
    )  # fmt: skip
    assert {*played(trial).values()} == {None}


def test_what_fake_nodes_know_is_not_known_to_who_asks_before_submitting():
    """Given a gang that fake nodes run for half an hour, of which nobody announces it, then no start is told to who asks."""
    trial = trial_of(queue("a"), node("n0"), gang("runs", 8, 1, on=["n0"] * 8, run_for="30m"))
    assert only_gang(ask(trial, job(1), better=False)).start.kind is StartKind.UNKNOWN


def test_how_long_fake_nodes_run_what_is_submitted_is_known():
    """Given two Jobs of half an hour on fake nodes by their own manifests, then the second starts when the first has ended."""
    trial = trial_of(queue("a"), node("n0"))
    jobs = [
        job(1, name=each, template_=template(annotations={"gpusched.io/run-for": "30m"}))
        for each in ("first", "second")
    ]
    starts = [each.start for each in ask(trial, *jobs, better=False).gangs]
    assert [each.kind for each in starts] == [StartKind.NOW, StartKind.EXPECTED]
    assert starts[1].at - NOW == pytest.approx(1800, abs=60)


def test_who_does_not_start_is_told_nothing_and_known_to_have_waited():
    """Given a gang that announces no end, then the one behind it starts never in the play; one that runs is not told of."""
    trial = trial_of(
        queue("a"), node("n0"), gang("runs", 8, 1, on=["n0"] * 8), gang("new", 8, 1, queue="a")
    )
    assert played(trial) == {"new": None}


def test_a_play_that_is_late_ends_and_tells_what_it_has():
    """Given two gangs in line, then the longer their play may be, the more of them it tells of, and of no other start."""
    trial = trial_of(
        queue("a"), node("n0"), gang_of_job("runs", says="1h", on="n0"),
        gang_of_job("first", says="1h"), gang_of_job("second", says="1h"),
    )  # fmt: skip
    whole = play_waiting_starts(trial).starts
    known = []
    for most in (1, 2, 4, 6, 8, 12, 16, 32):
        left = iter(range(most - 1))
        cut = play_waiting_starts(trial, is_late=lambda left=left: next(left, None) is None).starts
        assert all(at in {0.0, whole[who]} for who, at in cut.items())
        known.append(sum(at > 0 for at in cut.values()))
    assert known == sorted(known)
    assert {0, 1, 2} == {*known}


def test_nothing_is_played_where_nobody_waits():
    trial = trial_of(
        queue("a"), node("n0"), gang("runs", 8, 1, on=["n0"] * 8, expectedDuration="1h")
    )
    assert played(trial) == {}


def test_a_job_whose_old_pod_still_ends_makes_one_of_another_name():
    """Given a recorded simulation, whose pods are named as the play names them, then a Job that is moved runs on.

    It is evicted when a window begins, and started on the free node before its pod is gone.
    """
    term = template(annotations={"gpusched.io/expected-duration": "2h"})
    made = in_namespace(job(1, name="keep", template_=term, completionMode="Indexed"))
    made["metadata"]["uid"] = "job-keep"
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "keep", "uid": "job-keep"}
    pod = {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            **term["metadata"], "name": "keep-0-00001", "namespace": "team",
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {**term["spec"], "nodeName": "n0"},
        "status": {"phase": "Running", "startTime": "2027-01-15T08:00:00Z"},
    }  # fmt: skip
    window = {**WINDOW, "spec": {**WINDOW["spec"], "purpose": "Reserved", "duration": "10m"}}
    trial = trial_of(
        queue("a"), node("n0"), node("n1"), window, made, pod, gang("both", 16, 1, queue="a")
    )
    assert played(trial)["both"] == pytest.approx(2.5 * HOUR_S, abs=5)


def test_pods_that_are_made_anew_together_have_different_names():
    """Given a gang of a training job that is evicted for maintenance, then all of it runs again, before who waits."""
    trial = trial_of(
        queue("a"), node("n0"), node("n1"), WINDOW, gang_of_trainer("keep", says="2h", on="n0"),
        gang_of_job("other", says="40m", on="n1"), gang_of_job("new", says="1h"),
    )  # fmt: skip
    assert played(trial)["new"] == pytest.approx((2 / 3 + 2) * HOUR_S, abs=5)
