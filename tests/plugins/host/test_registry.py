"""Loading policies: only what is named, and every mistake with file, line and known names."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import attrs
import pytest
from attrs import validators as v

from gpusched.base.errors import ConfigError
from gpusched.config.load import load_config
from gpusched.pluginhost.registry import ACTIONS_GROUP, PLUGINS_GROUP, load_policy


@attrs.frozen(kw_only=True)
class CapArgs:
    """Arguments of every kind that a file can hold."""

    max_gpus: int = attrs.field(default=64, validator=[v.ge(0), v.le(100_000)])
    mode: Literal["soft", "hard"] = "soft"
    max_wait_s: float = 0.0
    ratio: float = 1.0
    strict: bool = False
    label: str | None = None
    pools: tuple[str, ...] = ()
    weights: Mapping[str, int] = attrs.field(factory=dict)


@attrs.frozen
class Cap:
    """A plugin with arguments."""

    name: ClassVar[str] = "cap"
    api: ClassVar[int] = 1
    args: CapArgs

    def open(self, hooks: Any, view: Any) -> None:
        """Nothing to say."""


@attrs.frozen
class Bare:
    """A plugin without any."""

    name: ClassVar[str] = "bare"
    api: ClassVar[int] = 1

    def open(self, hooks: Any, view: Any) -> None:
        """Nothing to say."""


@attrs.frozen(kw_only=True)
class NeedyArgs:
    """Arguments with a field that must be given."""

    who: str = attrs.field()
    how: enum.Enum | None = None

    @who.validator
    def _check(self, _, value):
        if value == "nobody":
            raise ValueError("somebody must be named")
        if value == "crash":
            raise ZeroDivisionError("1/0")


@attrs.frozen
class Needy:
    """A plugin that cannot do without an argument."""

    name: ClassVar[str] = "needy"
    api: ClassVar[int] = 1
    args: NeedyArgs

    def open(self, hooks: Any, view: Any) -> None:
        """Nothing to say."""


class Allocate:
    """An action."""

    name: ClassVar[str] = "allocate"

    def run(self, session: Any) -> None:
        """Nothing to do."""


def variant(base, **changes):
    return type(base.__name__, (base,), changes)


@attrs.frozen
class Point:
    """An entry point that counts how often it is imported."""

    name: str
    target: Any
    value: str = "package:Class"
    loads: list[int] = attrs.field(factory=list)

    def load(self):
        """What importing would come to."""
        self.loads.append(1)
        if isinstance(self.target, Exception):
            raise self.target
        return self.target


def policy(text, *plugins, actions=None):
    offered = {PLUGINS_GROUP: plugins, ACTIONS_GROUP: actions or (Point("allocate", Allocate),)}
    return load_policy(load_config(text, source="f.yaml"), offers=lambda group: offered[group])


def refusal(text, *plugins, actions=None):
    with pytest.raises(ConfigError) as caught:
        policy(text, *plugins, actions=actions)
    return caught.value.problems


CAP = Point("cap", Cap)


def one(plugin, arguments="{}"):
    return (
        "actions: [allocate]\n"
        "tiers:\n"
        "- plugins:\n"
        f"  - name: {plugin}\n"
        f"    arguments: {arguments}\n"
    )  # fmt: skip


def test_tiers_and_actions_are_built_in_order():
    """The policy has what the file names, in its order, with arguments typed."""
    text = (
        "actions: [allocate]\n"
        "tiers:\n"
        "- plugins: [{name: bare}]\n"
        "- plugins: [{name: cap, arguments: {maxGpus: 8, mode: hard, maxWait: 1m30s, ratio: 2,\n"
        "    strict: true, label: x, pools: [a, b], weights: {a: 1}}}]\n"
    )
    loaded = policy(text, CAP, Point("bare", Bare))
    assert [action.name for action in loaded.actions] == ["allocate"]
    assert [[plugin.name for plugin in tier] for tier in loaded.tiers] == [["bare"], ["cap"]]
    assert [plugin.name for plugin in loaded.plugins] == ["bare", "cap"]
    assert loaded.plugins[1] == Cap(
        args=CapArgs(
            max_gpus=8, mode="hard", max_wait_s=90.0, ratio=2.0,
            strict=True, label="x", pools=("a", "b"), weights={"a": 1},
        )
    )  # fmt: skip


def test_defaults_come_from_the_class():
    """Without arguments a plugin has its own defaults."""
    (plugin,) = policy(one("cap"), CAP).plugins
    assert plugin == Cap(args=CapArgs())


def test_only_what_is_named_is_imported():
    """An installed plugin that no configuration names costs nothing and breaks nothing."""
    other = Point("other", ImportError("never to be seen"))
    policy(one("bare"), Point("bare", Bare), other)
    assert other.loads == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "{maxGpu: 8}",
            ('unknown argument "maxGpu" of plugin "cap": known arguments are maxGpus, mode, '
            'maxWait, ratio, strict, label, pools, weights; did you mean "maxGpus"?'),
        ),
        (
            "{max_gpus: 8}",
            ('unknown argument "max_gpus" of plugin "cap": known arguments are maxGpus, mode, '
            'maxWait, ratio, strict, label, pools, weights; did you mean "maxGpus"?'),
        ),
        ("{maxGpus: true}", 'argument maxGpus of plugin "cap" must be a whole number, not true'),
        ("{maxGpus: 1.5}", 'argument maxGpus of plugin "cap" must be a whole number, not 1.5'),
        ('{maxGpus: "8"}', 'argument maxGpus of plugin "cap" must be a whole number, not "8"'),
        ("{maxGpus: -1}", 'argument maxGpus of plugin "cap" must be a whole number from 0 to 100000, not -1'),
        ("{maxGpus: null}", 'argument maxGpus of plugin "cap" must be a whole number, not nothing'),
        ("{strict: 1}", 'argument strict of plugin "cap" must be true or false, not 1'),
        (
            "{mode: hrad}",
            ('argument mode of plugin "cap" must be one of soft, hard, not "hrad"; '
            'did you mean "hard"?'),
        ),
        (
            "{maxWait: 5}",
            'argument maxWait of plugin "cap" must be a duration such as 20ms, 90s or 1h30m, not 5',
        ),
        (
            "{maxWait: 5x}",
            ("argument maxWait of plugin \"cap\" must be a duration: '5x' is not a duration such as "
            "20ms, 90s or 1h30m"),
        ),
        ("{ratio: x}", 'argument ratio of plugin "cap" must be a number, not "x"'),
        (
            "{label: 7}",
            'argument label of plugin "cap" must be text, not 7 (quote it if it is meant)',
        ),
        ("{pools: a}", 'argument pools of plugin "cap" must be a list, not "a"'),
        ("{pools: {a: 1}}", 'argument pools of plugin "cap" must be a list, not a mapping'),
        ("{weights: [1]}", 'argument weights of plugin "cap" must be a mapping, not a list'),
        (
            "{weights: {a: x}}",
            'argument weights of plugin "cap" must be a whole number, not "x"',
        ),
    ],
)  # fmt: skip
def test_each_wrong_argument_has_its_sentence(arguments, message):
    """Wrong arguments are told with file, line and what is known."""
    assert refusal(one("cap", arguments), CAP) == (f"f.yaml:5: {message}",)


def test_a_missing_argument_is_named():
    """What a plugin cannot do without is asked for."""
    assert refusal(one("needy"), Point("needy", Needy)) == (
        'f.yaml:4: plugin "needy" needs the argument who',
    )


def test_a_validators_own_sentence_is_told():
    """A message that names no field is told with the plugin's line."""
    assert refusal(one("needy", "{who: nobody}"), Point("needy", Needy)) == (
        'f.yaml:4: arguments of plugin "needy": somebody must be named',
    )


