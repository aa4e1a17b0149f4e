"""Hooks of policies that raise for one object: it alone is set aside, whatever else waits."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

from gpusched.base import limits
from gpusched.config.model import DEFAULT
from gpusched.plugin import ALLOW, PairRule, PairScore, QueueUsage, Resources
from gpusched.pluginhost.registry import load_policy
from gpusched.session.containment.failing_hooks import HookCulpritSearch
from gpusched.session.containment.fault_listener import ORDERING_HOOKS
from gpusched.testing.given import Given
from tests.session import planting
from tests.session.containment.test_containment import GPU, outcome, set_aside
from tests.session.planting import Planted

pytestmark = [pytest.mark.contains, pytest.mark.long]

START_HOOKS = ["queue_turn", "gang_order", "enqueue_check", "quota_check", "gang_ready",
    "pair_filter"]  # fmt: skip
"""Hooks without whose answer a gang does not start beside others."""
ORDERS = ["queue_turn", "gang_order"]
"""Those of them that mean nothing for a gang that is alone."""
OTHER_HOOKS = ["pod_order", "reserve_check", "walltime", "waits_too_long", "compact", "pair_score"]
"""Hooks whose guard's answer lets a gang start."""
CLAIM_HOOKS = ["reclaim_check", "victim_filter", "stop_filter", "victim_order", "reclaim_gate"]


LIST_HOOKS = ["victim_filter", "stop_filter", "victim_order"]
"""Those of them that may answer for lists of victims."""


def answers_each(ask):
    """The form for lists of a hook about one victim."""

    def for_all(claimant, victims, action):
        said = [ask(claimant, victim, action) for victim in victims]
        return [each is ALLOW for each in said] if ALLOW in said else said

    return for_all


def names_of(value):
    """What an argument of a hook is about: a queue, a gang, a pod, or a proposal's gangs."""
    return (value, *(each.victim for each in getattr(value, "chunks", ())),
        getattr(value, "claimant", None))  # fmt: skip


def about(value, culprit):
    """Whether a value is about an object whose name begins so."""
    name = getattr(getattr(value, "key", None), "name", "")
    return planting.about(value, culprit) or name.startswith(culprit)


@attrs.define(eq=False)
class Asked:
    """A policy without opinions, one hook of which raises for the object of a name.

    Attributes:
        hook: that raises.
        culprit: name of a gang, a queue or a node; None for whatever it is asked about.
        fired: how often it raised.
        listed: whether it answers for lists of victims, too, and raises for those with the object.
    """

    hook: str
    culprit: str | None
    fired: int = 0
    listed: bool = False
    name: str = "asked"
    api: int = 1

    def planted(self, hook, answer):
        """Raises for the culprit, else gives the answer."""

        def ask(*args):
            culprits = [value for arg in args for value in names_of(arg) if value is not None]
            if hook == self.hook and (
                self.culprit is None or any(about(each, self.culprit) for each in culprits)
            ):
                self.fired += 1
                raise Planted(f"planted in {hook}")
            return answer(*args) if callable(answer) else answer

        return ask

    def open(self, hooks, view):
        """Register every hook that is asked about single objects."""
        everywhere = np.ones(len(view.nodes()), dtype=np.bool_)
        points = np.zeros(len(view.nodes()), dtype=np.int64)
        for hook, answer in (
            *((each, ()) for each in ("queue_order", "queue_turn", "gang_order", "pod_order")),
            *((each, ALLOW) for each in ("enqueue_check", "quota_check", "reserve_check")),
            *((each, ALLOW) for each in ("reclaim_check", "victim_filter", "stop_filter")),
            ("reclaim_gate", ALLOW),
            ("victim_order", ()),
            ("walltime", 0),
            ("waits_too_long", False),
            ("compact", False),
            ("fair_share", Resources()),
            ("usage", QueueUsage()),
            ("gang_ready", ALLOW),
            ("node_filter", self.look_at_each),
        ):
            ask = self.planted(hook, answer)
            if hook == "node_filter":
                hooks.node_filter("are odd", answer)
            elif self.listed and hook in LIST_HOOKS:
                getattr(hooks, hook)(ask, for_all=answers_each(ask))
            else:
                getattr(hooks, hook)(ask)
        hooks.stop_check(self.planted("stop_check", ALLOW), queues=lambda _node: True)
        if self.hook == "pair_filter":
            of_pod = PairRule((), lambda: everywhere, exact=True)
            ask = self.planted("pair_filter", of_pod)
            hooks.pair_filter("are odd", ask, concerns=lambda _: True)
        if self.hook == "pair_score":
            score = PairScore((), lambda: points)
            hooks.pair_score(self.planted("pair_score", score), concerns=lambda _: True)

    def look_at_each(self, _pod_class, nodes):
        """A node filter that raises for one of the nodes."""
        return [self.planted("node_filter", True)(node) for node in nodes]


