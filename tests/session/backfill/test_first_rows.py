"""Members of a reservation are put on the first rows that fit: compared with one row after another."""

from __future__ import annotations

import numpy as np
import pytest

from gpusched.arrays.columns import RequestVector
from gpusched.session.backfill.availability_profile import EqualMembers, pack_first_rows


def one_by_one(free, parts, within):
    """Each member on the first row that has room for it."""
    left, taken = free.copy(), np.zeros_like(free)
    for part in parts:
        for _ in range(part.count):
            for row in range(len(free)):
                columns, amounts = part.request.columns, part.request.amounts
                open_ = part.allowed[row] and (within is None or within[row])
                if open_ and (left[row, columns] >= amounts).all():
                    left[row, columns] -= amounts
                    taken[row, columns] += amounts
                    break
            else:
                return None
    rows = np.flatnonzero(taken.any(axis=1))
    return rows, taken[rows]


@pytest.mark.parametrize("seed", range(4))
def test_members_get_the_first_rows_that_fit(seed):
    """Given random rooms, filters and areas, then rows and amounts are those of a walk over all rows."""
    rng = np.random.default_rng(seed)
    fit = 0
    for _ in range(150):
        rows = int(rng.integers(1, 12))
        free = rng.integers(-2, 8, (rows, 3))
        parts = [
            EqualMembers(
                RequestVector(columns := np.sort(rng.choice(3, size, replace=False)), rng.integers(1, 4, len(columns)), ""),
                rng.random(rows) < 0.8, int(rng.integers(1, 6)),
            )
            for size in rng.integers(1, 4, int(rng.integers(1, 4)))
        ]  # fmt: skip
        within = None if rng.random() < 0.5 else rng.random(rows) < 0.8
        expected, found = one_by_one(free, parts, within), pack_first_rows(free, parts, within)
        assert (expected is None) == (found is None)
        if expected is not None and found is not None:
            fit += 1
            assert expected[0].tolist() == found[0].tolist()
            assert expected[1].tolist() == found[1].tolist()
    assert fit > 20
