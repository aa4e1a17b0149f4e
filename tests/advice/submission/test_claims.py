"""Pods whose resource claims Kubernetes makes from templates are answered with a place."""

from __future__ import annotations

import pytest

from gpusched.advice.start_answer import StartKind
from tests.advice.clusters import node, queue, trial_of
from tests.advice.submission.device_manifests import (
    claim_template,
    claiming_job,
    device_class,
    running_claimant,
    slice_of,
)
from tests.advice.submission.manifests import ask, only_gang


def cluster(devices=2):
    """One node with some GPUs that are devices."""
    return trial_of(queue("a"), node("n0", gpus=0), device_class(), slice_of("n0", devices))


def claims_of(trial):
    """Claims that a trial has."""
    return [each for each in trial.objects.others() if each["kind"] == "ResourceClaim"]


@pytest.mark.parametrize("suspend", [False, True])
def test_a_job_with_a_template_of_claims_starts_where_there_are_devices(suspend):
    """Given two idle devices, then two pods that claim one each start now, and the trial stays as it was."""
    trial = cluster()
    found = only_gang(ask(trial, claim_template(), claiming_job(2, suspend=suspend)))
    assert (found.start.kind, found.starting) == (StartKind.NOW, 2)
    assert [(each.name, each.pods) for each in found.shares] == [("n0", 2)]
    assert not claims_of(trial)


def test_the_second_waits_until_the_claims_of_the_first_are_gone():
    """Given two Jobs that claim both devices, then the second starts when the first has ended after an hour."""
    trial = cluster()
    first, second = (
        claiming_job(1, name="first", claims="two", run_for="1h", suspend=True),
        claiming_job(2, name="second", suspend=True),
    )  # fmt: skip
    answer = ask(trial, claim_template(), claim_template("two", 2), first, second, better=False)
    by_name = {each.name: each for each in answer.gangs}
    assert not answer.refused
    assert not answer.remarks
    assert by_name["first"].start.kind is StartKind.NOW
    assert by_name["second"].start.kind is StartKind.EXPECTED
    assert 3600 <= by_name["second"].start.at - answer.as_of < 3700
    assert by_name["second"].shares[0].pods == 2


@pytest.mark.parametrize("own", [False, True])
def test_devices_of_a_pod_that_runs_are_free_when_it_has_ended(own):
    """Given a pod that holds both devices for an hour, then a Job that claims them starts when it has ended."""
    holder = running_claimant("holder", "n0", 2, lasts="1h", own=own)
    trial = trial_of(
        queue("a"), node("n0", gpus=0), device_class(), slice_of("n0", 2), holder
    )  # fmt: skip
    found = only_gang(ask(trial, claim_template(), claiming_job(2), better=False))
    assert found.start.kind is StartKind.EXPECTED
    assert 3600 <= found.start.at - trial.now < 3700
    assert [each["metadata"]["name"] for each in claims_of(trial)] == ["holder-claim"]


def test_more_devices_than_there_are_never_come():
    """Given two devices, then three pods that claim one each are not promised a start."""
    found = only_gang(ask(cluster(), claim_template(), claiming_job(3), better=False))
    assert found.start.kind is StartKind.UNKNOWN
    assert "needs devices" in found.start.message


def test_a_template_that_asks_for_nothing_sensible_stops_nothing_else():
    """Given a template of a class that does not exist and one without a spec, then a Job of a third starts all the same."""
    broken = claim_template("broken")
    broken["spec"]["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = "none"
    empty = {**claim_template("empty"), "spec": {}}
    bad = [claiming_job(1, name=each, claims=each) for each in ("broken", "empty")]
    answer = ask(
        cluster(), broken, empty, claim_template(), *bad, claiming_job(1, name="good"), better=False
    )
    by_name = {each.name: each for each in answer.gangs}
    assert by_name["good"].start.kind is StartKind.NOW
    assert not by_name["broken"].starts_sometime
    assert "none" in by_name["broken"].never