@attrs.define(eq=False, slots=False)
class Foreign(Asked):
    """The same, by an outside author."""


Asked.__module__ = "gpusched_plugins.asked"
Foreign.__module__ = "acme.asked"


def cluster(asked=None):
    """Four nodes and two queues, where a gang of queue b runs."""
    policy = load_policy(DEFAULT)
    if asked is not None:
        policy = attrs.evolve(policy, tiers=((asked,), *policy.tiers))
    c = Given(now=1000.0, policy=policy).nodes(4, gpus=8, rack="r1")
    for name in ("a", "b"):
        c.queue(name, limits={"deserved": {GPU: 16}})
    c.gang("runs", pods=2, gpus=8, queue="b", created=0.5)
    c.when.carried_out()
    c.now = 1100.0
    return c


def others(c):
    """Gangs that fit, one that needs room made, and one that is larger than the cluster come."""
    c.gang("good", pods=1, gpus=8, queue="a", created=2.0, priority=5)
    c.gang("late", pods=1, gpus=4, queue="b", created=3.0, priority=5)
    c.gang("needs", pods=3, gpus=8, queue="b", created=4.0, priority=9)
    c.gang("huge", pods=9, gpus=8, queue="b", created=5.0)
    return c


def decided(asked=None):
    """What is decided for the others where they come to a gang that runs."""
    c = others(cluster(asked))
    c.when.one_session()
    return outcome(c)


@pytest.mark.parametrize("pods", [1, 9])
@pytest.mark.parametrize("hook", [*START_HOOKS, *OTHER_HOOKS])
def test_a_hook_that_raises_for_a_gang_among_others(hook, pods):
    """The gang is set aside, and all others are decided as if it were not there."""
    asked = Asked(hook, "bad")
    c = cluster(asked).gang("bad", pods=pods, gpus=8, queue="a", created=1.0, priority=5)
    others(c).when.one_session()
    expected = decided(Asked("", None))
    if not asked.fired:
        assert (hook, pods) in {
            ("waits_too_long", 1),
            ("walltime", 9),
            ("pod_order", 9),
            ("pair_score", 9),
            ("compact", 1),
        }
        return
    assert set_aside(c) == ["bad"]
    assert c.then.reason("bad") == "SchedulerError"
    assert f"plugin asked, hook {hook}" in c.then.why("bad")
    assert outcome(c) == expected


@pytest.mark.parametrize("sessions", [1, 12])
@pytest.mark.parametrize("hook", START_HOOKS)
def test_a_hook_that_raises_for_a_gang_that_is_alone(hook, sessions):
    """It is set aside at once, and what comes later is decided in its first session.

    An order that fails for it keeps it from nothing while it is alone.
    """
    asked = Asked(hook, "bad")
    c = cluster(asked).gang("bad", pods=1, gpus=8, queue="a", created=1.0, priority=5)
    for _ in range(sessions):
        c.when.one_session()
    assert asked.fired
    assert set_aside(c) == ([] if hook in ORDERS else ["bad"])
    assert c.then.started() == (["bad"] if hook in ORDERS else [])
    others(c).when.one_session()
    assert set_aside(c) == ["bad"]
    assert outcome(c) == decided(Asked("", None))


