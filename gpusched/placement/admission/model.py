"""A window of gangs that compete for nodes: which of them start together, and where.

Each contender is a problem of its own on the same nodes; the window adds what couples them: the
room they share, what each is worth, which must be among them, and what queues allow. What is
admitted is decided here and nothing else: how compact each place is belongs to the pipeline.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from gpusched.arrays.columns import Ints, how_many_fit
from gpusched.base.classes import frozen
from gpusched.placement.model.problem import Problem, SearchOutcome
from gpusched.placement.model.verify import solution_errors


@frozen(eq=False, kw_only=True)
class AdmissionCandidate:
    """A gang that would start.

    Attributes:
        problem: on the batch's nodes with no gang of the batch placed. All members of all its
            roles get a place, none has one yet: which gangs start is decided before.
        weight: what its start is worth, positive.
        must: whether an answer without it is none.
    """

    problem: Problem
    weight: int = 1
    must: bool = False


@frozen(kw_only=True)
class AdmissionLimit:
    """The sum of ``amounts``, one for each contender, over those admitted is at most ``most``."""

    amounts: tuple[int, ...]
    most: int


@frozen(eq=False, kw_only=True)
class AdmissionBatch:
    """Admit the contenders that are worth the most together.

    Attributes:
        free: base units, int64, shape (nodes, resources); each contender's problem has the same.
        contenders: in the order in which they take turns.
        quotas: all of them hold.
    """

    free: Ints
    contenders: tuple[AdmissionCandidate, ...]
    quotas: tuple[AdmissionLimit, ...] = ()

    @property
    def required_numbers(self) -> tuple[int, ...]:
        """Numbers of the candidates that must start: without them there is no answer."""
        return tuple(number for number, each in enumerate(self.contenders) if each.must)

    def total_weight(self, admitted: Sequence[int]) -> int:
        """What these are worth together."""
        return sum(self.contenders[number].weight for number in admitted)

    def is_allowed(self, admitted: Sequence[int]) -> bool:
        """Whether quotas let these start together."""
        return all(
            sum(quota.amounts[number] for number in admitted) <= quota.most for quota in self.quotas
        )


@frozen(eq=False, kw_only=True)
class Admission:
    """An answer.

    Attributes:
        outcome: OPTIMAL: nothing is worth more; FEASIBLE: nothing is worth more than ``bound``;
            INFEASIBLE: proven that those that must be admitted do not fit together; UNKNOWN: no
            way to admit them was found.
        admitted: numbers of contenders, ascending.
        places: of each of them, members by role and node, int64, shape (roles, nodes).
        bound: no answer is worth more.
        method: ``greedy`` or ``pooled``.
        rounds: how many sets of contenders the solver proposed.
        seconds: spent in the solver, for metrics only.
        work: deterministic seconds of it.
        faults: what answers could not be used and why.
    """

    outcome: SearchOutcome
    admitted: tuple[int, ...] = ()
    places: tuple[Ints, ...] = ()
    weight: int = 0
    bound: int = 0
    method: str = ""
    rounds: int = 0
    seconds: float = 0.0
    work: float = 0.0
    faults: tuple[str, ...] = ()


def problem_on_free_amounts(problem: Problem, free: Ints) -> Problem:
    """The same gang on nodes of which only so much is free.

    Args:
        problem: on the window's free nodes.
        free: nowhere more than there; as ``problem.free``.
    """
    roles = tuple(
        attrs.evolve(role, fits=np.minimum(role.fits, request_fits_by_node(free, role.request)))
        for role in problem.roles
    )
    return attrs.evolve(problem, free=free, roles=roles)


def request_fits_by_node(free: Ints, ask: Ints) -> Ints:
    """How many of one request each node takes, shape (nodes,)."""
    columns = np.flatnonzero(ask)
    return how_many_fit(free[:, columns], ask[columns])


def amounts_used_by(problem: Problem, counts: Ints) -> Ints:
    """What members by role and node take, shape (nodes, resources)."""
    used: Ints = np.zeros_like(problem.free)
    for role, row in zip(problem.roles, counts, strict=True):
        rows = np.flatnonzero(row)
        used[rows] += row[rows, None] * role.request[None, :]
    return used


def admission_errors(
    window: AdmissionBatch, admitted: Sequence[int], places: Sequence[Ints]
) -> str:
    """What is wrong with these starting together, empty when nothing is: counted from scratch."""
    if len(set(admitted)) != len(admitted) or len(admitted) != len(places):
        return "not everybody who is admitted has one list of places"
    absent = [number for number in window.required_numbers if number not in admitted]
    if absent:
        return f"contender {absent[0]} is missing"
    if not window.is_allowed(admitted):
        return "a quota does not allow them together"
    used: Ints = np.zeros_like(window.free)
    for number, counts in zip(admitted, places, strict=True):
        problem = window.contenders[number].problem
        found = solution_errors(problem, counts)
        if found:
            return f"contender {number}: {found}"
        used += amounts_used_by(problem, counts)
    over = (used > window.free) & (used > 0)
    if over.any():
        return f"node {int(np.flatnonzero(over.any(axis=1))[0])} is over full"
    return ""
