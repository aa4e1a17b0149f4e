"""Gangs whose minimum ended well while members wait: they start with one, or ask room for one."""

from __future__ import annotations

import pytest

from gpusched.api.pod.pod import PodPhase
from gpusched.testing.given import Given
from tests.session.running import runs


def half_done(c: Given, name: str = "sweep", *, priority: int = 10, left: int = 2) -> Given:
    """A gang of which one member suffices and one succeeded; others wait for a GPU each."""
    c.group(name, min_member=1, phase="Running")
    c.pod(f"{name}-done", group=name, gpus=1, node="n0", phase=PodPhase.SUCCEEDED)
    return c.pods(name, left, group=name, gpus=1, priority=priority)


def test_who_leaves_for_it_leaves_for_a_place(given):
    """Nobody is ever evicted without a promise to somebody: exactly one leaves, one is promised."""
    half_done(given.node("n0", gpus=2))
    runs(given, "low", "n0 n0", min_member=1)
    plan = given.when.one_session()
    (claim,) = plan.preemptions
    assert len(claim.stops) == 1
    assert [node for _, _, node in claim.nominations] == ["n0"]


def test_room_that_becomes_free_anyway_is_promised_to_one_member(given):
    """A promise is for somebody: what is told to be held is held."""
    half_done(given.node("n0", gpus=1), left=1)
    given.pod("old", gpus=1, node="n0", slots=1, phase=PodPhase.RUNNING, deleting=True)
    plan = given.when.one_session()
    (claim,) = plan.preemptions
    assert [node for _, _, node in claim.nominations] == ["n0"]
    assert "room for 1 pod" in given.then.why("sweep")


@pytest.mark.parametrize(("gpus", "bound"), [(0, 0), (1, 1), (3, 2)])
def test_it_starts_with_one_and_grows(given, gpus, bound):
    """Where there is room its members start, as many as fit."""
    half_done(given.node("n0", gpus=gpus))
    plan = given.when.one_session()
    assert sum(len(gang.binds) for gang in plan.binds) == bound
