"""What ``when`` promises comes so: asked, submitted to the daemon, and watched in virtual time; and what it plays with."""

from __future__ import annotations

import pytest

from gpusched.advice.start_answer import StartKind
from tests.advice.clusters import API, NOW, gang, node, queue, trial_of
from tests.advice.submission.manifests import ask, group, job, only_gang, template
from tests.advice.submission.promises import keep_promise, situations_of

HOUR_S = 3600
IN_SITUATIONS = [1, 9, 10]


@pytest.mark.parametrize("seed", [0, 5, 6, 7, 12, 13, 18])
def test_a_promise_is_kept(seed):
    """Given clusters and submissions of all kinds of starts, then time and racks are as promised."""
    assert keep_promise(seed).fault == ""


@pytest.mark.parametrize("seed", IN_SITUATIONS)
def test_a_promise_is_kept_where_only_announced_times_are_known(seed):
    """Given clusters with budgets, users, windows and the like, and no run time but what people announce."""
    assert keep_promise(seed, situations_of(seed)).fault == ""


def full_cluster(*, now=NOW, **spec):
    """A node whose GPUs a gang holds since ``NOW``, and a moment."""
    return trial_of(queue("a"), node("n0"), gang("runs", 8, 1, on=["n0"] * 8, **spec), now=now)


def submission(name="new", **spec):
    """A PodGroup of one pod with eight GPUs, and the Job that makes it."""
    pods = template(labels={"gpusched.io/pod-group": name})
    made = (group(1, **spec), job(1, template_=pods))
    return [{**each, "metadata": {**each["metadata"], "name": name}} for each in made]


def test_room_of_a_gang_that_is_late_is_no_start_now():
    """Given a gang that announced an hour and has run for 90 minutes, then its room is expected within a minute."""
    trial = full_cluster(now=NOW + 1.5 * HOUR_S, expectedDuration="1h")
    found = only_gang(ask(trial, *submission(), better=False))
    assert found.start.kind is StartKind.EXPECTED
    assert 50 <= found.start.at - trial.now <= 70
    assert "8 pods that are over their time are taken to end within a minute" in found.known_by


def window(**spec):
    """A Reservation of the node half an hour after ``NOW``, which moves nothing before."""
    return {
        "apiVersion": API, "kind": "Reservation", "metadata": {"name": "course"},
        "spec": {"from": "2027-01-15T08:30:00Z", "duration": "1h", "nodeNames": ["n0"], **spec},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("says", "runs", "spec", "is_told"),
    [
        ("1h", "", {}, True),
        ("20m", "", {}, False),
        ("20m", "15m", {}, True),
        ("1h", "", {"queues": ["a"]}, False),
        ("", "", {"recurring": {"every": "24h"}}, True),
    ],
)
def test_who_would_be_evicted_for_a_window_is_told_so(says, runs, spec, is_told):
    """Given a node that is kept from 08:30 on, then a gang is told that it does not stay, unless it ends before or may."""
    before = gang("runs", 8, 1, on=["n0"] * 8, expectedDuration=runs) if runs else []
    trial = trial_of(queue("a"), node("n0"), window(**spec), before)
    answer = ask(trial, *submission(**({"expectedDuration": says} if says else {})), better=False)
    assert only_gang(answer).start.kind is (StartKind.EXPECTED if runs else StartKind.NOW)
    told = (
        "PodGroup team/new: n0 is kept by Reservation course from 2027-01-15T08:30:00Z on: "
        "it is evicted then if it still runs"
    )
    assert answer.remarks == ((told,) if is_told else ())


def test_an_announced_time_counts_from_the_start_of_the_pod_and_not_from_its_binding():
    """Given pods that were bound ten minutes before their node began to run them, then they end an hour after that."""
    pods = gang("runs", 8, 1, on=["n0"] * 8, expectedDuration="1h")
    bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2027-01-15T07:50:00Z"}
    for pod in pods[1:]:
        pod["status"]["conditions"] = [bound]
    trial = trial_of(queue("a"), node("n0"), pods)
    found = only_gang(ask(trial, *submission(), better=False))
    assert found.start.at - trial.now == pytest.approx(HOUR_S, abs=5)


def test_of_a_gang_that_has_run_for_twice_its_time_nothing_tells_the_end():
    """Given one that is not believed any more, then nothing tells when, as ``explain`` says it of gangs that wait."""
    trial = full_cluster(now=NOW + 3 * HOUR_S, expectedDuration="1h")
    found = only_gang(ask(trial, *submission(), better=False))
    assert found.start.kind is StartKind.UNKNOWN


