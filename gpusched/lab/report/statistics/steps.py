"""Amounts that stay as they are until they change: steps over time, as arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from gpusched.base.classes import frozen

Floats = npt.NDArray[np.float64]


@frozen(eq=False)
class StepFunction:
    """A step function from 0 to ``until``; it is 0 before its first time.

    Attributes:
        times: float64, shape (n,), seconds, strictly rising, the first is 0.
        values: float64, shape (n,): from this time to the next one, the last to ``until``.
        until: seconds.
    """

    times: Floats
    values: Floats
    until: float

    @property
    def lengths(self) -> Floats:
        """How long each value stays: float64, shape (n,), seconds."""
        ends = np.append(self.times[1:], self.until)
        found: Floats = np.maximum(np.minimum(ends, self.until) - self.times, 0.0)
        return found

    @property
    def integral(self) -> float:
        """Of the value over time, from 0 to ``until``."""
        return float(np.dot(self.values, self.lengths))

    def at(self, moments: Floats) -> Floats:
        """The values at moments: float64, as many as moments."""
        rows = np.searchsorted(self.times, moments, side="right") - 1
        found: Floats = np.where(rows >= 0, self.values[np.maximum(rows, 0)], 0.0)
        return found

    def between(self, since: float, until: float) -> StepFunction:
        """The same with 0 outside of a span."""
        inside = steps_from_spans([(since, until, 1.0)], self.until)
        return combine_steps([self, inside], lambda mine, kept: mine * kept)


def steps_from_changes(moments: Floats, amounts: Floats, until: float) -> StepFunction:
    """Steps from changes.

    Args:
        moments: float64, shape (n,): when, in any order; those before 0 count at 0.
        amounts: float64, shape (n,): by how much, at once.
        until: the end; changes from then on do not count.
    """
    if not len(moments):
        return StepFunction(np.zeros(1), np.zeros(1), until)
    moments = np.maximum(moments, 0.0)
    order = np.argsort(moments, kind="stable")
    times, first = np.unique(moments[order], return_index=True)
    values = np.cumsum(np.add.reduceat(amounts[order], first))
    if times[0] > 0:
        times, values = np.insert(times, 0, 0.0), np.insert(values, 0, 0.0)
    kept = times < until
    kept[0] = True
    # Sums of whole numbers are exact; a rest of rounding must not look like use.
    return StepFunction(
        times[kept], np.where(np.abs(values[kept]) < 1e-9, 0.0, values[kept]), until
    )


def steps_from_spans(pieces: Iterable[tuple[float, float, float]], until: float) -> StepFunction:
    """Steps from ``(since, until, amount)``, added where they meet."""
    rows = np.array([piece for piece in pieces if piece[1] > piece[0]], dtype=np.float64)
    if not len(rows):
        return StepFunction(np.zeros(1), np.zeros(1), until)
    moments = np.concatenate([rows[:, 0], rows[:, 1]])
    return steps_from_changes(moments, np.concatenate([rows[:, 2], -rows[:, 2]]), until)


def steps_from_marks(points: Sequence[tuple[float, float]], until: float) -> StepFunction:
    """Steps from ``(since, value)`` in order of time; of equal times the last counts."""
    if not points:
        return StepFunction(np.zeros(1), np.zeros(1), until)
    rows = np.array(points, dtype=np.float64)
    moments = np.maximum(rows[:, 0], 0.0)
    last = np.append(moments[1:] > moments[:-1], [True])
    times, values = moments[last], rows[last, 1]
    if times[0] > 0:
        times, values = np.insert(times, 0, 0.0), np.insert(values, 0, 0.0)
    return StepFunction(times, values, until)


def combine_steps(parts: Sequence[StepFunction], rule: Callable[..., Floats]) -> StepFunction:
    """What a rule makes of several step functions, value by value at all their times."""
    until = parts[0].until
    times = np.unique(np.concatenate([part.times for part in parts]))
    return StepFunction(
        times, np.asarray(rule(*(part.at(times) for part in parts)), np.float64), until
    )


def sum_steps(parts: Sequence[StepFunction], until: float) -> StepFunction:
    """The sum of step functions; 0 of none."""
    if not parts:
        return StepFunction(np.zeros(1), np.zeros(1), until)
    moments = np.concatenate([part.times for part in parts])
    amounts = np.concatenate([np.diff(part.values, prepend=0.0) for part in parts])
    return steps_from_changes(moments, amounts, until)


def integral_share(
    part: StepFunction, whole: StepFunction, *, when: StepFunction | None = None
) -> float | None:
    """The integral of one over that of the other; None where the other is 0 all the time.

    Args:
        part: above.
        whole: below.
        when: moments that count are those at which this is above 0; None for all.
    """
    if when is not None:
        part = combine_steps([part, when], lambda mine, on: np.where(on > 0, mine, 0.0))
        whole = combine_steps([whole, when], lambda mine, on: np.where(on > 0, mine, 0.0))
    below = whole.integral
    return part.integral / below if below > 0 else None
