"""Hooks that answer for a list of victims say of each what they say of it alone, and plans are the same."""

from __future__ import annotations

import random

import attrs
import numpy as np
import pytest

from gpusched.api.meta.identity import ObjectKey
from gpusched.base.clock import SystemClock
from gpusched.base.limits import PLUGIN_FAULTS_MAX
from gpusched.config.model import DEFAULT
from gpusched.pluginhost.guard import PluginGuard
from gpusched.pluginhost.registry import load_policy
from gpusched.session.framework.hooks import Hooks
from gpusched.session.framework.proposal import (
    CONSOLIDATE,
    PREEMPT,
    RECLAIM,
    VictimHook,
    victim_sort_keys,
)
from gpusched.session.framework.sort_keys import Excluded, joined_sort_key
from gpusched.session.framework.verdict import ALLOW, deny
from gpusched.session.preempt.claims.session_starts import LowestPriorities
from gpusched.session.preempt.victims import Victims
from gpusched.session.state.policy import Policy
from gpusched.testing.given import Given
from tests.populations import one_of
from tests.session.crowds import MIN_RUNTIME_S, SECOND_NS, Crowd
from tests.session.queues.test_reclaim_gates import Court, deserves, runs

STEPS = 6
SHIPPED = {"victim_filter": 3, "stop_filter": 2, "victim_order": 1, "victim_preference": 1}
"""Shipped policies that answer for lists, by hook, where queues say all that they may say."""


@attrs.define
class Strangers(Crowd):
    """A crowd whose queues keep lines, waits and turns, with pods that the cluster itself needs."""

    def _queue(self, name, parent, *, stated):
        super()._queue(name, parent, stated=stated)
        key = ObjectKey("", name)
        queue = self.c.cache.queues.items[key]
        if self.rng.random() < 0.3:
            queue = attrs.evolve(queue, ordering=self.rng.choice(("Fifo", "StrictFifo")))
        if self.rng.random() < 0.3:
            queue = attrs.evolve(queue, max_wait_ns=self.rng.choice((2, 30)) * SECOND_NS)
        self.c.cache.put_queue(key, queue)

    def submit(self, queue=""):
        """A gang more, which may be the cluster's own."""
        super().submit(queue)
        if self.rng.random() < 0.1:
            self.about[f"g{self.made}"] = {"gpus": 1, "priority": 2_000_000_000}


def history(seed, guard=None):
    """What each session of a crowd decides and tells, and the faults of its policies."""
    crowd = Strangers(random.Random(seed))
    if guard is not None:
        crowd.c.guard = guard
    crowd.start()
    told = []
    for _ in range(STEPS):
        for _ in range(3):
            crowd.submit(crowd.rng.choice(crowd.leaves[2:] or crowd.leaves))
        crowd.c.now += MIN_RUNTIME_S / 2
        plan, _ = crowd.step()
        told.append(plan)
        assert crowd.c.decision.faults == ()
    return told, crowd


@pytest.mark.parametrize("seed", one_of(6, range(24)))
def test_plans_are_those_of_hooks_that_answer_for_one_victim_alone(seed, monkeypatch):
    """Whatever a list form says, no session decides or tells anything else."""
    compared = PluginGuard(SystemClock(), compares_lists=True)
    told, _ = history(seed, compared)
    for form in ("_wrap_list", "_wrap_claimants"):
        monkeypatch.setattr(Hooks, form, lambda *_args, **_how: None)
    alone, _ = history(seed)
    assert told == alone


@pytest.mark.parametrize("seed", one_of(6, range(24)))
def test_each_shipped_list_form_says_what_the_form_for_one_says(seed):
    """Of every gang that runs, for every other one and action, in crowds of any kind."""
    _, crowd = history(seed)
    court = Court(crowd.c)
    gangs = [gang for _, gang in sorted(court.gangs.items())]
    running = [gang for gang in gangs if gang.placed]
    hooks, asked = court.hooks, 0
    for claimant in gangs:
        for action in (PREEMPT, RECLAIM, CONSOLIDATE):
            for each in (*hooks.victim_filters, *hooks.stop_filters):
                asked += 1
                expected = [not each(claimant, victim, action).refuses for victim in running]
                assert list(each.of_all(claimant, running, action)) == expected
            for each in (*hooks.victim_orders, *hooks.victim_preferences):
                expected = [each(claimant, victim, action) for victim in running]
                assert list(each.of_all(claimant, running, action)) == expected
    assert asked
    assert hooks.faults == []


