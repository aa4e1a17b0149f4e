"""To which shard nodes belong, and the labels of what is to be on them."""

from __future__ import annotations

import attrs
import pytest

from gpusched.api.affinity.selector import Requirement, Selector
from gpusched.config.model import DEFAULT, ShardConfig
from gpusched.shards.layout import ShardLayout

HALL = "datacenter/hall"


def layout():
    rules = (
        ("north", Requirement(HALL, "In", ("north",))),
        ("south", Requirement(HALL, "In", ("south", "annex"))),
        ("gpus", Requirement("gpu", "Exists", ())),
    )
    shards = tuple(ShardConfig(name, Selector((rule,))) for name, rule in rules)
    return ShardLayout.from_config(attrs.evolve(DEFAULT, shards=shards))


@pytest.mark.parametrize(
    ("labels", "shards"),
    [
        ({HALL: "north"}, ("north",)),
        ({HALL: "annex", "other": "x"}, ("south",)),
        ({HALL: "annex", "gpu": "h100"}, ("south", "gpus")),
        ({HALL: "west"}, ()),
        ({}, ()),
    ],
)
def test_shards_are_those_whose_selector_a_node_satisfies(labels, shards):
    """Asked twice, as answers are remembered by the labels that selectors name."""
    here = layout()
    assert here.matching(labels) == here.matching({**labels, "more": "y"}) == shards


@pytest.mark.parametrize(
    ("labels", "shard"),
    [({HALL: "annex"}, "south"), ({HALL: "west"}, "gpus"), ({"rack": "r0"}, "north")],
)
def test_labels_are_of_the_first_shard_in_which_they_could_be(labels, shard):
    assert layout().shard_of_labels(labels) == shard
