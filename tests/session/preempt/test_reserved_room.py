"""Gangs that have room, which is reserved for another: evictions are no answer for them."""

from __future__ import annotations

import pytest

from gpusched.api.pod.pod import GangAnnotations, PodPhase
from gpusched.session.preempt.victim_selection import VictimSelector
from gpusched.testing import entities
from gpusched.testing.given import Given

HOUR_NS = 3600 * 10**9


@pytest.fixture
def given():
    """``large`` waits for the end of ``high``; ``low`` may be evicted, which does not suffice for it."""
    c = Given().nodes(2, gpus=4).queue("q")
    runs = {"queue": "q", "phase": PodPhase.RUNNING, "plan": "p", "scheduled": c.now - 10}
    ends = GangAnnotations(expected_duration_ns=HOUR_NS)
    c.pod("high", node="node-0", slots=0b111, gpus=3, priority=200, hints=ends, **runs)
    c.pod("low", node="node-1", slots=0b1111, gpus=4, priority=0, hints=ends, **runs)
    return c.gang("large", pods=2, gpus=4, queue="q", priority=100, created=entities.BORN)


def test_a_gang_that_has_room_is_not_told_of_evictions(given):
    given.gang("small", pods=1, gpus=1, queue="q", priority=100, created=entities.BORN + 1)
    given.when.one_session()
    assert given.then.reason("small") == "Reserved"
    assert "held from 2026-01-01T00:59:50Z on for default/large" in given.then.why("small")
    assert "evicting" not in given.then.why("small")
    assert given.then.evicted() == []


def test_nobody_looks_for_victims_for_it(given, monkeypatch):
    asked = []
    choose = VictimSelector.choose_victims

    def noting(self, claimant, *args, **kwargs):
        asked.append(claimant.key.name)
        return choose(self, claimant, *args, **kwargs)

    monkeypatch.setattr(VictimSelector, "choose_victims", noting)
    given.gang("small", pods=1, gpus=1, queue="q", priority=100, created=entities.BORN + 1)
    given.when.one_session()
    assert asked == ["large"]
