"""Equal claims that are allowed together are those that policies would allow one by one."""

from __future__ import annotations

import random
from collections import Counter

import attrs
import pytest
from gpusched_plugins.queues.fairshare.reclaim_rules import ReclaimRules

from gpusched.api.meta.identity import ObjectKey
from gpusched.api.meta.resources import NOTHING, Resources
from gpusched.base.clock import SystemClock
from gpusched.config.model import DEFAULT
from gpusched.pluginhost.guard import PluginGuard
from gpusched.pluginhost.registry import load_policy
from gpusched.session.framework.proposal import EvictionLimits
from gpusched.session.framework.verdict import ALLOW, deny
from gpusched.session.preempt.claims.claim_runs import ClaimRuns
from gpusched.session.preempt.claims.stability import ChainCheck
from gpusched.session.state.policy import Policy
from gpusched.testing import entities
from gpusched.testing.given import Given
from tests.populations import one_of
from tests.session.crowds import Crowd
from tests.session.queues.test_reclaim_gates import deserves, runs

STEPS = 3
NODES = 8
GPUS = 8


@attrs.define
class Borrowers(Crowd):
    """A crowd in which queues lend to lone pods of few kinds, and lone pods of other queues want it back."""

    def start(self):
        """Nodes full of lone pods of the first queues."""
        rng = self.rng
        self.gpus = NODES * GPUS
        self.c.nodes(NODES, gpus=GPUS, cpu=64_000)
        self.made = rng.randrange(40)
        for department in range(rng.randint(1, 2)):
            top = f"d{department}"
            self._queue(top, "root", stated=rng.random() < 0.2)
            for leaf in range(rng.randint(2, 3)):
                self._queue(f"{top}-{leaf}", top, stated=rng.random() < 0.8)
                self.leaves.append(f"{top}-{leaf}")
        for _ in range(NODES * GPUS):
            self.submit(rng.choice(self.leaves[: rng.choice((1, 1, 1, 2))]))
        self.step()

    def _queue(self, name, parent, *, stated):
        """A lender that is due little, others that are due more, and guarantees in few crowds."""
        super()._queue(name, parent, stated=stated)
        key = ObjectKey("", name)
        queue = self.c.cache.queues.items[key]
        if self.made % 8:  # policies are not monotone beside guarantees
            queue = attrs.evolve(queue, guarantee=NOTHING)
        if self.rng.random() < 0.8:
            due = self.rng.randint(0, 6_000) if name == "d0-0" else self.rng.randint(10_000, 40_000)
            queue = attrs.evolve(queue, deserved=Resources.of({entities.GPU: due}))
        self.c.cache.put_queue(key, queue)

    def submit(self, queue=""):
        """A lone pod, seldom several that start together."""
        rng, name = self.rng, f"g{self.made}"
        self.made += 1
        pods = rng.choice((1,) * 24 + (2,))
        self.about[name] = {
            "gpus": 1, "cpu": rng.choice((1000,) * 9 + (2000,)),
            "priority": rng.choice((0,) * 19 + (10,)),
        }  # fmt: skip
        self.least[name] = pods
        self.c.group(
            name, queue=queue or rng.choice(self.leaves), min_member=pods, created=self.c.now,
            preemptible=rng.random() < 0.97,
        )  # fmt: skip
        for rank in range(pods):
            self._pod(name, rank)


def history(seed, guard=None, *, crowd=Borrowers):
    """What each session of such a crowd decides and tells."""
    crowd = crowd(random.Random(seed))
    if guard is not None:
        crowd.c.guard = guard
    crowd.start()
    told = []
    takers = crowd.leaves[-crowd.rng.randint(1, 3) :]
    for _ in range(STEPS):
        for _ in range(crowd.rng.choice((8, 60))):
            crowd.submit(crowd.rng.choice(takers))
        if crowd.rng.random() < 0.3:
            crowd.reform()
        told.append(crowd.step()[0])
        assert crowd.c.decision.faults == ()
    return told


@pytest.fixture
def joined(monkeypatch):
    """How many claims were joined, and how many were asked about."""
    counts, joins = Counter(), ClaimRuns.joins

    def counted(self, *about):
        answer = joins(self, *about)
        counts[answer] += 1
        return answer

    monkeypatch.setattr(ClaimRuns, "joins", counted)
    return counts


def test_plans_are_those_of_claims_that_are_asked_about_one_by_one(joined, monkeypatch):
    """In crowds of queues of every kind, whoever they take from."""
    seeds = one_of(15, range(80))
    told = [history(seed) for seed in seeds]
    assert joined[True] > 4 * len(seeds)  # others would prove nothing
    assert joined[False] > 4 * len(seeds)
    monkeypatch.setattr(ClaimRuns, "joins", lambda *_about: False)
    assert told == [history(seed) for seed in seeds]


def test_shipped_policies_are_as_monotone_as_they_say(joined):
    """Each claim that is joined is asked about as well, where policies are compared."""
    for seed in one_of(15, range(80), first=1):
        history(seed, PluginGuard(SystemClock(), compares_lists=True))
    assert joined[True] > 8  # others would prove nothing


# -- of outside authors --------------------------------------------------------------------------
LEFT = 20_000
"""What queue lends holds at least, thousandths of GPUs."""