def test_a_validator_that_crashes_is_a_fault_of_the_plugin():
    """Not the user's value but the plugin is blamed."""
    assert refusal(one("needy", "{who: crash}"), Point("needy", Needy)) == (
        'f.yaml:4: plugin "needy" cannot be used: ZeroDivisionError: 1/0',
    )


def test_an_argument_of_a_type_that_no_file_can_hold():
    """Never guessed."""
    (message,) = refusal(one("needy", "{who: me, how: x}"), Point("needy", Needy))
    assert "argument how" in message
    assert "of a type that no file can hold" in message


def test_a_plugin_without_arguments_gets_none():
    """Arguments for a plugin that takes none are a mistake."""
    assert refusal(one("bare", "{a: 1}"), Point("bare", Bare)) == (
        'f.yaml:5: unknown argument "a" of plugin "bare": it takes no arguments',
    )


@pytest.mark.parametrize(
    ("point", "why"),
    [
        (Point("cap", ImportError("no module named x")), "ImportError: no module named x"),
        (Point("cap", variant(Cap, api=2)), "it is written for api 2, this is api 1"),
        (Point("cap", variant(Cap, name="other")), "package:Class calls itself 'other'"),
        (Point("cap", variant(Cap, open=None)), "Cap has no method open"),
        (Point("cap", "text"), "package:Class is no class"),
        (
            Point("cap", type("Cap", (), {"name": "cap", "api": 1, "open": print})),
            "Cap is not an attrs class",
        ),
        (
            Point("cap", attrs.make_class("Cap", {"args": attrs.field(type=int)},
                  class_body={"name": "cap", "api": 1, "open": print})),
            "the type of its args, <class 'int'>, is no attrs class",
        ),
    ],
)  # fmt: skip
def test_a_plugin_that_cannot_be_used_is_refused(point, why):
    """Whatever is wrong with a plugin itself is told with the line that names it."""
    assert refusal(one("cap"), point) == (f'f.yaml:4: plugin "cap" cannot be used: {why}',)


def test_unknown_names_are_told_with_the_known_ones():
    """All unknown actions and plugins at once, with the nearest names."""
    text = "actions: [alocate]\ntiers:\n- plugins:\n  - {name: capp}\n  - {name: xyz}\n"
    assert refusal(text, CAP, Point("bare", Bare)) == (
        'f.yaml:1: unknown action "alocate": known actions are allocate; did you mean "allocate"?',
        'f.yaml:4: unknown plugin "capp": known plugins are bare, cap; did you mean "cap"?',
        'f.yaml:5: unknown plugin "xyz": known plugins are bare, cap',
    )


def test_a_name_offered_twice_is_refused():
    """Which of two packages was meant is never guessed; the same one seen twice is one."""
    again = Point("cap", Cap)
    policy(one("cap"), CAP, again)
    rival = Point("cap", Cap, "rival:Cap")
    assert refusal(one("cap"), CAP, rival) == (
        'f.yaml:4: plugin "cap" is offered twice: by package:Class and rival:Cap',
    )


def test_an_action_without_run_is_refused():
    """An action is a name and a method run."""
    broken = Point("allocate", type("Allocate", (), {"name": "allocate"}))
    assert refusal(one("cap"), CAP, actions=(broken,)) == (
        'f.yaml:1: action "allocate" cannot be used: Allocate has no method run',
    )
