"""Large populations of one kind: ``make test`` plays a sample of them, ``make soak`` all.

Seeds, random lives and drawn examples are populations: each member looks for the same mistakes in
another place. Rows of a table, recorded files and single scenes are not, and are never sampled.
A test of a sample that must meet each kind of something asserts that it does.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final, TypeVar

T = TypeVar("T")

WHOLE: Final = os.environ.get("GPUSCHED_SOAK", "") not in {"", "0"}
"""Whether populations are played as a whole, as ``make soak`` does."""


def one_of(share: int, population: Sequence[T], *, first: int = 0) -> Sequence[T]:
    """One of ``share`` members of a population, evenly spread from the ``first`` on.

    Tests that ask several things about the same population begin at different members.
    """
    assert 0 <= first < share
    return population if WHOLE else population[first::share]


def examples(sample: int, *, whole: int) -> int:
    """Number of examples to draw: of the sample, or of the whole population."""
    assert sample <= whole
    return whole if WHOLE else sample