def lends(register, *, compares_lists=False, takers=("takes",)):
    """A queue that is due nothing fills the nodes, others take it back, and an author's policy has a say."""

    class Odd:
        name = "odd"
        api = 1

        def open(self, hooks, view):
            register(hooks, view)

    shipped = load_policy(DEFAULT)
    c = Given(policy=Policy(shipped.actions, ((Odd(),), *shipped.tiers)))
    c.guard = PluginGuard(SystemClock(), compares_lists=compares_lists)
    c.nodes(NODES, gpus=GPUS).queue("lends", limits=deserves(0))
    for number in range(NODES * GPUS):
        runs(c, f"runs-{number}", "lends", 1, on=f"node-{number // GPUS}", start=number)
    for queue in takers:
        c.queue(queue, limits=deserves(NODES * GPUS // len(takers)))
        for number in range(NODES * GPUS):
            gang = f"{queue}-{number}"
            c.group(gang, queue=queue, min_member=1, preemptible=queue != "keeps")
            c.pod(f"{gang}-0", group=gang, gpus=1, cpu=100)
    return c


def claims(register, joined, **how):
    """How many claims are made and joined there, and faults."""
    c = lends(register, **how)
    made = len(c.when.one_session().preemptions)
    return made, joined[True], c.decision.faults


def test_claims_are_joined_where_every_policy_is_monotone(joined):
    """Most of those of a kind; where one policy did not say so, none."""

    def allows(_gang):
        return ALLOW

    def silent(hooks, _view):
        hooks.reclaim_check(allows)

    def stated(hooks, _view):
        hooks.reclaim_check(allows)
        hooks.monotone_claims()

    everybody = NODES * GPUS
    made, some, faults = claims(stated, joined)
    assert (made, faults) == (everybody, ())
    assert some > everybody * 3 // 4
    joined.clear()
    assert claims(silent, joined) == (everybody, 0, ())


def test_a_limit_ends_a_run_where_it_would_end_claims_one_by_one(joined):
    """What policies refuse of the last claim is asked again of those before it."""
    asked = []

    def at_most(hooks, view):
        def check(_proposal):
            asked.append(1)
            held = view.staying("takes").get(entities.GPU)
            return ALLOW if held < 21_000 else deny("BackOff", "it has enough")

        hooks.reclaim_gate(check)
        hooks.monotone_claims()

    made, _, faults = claims(at_most, joined)
    assert (made, faults) == (21, ())
    assert len(asked) < made


def keeps_some(hook, least=LEFT):
    """A policy of which some hook leaves the lender so much."""

    def register(hooks, view):
        def more_left(*_about):
            held = view.staying("lends").get(entities.GPU)
            return ALLOW if held > least else deny("BackOff", "it gave enough")

        def less_left(_gang):
            held = view.staying("lends").get(entities.GPU)
            return ALLOW if held >= least else deny("BackOff", "it gave enough")

        def amounts(*_about):
            return EvictionLimits(keeps=(("lends", Resources.of({entities.GPU: least})),))

        # What is reserved is asked about when victims have gone.
        special = {"reserve_check": less_left, "eviction_limits": amounts}
        getattr(hooks, hook)(special.get(hook, more_left))
        hooks.monotone_claims()

    return register


@pytest.mark.parametrize("takers", [("takes",), ("takes", "gets"), ("takes", "keeps")])
@pytest.mark.parametrize(
    "hook",
    ["reclaim_check", "victim_filter", "reclaim_gate", "reserve_check", "eviction_limits"],
)
def test_no_hook_is_passed_over_at_the_end_of_a_run(hook, takers, joined):
    """Whichever hook ends it, and whether claims of others come between that are joined or are not."""
    made, some, faults = claims(keeps_some(hook), joined, takers=takers)
    assert made == NODES * GPUS - LEFT // 1000
    assert faults == ()
    assert some or "keeps" in takers


def test_claims_that_are_not_joined_end_all_runs(joined):
    """They take from the same queue, wherever a run is then."""
    for least in range(10, 40, 3):
        register = keeps_some("reclaim_gate", least * 1000)
        made, _, faults = claims(register, joined, takers=("takes", "keeps"))
        assert (made, faults) == (NODES * GPUS - least, ())
    assert joined[True]


def test_victims_that_may_claim_again_are_asked_about_one_by_one(joined, monkeypatch):
    """Whether one has a third gang evicted is no matter of amounts alone."""
    asked, evicts = [], ChainCheck.victim_that_evicts

    def told(self, claimant, statement):
        asked.append(self._session.view.staying("lends").get(entities.GPU))
        return evicts(self, claimant, statement)

    def register(hooks, view):
        def due(gang):
            if gang.queue == "takes" or view.staying("lends").get(entities.GPU) < LEFT:
                return ALLOW
            return deny("BackOff", "it has enough")

        hooks.reclaim_check(due)
        hooks.monotone_claims()

    monkeypatch.setattr(ChainCheck, "victim_that_evicts", told)
    monkeypatch.setattr(ReclaimRules, "may_claim", lambda *_about: ALLOW)
    made, some, _ = claims(register, joined)
    assert made == NODES * GPUS
    assert some
    assert {held for held in asked if held < LEFT} == set(range(0, LEFT, 1000))


@pytest.mark.parametrize("hook", ["reclaim_check", "reclaim_gate"])
def test_a_policy_that_is_not_monotone_is_told_where_that_is_compared(hook, joined):
    """check-config and tests find one that allows many and not few."""

    def odd(hooks, view):
        def check(_about):
            held = view.staying("takes").get(entities.GPU)
            return deny("BackOff", "not now") if held == 5_000 else ALLOW

        getattr(hooks, hook)(check)
        hooks.monotone_claims()

    made, _, faults = claims(odd, joined, compares_lists=True)
    assert made == 5
    assert "monotone policies refuse default/takes-" in faults[0]
