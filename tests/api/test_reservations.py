"""Reservations: fields, refusals with one sentence each, and the arithmetic of their windows."""

from __future__ import annotations

import itertools
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusched.api.meta.identity import UID, ResourceVersion, format_time, parse_time
from gpusched.api.policy.reservation import AdvanceReservation, ReservationWindow
from gpusched.base.time_zones import find_time_zone

FROM = "2026-12-01T18:00:00Z"
BEGINS = int(parse_time(FROM))


def test_a_reservation_is_read_with_its_defaults(wire, custom):
    """Given names and a duration, the rest has its default: Reserved, evicting, one window."""
    spec = {"from": FROM, "duration": "90m", "nodeNames": ["b", "a", "b"], "queues": ["q"]}
    read = wire.read("reservations", custom("Reservation", spec))
    assert read.first == ReservationWindow(BEGINS, BEGINS + 5400)
    assert (read.purpose, read.node_names, read.queues) == ("Reserved", ("a", "b"), ("q",))
    assert (read.every_s, read.evicts, read.move_before_s, read.chosen) == (0, True, 0, ())


def test_maintenance_moves_gangs_an_hour_before_unless_it_says_otherwise(wire, custom):
    """Given maintenance, gangs are moved in the hour before; moveBefore says how long else."""
    spec = {"from": FROM, "to": "2026-12-01T21:00:00+01:00", "nodes": 2, "purpose": "Maintenance"}
    assert wire.read("reservations", custom("Reservation", spec)).move_before_s == 3600
    more = spec | {"moveBefore": "0s", "atStart": "Leave"}
    read = wire.read("reservations", custom("Reservation", more))
    assert (read.move_before_s, read.evicts) == (0, False)
    assert read.first == ReservationWindow(BEGINS, BEGINS + 7200)


def test_nodes_in_the_status_are_read_back_and_a_status_that_cannot_be_read_is_none(wire, custom):
    """Given a status of ours, its nodes are those that were chosen; of any other there are none."""
    made = custom("Reservation", {"from": FROM, "duration": "1h", "nodes": 2})
    made["status"] = {"nodes": ["n2", "n1"]}
    assert wire.read("reservations", made).chosen == ("n1", "n2")
    made["status"] = {"nodes": "n1"}
    assert wire.read("reservations", made).chosen == ()


