"""A policy that misbehaves costs what its hook says, and never the session."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

from gpusched.base.limits import PLUGIN_FAULTS_MAX
from gpusched.config.model import DEFAULT
from gpusched.pluginhost.registry import load_policy
from gpusched.session.framework.inter_pod_rules import PairRule, PairScore
from gpusched.session.framework.verdict import ALLOW
from gpusched.session.state.policy import Policy
from gpusched.testing.given import Given


def boom(*_args):
    raise ValueError("no idea")


def under(register):
    """A cluster whose policy has one more plugin, which registers hooks as told."""

    class Odd:
        name = "odd"
        api = 1

        def open(self, hooks, view):
            register(hooks)

    shipped = load_policy(DEFAULT)
    policy = Policy(shipped.actions, ((Odd(),), *shipped.tiers))
    return Given(policy=policy).nodes(2, gpus=8).queue("a").queue("b")


def two_gangs(c):
    return c.gang("g", pods=1, gpus=2, queue="a").gang("h", pods=2, gpus=2, queue="b")


def test_a_plugin_that_cannot_open_stops_placing():
    """Its veto might be missing: nothing is placed, and everybody is told."""
    c = two_gangs(under(boom))
    assert c.when.one_session().binds == ()
    assert c.then.reason("g") == "BackOff"
    assert "odd" in c.then.why("g")
    assert "no idea" in c.then.why("g")


@pytest.mark.parametrize(
    "allows",
    [
        boom,
        lambda _pod, _nodes: [True],
        lambda _pod, _nodes: [True] * 9,
        lambda _pod, _nodes: True,
        lambda _pod, _nodes: [[True, True]],
        lambda _pod, nodes: ["yes"] * len(nodes),
        lambda _pod, _nodes: object(),
    ],
)
def test_a_filter_that_fails_allows_no_node(allows):
    """Neither an exception nor an answer of a wrong shape places anything."""
    c = two_gangs(under(lambda hooks: hooks.node_filter("are odd", allows)))
    assert c.when.one_session().binds == ()
    assert c.then.reason("g") == "BackOff"
    assert c.then.why("g").startswith("filter odd/node_filter failed: ")
    assert c.then.why("g").endswith("; no node is accepted until it works")
    assert "odd" in c.decision.faults[0]


def test_what_a_faulty_filter_said_is_not_kept():
    """When it works again, nodes are free again."""
    answers = [boom, lambda _pod, _nodes: None]

    def allows(pod, nodes):
        return answers[0](pod, nodes)

    c = two_gangs(under(lambda hooks: hooks.node_filter("are odd", allows)))
    assert c.when.one_session().binds == ()
    answers.pop(0)
    c.when.one_session()
    assert c.then.started() == ["g", "h"]


@pytest.mark.parametrize(
    "score",
    [
        boom,
        lambda _pod, _rows: np.zeros(7),
        lambda _pod, _rows: None,
        lambda _pod, _rows: 3,
        lambda _pod, rows: np.full(len(rows), np.nan),
        lambda _pod, rows: [10**30] * len(rows),
        lambda _pod, rows: np.full(len(rows), -(2**63)),
    ],
)
def test_a_score_that_fails_counts_nothing(score):
    """Opinions may be missing: the gangs start all the same."""
    c = two_gangs(under(lambda hooks: hooks.node_score(score)))
    c.when.bound()
    assert c.then.started() == ["g", "h"]


@pytest.mark.parametrize("answer", [None, True, "yes", 0])
@pytest.mark.parametrize("hook", ["enqueue_check", "quota_check", "gang_ready"])
def test_a_check_that_gives_no_verdict_refuses(hook, answer):
    """A veto is explicit, and so is consent."""
    c = two_gangs(under(lambda hooks: getattr(hooks, hook)(lambda _gang: answer)))
    assert c.when.one_session().binds == ()
    assert c.then.reason("g") == "BackOff"


@pytest.mark.parametrize("hook", ["queue_order", "gang_order"])
def test_who_cannot_be_ordered_sits_out(hook):
    """The other gang starts."""

    def key(item):
        if getattr(item, "queue", None) == "a" or getattr(item, "path", None) == ("a",):
            raise KeyError("a")
        return (0,)

    c = two_gangs(under(lambda hooks: getattr(hooks, hook)(key)))
    c.when.one_session()
    assert c.then.started() == ["h"]


@pytest.mark.parametrize("hook", ["queue_order", "gang_order", "pod_order"])
@pytest.mark.parametrize(
    "keys",
    [
        [(), (1,), (2, 3)],
        [(), (0,), (0, 0)],
        [("",), (0,), ()],
        [("a",), (1,), ("b", 1)],
        [(10**40,), (-(10**40),), (0,)],
        [(True,), (1,), (0,)],
    ],
)
def test_keys_of_any_length_and_type_can_be_compared(hook, keys):
    """Whatever mixture of ints and texts a plugin returns, the session goes on."""
    seen: dict[int, tuple] = {}

    def key(item):
        return seen.setdefault(id(item), keys[len(seen) % len(keys)])

    c = two_gangs(under(lambda hooks: getattr(hooks, hook)(key)))
    c.gang("i", pods=3, gpus=1, queue="a").gang("j", pods=1, gpus=1, queue="b")
    c.when.bound()
    assert c.then.started() == ["g", "h", "i", "j"]


def test_a_plugin_cannot_change_what_it_sees():
    """Entities are frozen."""
    caught = []

    def meddle(gang):
        try:
            gang.min_member = 0
        except attrs.exceptions.FrozenInstanceError:
            caught.append(gang.key.name)
        return (0,)

    two_gangs(under(lambda hooks: hooks.gang_order(meddle))).when.one_session()
    assert set(caught) == {"g", "h"}


REGISTER = {
    "filter": lambda hooks, call: hooks.node_filter("are odd", call),
    "score": lambda hooks, call: hooks.node_score(call),
    "pair filter": lambda hooks, call: hooks.pair_filter(
        "are odd", call, concerns=lambda _class: True
    ),
    "pair filter's rule": lambda hooks, call: hooks.pair_filter(
        "are odd", lambda pod: PairRule(0, lambda: call(pod, ())), concerns=lambda _class: True
    ),
    "pair score": lambda hooks, call: hooks.pair_score(call, concerns=lambda _class: True),
    "pair score's points": lambda hooks, call: hooks.pair_score(
        lambda pod: PairScore(0, lambda: call(pod, ())), concerns=lambda _class: True
    ),
    "concerns": lambda hooks, call: hooks.pair_filter("are odd", lambda _pod: None, concerns=call),
    "check": lambda hooks, call: hooks.gang_ready(call),
    "check's concerns": lambda hooks, call: hooks.gang_ready(lambda _gang: ALLOW, concerns=call),
}
ANSWER = {"check": ALLOW, "concerns": False, "check's concerns": False}


@pytest.mark.parametrize("what", REGISTER)
def test_what_always_fails_is_told_though_its_siblings_answer(what):
    """One plugin registers the same hook twice, and one of the two works."""

    def both(hooks):
        REGISTER[what](hooks, lambda *_args: ANSWER.get(what))
        REGISTER[what](hooks, boom)

    if what.endswith(("rule", "points")):  # without an answer that says nothing

        def both(hooks):
            REGISTER[what](hooks, boom)

    c = two_gangs(under(both))
    c.gang("huge", pods=9, gpus=8, queue="a")
    for _ in range(PLUGIN_FAULTS_MAX + 1):
        c.when.one_session()
    assert [each.partition(": ")[0] for each in c.guard.degraded_messages()] == [
        f"plugin odd failed in hook {HOOK_OF[what]}"
    ]
    if what in ("filter", "pair filter", "pair filter's rule"):
        assert c.then.reason("g") == "BackOff"
        why = f"filter odd/{HOOK_OF[what]} failed: ValueError: no idea; no node is accepted until it works"
        assert c.then.why("g") == why


HOOK_OF = {
    "filter": "node_filter",
    "score": "node_score",
    "pair filter": "pair_filter",
    "pair filter's rule": "pair_filter",
    "pair score": "pair_score",
    "pair score's points": "pair_score",
    "concerns": "pair_filter",
    "check": "gang_ready",
    "check's concerns": "gang_ready",
}


@pytest.mark.parametrize("detail", [boom, lambda *_about: 7])
@pytest.mark.parametrize("kind", ["node", "pair"])
def test_a_detail_that_cannot_be_told_costs_itself_alone(kind, detail):
    """However often it fails, the filter goes on deciding and its reason stands without a detail."""

    def no_node(_pod, nodes):
        return [False] * len(nodes)

    def rule(_pod):
        return PairRule("odd", lambda: np.zeros(2, dtype=np.bool_), detail=detail)

    def register(hooks):
        if kind == "node":
            hooks.node_filter("are odd", no_node, detail=detail)
        else:
            hooks.pair_filter("are odd", rule, concerns=lambda _pod: True)

    c = under(register).gang("g", pods=1, gpus=2, queue="a")
    for _ in range(PLUGIN_FAULTS_MAX + 2):
        assert c.when.one_session().binds == ()
        assert "of 2 nodes: 2 are odd" in c.then.why("g")
        assert "(" not in c.then.why("g")
        c.now += 30.0
    assert c.then.reason("g") != "BackOff"


def test_a_detail_stands_in_brackets():
    """Given words for the nodes that are refused, at most a hundred of which it is shown."""
    shown = []

    def detail(_pod, nodes):
        shown.append(len(nodes))
        return "  too\nodd "

    def no_node(_pod, nodes):
        return [False] * len(nodes)

    c = under(lambda hooks: hooks.node_filter("are odd", no_node, detail=detail))
    c.nodes(200, gpus=8).gang("g", pods=1, gpus=2, queue="a")
    assert c.when.one_session().binds == ()
    assert "202 are odd (too odd)" in c.then.why("g")
    assert set(shown) == {100}
