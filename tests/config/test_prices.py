"""``prices`` and ``users``: what a GPU-hour costs, and whether annotations name users."""

from __future__ import annotations

import pytest

from gpusched.base.errors import ConfigError
from gpusched.config.load import load_config
from gpusched.config.model import DEFAULT, Config
from gpusched.config.reload import ConfigKept, decide_reload


def read(text: str) -> Config:
    """The configuration that a file with this text asks for."""
    return load_config(text, source="f.yaml")


def test_prices_are_exact_thousandths_by_name():
    resources = read('prices: {h100: 3.5, a100: "1.25", other: 0}\n').gpu_resources
    assert resources.prices == (("a100", 1_250), ("h100", 3_500))
    assert resources.other_price == 0


def test_without_a_word_every_gpu_costs_one():
    assert read("prices: {other: 1}\n") == DEFAULT


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ("{h100: -1}", "prices.h100 must be a number from 0 to 1000000, not -1"),
        ("{h100: dear}", "must be a number from 0 to 1000000"),
        ("{h100: inf}", "must be a number from 0 to 1000000"),
        ("{h100: 1e99}", "must be a number from 0 to 1000000"),
        ("{h100: 2, H100: 3}", "names H100 twice"),
        ("[h100]", "must be prices by GPU type"),
    ],
)
def test_a_wrong_price_is_refused_with_its_line(value: str, part: str):
    with pytest.raises(ConfigError) as wrong:
        read(f"prices: {value}\n")
    assert part in str(wrong.value)
    assert "f.yaml:1" in str(wrong.value)


def test_other_prices_take_a_restart():
    decision = decide_reload(DEFAULT, read("prices: {h100: 2}\n"))
    assert isinstance(decision, ConfigKept)
    assert "prices" in decision.problems[0]


def test_users_are_annotated_or_ignored():
    assert read("users: ignored\n").users == "ignored"
    with pytest.raises(ConfigError):
        read("users: all\n")