@pytest.mark.parametrize(
    ("change", "field", "why"),
    [
        ({"from": "tomorrow"}, "spec.from", "is not an RFC 3339 time"),
        ({"from": "0001-01-01T00:00:00Z"}, "spec.from", "between 1970 and 9999"),
        ({"duration": None}, "spec.to", "either to or duration"),
        ({"to": "2026-12-01T19:00:00Z"}, "spec.to", "either to or duration"),
        ({"duration": None, "to": FROM}, "spec.to", "is not later than from"),
        ({"duration": "soon"}, "spec.duration", "is not a duration"),
        ({"duration": "1s"}, "spec.duration", "lasts 60 s to 366 days, not 1 s"),
        ({"duration": "100000h"}, "spec.duration", "lasts 60 s to 366 days"),
        ({"from": "9999-12-31T23:59:00Z"}, "spec.duration", "lasts 60 s to 366 days"),
        ({"recurring": {"every": "30m"}}, "spec.recurring.every", "longer than the 1800 s"),
        ({"recurring": {"every": "0s"}}, "spec.recurring.every", "longer than the 0 s"),
        ({"recurring": {"every": "9000h"}}, "spec.recurring.every", "longer than 366 days"),
        (
            {"recurring": {"every": "24h", "until": "2026-11-01T00:00:00Z"}},
            "spec.recurring.until",
            "is before from",
        ),
        ({"recurring": {}}, "spec.recurring", "say either every or weekdays"),
        ({"recurring": {"weekdays": []}}, "spec.recurring", "say either every or weekdays"),
        (
            {"recurring": {"every": "24h", "weekdays": ["Mon"]}},
            "spec.recurring",
            "say either every or weekdays",
        ),
        (
            {"recurring": {"every": "24h", "timeZone": "UTC"}},
            "spec.recurring.timeZone",
            "goes with weekdays: every day is all seven of them",
        ),
        (
            {"recurring": {"weekdays": ["Mon", "Montag"]}},
            "spec.recurring.weekdays",
            "'Montag' is no weekday: write Mon, Tue, Wed, Thu, Fri, Sat or Sun",
        ),
        (
            {"recurring": {"weekdays": ["Mon"], "timeZone": "europe/berln"}},
            "spec.recurring.timeZone",
            "there is no time zone 'europe/berln'; did you mean Europe/Berlin?",
        ),
        (
            {"recurring": {"weekdays": ["Mon"], "timeZone": "../../zones"}},
            "spec.recurring.timeZone",
            "there is no time zone",
        ),
        (
            {"duration": "25h", "recurring": {"weekdays": ["Mon", "Sun"]}},
            "spec.recurring.weekdays",
            "each window lasts 90000 s, longer than the 86400 s to the next one",
        ),
        (
            {"duration": "169h", "recurring": {"weekdays": ["Wed"]}},
            "spec.recurring.weekdays",
            "longer than the 604800 s",
        ),
        ({"nodeNames": None}, "spec", "says no nodes"),
        ({"nodes": 2}, "spec.nodeNames", "stands alone"),
        ({"nodeNames": ["A B"]}, "spec.nodeNames", "is no name of an object"),
        ({"nodeNames": None, "nodes": 2, "resources": {"cpu": "8"}}, "spec.nodes", "contradicts"),
        ({"nodeNames": None, "resources": {"cpu": "0"}}, "spec.resources", "asks for nothing"),
        ({"nodeNames": None, "resources": {"cpu": "x"}}, "spec.resources", ""),
        ({"nodeNames": None, "nodes": -1}, "spec.nodes", ""),
        ({"purpose": "Maintenance", "queues": ["q"]}, "spec.purpose", "nobody uses nodes"),
        ({"purpose": "Party"}, "spec.purpose", ""),
        ({"moveBefore": "-1h"}, "spec.moveBefore", "is negative"),
        ({"queues": [f"q{n}" for n in range(1025)]}, "spec.queues", "names 1025, more than 1024"),
    ],
)
def test_what_contradicts_itself_is_refused_with_one_sentence(wire, custom, change, field, why):
    """Given windows and nodes that cannot be, the field is named, and what is wrong with it."""
    spec = {"from": FROM, "duration": "1h", "nodeNames": ["a"]} | change
    spec = {name: value for name, value in spec.items() if value is not None}
    refused = wire.read("reservations", custom("Reservation", spec))
    assert refused.ours
    assert refused.field == field
    assert why in refused.why


def test_a_reservation_without_a_spec_is_refused(wire, custom):
    """Given no spec, the object is rejected and nothing else."""
    made = custom("Reservation", {})
    del made["spec"]
    assert wire.read("reservations", made).field == "object"


# -- weekdays ----------------------------------------------------------------------------------
def weekly(wire, custom, begins, days, **more):
    """A Reservation with windows of two hours on weekdays, as it is read."""
    recurring = {"weekdays": days, "timeZone": "Europe/Berlin", **more}
    spec = {"from": begins, "duration": "2h", "nodes": 1, "recurring": recurring}
    return wire.read("reservations", custom("Reservation", spec))


def beginnings(reservation, now, count):
    """When its next windows begin, in UTC, each of which lasts as long as the first."""
    ahead = list(itertools.islice(reservation.windows_from(parse_time(now)), count))
    length = reservation.first.ends - reservation.first.begins
    assert all(each.ends - each.begins == length for each in ahead)
    return [format_time(each.begins) for each in ahead]