@pytest.mark.parametrize("seed", one_of(6, range(24), first=3))
def test_each_shipped_form_for_claimants_says_what_the_form_for_one_says(seed):
    """Of every gang, about every one that runs, for each action."""
    _, crowd = history(seed)
    court = Court(crowd.c)
    gangs = [gang for _, gang in sorted(court.gangs.items())]
    filters = [each for each in court.hooks.victim_filters if each.of_claimants is not None]
    assert filters
    for victim in [gang for gang in gangs if gang.placed]:
        for action in (PREEMPT, RECLAIM, CONSOLIDATE):
            for each in filters:
                expected = [not each(claimant, victim, action).refuses for claimant in gangs]
                assert list(each.of_claimants(gangs, victim, action)) == expected
    assert court.hooks.faults == []


def test_every_shipped_hook_about_victims_answers_for_lists(given):
    """None of them is asked victim by victim where thousands run."""
    c = given.nodes(1).queue("a", ordering="Fifo", max_wait_ns=SECOND_NS)
    hooks = Court(c).hooks
    lists = {
        "victim_filter": hooks.victim_filters,
        "stop_filter": hooks.stop_filters,
        "victim_order": hooks.victim_orders,
        "victim_preference": hooks.victim_preferences,
    }
    assert {name: len(some) for name, some in lists.items()} == SHIPPED
    assert all(each.of_all is not None for some in lists.values() for each in some)


# -- of outside authors --------------------------------------------------------------------------
def lends(register, **guard):
    """Two gangs of queue b run on what queue a deserves, one of which an author's policy protects."""

    class Odd:
        name = "odd"
        api = 1

        def open(self, hooks, view):
            register(hooks)

    shipped = load_policy(DEFAULT)
    c = Given(policy=Policy(shipped.actions, ((Odd(),), *shipped.tiers)))
    c.guard = PluginGuard(SystemClock(), **guard)
    c.nodes(1, gpus=2).queue("a", limits=deserves(2)).queue("b", limits=deserves(0))
    runs(c, "kept", "b", 1)
    runs(c, "free", "b", 1, start=1)
    return c.gang("new", pods=1, gpus=1, queue="a")


def keeps(_claimant, victim, _action):
    """The form for one: a gang called kept stays."""
    return deny("BackOff", "it is kept") if victim.key.name == "kept" else ALLOW


def left(c):
    """Gangs that are evicted."""
    return sorted(
        {stop.gang.name for each in c.when.one_session().preemptions for stop in each.stops}
    )


def boom(*_args):
    raise ValueError("no idea")


NONSENSE = [
    boom,
    lambda _claimant, _victims, _action: None,
    lambda _claimant, _victims, _action: True,
    lambda _claimant, victims, _action: [True] * (len(victims) + 1),
    lambda _claimant, victims, _action: ["yes"] * len(victims),
    lambda _claimant, victims, _action: [ALLOW] * len(victims),
    lambda _claimant, victims, _action: np.zeros((len(victims), 2), dtype=np.bool_),
]


def test_a_list_form_is_asked_in_place_of_the_other():
    """The form for one is not called where no sentence is needed."""
    asked = []

    def each(_claimant, victims, action):
        asked.append(action)
        return [victim.key.name != "kept" for victim in victims]

    c = lends(lambda hooks: hooks.victim_filter(boom, for_all=each))
    assert left(c) == ["free"]
    assert "reclaim" in asked
    assert c.decision.faults == ()


@pytest.mark.parametrize("each", NONSENSE)
@pytest.mark.parametrize("hook", ["victim_filter", "stop_filter"])
def test_a_filter_that_fails_for_a_list_is_told_and_asked_one_by_one(hook, each):
    """What the form for one says holds, and the author is told what went wrong."""
    c = lends(lambda hooks: getattr(hooks, hook)(keeps, for_all=each))
    assert left(c) == ["free"]
    assert f"plugin odd failed in hook {hook}: " in c.decision.faults[0]


@pytest.mark.parametrize(
    "each",
    [
        *NONSENSE[:5],
        lambda _claimant, victims, _action: [(1.5,)] * len(victims),
        lambda _claimant, victims, _action: [[1]] * len(victims),
        lambda _claimant, victims, _action: [1] * len(victims),
    ],
)
@pytest.mark.parametrize("hook", ["victim_order", "victim_preference"])
def test_an_order_that_fails_for_a_list_is_told_and_asked_one_by_one(hook, each):
    """The keys of the form for one order victims."""

    def key(_claimant, victim, _action):
        return (int(victim.key.name == "kept"),)

    how = {"fixed": True} if hook == "victim_order" else {}
    c = lends(lambda hooks: getattr(hooks, hook)(key, for_all=each, **how))
    assert left(c) == ["free"]
    assert f"plugin odd failed in hook {hook}: " in c.decision.faults[0]


