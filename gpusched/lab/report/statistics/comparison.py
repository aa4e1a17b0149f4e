"""Statistics of several runs beside each other: what differs, and which is best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpusched.base.classes import frozen
from gpusched.engine.run_record import RunRecord
from gpusched.lab.report.statistics.job_values import job_values
from gpusched.lab.report.statistics.named import StatisticValue, statistic
from gpusched.lab.report.statistics.series import Unit


@frozen
class NamedStatistic:
    """A statistic with what people call it; ``better`` is -1 where less is better, 1 where more is."""

    name: str
    called: str
    better: int
    only: Unit | None = None


STATISTICS: Final = (
    NamedStatistic("completed", "jobs completed", 1),
    NamedStatistic("failed", "jobs failed", -1),
    NamedStatistic("makespan", "makespan", -1),
    NamedStatistic("mean(wait)", "wait, mean", -1),
    NamedStatistic("median(wait)", "wait, median", -1),
    NamedStatistic("p95(wait)", "wait, 95 % no longer", -1),
    NamedStatistic("max(wait)", "wait, longest", -1),
    NamedStatistic("mean(completion)", "made to ended, mean", -1),
    NamedStatistic("gpuUse", "GPUs in use", 1, "GPUs"),
    NamedStatistic("gpuUseBusy", "GPUs in use while a job waited", 1, "GPUs"),
    NamedStatistic("cpuUse", "cores in use", 1, "cores"),
    NamedStatistic("cpuUseBusy", "cores in use while a job waited", 1, "cores"),
    NamedStatistic("fragmentation", "free GPUs of no use", -1, "GPUs"),
    NamedStatistic("fairness", "Jain's index of fairness", 1, "GPUs"),
    NamedStatistic("evictions", "pods evicted", -1),
    NamedStatistic("lostGpuHours", "work lost by evictions", -1, "GPUs"),
    NamedStatistic("repeatedEvictions", "gangs evicted again", -1),
    NamedStatistic("evictionCycles", "evictions in a circle", -1),
    NamedStatistic("partialGangSeconds", "held by gangs not whole", -1),
)


@frozen(kw_only=True)
class ComparedValue:
    """One statistic of one run.

    Attributes:
        value: None where it cannot be told.
        change: difference to the first run's, as text; empty for the first and where none is known.
        best: no other run's is better, and some other's is worse.
    """

    text: str
    value: float | None
    change: str = ""
    best: bool = False


@frozen
class ComparedRow:
    """One statistic of all runs, in their order."""

    name: str
    cells: tuple[ComparedValue, ...]


def compare_runs(records: Sequence[RunRecord], unit: Unit) -> list[ComparedRow]:
    """The statistics that at least one run has; the first run is what others are compared with."""
    rows = []
    for asked in STATISTICS:
        if asked.only not in (None, unit):
            continue
        figures = [statistic(record, asked.name) for record in records]
        known = [figure.value for figure in figures if figure.value is not None]
        if not known:
            continue
        best = max(known) if asked.better > 0 else min(known)
        # Where all are equal none stands out.
        marked = min(known) < max(known)
        cells = tuple(
            ComparedValue(
                text=str(figure) if figure.value is not None else "-",
                value=figure.value,
                change=difference_text(figure, figures[0]) if turn else "",
                best=marked and figure.value == best,
            )
            for turn, figure in enumerate(figures)
        )
        rows.append(ComparedRow(asked.called, cells))
    return rows


_TIMES_TOLD_MAX: Final = 100
"""A difference of more than so many times the figure is told without its percentage."""


def difference_text(figure: StatisticValue, first: StatisticValue) -> str:
    """``+12.0 s (+8.1 %)``; of shares in percentage points; without a percentage of next to nothing."""
    if figure.value is None or first.value is None:
        return ""
    by = figure.value - first.value
    if not by:
        return "same"
    sign = "+" if by > 0 else "\N{MINUS SIGN}"
    if figure.unit == "share":
        return f"{sign}{100 * abs(by):.1f} points"
    amount = str(StatisticValue(abs(by), figure.unit))
    if not any(digit in amount for digit in "123456789"):
        return "same"
    shown = f"{sign}{amount}"
    if abs(by) > _TIMES_TOLD_MAX * abs(first.value):
        return shown
    return f"{shown} ({sign}{100 * abs(by / first.value):.1f} %)"


@frozen(kw_only=True)
class ChangedJob:
    """A job that is in at least two runs; waits in seconds, None where a run does not have it."""

    name: str
    queue: str
    klass: str
    waits: tuple[float | None, ...]
    spread: float


def changed_jobs(records: Sequence[RunRecord], *, most: int) -> list[ChangedJob]:
    """Jobs by how much their waits differ between runs, most first; those alike are left out."""
    tables = [
        {job.key: (job, wait) for job, wait in job_values(record, "wait", record.jobs)}
        for record in records
    ]
    rows = []
    for key in dict.fromkeys(key for table in tables for key in table):
        found = [table.get(key) for table in tables]
        told = [each for each in found if each is not None]
        spread = max(wait for _, wait in told) - min(wait for _, wait in told)
        if len(told) < 2 or not spread:
            continue
        job = told[0][0]
        rows.append(ChangedJob(
            name=key.removeprefix("default/"), queue=job.queue, klass=job.klass, spread=spread,
            waits=tuple(None if each is None else each[1] for each in found),
        ))  # fmt: skip
    rows.sort(key=lambda row: (-row.spread, row.name))
    return rows[:most]
