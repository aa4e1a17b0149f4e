"""Victims that lines tell are those that a table of them would, to the last one."""

from __future__ import annotations

import random
from collections import Counter

import attrs
import pytest

from benchmarks.shared_cluster import many_queues, one_reclaims
from gpusched.session.preempt.victim_pool import VictimTable
from gpusched.session.preempt.victim_selection import VictimSelector
from gpusched.testing import entities
from tests.populations import one_of
from tests.session.crowds import Crowd
from tests.session.preempt.test_claim_runs import history as history_of_runs
from tests.session.preempt.test_swaps import Alike

STEPS = 8


@attrs.define
class OneSize(Crowd):
    """A crowd of lone pods of one size, and of gangs of several pods that take from them or are taken from."""

    def submit(self, queue=""):
        """Four more lone pods, and seldom a gang of some."""
        if self.rng.random() < 0.3:
            super().submit(queue)
        for _ in range(4):
            name = f"g{self.made}"
            self.made += 1
            self.about[name] = {"gpus": 1, "priority": self.rng.choice((0, 0, 10))}
            self.least[name] = 1
            self.c.group(name, queue=queue or self.rng.choice(self.leaves), min_member=1)
            self._pod(name, 0)


def names_of(chosen):
    """Gangs and pods of a choice, in its order."""
    return [(part.gang.key, [seat.member.pod.uid for seat in part.seats]) for part in chosen]


def by_account(limits):
    """All that limits say."""
    rights = [
        [(right.frees, dict(right.above_of), dict(right.returns_of)) for right in side]
        for side in limits.sides
    ]
    return limits.frees, limits.most, rights


@pytest.fixture
def compared(monkeypatch):
    """How often victims were told by lines and how often not; they are held against those of a table, and limits by which they go
    against those of all accounts.
    """
    choose, counts = VictimSelector._choose_in_lines, Counter()

    def choose_both(self, claimant, kind, need, area):
        accounts = self._accounts[kind]
        looked_up = accounts.limits_looked_up()
        told = choose(self, claimant, kind, need, area)
        assert by_account(looked_up) == by_account(accounts.limits)
        counts[told is not None] += 1
        if told is None:
            return None
        stage = self._stages[kind, 0]
        field = stage.pool.search_state
        stage.pool.refresh()
        choice = self._in_area(claimant, kind, need, number=0, area=area)
        assert stage is self._stages[kind, 0]
        assert names_of(told) == names_of(stage.pool.victim_groups(choice))
        assert stage.reached == field.reach
        assert self._solve_for_cheaper(stage.pool, need, choice, alone=True) is None
        return told

    monkeypatch.setattr(VictimSelector, "_choose_in_lines", choose_both)
    return counts


def test_victims_are_those_of_tables_whoever_left_and_whatever_is_refused(compared):
    """In crowds of lone pods of one size, in queues of every kind."""
    for seed in one_of(10, range(150)):
        crowd = OneSize(random.Random(seed))
        crowd.start()
        for _ in range(STEPS):
            for _ in range(3):
                crowd.submit(crowd.rng.choice(crowd.leaves[2:] or crowd.leaves))
            crowd.c.now += crowd.rng.choice((0.3, 5, 60))
            crowd.step()
    assert compared[True] > 5  # others would prove nothing


def test_victims_are_those_of_tables_where_nodes_take_nobody(compared):
    """Pods on a node that is cordoned make no room, and are in line with the others."""
    for seed in one_of(12, range(80), first=2):
        history_of_runs(seed, crowd=Alike)
    assert compared[True] > 15


def test_victims_are_those_of_tables_where_many_queues_give(compared):
    """More are taken in where the first thousands do not do, and what is freed opens rights."""
    c = many_queues(nodes=100, queues=40, gangs=100, size=10, free=1)
    c.when.one_session()
    assert compared[True] > 5


def test_no_table_is_made_where_lines_tell_victims(monkeypatch):
    """That is what they are for."""
    made, enter = [], VictimTable.__init__
    monkeypatch.setattr(
        VictimTable, "__init__", lambda self, *about, **how: made.append(enter(self, *about, **how))
    )
    c = many_queues(nodes=100, queues=40, gangs=100, size=10, free=1)
    c.when.one_session()
    assert c.then.plan.preemptions
    assert not made


def test_victims_on_a_node_that_holds_more_than_it_offers_are_searched_for(compared):
    """The first of them that leave make no room there."""
    c = one_reclaims(nodes=2)
    for number in range(2):
        c.node(f"node-{number}", gpus=4, cpu=128_000, memory=1024 * entities.GIB)
    c.when.one_session()
    assert not compared[True]
