"""What is said of wrong arguments: the same words for every shipped policy, and what is allowed."""

from __future__ import annotations

import re
import typing

import attrs
import pytest

from gpusched.base.errors import ConfigError
from gpusched.config.load import load_config
from gpusched.pluginhost.args import args_class, argument_key
from gpusched.pluginhost.registry import PLUGINS_GROUP, installed_entry_points, load_policy

WRONG = ("maybe", "-1", "99999999999", "[x]", "{a: b}", "null", "1.5", "1000000h")
FREE_TEXT = {("conformance", "namespaces"), ("topology", "spareLevel")}
ALLOWED = re.compile(
    r"one of \w+(, \w+)+"
    r"|a whole number( from \d+ to \d+)?"
    r"|a duration (from \w+ to \w+|such as 20ms, 90s or 1h30m)"
    r"|a duration: '\w+' is not a duration such as 20ms, 90s or 1h30m"
    r"|between 0s and 8760h, or null for never"
    r"|true or false"
)


def arguments():
    """Name, key, type and field of each argument of each shipped policy."""
    for entry in sorted(installed_entry_points(PLUGINS_GROUP), key=lambda each: each.name):
        cls = args_class(entry.name, entry.load())
        if cls is None or not entry.value.startswith("gpusched_plugins"):
            continue
        hints = typing.get_type_hints(cls)
        for field in attrs.fields(cls):
            yield pytest.param(
                entry.name, argument_key(field, hints[field.name]), hints[field.name], field,
                id=f"{entry.name}-{field.name}",
            )  # fmt: skip


def refusal(plugin, key, value):
    """What is wrong with a value; empty where it is taken."""
    text = f"tiers:\n- plugins:\n  - name: {plugin}\n    arguments: {{{key}: {value}}}\n"
    try:
        load_policy(load_config(text, source="f.yaml"))
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("plugin", "key", "hint", "field"), [*arguments()])
def test_a_wrong_argument_is_answered_with_what_is_allowed(plugin, key, hint, field):
    """File, line, argument and plugin; then what it must be, in words of the file."""
    refusals = [said for value in WRONG if (said := refusal(plugin, key, value))]
    assert len(refusals) >= 5
    for said in refusals:
        begin = f'f.yaml:4: argument {key} of plugin "{plugin}" must be '
        assert said.startswith(begin), said
        if (plugin, key) in FREE_TEXT:
            continue
        allowed, _, rest = said.removeprefix(begin).partition(", not ")
        assert ALLOWED.fullmatch(allowed), said
        assert "(got" not in rest, said


@pytest.mark.parametrize(("plugin", "key", "hint", "field"), [*arguments()])
def test_a_choice_names_every_word(plugin, key, hint, field):
    """Each is taken; what is close to one is asked about."""
    words = typing.get_args(hint) if typing.get_origin(hint) is typing.Literal else ()
    for word in words:
        assert refusal(plugin, key, word) == ""
        said = refusal(plugin, key, word + "x")
        assert f"must be one of {', '.join(words)}, not" in said
        assert f'did you mean "{word}"?' in said


def test_no_choice_is_only_a_text():
    """Words that a validator knows are in the type, so that they can be named."""
    for each in arguments():
        plugin, key, hint, field = each.values
        assert not (hint is str and "in_" in repr(field.validator)), (plugin, key)