def test_windows_begin_on_their_weekdays_and_keep_their_time_of_day(wire, custom):
    """Given Mondays and Tuesdays at 22:00 in Berlin, from a Wednesday on, the first is on Monday."""
    read = weekly(wire, custom, "2026-03-18T22:00:00+01:00", ["Tue", "Mon"])
    assert (read.every_s, read.weekdays, read.recurs) == (0, (0, 1), True)
    assert beginnings(read, "2026-01-01T00:00:00Z", 4) == [
        "2026-03-23T21:00:00Z", "2026-03-24T21:00:00Z",
        "2026-03-30T20:00:00Z", "2026-03-31T20:00:00Z",  # clocks were put forward on the 29th
    ]  # fmt: skip
    assert beginnings(read, "2026-10-20T22:00:00Z", 2) == [
        "2026-10-26T21:00:00Z", "2026-10-27T21:00:00Z",  # and back on the 25th
    ]  # fmt: skip


def test_a_time_of_day_that_clocks_skip_is_as_long_after_midnight_as_on_other_days(wire, custom):
    """Given 02:30 on a Sunday when clocks go from 02:00 to 03:00, it begins at 03:30 of summer time."""
    read = weekly(wire, custom, "2026-03-22T02:30:00+01:00", ["Sun"])
    assert beginnings(read, "2026-03-22T00:00:00Z", 3) == [
        "2026-03-22T01:30:00Z", "2026-03-29T01:30:00Z", "2026-04-05T00:30:00Z",
    ]  # fmt: skip


def test_a_time_of_day_that_comes_twice_is_the_first_of_the_two(wire, custom):
    """Given 02:30 on a Sunday when clocks go back from 03:00 to 02:00, it begins in summer time."""
    read = weekly(wire, custom, "2026-10-18T02:30:00+02:00", ["Sun"])
    assert beginnings(read, "2026-10-18T00:00:00Z", 3) == [
        "2026-10-18T00:30:00Z", "2026-10-25T00:30:00Z", "2026-11-01T01:30:00Z",
    ]  # fmt: skip
    second = weekly(wire, custom, "2026-10-25T02:30:00+01:00", ["Sun"])
    assert beginnings(second, "2026-10-25T00:00:00Z", 2) == [
        "2026-10-25T01:30:00Z", "2026-11-01T01:30:00Z",
    ]  # fmt: skip


def test_weekdays_are_those_of_the_zone(wire, custom):
    """Given Mondays at 08:00 in Auckland, windows begin on Sunday by UTC."""
    read = weekly(wire, custom, "2026-06-01T08:00:00+12:00", ["Mon"], timeZone="Pacific/Auckland")
    assert beginnings(read, "2026-01-01T00:00:00Z", 2) == [
        "2026-05-31T20:00:00Z", "2026-06-07T20:00:00Z",
    ]  # fmt: skip


def test_the_last_window_on_a_weekday_is_the_last_that_begins_in_time(wire, custom):
    """Given an until, windows end with the last one before it; a day that never comes has none."""
    until = "2026-03-31T12:00:00Z"
    read = weekly(wire, custom, "2026-03-18T22:00:00+01:00", ["Mon", "Tue"], until=until)
    assert beginnings(read, "2026-03-25T00:00:00Z", 9) == ["2026-03-30T20:00:00Z"]
    assert format_time(read.last_end) == "2026-03-30T22:00:00Z"
    assert read.current_window(read.last_end) is None
    refused = weekly(
        wire, custom, "2026-03-18T22:00:00+01:00", ["Tue"], until="2026-03-20T00:00:00Z"
    )
    assert (refused.field, refused.why) == (
        "spec.recurring.until", "no window begins from 2026-03-18T21:00:00Z until then",
    )  # fmt: skip


ZONES = st.sampled_from(
    ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"]
)


