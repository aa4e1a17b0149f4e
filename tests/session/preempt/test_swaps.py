"""Claims that take the places of their victims without a search are those that a search would make."""

from __future__ import annotations

from collections import Counter

import attrs
import pytest

from gpusched.session.preempt.claims import swaps
from gpusched.session.preempt.claims.claim_runs import ClaimRuns
from gpusched.session.preempt.claims.stability import ChainCheck
from tests.populations import one_of
from tests.session.preempt.test_claim_runs import GPUS, NODES, Borrowers, history, lends


@attrs.define
class Alike(Borrowers):
    """A crowd of lone pods that are alike, but for a few in some crowds."""

    odd: float = 0.0
    cordon: str = ""

    def step(self):
        """A session, from the second one on with a node that takes nobody."""
        if self.cordon and len(self.about) > NODES * GPUS:
            self.c.node(self.cordon, gpus=GPUS, cpu=64_000, unschedulable=True)
        return super().step()

    def start(self):
        """Nodes that differ in a few crowds, beside all that borrowers do."""
        self.odd = self.rng.choice((0.0, 0.0, 0.01, 0.05))
        self.c.node("small", gpus=self.rng.choice((0, 1, 4)), cpu=self.rng.choice((1000, 8000)))
        if self.rng.random() < 0.2:
            self.cordon = f"node-{self.rng.randrange(NODES)}"
        super().start()
        if self.rng.random() < 0.8:
            self.leaves = [self.leaves[0], self.leaves[-1]]

    def submit(self, queue=""):
        """A lone pod as all others, or one that is odd in some way."""
        rng, name = self.rng, f"g{self.made}"
        self.made += 1
        if len(self.about) < NODES * GPUS and rng.random() >= self.odd:
            queue = self.leaves[0]
        about = {"gpus": 1, "cpu": 1000, "priority": 0}
        pods, terms = 1, {}
        if rng.random() < self.odd:
            ways = (
                {"gpus": 2},
                {"cpu": 2000},
                {"cpu": 500},
                {"priority": 10},
                {"pods": 2},
                {"preemptible": False},
            )
            way = dict(rng.choice(ways))
            pods = way.pop("pods", 1)
            terms = {key: way.pop(key) for key in ("preemptible",) if key in way}
            about |= way
        if rng.random() < self.odd / 2:
            self.keeps[name] = rng.randint(0, 1)
        self.about[name] = about
        self.least[name] = pods
        self.c.group(
            name, queue=queue or rng.choice(self.leaves), min_member=pods, created=self.c.now, **terms,
        )  # fmt: skip
        for rank in range(pods):
            self._pod(name, rank)


@pytest.fixture
def swapped(monkeypatch):
    """How many claims were made without a search; victims are put in order from the second claim of a run on."""
    monkeypatch.setattr(swaps, "SWAPS_FROM", 1)
    counts, choose = Counter(), ClaimRuns.choose_swap

    def counted(self, *about):
        chosen = choose(self, *about)
        counts[chosen is not None] += 1
        return chosen

    monkeypatch.setattr(ClaimRuns, "choose_swap", counted)
    return counts


def test_plans_are_those_of_claims_that_search(swapped, monkeypatch):
    """In crowds of queues of every kind, whoever they take from."""
    seeds = one_of(8, range(80), first=2)
    told = [history(seed, crowd=Alike) for seed in seeds]
    assert swapped[True] > 2 * len(seeds)  # others would prove nothing
    monkeypatch.setattr(ClaimRuns, "choose_swap", lambda *_about: None)
    assert told == [history(seed, crowd=Alike) for seed in seeds]


def decided(about=lambda _c: None):
    """What a queue takes back of another that fills all nodes, whose policies are monotone."""
    c = lends(lambda hooks, _view: hooks.monotone_claims())
    about(c)
    plan = c.when.one_session()
    assert c.decision.faults == ()
    return plan


def test_most_claims_of_a_long_run_are_made_without_a_search(swapped):
    """Where policies are asked about the next ones, and where a run is at its end, victims are searched for."""
    everybody = NODES * GPUS
    assert len(decided().preemptions) == everybody
    assert swapped[True] > everybody // 2


def test_who_would_be_evicted_again_tries_as_often_as_others(swapped, monkeypatch):
    """A claim that is not kept for that is followed by what would follow it if it had been searched for."""
    asked = []

    def taker(_self, claimant, _statement):
        asked.append(claimant.key.name)
        return claimant if claimant.key.name in ("takes-30", "takes-47") else None

    monkeypatch.setattr(ChainCheck, "gang_that_takes_over", taker)
    plan, names = decided(), list(asked)
    assert swapped[True] > names.index("takes-30") // 2
    assert names.count("takes-30") > 1
    asked.clear()
    monkeypatch.setattr(ClaimRuns, "choose_swap", lambda *_about: None)
    assert decided() == plan
    assert asked == names


@pytest.mark.parametrize(
    "about",
    [
        lambda c: c.node("node-8", gpus=1),  # one claimant fits without a victim
        lambda c: c.node("node-3", gpus=GPUS, unschedulable=True),
        lambda c: c.node("node-3", gpus=7),  # holds more than it has: two must leave for one place
    ],
    ids=["room is left", "a node takes nobody", "a node is overcommitted"],
)
def test_nodes_that_are_not_just_full_are_searched(about, swapped, monkeypatch):
    """Claims are those that a search makes, whatever nodes hold."""
    plan = decided(about)
    monkeypatch.setattr(ClaimRuns, "choose_swap", lambda *_about: None)
    assert decided(about) == plan