def test_a_deadline_is_an_end_and_an_announced_end_comes_before_it():
    pods = gang("runs", 8, 1, on=["n0"] * 8)
    for pod in pods[1:]:
        pod["spec"]["activeDeadlineSeconds"] = 2 * HOUR_S
    trial = trial_of(queue("a"), node("n0"), pods)
    found = only_gang(ask(trial, *submission(), better=False))
    assert found.start.at - trial.now == pytest.approx(2 * HOUR_S, abs=5)
    pods[0]["spec"]["expectedDuration"] = "1h"
    trial = trial_of(queue("a"), node("n0"), pods)
    found = only_gang(ask(trial, *submission(), better=False))
    assert found.start.at - trial.now == pytest.approx(HOUR_S, abs=5)


def test_pods_that_a_job_makes_run_as_long_as_their_group_announces():
    """Given one node and two groups submitted together, then the second starts when the first has ended."""
    trial = trial_of(queue("a"), node("n0"))
    first = submission("first", expectedDuration="1h")
    second = submission("second", expectedDuration="1h")
    starts = [each.start for each in ask(trial, *first, *second, better=False).gangs]
    (later,) = [each for each in starts if each.kind is not StartKind.NOW]
    assert later.kind is StartKind.EXPECTED
    assert later.at - trial.now == pytest.approx(HOUR_S, abs=5)


def test_the_time_of_a_queue_is_over_for_what_runs_already():
    """Given a gang that its queue lets run for an hour, then the next one starts at that moment."""
    trial = trial_of(
        queue("a", maxRuntime="1h"), node("n0"), gang("runs", 8, 1, on=["n0"] * 8), now=NOW + 600
    )
    found = only_gang(ask(trial, *submission(), better=False))
    assert found.start.kind is StartKind.EXPECTED
    assert found.start.at - trial.now == pytest.approx(HOUR_S - 600, abs=5)


def test_what_a_group_of_another_kind_announces_is_its_end():
    """Given a PodGroup of Kubernetes whose annotation tells an hour, then its room is expected then."""
    runs = gang("runs", 8, 1, on=["n0"] * 8)
    notes = {"gpusched.io/expected-duration": "1h"}
    native = {
        "apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup",
        "metadata": {"name": "runs", "namespace": "team", "annotations": notes},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 8}}},
    }  # fmt: skip
    for pod in runs[1:]:
        pod["metadata"]["labels"] = {}
        pod["spec"]["schedulingGroup"] = {"podGroupName": "runs"}
    trial = trial_of(queue("a"), node("n0"), native, runs[1:])
    found = only_gang(ask(trial, *submission(), better=False))
    assert found.start.at - trial.now == pytest.approx(HOUR_S, abs=5)


def test_a_start_that_did_not_come_when_played_is_not_told():
    """Given a job that the budget stops in each period before its end, then the one behind it is told no time."""
    budget = {"gpuHours": "4", "period": "1h", "onExhausted": "HoldAndDrain"}
    trial = trial_of(queue("a", budget=budget), node("n0"))
    first = submission("first", expectedDuration="2h")
    answer = ask(trial, *first, *submission("second", expectedDuration="2h"), better=False)
    (second,) = [each for each in answer.gangs if each.start.kind is not StartKind.NOW]
    assert second.start.kind is StartKind.UNKNOWN
    assert "it had not started by 2027-01-1" in second.known_by


def finished_job(number):
    """A Job of one pod that ran for an hour."""
    made = job(1, template_=template(labels={"gpusched.io/queue": "a"}))
    times = {"startTime": "2027-01-15T05:00:00Z", "completionTime": "2027-01-15T06:00:00Z"}
    done = {"type": "Complete", "status": "True"}
    meta = {"name": f"done-{number}", "namespace": "team", "labels": {"gpusched.io/queue": "a"}}
    return {**made, "metadata": meta, "status": {**times, "succeeded": 1, "conditions": [done]}}


def test_a_job_that_announces_nothing_runs_as_long_as_others_did():
    """Given five Jobs of an hour that have ended and one that runs, then its end is expected as sessions expect it."""
    made = job(1, template_=template(labels={"gpusched.io/queue": "a"}))
    labels = {"gpusched.io/queue": "a"}
    meta = {"name": "runs", "namespace": "team", "labels": labels, "uid": "job-runs"}
    runs = {**made, "metadata": meta, "status": {"startTime": "2027-01-15T08:00:00Z"}}
    (pod,) = gang("runs", 1, 8, on=["n0"])[1:]
    pod["metadata"]["labels"] = labels
    pod["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "runs", "uid": "job-runs", "controller": True}
    ]  # fmt: skip
    done = [finished_job(number) for number in range(5)]
    trial = trial_of(queue("a"), node("n0"), done, runs, pod, now=NOW + 600)
    found = only_gang(ask(trial, *submission(), better=False))
    assert found.start.at - trial.now == pytest.approx(HOUR_S - 600, abs=5)
    assert "1 running pod that announces none" in found.known_by