@settings(deadline=None)  # the first example reads the zone
@given(
    st.integers(1_700_000_000, 1_800_000_000),
    st.sets(st.integers(0, 6), min_size=1),
    ZONES,
    st.integers(0, 500 * 86_400),
)
def test_windows_on_weekdays_are_those_whose_days_a_calendar_shows(begins, days, zone, later):
    """Given any moment, they are those that going through all days from the first one finds."""
    made = AdvanceReservation(
        name="r",
        uid=UID("u"),
        resource_version=ResourceVersion("1"),
        first=ReservationWindow(begins, begins + 3600),
        weekdays=tuple(sorted(days)),
        time_zone=zone,
    )
    now, clock = begins + later, find_time_zone(zone)
    ahead = list(itertools.islice(made.windows_from(now), 5))
    assert (
        ahead
        == [each for each in itertools.islice(made.windows_from(0), 600) if each.ends > now][:5]
    )
    assert all(one.begins < two.begins for one, two in itertools.pairwise(ahead))
    origin = datetime.fromtimestamp(begins, clock)
    for each in ahead:
        local = datetime.fromtimestamp(each.begins, clock)
        assert local.weekday() in days
        shift = abs((local.hour - origin.hour) * 3600 + (local.minute - origin.minute) * 60)
        assert shift in (0, 1800, 3600)  # only on the day on which clocks are put forward
        assert local.second == origin.second


# -- windows -----------------------------------------------------------------------------------
TIMES = st.integers(1, 10**6)
LENGTHS = st.integers(60, 10**5)


@st.composite
def reservations(draw):
    """Reservations with one window or many, with or without an end."""
    begins, length = draw(TIMES), draw(LENGTHS)
    every = draw(st.just(0) | st.integers(length, 3 * 10**5))
    until = draw(st.just(0) | st.integers(begins, 2 * 10**6)) if every else 0
    return AdvanceReservation(
        name="r",
        uid=UID("u"),
        resource_version=ResourceVersion("1"),
        first=ReservationWindow(begins, begins + length),
        every_s=every,
        until=until,
    )


def every_window(reservation):
    """All its windows, the slow way."""
    window, number = reservation.first, 0
    while not reservation.until or window.begins <= reservation.until:
        yield window
        if not reservation.every_s:
            return
        number += 1
        shift = number * reservation.every_s
        window = ReservationWindow(reservation.first.begins + shift, reservation.first.ends + shift)


@given(reservations(), st.integers(0, 3 * 10**6))
def test_the_current_window_is_the_first_that_has_not_ended(reservation, now):
    """Given any moment, it is what counting all windows from the first one finds."""
    within = itertools.islice(every_window(reservation), 60_000)
    expected = next((each for each in within if each.ends > now), None)
    assert reservation.current_window(now) == expected


@given(reservations(), st.integers(0, 2 * 10**6))
def test_windows_follow_each_other_and_never_overlap(reservation, now):
    """Given any moment, the next windows come in order, each as long as the first."""
    ahead = list(itertools.islice(reservation.windows_from(now), 5))
    length = reservation.first.ends - reservation.first.begins
    assert all(each.ends - each.begins == length for each in ahead)
    assert all(one.ends <= two.begins for one, two in itertools.pairwise(ahead))
    assert len(ahead) <= 1 or reservation.every_s
    assert all(
        (each.begins - reservation.first.begins) % max(1, reservation.every_s) == 0
        for each in ahead
    )


@given(reservations())
def test_after_its_last_end_there_is_no_window(reservation):
    """Given one that ends, its last window ends at last_end, and none is current from then on."""
    if reservation.every_s and not reservation.until:
        return
    last = list(itertools.islice(every_window(reservation), 60_000))[-1]
    assert reservation.last_end == last.ends
    assert reservation.current_window(last.ends - 1) == last
    assert reservation.current_window(last.ends) is None


@given(reservations(), st.floats(0, 3e6, allow_nan=False))
def test_a_window_holds_its_beginning_and_not_its_end(reservation, now):
    """Given the current window, it is active exactly from its beginning until before its end."""
    window = reservation.current_window(now)
    if window is not None:
        assert window.is_active_at(now) == (window.begins <= now < window.ends)
        assert not window.is_active_at(window.ends)
        assert window.is_active_at(window.begins)
