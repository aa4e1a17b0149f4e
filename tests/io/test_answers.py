"""Answers and lines: what the bytes of the API server mean."""

from __future__ import annotations

import json

import pytest

from gpusched.base import errors, limits
from gpusched.devcluster.apiserver.rbac.default_roles import _TO_EDIT, _TO_VIEW
from gpusched.io.client import missing_rights
from gpusched.io.client.missing_rights import DAEMON_ROLE, explain_denied
from gpusched.io.client.responses import ApiResponse, api_error
from gpusched.io.client.watch_lines import LineSplitter, WatchLineTooLong


def status(code: int, **more) -> bytes:
    return json.dumps({"kind": "Status", "code": code, **more}).encode()


def test_the_servers_date_is_read():
    """The Date header gives the server's clock; nonsense gives None."""
    assert ApiResponse(200, {"Date": "Thu, 01 Jan 1970 00:01:00 GMT"}, b"").server_time() == 60.0
    assert ApiResponse(200, {"Date": "yesterday"}, b"").server_time() is None
    assert ApiResponse(200, {}, b"").server_time() is None


@pytest.mark.parametrize(
    ("code", "done"),
    [(199, False), (200, True), (201, True), (299, True), (302, False), (409, False)],
)
def test_only_2xx_means_that_it_was_done(code, done):
    """A redirect of a proxy is no success: what was asked has not reached the API server."""
    assert ApiResponse(code, {}, b"").ok is done


def test_line_cap():
    """A line over the cap is refused whether it arrives whole or in pieces, ended or not."""
    assert LineSplitter(10).feed(b"0123456789\n") == [b"0123456789"]
    with pytest.raises(WatchLineTooLong):
        LineSplitter(10).feed(b"0123456789a\n")
    splitter = LineSplitter(10)
    assert splitter.feed(b"012345") == []
    with pytest.raises(WatchLineTooLong):
        splitter.feed(b"678901")
    assert limits.WATCH_LINE_MAX > 1.5 * 2**20


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_lines_do_not_depend_on_how_they_are_cut(size):
    """Any chunking gives the same lines."""
    text = b"alpha\nbeta\n\ngamma delta\n" * 5 + b"rest"
    splitter = LineSplitter()
    got = [
        line
        for start in range(0, len(text), size)
        for line in splitter.feed(text[start : start + size])
    ]
    assert got == [b"alpha", b"beta", b"gamma delta"] * 5
    assert splitter.take_rest() == b"rest"


@pytest.mark.parametrize(
    ("code", "body", "write", "kind"),
    [
        (400, {"reason": "BadRequest"}, True, errors.ApiError),
        (401, {"reason": "Unauthorized"}, True, errors.Denied),
        (403, {"reason": "Forbidden"}, True, errors.Denied),
        (404, {"reason": "NotFound"}, True, errors.NotFound),
        (409, {"reason": "Conflict"}, True, errors.Conflict),
        (409, {"reason": "AlreadyExists"}, True, errors.Conflict),
        (410, {"reason": "Expired"}, False, errors.Gone),
        (422, {"reason": "Invalid"}, True, errors.ApiError),
        (429, {"reason": "TooManyRequests"}, True, errors.Throttled),
        (
            429,
            {"details": {"causes": [{"reason": "DisruptionBudget"}]}},
            True,
            errors.BudgetRefused,
        ),
        (500, {}, True, errors.OutcomeUnknown),
        (500, {}, False, errors.ApiError),
        (503, {}, True, errors.OutcomeUnknown),
        (504, {"reason": "Timeout"}, False, errors.ApiError),
    ],
)
def test_each_refusal_is_its_own_fault(code, body, write, kind):
    """Status, reason and causes decide the fault; the sentence names what was tried."""
    answer = ApiResponse(code, {}, status(code, message="no\nway", **body))
    error = api_error(answer, doing="bind pod a/b", write=write)
    assert type(error) is kind
    assert error.status == code
    assert str(error) == "could not bind pod a/b: no\\nway"


