"""``gpuTypeWeights``: how much a GPU of each type counts in queues."""

from __future__ import annotations

import pytest

from gpusched.base.errors import ConfigError
from gpusched.config.load import load_config
from gpusched.config.model import DEFAULT, Config
from gpusched.config.reload import ConfigKept, decide_reload


def read(text: str) -> Config:
    """The configuration that a file with this text asks for."""
    return load_config(text, source="f.yaml")


def test_weights_are_exact_thousandths_by_name():
    config = read('gpuTypeWeights: {h100: 2.2, b200: "4", A100: 1}\n')
    assert config.gpu_resources.type_weights == (("A100", 1_000), ("b200", 4_000), ("h100", 2_200))
    assert config.gpu_resources.listed == DEFAULT.gpu_resources.listed


def test_without_a_word_every_type_weighs_the_same():
    assert read("gpuTypeWeights: {}\n") == DEFAULT
    assert DEFAULT.gpu_resources.type_weights == ()


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ("{h100: 0}", "gpuTypeWeights.h100 must be a number from 1 to 1000, not 0"),
        ("{h100: 0.5}", "let the type with the least be 1"),
        ("{h100: heavy}", "must be a number from 1 to 1000"),
        ("{h100: true}", "must be a number from 1 to 1000"),
        ("{h100: 1e9}", "must be a number from 1 to 1000"),
        ("{h 100: 2}", "is no GPU type, such as h100"),
        ("{h100: 2, H100: 3}", "names H100 twice"),
        ("[h100]", "must be weights by GPU type"),
    ],
)
def test_a_wrong_weight_is_refused_with_its_line(value: str, part: str):
    with pytest.raises(ConfigError) as wrong:
        read(f"gpuTypeWeights: {value}\n")
    assert part in str(wrong.value)
    assert "f.yaml:1" in str(wrong.value)


def test_other_weights_take_a_restart():
    """Amounts of decisions already taken were counted in the old ones."""
    decision = decide_reload(DEFAULT, read("gpuTypeWeights: {h100: 2}\n"))
    assert isinstance(decision, ConfigKept)
    assert "gpuTypeWeights" in decision.problems[0]
