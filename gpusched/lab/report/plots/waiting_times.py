"""How long jobs waited: a box for each class, and which share of jobs waited no longer than what."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from gpusched.base.classes import frozen
from gpusched.engine.run_record import JobLife, RunRecord
from gpusched.lab.report.plots.svg import (
    TALL,
    LegendEntry,
    Plot,
    duration_text,
    html_table,
    nice_ticks,
    number_text,
)
from gpusched.lab.report.statistics.job_values import job_values
from gpusched.lab.report.statistics.named import FUNCTIONS, percentile

WIDE: Final = 10_000
DOTS_MAX: Final = 80
"""Jobs of a class that are also drawn one by one."""
LOG_TICKS: Final = (0, 1, 10, 60, 600, 3600, 36_000, 86_400, 864_000)
POINTS_MAX: Final = 400
"""Corners of one curve; more of them are not seen."""
ROW: Final = 100


@frozen(kw_only=True)
class WaitSummary:
    """Waits of one class, or of one configuration; numbers are as ``statistics`` defines them.

    Attributes:
        seconds: of all jobs, shortest first; of one that did not start, until the run or it ended.
        started: of those that started, shortest first.
    """

    name: str
    seconds: tuple[float, ...]
    started: tuple[float, ...]

    @property
    def waiting(self) -> int:
        """Jobs that did not start."""
        return len(self.seconds) - len(self.started)

    def statistic(self, function: str) -> float:
        """One of ``mean``, ``median``, ``p95`` ... of all waits, in seconds; there is at least one job."""
        found = FUNCTIONS[function](self.seconds)
        return math.nan if found is None else found

    def quarter(self, percent: float) -> float:
        """Percentile of the waits by nearest rank, in seconds."""
        found = percentile(self.seconds, percent)
        return math.nan if found is None else found


def wait_summary(name: str, record: RunRecord, jobs: Sequence[JobLife]) -> WaitSummary:
    """From being made to having enough pods bound."""
    told = job_values(record, "wait", jobs)
    return WaitSummary(
        name=name,
        seconds=tuple(sorted(value for _, value in told)),
        started=tuple(sorted(value for job, value in told if job.started is not None)),
    )


def waits_by_class(record: RunRecord) -> list[WaitSummary]:
    """Classes in the order of their names."""
    found: dict[str, list[JobLife]] = {}
    for job in record.jobs:
        found.setdefault(job.klass, []).append(job)
    return [wait_summary(name or "(no class)", record, found[name]) for name in sorted(found)]


@frozen
class WaitScale:
    """From seconds to a share of the width, with its ticks."""

    share: Callable[[float], float]
    ticks: tuple[tuple[float, str], ...]
    log: bool


def scale_of(several: Sequence[WaitSummary]) -> WaitScale:
    """Linear, unless the longest wait is more than 30 times the median of all."""
    every = sorted(value for each in several for value in each.seconds)
    # Below a second all waits are as good as none: differences there would look like something.
    top = max(1.0, every[-1] if every else 0.0)
    if top > 60 and top > 30 * every[len(every) // 2]:
        most = next((float(tick) for tick in LOG_TICKS if tick >= top), top)
        whole = math.log1p(most)
        ticks = tuple((math.log1p(at) / whole, duration_text(at)) for at in LOG_TICKS if at <= most)
        return WaitScale(lambda value: math.log1p(max(0.0, value)) / whole, ticks, log=True)
    unit = next((unit for unit in (86_400, 3600, 60) if top >= 2 * unit), 1)
    marks = [mark * unit for mark in nice_ticks(top / unit, 6)]
    return WaitScale(
        lambda value: max(0.0, value) / marks[-1],
        tuple((mark / marks[-1], duration_text(mark)) for mark in marks),
        log=False,
    )


def box_plot(
    several: Sequence[WaitSummary], marks: Mapping[str, int], *, ident: str, by: str
) -> Plot:
    """One row each: line from shortest to longest, box of the middle half, median, p95, mean."""
    scale = scale_of(several)
    parts = []
    for turn, each in enumerate(several):
        if each.seconds:
            parts.append(_row(each, turn * ROW, scale, marks[each.name]))
    deep = max(1, len(several)) * ROW
    alone = any(0 < len(each.seconds) <= DOTS_MAX for each in several)
    keys = [LegendEntry(mark="boxkey", text="middle half, median"), LegendEntry(mark="p95key", text="p95"),
            LegendEntry(mark="meankey", text="mean"), LegendEntry(mark="linekey", text="shortest to longest")]  # fmt: skip
    keys += [LegendEntry(mark="dotkey", text="one job")] if alone else []
    return Plot(
        ident=ident, title=f"How long jobs waited, by {by}", drawing="".join(parts), wide=WIDE,
        deep=deep, tall=max(60, 44 * len(several)), timed=False, rows_down=True, keys=keys,
        note="From being made to having enough pods bound."
        + (" The axis is logarithmic." if scale.log else ""),
        x_ticks=scale.ticks,
        y_ticks=[((turn + 0.5) / len(several), each.name) for turn, each in enumerate(several)],
        alt=f"Waits by {by}: " + "; ".join(
            f"{each.name} median {duration_text(each.statistic('median'))}, p95 {duration_text(each.statistic('p95'))}"
            for each in several if each.seconds
        ),
    )  # fmt: skip


def _row(each: WaitSummary, top: int, scale: WaitScale, colour: int) -> str:
    def x(value: float) -> int:
        return round(WIDE * scale.share(value))

    middle = top + ROW // 2
    low, high = x(each.quarter(25)), x(each.quarter(75))
    parts = [
        f'<path class="hair" d="M{x(each.seconds[0])} {middle}H{x(each.seconds[-1])}"/>',
        f'<path class="f{colour} soft" d="M{low} {top + 22}H{max(high, low + 8)}V{top + 78}H{low}Z"/>',
    ]
    if len(each.seconds) <= DOTS_MAX:
        # Rows of dots above each other, so that equal waits are seen as several.
        dots = "".join(
            f"M{x(value)} {middle + ((turn * 7) % 9 - 4) * 5}h0"
            for turn, value in enumerate(each.seconds)
        )
        parts.append(f'<path class="dots l{colour}" d="{dots}"/>')
    parts.append(f'<path class="median" d="M{x(each.statistic("median"))} {top + 16}V{top + 84}"/>')
    parts.append(f'<path class="p95" d="M{x(each.statistic("p95"))} {top + 26}V{top + 74}"/>')
    parts.append(f'<path class="mean" d="M{x(each.statistic("mean"))} {middle}h0"/>')
    return "".join(parts)


def share_plot(
    several: Sequence[WaitSummary], marks: Mapping[str, int], *, ident: str, by: str
) -> Plot:
    """The empirical distribution: for each wait the share of all jobs that waited no longer."""
    scale = scale_of(several)
    parts = []
    lines: dict[str, tuple[list[int], list[int]]] = {}
    for each in several:
        if not each.started:
            continue
        corners = _corners(each)
        xs = [round(WIDE * scale.share(value)) for value, _ in corners]
        ys = [round(TALL * (1 - share)) for _, share in corners]
        path = f"M{xs[0]} {TALL}V{ys[0]}" + "".join(
            f"H{x}V{y}" for x, y in zip(xs[1:], ys[1:], strict=True)
        )
        parts.append(f'<path class="l{marks[each.name]} d{marks[each.name]}" d="{path}H{WIDE}"/>')
        lines[each.name] = (xs, [round(100 * share, 1) for _, share in corners])  # type: ignore[misc]
    left = [
        f"{each.waiting} of {len(each.seconds)} of {each.name}" for each in several if each.waiting
    ]
    note = "A curve that ends below 100 % is of jobs that did not start: " + ", ".join(left[:6])
    return Plot(
        ident=ident, title="Share of jobs that waited no longer than ...", wide=WIDE, tall=190,
        drawing="".join(parts), timed=False, y_name="% of jobs", note=f"{note}." if left else "",
        keys=[LegendEntry(mark=f"l{marks[each.name]} d{marks[each.name]}", text=each.name)
              for each in several if each.started],
        x_ticks=scale.ticks, y_ticks=[(share / 100, str(share)) for share in (0, 25, 50, 75, 100)],
        alt=f"Cumulative distribution of waits, by {by}",
        data={"kind": "shares", "wide": WIDE, "lines": lines, "ticks": _inverse(several)},
    )  # fmt: skip


def _corners(each: WaitSummary) -> list[tuple[float, float]]:
    """Wait and share of all jobs; of many jobs only every so-manieth, and the last."""
    last = {value: turn + 1 for turn, value in enumerate(each.started)}
    corners = [(value, count / len(each.seconds)) for value, count in last.items()]
    step = -(-len(corners) // POINTS_MAX)
    kept = corners[::step]
    return kept if kept[-1] == corners[-1] else [*kept, corners[-1]]


def _inverse(several: Sequence[WaitSummary]) -> dict[str, float | bool]:
    """What the script needs to turn a place on the axis into seconds."""
    scale = scale_of(several)
    if scale.log:
        # share(w) = log1p(w) / whole
        return {"log": True, "whole": round(math.log1p(1.0) / scale.share(1.0), 6)}
    return {"log": False, "whole": round(1.0 / scale.share(1.0), 6)}


def waits_table(several: Sequence[WaitSummary], *, by: str) -> str:
    """Mean, median, p95 and longest wait of each, in seconds."""
    rows = [
        [each.name, str(len(each.seconds)), str(each.waiting), *(
            _seconds(each.statistic(function)) for function in ("mean", "median", "p95", "max")
        )]
        for each in several
    ]  # fmt: skip
    heads = [by, "jobs", "not started", "mean, s", "p50, s", "p95, s", "longest, s"]
    return html_table(heads, rows, kind="sortable")


def _seconds(value: float) -> str:
    return "\N{EN DASH}" if math.isnan(value) else number_text(value, 1)
