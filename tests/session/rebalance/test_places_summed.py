"""What the places of many pods give is added up class by class, as it would be pod by pod."""

from __future__ import annotations

import random

import numpy as np
import pytest

from gpusched.arrays.columns import RequestVector
from gpusched.session.rebalance.batch_candidates import add_places
from gpusched.session.state.statement import Assignment
from gpusched.testing.given import Given

ROWS, COLUMNS = 6, 4


@pytest.mark.parametrize("seed", range(20))
def test_places_are_added_up_as_one_by_one(seed):
    """Given pods of some classes, several of which are on one node, rows hold what adding each by itself gives."""
    rng = random.Random(seed)
    c = Given().nodes(1, gpus=1).pod("p", gpus=1)
    (pod,) = c.cache.pods.values()
    requests = [
        RequestVector(
            np.array(sorted(rng.sample(range(COLUMNS), 2))), np.array([number + 1, 10]), ""
        )
        for number in range(3)
    ]
    places = [
        Assignment(pod, rng.randrange(ROWS), 0, rng.choice(requests))
        for _ in range(rng.choice([0, 1, 3, 40]))
    ]
    together = np.ones((ROWS, COLUMNS), dtype=np.int64)
    alone = together.copy()
    add_places(together, places)
    for place in places:
        alone[place.row, place.request.columns] += place.request.amounts
    assert together.tolist() == alone.tolist()