@pytest.mark.parametrize("hook", OTHER_HOOKS)
def test_a_hook_that_a_gang_can_do_without(hook):
    """Where it was asked about one gang only, what its guard answers lets the gang start."""
    c = cluster(Asked(hook, "bad")).gang("bad", pods=1, gpus=8, queue="a", created=1.0)
    c.when.one_session()
    assert set_aside(c) == []
    assert c.then.started() == ["bad"]


@pytest.mark.parametrize("sessions", [1, 12])
@pytest.mark.parametrize("hook", [*START_HOOKS, "reserve_check"])
def test_a_hook_of_an_outside_author_that_raises_for_one_gang(hook, sessions):
    """Its guard refuses the gang, quarantined or not; what comes later is decided at once."""
    asked = Foreign(hook, "bad")
    c = cluster(asked).gang("bad", pods=1, gpus=8, queue="a", created=1.0, priority=5)
    if hook == "reserve_check":
        c.gang("fills", pods=2, gpus=8, queue="a", created=0.9, priority=5)
    for _ in range(sessions):
        c.when.one_session()
    assert asked.fired
    others(c).when.one_session()
    if hook == "reserve_check":
        return
    assert set_aside(c) == []
    assert outcome(c) == decided(Foreign("", None))


@pytest.mark.parametrize("hook", sorted({*START_HOOKS} - ORDERING_HOOKS))
def test_a_hook_that_raises_for_all_is_to_blame_itself(hook):
    """No gang is set aside for it, and it decides again in the session in which it works."""
    asked = Asked(hook, None)
    c = cluster()
    c.policy = attrs.evolve(c.policy, tiers=((asked,), *c.policy.tiers))
    c.gang("first", pods=1, gpus=2, queue="a", created=1.0)
    c.when.one_session()
    c.gang("second", pods=1, gpus=1, queue="b", created=2.0)
    for _ in range(12):
        c.when.one_session()
        assert c.then.started() == []
    assert set_aside(c) == []
    assert c.guard.degraded_messages()
    asked.hook = ""
    c.when.one_session()
    assert sorted(c.then.started()) == ["first", "second"]


@pytest.mark.parametrize("hook", START_HOOKS)
def test_two_gangs_of_one_defect_before_a_third_one_comes(hook):
    """They look as if the hook were broken, until it answers for somebody else."""
    asked = Asked(hook, "bad")
    c = cluster(asked)
    for number in range(2):
        c.gang(f"bad-{number}", pods=1, gpus=8, queue="a", created=1.0, priority=5)
        c.when.one_session()
    assert set_aside(c) == []
    others(c).when.one_session()
    assert set_aside(c) == ["bad-0", "bad-1"]
    assert outcome(c) == decided(Asked("", None))


@pytest.mark.parametrize("hook", START_HOOKS)
def test_many_gangs_of_one_defect(hook):
    """Twenty are set aside; the others are decided."""
    asked = Asked(hook, "bad")
    c = cluster(asked)
    for number in range(20):
        c.gang(f"bad-{number}", pods=1, gpus=8, queue="a", created=1.0, priority=5)
    others(c).when.one_session()
    assert len(set_aside(c)) == 20
    assert outcome(c) == decided(Asked("", None))


