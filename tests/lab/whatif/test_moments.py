"""Times as admins write them."""

from __future__ import annotations

import time

import pytest

from gpusched.api.meta.identity import format_time, parse_time
from gpusched.base.errors import UsageError
from gpusched.lab.whatif.moments import parse_moment, parse_span

NOW = parse_time("2026-11-28T21:30:00Z")


@pytest.fixture
def in_berlin(monkeypatch):
    """Local time is that of Berlin, an hour before UTC in winter."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("now", "2026-11-28T21:30:00Z"),
        ("+2h", "2026-11-28T23:30:00Z"),
        ("+3d", "2026-12-01T21:30:00Z"),
        ("22:00Z", "2026-11-28T22:00:00Z"),
        ("21:00Z", "2026-11-29T21:00:00Z"),
        ("21:30:00 UTC", "2026-11-28T21:30:00Z"),
        ("23:00+01:00", "2026-11-28T22:00:00Z"),
        ("22:45 Europe/Berlin", "2026-11-28T21:45:00Z"),
        ("22:00", "2026-11-29T21:00:00Z"),
        ("23:15", "2026-11-28T22:15:00Z"),
        ("2026-11-29T08:00:00Z", "2026-11-29T08:00:00Z"),
        ("2026-11-29 08:00", "2026-11-29T07:00:00Z"),
        ("2026-11-30", "2026-11-29T23:00:00Z"),
    ],
)  # fmt: skip
def test_a_moment_is_the_next_one_that_is_meant(in_berlin, text, means):
    assert format_time(parse_moment(text, "--from", now=NOW)) == means


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("soon", "takes a time such as 22:00"), ("24:00", "takes a time"), ("22:00 Nowhere/City", "no time zone"),
        ("2026-11-28T21:29:00Z", "has passed"), ("1970-01-01", "has passed"), ("+soon", "is not a duration"),
        ("99999-01-01", "takes a time"), ("", "takes a time"),
    ],
)  # fmt: skip
def test_what_is_no_moment_to_come_is_refused(in_berlin, text, why):
    with pytest.raises(UsageError, match=why):
        parse_moment(text, "--from", now=NOW)


def test_spans_know_days_and_weeks():
    assert [parse_span(text, "--until") for text in ("90m", "2d", "4w", "1h30m")] == [
        5400, 172_800, 2_419_200, 5400,
    ]  # fmt: skip
    with pytest.raises(UsageError, match="is negative"):
        parse_span("-2h", "--until")
