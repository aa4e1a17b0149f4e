"""Whatever a hook answers or raises, the session goes on, and the fault has plugin and hook.

Hooks are taken from the program, so that one that is added is tried as well.
"""

from __future__ import annotations

import inspect

import pytest

from gpusched.session.framework.hooks import Hooks
from gpusched.session.framework.inter_pod_rules import PairRule, PairScore
from gpusched.session.state.plan import Plan
from gpusched.testing.authors import cluster_under
from tests.populations import one_of

HOOKS = sorted(
    name for name, _ in inspect.getmembers(Hooks, inspect.isfunction) if not name.startswith("_")
)


class Rude:
    """Has no repr, no length, no truth and no order."""

    def __bool__(self):
        raise TypeError("no truth")

    def __iter__(self):
        raise ValueError("no items")

    def __len__(self):
        raise OverflowError("no length")

    def __repr__(self):
        raise LookupError("no words")


def boom(*_args):
    raise ValueError("no idea")


def leave(*_args):
    raise SystemExit(3)


ANSWERS = {
    "raises": boom,
    "leaves": leave,
    "None": lambda *_: None,
    "True": lambda *_: True,
    "float": lambda *_: 1.5,
    "text": lambda *_: "x",
    "floats": lambda *_: (0.5, float("nan")),
    "nested": lambda *_: ((1, (2,)),),
    "huge": lambda *_: (10**40,) * 3,
    "huge number": lambda *_: 10**40,
    "below nothing": lambda *_: -1,
    "rude": lambda *_: Rude(),
    "wrong arity": lambda: (0,),
}


def odd(hook, answer):
    class Odd:
        name, api = "odd", 1

        def open(self, hooks, view):
            """One hook of one plugin."""
            register = getattr(hooks, hook)
            given, named = [], {}
            for parameter in inspect.signature(register).parameters.values():
                if parameter.default is not inspect.Parameter.empty:
                    continue
                value = "are odd" if parameter.name == "reason" else answer
                if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
                    named[parameter.name] = value
                else:
                    given.append(value)
            register(*given, **named)

    return Odd()


def busy(plugin):
    """Two queues of which one holds what the other is due, and gangs of all kinds."""
    c = cluster_under(plugin).nodes(2, gpus=8)
    for name in ("a", "b"):
        c.queue(name, limits={"deserved": {"nvidia.com/gpu": 8}})
    for number in range(2):
        c.group(f"old-{number}", queue="a", min_member=1)
        c.pod(f"old-{number}-0", group=f"old-{number}", gpus=8, node=f"node-{number}")
    c.gang("g", pods=2, gpus=4, queue="a", created=1.0)
    c.gang("h", pods=2, gpus=4, queue="b", created=2.0)
    return c.gang("i", pods=2, min_member=1, gpus=0, queue="b", created=3.0)


ASKED = [
    (hook, answer)
    for number, hook in enumerate(HOOKS)
    for answer in one_of(3, [*ANSWERS], first=number % 3)
]
"""Hooks and answers: a third of them for each hook, another third for the next one."""


@pytest.mark.parametrize(("hook", "answer"), ASKED)
def test_a_hook_can_answer_what_it_likes(hook, answer):
    """The plan is made, twice, and nobody but the plugin is blamed."""
    c = busy(odd(hook, ANSWERS[answer]))
    for _ in range(2):
        assert isinstance(c.when.bound(), Plan)
        assert all(
            fault.startswith(f"plugin odd failed in hook {hook}: ") for fault in c.then.faults()
        )


@pytest.mark.parametrize("hook", HOOKS)
def test_registering_nonsense_is_a_fault_of_the_plugin(hook):
    """No callable at all: the plugin, or the call of it, fails by name."""
    c = busy(odd(hook, "not a function"))
    assert isinstance(c.when.one_session(), Plan)
    assert all(fault.startswith("plugin odd failed in hook ") for fault in c.then.faults())


@pytest.mark.parametrize(
    "mask",
    [
        lambda: None,
        lambda: True,
        lambda: [True],
        lambda: [True] * 3,
        lambda: [1, 1],
        lambda: [[True, True]],
        lambda: boom(),  # noqa: PLW0108 - so that it is named like the others
    ],
)
def test_a_rule_between_pods_that_answers_nonsense_allows_no_node(mask):
    """Its reason is told, and the gangs that it does not concern start."""

    class Odd:
        name, api = "odd", 1

        def open(self, hooks, view):
            """Concerns pods with GPUs."""
            hooks.pair_filter(
                "are odd", lambda pod: PairRule("all", mask), concerns=lambda c: bool(c.gpus)
            )

    c = cluster_under(Odd()).nodes(2, gpus=8).queue("a")
    c.gang("g", pods=2, gpus=4, queue="a").gang("i", pods=2, gpus=0, queue="a")
    c.when.bound()
    assert c.then.started() == ["i"]
    assert c.then.why("g").startswith("filter odd/pair_filter failed: ")
    assert all(f.startswith("plugin odd failed in hook pair_filter: ") for f in c.then.faults())
    assert c.then.faults()


@pytest.mark.parametrize(
    "points", [lambda: None, lambda: 1, lambda: [1], lambda: [0.5, 0.5], lambda: [10**30] * 2]
)
def test_a_score_between_pods_that_is_nonsense_counts_nothing(points):
    """Opinions may be missing: the gang starts."""

    class Odd:
        name, api = "odd", 1

        def open(self, hooks, view):
            """Concerns every pod."""
            hooks.pair_score(lambda pod: PairScore("all", points), concerns=lambda _class: True)

    c = cluster_under(Odd()).nodes(2, gpus=8).queue("a").gang("g", pods=2, gpus=4, queue="a")
    c.when.bound()
    assert c.then.started() == ["g"]
    assert c.then.faults()


@pytest.mark.parametrize("hook", ["pair_filter", "pair_score"])
def test_a_key_that_cannot_be_hashed_is_a_fault(hook):
    """Equal keys are looked up: a list cannot be one."""

    class Odd:
        name, api = "odd", 1

        def open(self, hooks, view):
            """Concerns every pod."""
            if hook == "pair_filter":
                rule = PairRule([], lambda: [True, True])
                hooks.pair_filter("are odd", lambda pod: rule, concerns=lambda _class: True)
            else:
                score = PairScore([], lambda: [1, 1])
                hooks.pair_score(lambda pod: score, concerns=lambda _class: True)

    c = cluster_under(Odd()).nodes(2, gpus=8).queue("a").gang("g", pods=2, gpus=4, queue="a")
    c.when.bound()
    assert f"plugin odd failed in hook {hook}: TypeError: unhashable" in c.then.faults()[0]
