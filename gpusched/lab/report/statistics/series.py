"""Steps over time made ready to be drawn: common moments, few enough points, an order of colours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

import numpy as np

from gpusched.base.classes import frozen
from gpusched.engine.run_record import JobLife, PodLife, RunRecord
from gpusched.lab.report.statistics.over_time import (
    offered_amounts,
    pending_gpus,
    pods_needed,
    pods_of,
    used_amounts_by_queue,
    wait_spans,
)  # fmt: skip
from gpusched.lab.report.statistics.steps import Floats, StepFunction, steps_from_spans

Unit: TypeAlias = Literal["GPUs", "cores"]
POINTS_MAX: Final = 1500
"""Steps of one plot; beyond, each point is the mean over an equal part of the run."""
SERIES_MAX: Final = 8
"""Queues (or reasons) that are drawn one by one; the smaller rest is drawn as one."""
OTHERS: Final = "all others"
RESOURCE: Final[Mapping[Unit, str]] = {"GPUs": "gpus", "cores": "cpu"}
"""What ``over_time`` calls the unit."""


@frozen(eq=False)
class AlignedSeries:
    """Series over the same moments.

    Attributes:
        at: float64, shape (n,): moments, seconds.
        rows: one array of shape (n,) each, in the order they were given.
        mean_of_s: seconds that each point is the mean of; 0 where all steps are exact.
    """

    at: Floats
    rows: tuple[Floats, ...]
    mean_of_s: float


def align_series(
    several: Sequence[StepFunction], seconds: float, *, most: int = POINTS_MAX
) -> AlignedSeries:
    """Series over common moments, thinned to ``most`` of them by taking means."""
    if not several or seconds <= 0:
        return AlignedSeries(np.zeros(1), tuple(each.values[:1] for each in several), 0.0)
    at = np.unique(np.concatenate([each.times for each in several]))
    at = at[at < seconds]
    if at.size <= most:
        return AlignedSeries(at, tuple(each.at(at) for each in several), 0.0)
    edges = np.linspace(0.0, seconds, most + 1)
    width = seconds / most
    rows = tuple(np.diff(_area(each, edges)) / width for each in several)
    return AlignedSeries(edges[:-1], rows, width)


def _area(part: StepFunction, moments: Floats) -> Floats:
    """Its integral from 0 to each moment, however long it lasts."""
    ends = np.append(part.times[1:], np.inf)
    sums = np.concatenate([[0.0], np.cumsum(part.values[:-1] * (ends - part.times)[:-1])])
    row = np.searchsorted(part.times, moments, side="right") - 1
    return np.asarray(sums[row] + (moments - part.times[row]) * part.values[row])


# -- of a record -------------------------------------------------------------------------------
def unit_of(records: Sequence[RunRecord]) -> Unit:
    """GPUs where any node ever had one, else cores."""
    some = any(span.gpus for one in records for node in one.nodes for span in node.spans)
    return "GPUs" if some else "cores"


def offered_series(record: RunRecord, unit: Unit) -> StepFunction:
    """What usable nodes had."""
    return offered_amounts(record, RESOURCE[unit])


def asked_series(record: RunRecord, unit: Unit) -> StepFunction:
    """What jobs ask for that have fewer pods bound than they need."""
    if unit == "GPUs":
        return pending_gpus(record)
    pods = pods_of(record)
    pieces = [
        (since, until, _cores(job, pods.get(job.key, ())))
        for job in record.jobs
        for since, until in wait_spans(job, pods.get(job.key, ()), record)
    ]
    return steps_from_spans(pieces, record.seconds)


def _cores(job: JobLife, pods: Sequence[PodLife]) -> float:
    """Of all pods that it wants, as its first pod asks for them."""
    return pods[0].cpu / 1000 * max(job.size, pods_needed(job)) if pods else 0.0


def longest_reason(job: JobLife, seconds: float) -> tuple[str, str, float]:
    """The reason it waited for longest in all, the last sentence that gave it, and for how long."""
    total: dict[str, float] = {}
    said: dict[str, str] = {}
    over = seconds if job.ended is None else job.ended
    for turn, each in enumerate(job.reasons):
        until = min(over, job.reasons[turn + 1].at if turn + 1 < len(job.reasons) else over)
        if each.reason and until >= each.at:
            total[each.reason] = total.get(each.reason, 0.0) + until - each.at
            said[each.reason] = each.sentence
    if not total:
        return "", "", 0.0
    worst = max(sorted(total), key=lambda each: total[each])
    return worst, said[worst], total[worst]


def queues_in_order(records: Sequence[RunRecord], unit: Unit) -> list[str]:
    """Queues that had a pod or job, by what they held over time, most first."""
    total: dict[str, float] = {}
    for record in records:
        for name, part in used_amounts_by_queue(record, RESOURCE[unit]).items():
            total[name] = total.get(name, 0.0) + part.integral
        for job in record.jobs:
            total.setdefault(job.queue, 0.0)
    return sorted(total, key=lambda name: (-total[name], name))


def colour_numbers(names: Sequence[str]) -> Mapping[str, int]:
    """Number of the colour of each name; those beyond the eighth share one."""
    return {name: min(turn, SERIES_MAX) for turn, name in enumerate(names)}
