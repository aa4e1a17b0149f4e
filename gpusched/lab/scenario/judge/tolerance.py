"""What real time is allowed: things may happen a little later than in virtual time.

On the embedded cluster nothing takes time that a scenario does not say, and nothing is allowed.
On a real one bindings are written one after another, KWOK counts in whole seconds, and machines
are busy. One duration, the scenario's ``slack``, says by how much later anything may happen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from gpusched.engine.run_record import RunRecord
from gpusched.lab.report.statistics.named import chosen_jobs, statistic, unit_of
from gpusched.lab.scenario.model.scenario import Comparator, Comparison, Expectation, Span

NOTED: Final = "within the slack of real time"
_HOUR_S: Final = 3600.0
_BY_TIME: Final = frozenset(("share", "x"))
_INDEXES: Final = frozenset(("fairness",))
"""Statistics without a unit that are made of times, not of pieces."""


def relax_expectation(expectation: Expectation, slack_s: float) -> Expectation:
    """An expectation with the moments that real time allows; the same one without slack.

    What holds by a moment may hold later; what holds at a moment, at some moment from then on;
    what holds during a span begins later.
    """
    span = expectation.span
    if slack_s <= 0 or span.kind == "end":
        return expectation
    if span.kind == "by":
        span = attrs.evolve(span, until_s=span.until_s + slack_s)
    elif span.kind == "at":
        span = Span(kind="by", since_s=span.until_s, until_s=span.until_s + slack_s)
    else:
        span = attrs.evolve(span, since_s=min(span.since_s + slack_s, span.until_s))
    return attrs.evolve(expectation, span=span)


def lateness_s(expectation: Expectation, at: float) -> float:
    """How much later than it was written it came true; 0 when it did not."""
    span = expectation.span
    return max(0.0, at - span.until_s) if span.kind in ("by", "at") else 0.0


def statistic_tolerance(
    record: RunRecord, name: str, of: Mapping[str, str], slack_s: float
) -> float:
    """By how much a statistic may be off, in its own unit; 0 for pieces.

    Each of its jobs may be late by ``slack_s``: seconds by as much, GPU-seconds by as much for
    each GPU of those jobs, shares and ratios by the part that this is of what a job takes.
    """
    if slack_s <= 0:
        return 0.0
    unit = unit_of(name)
    if unit == "s":
        return slack_s
    if unit in ("GPU-s", "GPU-h"):
        held = sum(max(job.gpus, job.size) for job in chosen_jobs(record, of))
        return slack_s * held / (_HOUR_S if unit == "GPU-h" else 1.0)
    if unit in _BY_TIME or name in _INDEXES:
        takes = statistic(record, "mean(service)", of=of).value
        return slack_s / takes if takes else 0.0
    return 0.0


def nearest_value(comparison: Comparison, value: float, off: float) -> float:
    """The value that suits a comparison best among those that are off by no more than ``off``."""
    test, wanted = comparison.test, comparison.value
    if test in (Comparator.AT_LEAST, Comparator.ABOVE):
        return value + off
    if test in (Comparator.AT_MOST, Comparator.BELOW):
        return value - off
    if test is Comparator.EQUALS and type(wanted) is float and abs(value - wanted) <= off:
        return wanted
    return value