def contests(register, **guard):
    """The same where a third queue waits for what it deserves: it is asked whether it would take over."""
    c = lends(register, **guard).queue("c", limits=deserves(1))
    return c.gang("other", pods=1, gpus=1, queue="c")


def test_a_form_for_claimants_is_asked_in_place_of_the_others():
    """It says which of those that wait might take a claimant's places."""
    asked = []

    def of_claimants(claimants, victim, _action):
        asked.append(([each.key.name for each in claimants], victim.key.name))
        return [victim.key.name != "kept" for _ in claimants]

    c = contests(lambda hooks: hooks.victim_filter(keeps, for_claimants=of_claimants))
    assert left(c) == ["free"]
    assert asked in ([(["other"], "new")], [(["new"], "other")])
    assert c.decision.faults == ()


@pytest.mark.parametrize("of_claimants", NONSENSE)
def test_a_filter_that_fails_for_claimants_is_told_and_asked_one_by_one(of_claimants):
    """What the form for one says holds, and the author is told what went wrong."""

    def turned(claimants, victim, action):
        return of_claimants(victim, claimants, action)

    c = contests(lambda hooks: hooks.victim_filter(keeps, for_claimants=turned))
    assert left(c) == ["free"]
    assert "plugin odd failed in hook victim_filter: " in c.decision.faults[0]


def test_a_form_for_claimants_that_says_different_things_is_told():
    """As that for victims."""

    def turned(claimants, _victim, _action):
        return [False] * len(claimants)

    c = contests(
        lambda hooks: hooks.victim_filter(keeps, for_claimants=turned), compares_lists=True
    )
    assert left(c) == ["free"]
    assert "for_claimants says False of gang" in c.decision.faults[0]


def test_a_list_form_that_never_works_is_set_aside():
    """It is not called any more, the form for one decides, and the guard says so."""
    calls = []

    def each(*_args):
        calls.append(1)
        raise ValueError("no idea")

    c = lends(lambda hooks: hooks.victim_filter(keeps, for_all=each))
    for _ in range(PLUGIN_FAULTS_MAX + 3):
        assert left(c) == ["free"]
    before = len(calls)
    assert any("odd" in each for each in c.guard.degraded_messages())
    assert left(c) == ["free"]
    assert len(calls) - before <= 1  # one try a session


def test_forms_that_say_different_things_are_told_where_they_are_compared():
    """check-config and tests hold one against the other; the form for one counts."""

    def each(_claimant, victims, _action):
        return [True] * len(victims)

    c = lends(lambda hooks: hooks.victim_filter(keeps, for_all=each), compares_lists=True)
    assert left(c) == ["free"]
    assert "for_all says True of gang" in c.decision.faults[0]


def test_keys_of_lists_compare_as_keys_of_one_do():
    """Parts of any type, of several policies, and gangs whose key cannot be computed."""

    def one(_claimant, victim, _action):
        if victim == 3:
            raise Excluded("no key")
        return (victim % 2, "x" * victim)

    def other(_claimant, victim, _action):
        return (victim,) if victim % 2 else ("b", -victim)

    listed = VictimHook(other, lambda *about: [other(about[0], each, "") for each in about[1]])
    orders = (VictimHook(one), listed)
    victims = list(range(6))
    expected = [joined_sort_key(orders, None, victim, "") for victim in victims]
    assert victim_sort_keys(orders, None, victims, "") == expected
    assert victim_sort_keys((), None, victims, "") == [()] * 6


# -- what is followed from claim to claim ----------------------------------------------------------
def test_lowest_priorities_are_those_of_all_who_run_or_will(given, monkeypatch):
    """Taken in claim by claim, they are what a look at every gang finds."""
    seen, refresh = [], LowestPriorities.refresh

    def compared(self):
        refresh(self)
        everybody = Victims(self._session, nominated=True)
        queues = sorted(everybody.queues)
        assert sorted(self.queues) == queues
        for each in queues:
            lowest = min(gang.priority for gang in everybody.of_queue(each))
            assert self.lowest(each) == everybody.lowest(each) == lowest
        seen.append(len(queues))

    monkeypatch.setattr(LowestPriorities, "refresh", compared)
    c = given.nodes(1, gpus=8).queue("a", limits=deserves(4)).queue("b", limits=deserves(4))
    for number in range(8):
        runs(c, f"runs-{number}", "b", 1, start=number)
        c.gang(f"waits-{number}", pods=1, gpus=1, queue="a", priority=10 * number)
    assert len(left(c)) == 4
    assert seen == [1, 2, 2, 2]
    for seed in one_of(6, range(24)):
        history(seed)
    assert len(seen) > 8  # crowds that claim nothing would prove nothing
