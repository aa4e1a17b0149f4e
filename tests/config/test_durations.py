"""Durations: Go's grammar, exact, bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.api.meta.duration import DURATION_MAX_NS, format_duration, parse_duration
from gpusched.config.values import BadValueError, nanoseconds
from gpusched.config.yaml_tree import YamlNode


@given(st.integers(0, DURATION_MAX_NS))
def test_what_is_written_is_read_back(nanoseconds):
    """parse(format(x)) = x for every duration there is."""
    assert parse_duration(format_duration(nanoseconds)) == nanoseconds


@given(st.text(max_size=40))
def test_any_text_is_a_duration_or_a_sentence(text):
    """No text makes the parser do anything but answer within bounds or raise ValueError."""
    try:
        value = parse_duration(text)
    except ValueError as error:
        value = 0 if str(error) else -1
    assert 0 <= value <= DURATION_MAX_NS


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("0", 0),
        ("0s", 0),
        ("20ms", 20_000_000),
        ("1h30m", 5_400_000_000_000),
        ("1.5h", 5_400_000_000_000),
        (".5s", 500_000_000),
        ("1.s", 1_000_000_000),
        ("1µs", 1_000),
        ("1μs", 1_000),
        ("0.1ns", 0),
        ("30s1h", 3_630_000_000_000),
    ],
)
def test_go_grammar(text, nanoseconds):
    """What Go and the CRDs accept is accepted with the same meaning."""
    assert parse_duration(text) == nanoseconds


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not a duration such as"),
        (".", "is not a duration such as"),
        ("s", "is not a duration such as"),
        ("20", "is not a duration such as"),
        ("1h 3m", "is not a duration such as"),
        ("1e3s", "is not a duration such as"),
        ("\u0663s", "is not a duration such as"),
        ("1d", "is not a duration such as"),
        ("9" * 33 + "s", "is not a duration such as"),
        ("-1s", "is negative"),
        ("2562048h", "is longer than 292 years"),
    ],
)
def test_everything_else_is_refused(text, why):
    """What is no duration is refused with a sentence."""
    with pytest.raises(ValueError, match=why):
        parse_duration(text)


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [(0, "0s"), (90_000_000_000, "1m30s"), (5_400_000_000_000, "1h30m"), (1_500_000, "1ms500us")],
)
def test_written_short(nanoseconds, text):
    """Units that are zero are left out."""
    assert format_duration(nanoseconds) == text


@pytest.mark.parametrize(
    ("text", "holds"), [("0s", False), ("1s", True), ("60s", True), ("61s", False)]
)
def test_both_ends_of_a_range_belong_to_it(text, holds):
    """What the sentence names as bounds is accepted itself."""
    node = YamlNode(7, text)
    if holds:
        assert nanoseconds(node, "wait", low=10**9, high=60 * 10**9) == parse_duration(text)
        return
    with pytest.raises(BadValueError) as refused:
        nanoseconds(node, "wait", low=10**9, high=60 * 10**9)
    assert "wait must be a duration from 1s to 1m" in str(refused.value)
