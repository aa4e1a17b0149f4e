"""Answers and lines: what the bytes of the API server mean."""

from __future__ import annotations

import json

import pytest

from gpusched.base import errors, limits
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
    assert splitter.rest() == b"rest"


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
