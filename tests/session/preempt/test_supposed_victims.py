"""Victims that would leave for one gang are told to the next: answers are those of a search."""

from __future__ import annotations

import random
from collections import Counter

import attrs
import pytest

from gpusched.session.preempt import victim_selection
from gpusched.session.preempt.claims import supposed_victims
from gpusched.session.preempt.claims.supposed_victims import SupposedVictims
from gpusched.session.preempt.victim_selection import VictimSelector
from gpusched.testing import entities
from gpusched.testing.given import Given
from tests.populations import one_of
from tests.session.crowds import Crowd
from tests.session.running import runs

LATELY = entities.NOW - 10
ROUNDS, CHANGES, SESSIONS = 10, 3, 4


@attrs.define
class WideCrowd(Crowd):
    """A crowd on more nodes, where several may leave for one."""

    def start(self):
        """Five nodes and ten gangs more."""
        for number in range(5):
            self.gpus += 8
            self.c.node(f"wide{number}", gpus=8)
        super().start()
        for _ in range(10):
            self.submit()


def history(seed):
    """Who was evicted for whom, session by session."""
    crowd = WideCrowd(random.Random(seed))
    crowd.start()
    told = []
    for _ in range(ROUNDS):
        for _ in range(CHANGES):
            crowd.change()
        told += [crowd.step()[1] for _ in range(SESSIONS)]
    return told


@pytest.fixture
def given():
    """A cluster under the shipped policy, with a queue that is due fourteen GPUs and one that borrows."""
    c = Given()
    c.queue("owner", limits={"deserved": {entities.GPU: 14}})
    return c.queue("guest", limits={"deserved": {entities.GPU: 0}})


def searches(monkeypatch):
    """Counts searches for victims of gangs that are supposed to claim, and of those that do."""
    counts, choose = Counter(), VictimSelector.choose_victims

    def counting(self, claimant, *args, **kwargs):
        counts[claimant.key.name] += 1
        return choose(self, claimant, *args, **kwargs)

    monkeypatch.setattr(VictimSelector, "choose_victims", counting)
    return counts


def two_that_stay(c, **lent):
    """Two gangs of unlike pods could make room, and each would take the guest's place then."""
    for number, gpus in enumerate((4, 4)):
        c.node(f"n{number}", gpus=gpus, labels={"kind": "a"})
    runs(c, "one", "n0", gpus=4, queue="owner", since=LATELY)
    runs(c, "two", "n1 n1", gpus=2, queue="owner", since=LATELY)
    runs(c.node("n2", gpus=4), "lent", "n2", gpus=4, queue="guest", **lent)
    return c.gang(
        "high", pods=1, gpus=4, queue="owner", priority=9, created=c.now, node_selector={"kind": "a"}
    )  # fmt: skip


def test_one_search_finds_the_guest_that_several_victims_would_evict(given, monkeypatch):
    """The second victim is asked whether it would have the same guest evicted, without a search."""
    c = two_that_stay(given)
    counts = searches(monkeypatch)
    c.when.one_session()
    assert c.then.evicted() == []
    assert sorted(counts[name] for name in ("one", "two")) == [0, 1]
    assert "once made again, it would have a third gang evicted" in c.then.why("high")


def test_each_victim_is_searched_for_where_none_are_known(given, monkeypatch):
    """The same cluster without anything kept: the decision is no other."""
    monkeypatch.setattr(supposed_victims, "KEPT_MAX", 0)
    c = two_that_stay(given)
    counts = searches(monkeypatch)
    c.when.one_session()
    assert c.then.evicted() == []
    assert [counts[name] for name in ("one", "two")] == [1, 1]


@pytest.mark.long
def test_claims_are_those_of_searches(monkeypatch):
    """In crowds of queues of every kind, whoever they take from, and whatever budgets keep."""
    hits, ask = Counter(), SupposedVictims.for_claimant

    def counted(self, *about):
        found = ask(self, *about)
        hits[bool(found)] += 1
        return found

    monkeypatch.setattr(SupposedVictims, "for_claimant", counted)
    seeds = one_of(16, range(64), first=1)
    told = [history(seed) for seed in seeds]
    assert hits[True] > len(seeds)  # others would prove nothing
    monkeypatch.setattr(supposed_victims, "KEPT_MAX", 0)
    assert told == [history(seed) for seed in seeds]


@pytest.mark.long
def test_who_is_supposed_to_claim_needs_few_victims_at_first(monkeypatch):
    """In such crowds claims are the same where those who are supposed to claim are shown one queue of victims after the other, or all."""
    seeds = one_of(16, range(64), first=2)
    monkeypatch.setattr(victim_selection, "_GANGS_WHERE_ANY_DO", 1)
    told = [history(seed) for seed in seeds]
    assert any(who for each in told for who in each)
    monkeypatch.setattr(victim_selection, "_GANGS_WHERE_ANY_DO", 2_000)
    assert told == [history(seed) for seed in seeds]
