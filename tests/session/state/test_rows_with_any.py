"""Rows that differ are found alike, however an array lies in memory."""

from __future__ import annotations

import numpy as np
import pytest

from gpusched.arrays.columns import rows_with_any


@pytest.mark.parametrize("seed", range(20))
def test_rows_with_any_are_those_in_which_some_entry_is_not_zero(seed):
    """Of no rows or columns, too."""
    rng = np.random.default_rng(seed)
    marks = rng.random((int(rng.integers(0, 20)), int(rng.integers(0, 5)))) < 0.2
    expected = np.flatnonzero(marks.any(axis=1)).tolist()
    for each in (marks, np.asfortranarray(marks), marks.astype(np.int64) * -3):
        assert rows_with_any(each).tolist() == expected
