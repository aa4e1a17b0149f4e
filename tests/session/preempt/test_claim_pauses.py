"""A long search for victims that was in vain, as others would have been evicted in turn, is not repeated at once."""

from __future__ import annotations

import pytest

from gpusched.session.preempt import preemption
from gpusched.session.preempt.claims.claim_pauses import ClaimPauses
from gpusched.session.preempt.claims.stability import ChainCheck
from gpusched.testing.given import Given
from tests.session.preempt.test_stable_claims import only_one_victim
from tests.session.running import runs
from tests.session.state.kept_histories import KeptHistory

PAUSES = (30.0, 60.0, 90.0)


class Asked:
    """Sessions one after the other, and for whom victims were asked about in each."""

    def __init__(self, c, monkeypatch):
        self.c, self.claimants = c, []
        victim_that_evicts = ChainCheck.victim_that_evicts
        taker = ChainCheck.gang_that_takes_over

        def noted(check, claimant, statement):
            self.claimants.append(claimant.key.name)
            return victim_that_evicts(check, claimant, statement)

        def noted_taker(check, claimant, statement):
            self.claimants.append(claimant.key.name)
            return taker(check, claimant, statement)

        monkeypatch.setattr(ChainCheck, "victim_that_evicts", noted)
        monkeypatch.setattr(ChainCheck, "gang_that_takes_over", noted_taker)

    def at(self, now):
        """Who is asked about in a session at a moment."""
        self.c.now = now
        self.claimants.clear()
        self.c.when.one_session()
        self.c.cache.left = self.c.decision.left_to_next
        return sorted(set(self.claimants))


@pytest.fixture
def short(monkeypatch):
    """Every search that was in vain is a long one."""
    monkeypatch.setattr(preemption, "PAUSES_FROM", 0)


def test_it_is_asked_again_half_a_minute_later(short, monkeypatch):
    """And from the moment on from which its victim may have others evicted; it is told the same meanwhile."""
    c = only_one_victim(Given())
    begin, asked = c.now, Asked(c, monkeypatch)
    assert asked.at(begin) == ["high"]
    told = c.then.why("high")
    assert "stays: once made again" in told
    for pause in PAUSES:
        assert asked.at(begin + pause - 1) == []
        assert c.then.why("high") == told
        assert c.decision.next_limit == begin + pause
        assert asked.at(begin + pause) == ["high"]
    asked.at(begin + 600)
    assert c.then.evicted() == ["own-0"]


def test_equal_gangs_behind_it_pause_with_it(short, monkeypatch):
    """Else one after the other would be asked about, and one that came later might pass it."""
    c = only_one_victim(Given())
    begin, asked = c.now, Asked(c, monkeypatch)
    asked.at(begin)
    c.gang(
        "second", pods=1, gpus=2, queue="owner", priority=9, node_selector={"kind": "a"},
        created=begin + 1,
    )  # fmt: skip
    assert asked.at(begin + 2) == []
    assert [each.gang.name for each in c.cache.left.claim_pauses] == ["high"]
    assert "stays: once made again" in c.then.why("second")


def test_a_pause_ends_with_the_victim_that_stayed(short, monkeypatch):
    """What the search came to rested on it."""
    c = only_one_victim(Given())
    begin, asked = c.now, Asked(c, monkeypatch)
    asked.at(begin)
    c.gone("own-0")
    runs(c, "more", "n0", gpus=2, queue="guest")
    assert asked.at(begin + 1) == ["high"]
    assert c.then.evicted() == ["more-0"]


def test_a_short_search_is_made_in_every_session(monkeypatch):
    """It costs less than what else a session does."""
    c = only_one_victim(Given())
    begin, asked = c.now, Asked(c, monkeypatch)
    assert [asked.at(begin + second) for second in range(3)] == [["high"]] * 3
    assert c.cache.left.claim_pauses == ()


def test_a_pause_is_forgotten_with_its_gang(short, monkeypatch):
    """One of the same name that comes later is asked about at once."""
    c = only_one_victim(Given())
    begin, asked = c.now, Asked(c, monkeypatch)
    asked.at(begin)
    c.gone("high-0")
    assert asked.at(begin + 1) == []
    assert c.cache.left.claim_pauses == ()


@pytest.mark.parametrize("seed", [4, 22])
def test_sessions_with_pauses_are_those_that_know_of_no_others(short, monkeypatch, seed):
    """In random histories every search that was in vain pauses, whatever for: what is kept is what is decided anew."""
    begin = ClaimPauses.begin

    def begin_always(pauses, gang, action, stays, taker, *, chains_from):
        placed = pauses._snapshot.placed_gangs
        stays = stays or taker or (placed[min(placed)] if placed else None)
        begin(pauses, gang, action, stays, taker, chains_from=chains_from)

    monkeypatch.setattr(ClaimPauses, "begin", begin_always)
    history, paused = KeptHistory(seed), 0
    for decision in history.play():
        paused += len(decision.claim_pauses)
        assert history.differences(decision) == []
    assert paused