def test_a_hook_that_fails_for_many_is_not_looked_into_again_and_again(monkeypatch):
    """While nobody new waits, sessions cost what they always cost."""
    asked = Asked("quota_check", "bad")
    c = cluster(asked)
    for number in range(limits.HOOK_SUSPECTS_MAX + 1):
        c.gang(f"bad-{number:02}", pods=1, gpus=8, queue="a", created=1.0, priority=5)
    tries = []
    original = HookCulpritSearch._try_without
    monkeypatch.setattr(
        HookCulpritSearch, "_try_without", lambda *args: tries.append(1) or original(*args)
    )
    others(c).when.one_session()
    assert set_aside(c) == []
    assert outcome(c) == decided(Asked("", None))
    tries.clear()
    c.when.one_session()
    assert tries == []


def claims(asked):
    """Queue b holds more than it deserves, in two gangs."""
    policy = load_policy(DEFAULT)
    policy = attrs.evolve(policy, tiers=((asked,), *policy.tiers))
    c = Given(now=1000.0, policy=policy).nodes(4, gpus=8, rack="r1")
    for name in ("a", "b"):
        c.queue(name, limits={"deserved": {GPU: 16}})
    c.gang("runs", pods=2, gpus=8, queue="b", created=0.5)
    c.gang("walks", pods=2, gpus=8, queue="b", created=0.6)
    c.when.carried_out()
    c.now = 1100.0
    return c


@pytest.mark.parametrize(
    ("hook", "listed"),
    [*((each, False) for each in CLAIM_HOOKS), *((each, True) for each in LIST_HOOKS)],
)
@pytest.mark.parametrize("culprit", ["runs", "walks", "bad"])
def test_a_hook_that_raises_for_a_claimant_or_a_victim(hook, culprit, listed):
    """The claim goes on without it: another victim leaves, or for another claimant."""
    asked = Asked("", culprit, listed=listed)
    c = claims(asked)
    asked.hook = hook
    if culprit == "bad":
        c.gang("bad", pods=1, gpus=8, queue="a", created=1.0, priority=5)
    c.gang("good", pods=1, gpus=8, queue="a", created=2.0, priority=5)
    c.when.one_session()
    if asked.fired:
        assert set_aside(c) == [culprit]
    victim = "runs" if culprit == "walks" and asked.fired else "walks"
    assert c.then.evicted() == [f"{victim}-0", f"{victim}-1"]
    assert "good" in [claim.gang.name for claim in c.then.plan.preemptions]


@pytest.mark.parametrize("hook", ["queue_order", "fair_share", "usage"])
def test_a_hook_that_raises_for_a_queue(hook):
    """Gangs of other queues are decided."""
    asked = Asked(hook, "a")
    c = others(cluster(asked))
    c.when.one_session()
    assert asked.fired
    assert set_aside(c) == ["a"]
    assert c.then.started() == ["late"]
    assert "queue a is set aside" in c.then.why("good")


def test_a_hook_that_raises_for_a_node():
    """The other nodes take what fits."""
    asked = Asked("node_filter", "node-3")
    c = others(cluster())
    c.policy = attrs.evolve(c.policy, tiers=((asked,), *c.policy.tiers))
    c.when.one_session()
    assert set_aside(c) == ["node-3"]
    assert c.then.nodes() == {"good-0": "node-2"}


def test_a_hook_that_raises_for_a_gang_that_runs():
    """A check whether it must stop: it runs on."""
    asked = Asked("stop_check", "runs")
    c = others(cluster())
    c.policy = attrs.evolve(c.policy, tiers=((asked,), *c.policy.tiers))
    c.when.one_session()
    assert asked.fired
    assert outcome(c) == decided(Asked("", None))


def test_nothing_is_evicted_for_a_gang_that_a_policy_holds_not_to_be_ready():
    """Room would help as little as before."""
    asked = Foreign("gang_ready", "eager")
    c = cluster(asked).gang("more", pods=2, gpus=8, queue="b", created=0.6)
    c.when.carried_out()
    c.gang("eager", pods=1, gpus=8, queue="b", created=1.0, priority=9)
    c.when.one_session()
    assert c.then.evicted() == []
    assert c.then.reason("eager") == "BackOff"
