"""Selectors that try to run for ever, or to take all memory: they end, and are told so once."""

from __future__ import annotations

import random
import re

import pytest

from gpusched.cel import compilation, device_selectors
from gpusched.cel.device_selectors import (
    COST_MAX,
    COSTLY_MAX,
    SelectorFailed,
    SelectorInvalid,
    compile_selector,
    make_device_view,
)
from gpusched.cel.errors import CelError
from gpusched.cel.libraries.patterns import compile_pattern

LIST = "[1,2,3,4,5,6,7,8,9,10]"


def doubled(first: str, again: str, times: int = 60) -> str:
    """Each name is bound to something with its predecessor in it twice."""
    text = f"cel.bind(a0, {first}, "
    for number in range(times):
        text += f"cel.bind(a{number + 1}, {again.replace('@', f'a{number}')}, "
    return f"{text}a{times} == a{times}" + ")" * (times + 1)


HEAVY = {
    "texts that double": doubled("'xxxxxxxxxx'", "@ + @"),
    "lists that double": doubled("[1, 2, 3, 4]", "@ + @"),
    "lists in lists": doubled("[1]", "[@, @]"),
    "maps in maps": doubled("{'a': 1}", "{'a': @, 'b': @}"),
    "loops in loops": "".join(f"{LIST}.exists(x{n}, " for n in range(20)) + "false" + ")" * 20,
    "what a loop makes": f"{LIST}.map(a, {LIST}.map(b, {LIST}.map(c, {LIST}.map(d, {LIST}.map(e, {LIST}.map(f, 1)))))).size() == 0",
    "replaced by more": f"'{'a' * 1000}'.replace('a', '{'b' * 3000}').replace('b', '{'c' * 3000}').size() == 0",
}


@pytest.fixture
def device():
    return make_device_view("a.com", {"a.com/model": "a" * 64}, {}, shareable=False)


@pytest.mark.parametrize("text", HEAVY.values(), ids=HEAVY.keys())
def test_what_grows_without_end_costs_too_much(device, text):
    with pytest.raises(SelectorFailed, match="cost limit exceeded"):
        compile_selector(text).matches(device)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [("(a|a)*b", False), ("(a+)+$", True), ("(a*)*b", False), ("^(([a-z])+.)+[A-Z]$", False)],
)
def test_patterns_that_python_would_try_for_ever_are_answered(device, pattern, found):
    """RE2 of the API server is linear; so is this."""
    text = f"device.attributes['a.com'].model.matches('{pattern}')"
    assert compile_selector(text).matches(device) is found


def test_an_optional_part_after_another_is_answered():
    """2^40 ways to leave some out."""
    assert compile_pattern("a?" * 40 + "a" * 40).is_in("a" * 40)


def test_both_ways_to_search_agree():
    rng = random.Random(17)
    parts = ["a", "b", ".", "[ab]", "[^a]", r"\d", "^", "$", r"\b", "c"]

    def draw(depth: int) -> str:
        kind = rng.random()
        if depth == 0 or kind < 0.35:
            return rng.choice(parts)
        if kind < 0.55:
            return draw(depth - 1) + draw(depth - 1)
        if kind < 0.75:
            return f"({draw(depth - 1)}|{draw(depth - 1)})"
        return f"({draw(depth - 1)})" + rng.choice(["*", "+", "?", "{1,3}", "{2}", "*?"])

    searched = hard = 0
    for _ in range(1500):
        pattern = draw(4)
        text = "".join(rng.choice("abc1\n ") for _ in range(rng.randint(0, 8)))
        try:
            made = compile_pattern(pattern)
        except CelError:
            continue
        assert made.is_in(text) == (re.search(pattern, text) is not None), (pattern, text)
        assert made.automaton is not None
        assert made.automaton.search(text) == made.is_in(text), (pattern, text)
        searched, hard = searched + 1, hard + (made.ways is None)
    assert searched > 1000
    assert hard > 100


def test_patterns_beyond_all_bounds_are_refused(device):
    text = "device.attributes['a.com'].model.matches('((a{100}){100}){100}')"
    with pytest.raises(SelectorFailed, match="too large"):
        compile_selector(text).matches(device)


@pytest.mark.parametrize("number", ["9" * 9000, str(2**63), f"0x{'f' * 9000}", f"{2**64}u"])
def test_numbers_that_are_too_long_are_none(number):
    """A text of digits that Python does not read ended the session."""
    with pytest.raises(SelectorInvalid, match=r"invalid u?int literal"):
        compile_selector(f"{number} == 1")


@pytest.mark.parametrize(
    "text", ["(" * 5000, "[" * 9000, "!" * 9000 + "true", "$" * 9000, "-" * 9999]
)
def test_what_cannot_be_compiled_is_read_once(text, monkeypatch):
    read = []

    def counted(*arguments):
        read.append(arguments)
        return compilation.compile_expression(*arguments)

    monkeypatch.setattr(device_selectors, "compile_expression", counted)
    for _ in range(3):
        with pytest.raises(SelectorInvalid):
            compile_selector(text)
    assert len(read) <= 1


def test_a_selector_that_costs_much_is_not_asked_about_every_device():
    """Each of a thousand devices has its own serial number, and each answer takes its time."""
    text = f"{LIST}.all(a, {LIST}.all(b, {LIST}.all(c, {LIST}.all(d, device.attributes['a.com'].serial != '')))) "
    selector = compile_selector(text)
    answers = []
    for number in range(COSTLY_MAX + 3):
        view = make_device_view("a.com", {"a.com/serial": str(number)}, {}, shareable=False)
        try:
            answers.append(selector.matches(view))
        except SelectorFailed as why:
            answers.append(str(why))
    assert answers[:COSTLY_MAX] == [True] * COSTLY_MAX
    assert all("operation cancelled" in each for each in answers[COSTLY_MAX:])
    assert COST_MAX > 0