@pytest.mark.parametrize(
    ("headers", "details", "seconds"),
    [
        ({"Retry-After": "7"}, {}, 7.0),
        ({}, {"retryAfterSeconds": 3}, 3.0),
        ({"Retry-After": "99999999"}, {}, 3600.0),
        ({"Retry-After": "soon"}, {"retryAfterSeconds": "x"}, 0.0),
        ({}, [], 0.0),
    ],
)
def test_retry_after(headers, details, seconds):
    """The header counts, else the body; nonsense is no time."""
    error = api_error(ApiResponse(429, headers, status(429, details=details)), doing="x")
    assert isinstance(error, errors.Throttled)
    assert error.retry_after_s == seconds


@pytest.mark.parametrize("body", [b"", b"404 page not found\n", b"[" * 100_000, b"[1]", b"\xff"])
def test_any_body_makes_a_sentence(body):
    """Plain text, nothing, or hostile JSON: still one line and the right fault."""
    error = api_error(ApiResponse(404, {}, body), doing="get x")
    assert isinstance(error, errors.NotFound)
    assert "\n" not in str(error)
    assert str(error).startswith("could not get x: ")


WHO = 'User "ana" cannot'
ASK = "has this right: bind it to this user, or ask an administrator to"
ADMIN = "of Kubernetes' own roles only cluster-admin has this right: ask an administrator for it"


@pytest.mark.parametrize(
    ("message", "todo"),
    [  # sentences of a Kubernetes 1.36.2
        (f'{WHO} list resource "pods" in API group "" in the namespace "n"', f"ClusterRole view {ASK}"),
        (f'{WHO} list resource "nodes" in API group "" at the cluster scope', ADMIN),
        (f'{WHO} get resource "leases" in API group "coordination.k8s.io" in the namespace "n"', ADMIN),
        (
            f'{WHO} list resource "queues" in API group "scheduling.gpusched.io" at the cluster scope',
            f"ClusterRole gpusched-queue-view (manifests/rbac-users.yaml) {ASK}",
        ),
        (f'{WHO} patch resource "jobs" in API group "batch" in the namespace "n"', f"ClusterRole edit {ASK}"),
        (f'{WHO} patch resource "jobsets" in API group "jobset.x-k8s.io" in the namespace "n"', ADMIN),
        (
            f'{WHO} impersonate-on:user-info:get path "/apis"',
            "leave out --as and what belongs to it, or ask an administrator for the right to impersonate",
        ),
        ("ValidatingAdmissionPolicy 'gpusched-queues' denied request: ana may not submit", ""),
        ("exceeded quota: gpus, requested: pods=1, used: pods=1, limited: pods=1", ""),
    ],
)  # fmt: skip
def test_what_is_refused_is_told_with_the_role_that_has_the_right(message, todo):
    """Given a refusal: a role that truly has the right, and nothing about roles where a policy refuses."""
    refused = errors.Denied(
        f"could not do it: forbidden: {message}", status=403, reason="Forbidden"
    )
    assert str(explain_denied(refused)) == "; ".join(filter(None, (str(refused), todo)))


def test_the_daemon_is_told_its_own_role():
    """Given the daemon's account: whatever is missing, it is its role that was not bound."""
    message = f'{WHO} list resource "nodes" in API group "" at the cluster scope'
    told = str(explain_denied(errors.Denied(message, status=403), DAEMON_ROLE))
    assert told == f"{message}; {DAEMON_ROLE} {ASK}"


@pytest.mark.parametrize(
    ("rules", "verb", "said"),
    [(_TO_VIEW, "list", missing_rights._VIEW), (_TO_EDIT, "patch", missing_rights._EDIT)],
)
def test_the_roles_of_people_have_what_is_said_of_them(rules, verb, said):
    """Given Kubernetes' roles as the embedded cluster has them: no right is promised that is not in them."""
    held = {
        (group.replace("core", ""), resource)
        for groups, resources, verbs in rules
        for group in groups.split()
        for resource in resources.split()
        if verb in verbs
    }
    promised = {(group, name) for group, names in said.items() for name in names.split()}
    assert {each for each in promised if each[0] != "scheduling.gpusched.io"} <= held
