"""What few nodes are to a class of pods is told without arrays as it is with them."""

from __future__ import annotations

import random
from types import SimpleNamespace

import numpy as np
import pytest

from gpusched.arrays.columns import RequestVector
from gpusched.session.allocate.refusals import kept_refusals


def _session(free, left):
    return SimpleNamespace(
        node_usage=SimpleNamespace(
            free_on=lambda row, columns: free[row].take(columns),
            free_amounts=lambda rows, columns: free[rows].take(columns, 1),
        ),
        cluster_map=SimpleNamespace(
            pods_by_free_slots=lambda _size, rows: None if left is None else left[rows]
        ),
    )


@pytest.mark.parametrize("seed", range(5))
def test_few_nodes_have_the_states_that_many_have(seed, monkeypatch):
    """Given random room, requests and free slots, both ways tell the same states."""
    rng = random.Random(seed)
    for _ in range(200):
        width = rng.randint(1, 5)
        free = np.array([[rng.randint(-3, 9) for _ in range(width)] for _ in range(6)])
        columns = np.array(sorted(rng.sample(range(width), rng.randint(0, width))), dtype=np.int64)
        amounts = np.array([rng.randint(1, 4) for _ in columns], dtype=np.int64)
        left = None if rng.random() < 0.3 else np.array([rng.randint(0, 9) for _ in range(6)])
        rows = np.array(rng.sample(range(6), rng.randint(1, 4)))
        about = (
            _session(free, left), RequestVector(columns, amounts, ""), rng.randint(1, 5),
            rng.randint(0, 2), rows,
        )  # fmt: skip
        few = kept_refusals._node_states(*about)
        with monkeypatch.context() as patched:
            patched.setattr(kept_refusals, "_FEW_NODES", 0)
            many = kept_refusals._node_states(*about)
        assert few.dtype == many.dtype
        assert few.tolist() == many.tolist()
