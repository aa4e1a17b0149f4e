"""What a session's searches came to, for metrics and logs: one record for each."""

from __future__ import annotations

import attrs

from gpusched.placement.problem import Outcome, Solution


@attrs.frozen(kw_only=True)
class Record:
    """One search.

    Attributes:
        outcome: how it ended.
        seconds: spent in a solver, as it says itself; no decision depends on it.
        work: deterministic seconds spent in a solver.
        gap: (value - bound) / max(1, bound) of the first term that is not proven; None where
            there is no answer or no bound.
        method: what found the answer, as ``Solution.method``; ``victims`` for who leaves.
    """

    outcome: Outcome
    seconds: float = 0.0
    work: float = 0.0
    gap: float | None = None
    method: str = ""

    @classmethod
    def of(cls, solution: Solution) -> Record:
        """The record of a placement."""
        answered = solution.outcome in (Outcome.OPTIMAL, Outcome.FEASIBLE)
        return cls(
            outcome=solution.outcome,
            seconds=solution.seconds,
            work=solution.work,
            gap=solution.gap if answered else None,
            method=solution.method,
        )
