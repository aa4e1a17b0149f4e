"""Scenarios of the library with the daemon dead at one write after another: a part of all points.

``gpusched chaos --crashes kwok-scenarios/library`` plays all of them.
"""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from gpusched.lab.chaos import crashes
from gpusched.lab.chaos.crashes import crash_points, lost_events, play_with_death, stale
from gpusched.lab.scenario.file.read import read_paths
from tests.populations import WHOLE

LIBRARY = Path(__file__).parents[3] / "kwok-scenarios" / "library"


@pytest.fixture(autouse=True)
def silent():
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def scenario(name):
    (found,) = read_paths([LIBRARY / f"{name}.yaml"])
    return found


@pytest.mark.parametrize(
    ("name", "every"),
    [
        ("gang-deadlock", 5 if WHOLE else 23),
        ("preempt-and-resume", 9 if WHOLE else 47),
        ("devices-under-one-root", 3 if WHOLE else 17),
    ],
)
def test_death_at_writes(name, every):
    played = scenario(name)
    calm = play_with_death(played, None)
    assert calm.wrong == ()
    assert calm.writes > 10
    chosen = list(crash_points(calm, every=every, offset=calm.writes))
    assert len(chosen) >= calm.writes * 2 // every
    found = {
        str(point): done.wrong
        for point in chosen
        if (done := play_with_death(played, point, calm)).wrong
    }
    assert not found


def test_single_events_are_lost():
    played = scenario("gang-deadlock")
    calm = play_with_death(played, None)
    found = {
        str(point): done.wrong
        for point in lost_events(calm, every=16 if WHOLE else 48, offset=5)
        if (done := play_with_death(played, point, calm)).wrong
    }
    assert not found


def test_restarts_against_a_replica_that_is_behind():
    """Whatever it does not show yet, nothing is given twice, and no binding is sent in vain."""
    played = scenario("gang-deadlock")
    calm = play_with_death(played, None)
    chosen = list(stale(calm, every=13 if WHOLE else 29, offset=calm.writes + 2))
    assert {point.behind for point in chosen} == {1, 4, 16, 64}
    found = {
        str(point): done.wrong
        for point in chosen
        if (done := play_with_death(played, point, calm)).wrong
    }
    assert not found


def test_all_points_are_all_writes_before_and_after():
    calm = crashes.CrashRun(scenario="x", point=None, wrong=(), writes=3, events=2, complete={})
    assert [str(each) for each in crash_points(calm)] == [
        "dead before write 1", "dead after write 1", "dead before write 2",
        "dead after write 2", "dead before write 3", "dead after write 3",
    ]  # fmt: skip
    assert [str(each) for each in stale(calm)][3:5] == [
        "dead after write 1, then a replica 64 versions behind",
        "dead after write 2, then a replica 1 versions behind",
    ]
    assert [str(each) for each in lost_events(calm)] == ["event 1 lost", "event 2 lost"]


def test_a_daemon_that_does_not_come_back_is_found(monkeypatch):
    """What is left undone without a successor is what the runs above would show."""
    monkeypatch.setattr(crashes, "_BACK_S", 1e7)
    played = scenario("gang-deadlock")
    calm = play_with_death(played, None)
    (first, *_) = crash_points(calm)
    assert "workloads end ended without a death, 0 with" in " ".join(
        play_with_death(played, first, calm).wrong
    )
