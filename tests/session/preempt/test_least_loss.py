"""Who leaves costs exactly as little as the best of all sets of victims, for newcomers of every shape."""

from __future__ import annotations

import pytest

from tests.populations import one_of
from tests.session.preempt.least_loss import SHAPES, judge, random_world

pytestmark = pytest.mark.long

SOUND = ("as good", "fits", "no way")


@pytest.mark.parametrize("queues", range(4))
@pytest.mark.parametrize("shape", SHAPES)
def test_no_set_of_victims_that_queues_allow_loses_less(shape, queues):
    """One pod set, several roles or sub-groups; preemption, and reclaim from one to three queues."""
    found = [judge(random_world(seed, shape, queues)) for seed in one_of(3, range(25))]
    assert {each.verdict for each in found if each.verdict not in SOUND} == set()
    assert sum(each.verdict == "as good" for each in found) >= len(found) / 5


@pytest.mark.parametrize(
    ("shape", "queues", "seed"), [("plain", 3, 181)], ids=["who gives could claim it back"]
)
def test_worlds_that_once_went_wrong(shape, queues, seed):
    """Each is a set that was missed, or one that was not the cheapest."""
    assert judge(random_world(seed, shape, queues)).verdict in SOUND
