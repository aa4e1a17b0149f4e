"""A gang of several classes as ints: what the solver sees, and what it answers."""

from __future__ import annotations

import attrs
import numpy as np

from gpusched.arrays.columns import Demand, Ints
from gpusched.placement.problem import Outcome


@attrs.frozen(eq=False)
class ClassAsk:
    """One class of interchangeable pods.

    Attributes:
        most: pods of it that exist.
        fits: how many fit each node on its own, int64, shape (nodes,).
    """

    ask: Demand
    most: int
    fits: Ints


@attrs.frozen(eq=False)
class Problem:
    """Choose ``members`` pods of any classes so that nodes hold them together.

    Attributes:
        free: base units, int64, shape (nodes, resources).
        minima: pairs of class numbers and how many pods of these together are needed.
    """

    free: Ints
    classes: tuple[ClassAsk, ...]
    members: int
    minima: tuple[tuple[tuple[int, ...], int], ...]


@attrs.frozen(eq=False)
class Solution:
    """An answer.

    Attributes:
        counts: pods by class and node, int64, shape (classes, nodes); empty unless FEASIBLE.
        seconds: spent in the solver, as it says itself; for metrics only.
    """

    outcome: Outcome
    counts: Ints
    seconds: float = 0.0


NO_COUNTS: Ints = np.zeros((0, 0), dtype=np.int64)


def holds(problem: Problem, counts: Ints) -> bool:
    """Whether an answer is right, by counting again: nothing of the solver is believed.

    Args:
        problem: that was to be solved.
        counts: shape (classes, nodes).
    """
    if counts.shape != (len(problem.classes), problem.free.shape[0]) or (counts < 0).any():
        return False
    if int(counts.sum()) != problem.members:
        return False
    used = np.zeros_like(problem.free)
    for each, row in zip(problem.classes, counts, strict=True):
        if int(row.sum()) > each.most or (row > each.fits).any():
            return False
        used[:, each.ask.columns] += row[:, None] * each.ask.amounts[None, :]
    asked = used > 0
    if (used[asked] > problem.free[asked]).any():
        return False
    return all(int(counts[list(members)].sum()) >= least for members, least in problem.minima)
