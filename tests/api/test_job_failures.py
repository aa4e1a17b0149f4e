"""What a Job says of failures: its pod failure policy, failed indexes, and why it has failed."""

from __future__ import annotations

import json

import pytest

from gpusched.api.jobs.decode import JOBS
from gpusched.api.jobs.job import Job

IGNORE = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
FAIL = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
OTHER = {"action": "FailJob", "onPodConditions": [{"type": "ConfigIssue"}]}
CODES = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}


def job(spec=None, status=None) -> Job:
    """A Job as the API server sends it."""
    head = {"name": "j", "namespace": "ns", "uid": "u", "resourceVersion": "1"}
    found = {"metadata": head, "spec": spec or {}, "status": status or {}}
    event = json.dumps({"type": "ADDED", "object": {"kind": "Job", **found}}).encode()
    return JOBS.decode_event(event).item


@pytest.mark.parametrize(
    ("rules", "survives"),
    [
        ([], False), ([IGNORE], True), ([OTHER, IGNORE], True), ([FAIL, IGNORE], False),
        ([IGNORE, CODES], True), ([CODES, IGNORE], False),
        ([{**IGNORE, "onPodConditions": [{"type": "DisruptionTarget", "status": "False"}]}], False),
    ],
)  # fmt: skip
def test_the_first_rule_that_may_fit_an_evicted_pod_counts(rules, survives):
    """An evicted container may end with any exit code."""
    assert job({"podFailurePolicy": {"rules": rules}}).ignores_evictions is survives


@pytest.mark.parametrize(
    ("text", "count"), [("", 0), ("3", 1), ("1,3-5", 4), ("0-9,11", 11), ("5-1", 0), ("a-b", 0)]
)
def test_indexes_that_are_given_up_are_not_waited_for(text, count):
    """A gang of an Indexed Job is smaller by them, as no pods come for them any more."""
    spec = {"parallelism": 20, "completions": 20, "completionMode": "Indexed"}
    found = job(spec, {"failedIndexes": text})
    assert found.failed_indexes == count
    assert found.gang_size == 20 - count


def test_why_a_job_has_failed_is_known():
    """Reason and message of its condition, once that holds."""
    said = {"type": "Failed", "reason": "BackoffLimitExceeded", "message": "reached the limit"}
    assert job().failed == ""
    assert job(status={"conditions": [{**said, "status": "False"}]}).failed == ""
    failed = job(status={"conditions": [{**said, "status": "True"}]})
    assert failed.failed == "BackoffLimitExceeded: reached the limit"


def test_limits_of_failures_are_those_of_the_api_server():
    """Six where nothing is said; those of an index where it has its own."""
    assert (job().backoff_limit, job().limit_per_index) == (6, False)
    assert job({"backoffLimit": 0}).backoff_limit == 0
    each = job({"backoffLimit": 2**31 - 1, "backoffLimitPerIndex": 1})
    assert (each.backoff_limit, each.limit_per_index) == (1, True)
