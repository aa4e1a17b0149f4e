"""Plots over time: what queues held and what waited, how fair that was, what evictions cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from gpusched.engine.run_record import RunRecord
from gpusched.lab.report.plots.svg import (
    TALL,
    LegendEntry,
    Plot,
    TimeAxis,
    duration_text,
    html_table,
    nice_ticks,
    number_text,
    percent_text,
    step_area,
    step_line,
)  # fmt: skip
from gpusched.lab.report.statistics.over_time import (
    fair_share,
    queue_mark_steps,
    used_amounts,
    used_amounts_by_queue,
)
from gpusched.lab.report.statistics.series import (
    OTHERS,
    RESOURCE,
    SERIES_MAX,
    AlignedSeries,
    Unit,
    align_series,
    asked_series,
    offered_series,
)  # fmt: skip
from gpusched.lab.report.statistics.steps import (
    Floats,
    StepFunction,
    integral_share,
    steps_from_changes,
    sum_steps,
)

TABLE_ROWS: Final = 12
"""Moments in the table below a plot over time; the whole is in the CSV files."""


def queue_label(name: str) -> str:
    """What a queue is called; pods that name none have the empty one."""
    return name or "(no queue)"


def utilization_plot(
    record: RunRecord, unit: Unit, axis: TimeAxis, colour: Mapping[str, int], *,
    ident: str = "use", top: float = 0.0, title: str = "",
) -> Plot:  # fmt: skip
    """What each queue held, stacked, with what usable nodes had and what waited on top of it."""
    by_queue = used_amounts_by_queue(record, RESOURCE[unit])
    drawn = [name for name in colour if name in by_queue and colour[name] < SERIES_MAX]
    rest = [part for name, part in by_queue.items() if name not in drawn]
    several = [by_queue[name] for name in drawn]
    names = [queue_label(name) for name in drawn]
    if any(part.values.any() for part in rest):
        several.append(sum_steps(rest, record.seconds))
        names.append(OTHERS)
    marks = [f"f{colour[name]}" for name in drawn] + [f"f{SERIES_MAX}"]
    count = len(several)
    waited = asked_series(record, unit)
    all_of = align_series([*several, offered_series(record, unit), waited], axis.seconds)
    rows = list(all_of.rows)
    stack = np.cumsum(np.array(rows[:count]), axis=0) if count else np.zeros((1, all_of.at.size))
    wanted = stack[-1] + rows[-1]
    ticks = nice_ticks(top or utilization_plot_height(record, unit, axis, waited=waited))
    xs, tops = _xs(all_of, axis), _scale(ticks[-1])
    parts = [
        f'<path class="{marks[turn]}" d="{step_area(xs, tops(stack[turn]), axis.wide)}"/>'
        for turn in reversed(range(count))
    ]
    parts.append(f'<path class="ask" d="{step_line(xs, tops(wanted), axis.wide)}"/>')
    parts.append(f'<path class="cap" d="{step_line(xs, tops(rows[-2]), axis.wide)}"/>')
    keys = [LegendEntry(mark=marks[turn], text=name, picks=drawn[turn] if turn < len(drawn) else "")
            for turn, name in enumerate(names)]  # fmt: skip
    keys += [
        LegendEntry(mark="cap", text="usable"),
        LegendEntry(mark="ask", text="held and waiting"),
    ]
    columns = [*names, "usable", "waiting"]
    return Plot(
        ident=ident, title=title or f"{unit[0].upper()}{unit[1:]} in use, by queue", wide=axis.wide, tall=230,
        note=_use_note(record, unit, all_of, cut=(ticks[-1], float(wanted.max(initial=0))))
        if not title else "",
        drawing="".join(parts), keys=keys, y_name=unit,
        x_ticks=axis.ticks(), y_ticks=[(tick / ticks[-1], number_text(tick, 2)) for tick in ticks],
        alt=f"{unit} held by {len(names)} queues over {duration_text(record.seconds)}, "
        f"with the line of {unit} on usable nodes",
        data=_points(all_of, axis, dict(zip(columns, rows, strict=True)), unit=unit),
        table=series_table(all_of, axis, columns, rows, unit=unit),
    )  # fmt: skip


def utilization_plot_height(
    record: RunRecord, unit: Unit, axis: TimeAxis, *, waited: StepFunction | None = None
) -> float:
    """Height of the use plot: what was there, and of what waited at most half as much again."""
    there = float(offered_series(record, unit).values.max(initial=0))
    used = used_amounts(record, RESOURCE[unit])
    both = align_series(
        [used, asked_series(record, unit) if waited is None else waited], axis.seconds
    )
    wanted = float((both.rows[0] + both.rows[1]).max(initial=0))
    most = max(there, float(used.values.max(initial=0)))
    return max(most, min(wanted, 1.5 * most)) or 1.0


def _use_note(
    record: RunRecord, unit: Unit, all_of: AlignedSeries, *, cut: tuple[float, float]
) -> str:
    used = integral_share(used_amounts(record, RESOURCE[unit]), offered_series(record, unit))
    mean = (
        "" if used is None else f"{percent_text(used)} of the usable {unit} were held on average."
    )
    top, most = cut
    over = "" if most <= top else (
        f"What is held and waited for reaches {number_text(most)}; its line is cut at {number_text(top)}."
    )  # fmt: skip
    return " ".join(part for part in (mean, over, _thinned(all_of)) if part)


def _thinned(all_of: AlignedSeries) -> str:
    return (
        f"Each point is the mean of {duration_text(all_of.mean_of_s)}." if all_of.mean_of_s else ""
    )


def fairness_plot(
    record: RunRecord, axis: TimeAxis, name: str, *, colour: int, ident: str, top: float
) -> Plot:
    """What one queue held beside what it was due."""
    due = fair_share(record)[name]
    deserved = queue_mark_steps(record, name, lambda mark: (mark.deserved or 0) / 1000)
    own = used_amounts(record, queue=name)
    both = align_series([own, due, deserved], axis.seconds)
    rows = list(both.rows)
    ticks = nice_ticks(top, 2)
    xs, tops = _xs(both, axis), _scale(ticks[-1])
    drawing = (
        f'<path class="f{colour}" d="{step_area(xs, tops(rows[0]), axis.wide)}"/>'
        f'<path class="ask" d="{step_line(xs, tops(rows[2]), axis.wide)}"/>'
        f'<path class="cap" d="{step_line(xs, tops(rows[1]), axis.wide)}"/>'
    )
    columns = ["held", "due now", "deserved"]
    return Plot(
        ident=ident, title=queue_label(name), drawing=drawing, wide=axis.wide, tall=90,
        x_ticks=axis.ticks(5), y_ticks=[(tick / ticks[-1], number_text(tick, 2)) for tick in ticks],
        alt=f"GPUs that queue {name} held and was due over time",
        data=_points(both, axis, dict(zip(columns, rows, strict=True)), unit="GPUs"),
        table=series_table(both, axis, columns, rows, unit="GPUs"),
    )  # fmt: skip


def line_plot(
    lines: Mapping[str, StepFunction], axis: TimeAxis, *, ident: str, title: str, note: str,
    unit: str, top: float, marks: Sequence[str] = ("l0",), shares: bool = False, tall: int = 130,
) -> Plot:  # fmt: skip
    """One or more lines over time; shares are told as percentages."""
    all_of = align_series(list(lines.values()), axis.seconds)
    rows = [row * (100 if shares else 1) for row in all_of.rows]
    ticks = nice_ticks(top * (100 if shares else 1))
    xs, tops = _xs(all_of, axis), _scale(ticks[-1])
    drawing = "".join(
        f'<path class="{marks[turn % len(marks)]}" d="{step_line(xs, tops(row), axis.wide)}"/>'
        for turn, row in enumerate(rows)
    )
    keys = [
        LegendEntry(mark=marks[turn % len(marks)], text=name) for turn, name in enumerate(lines)
    ]
    columns = list(lines)
    return Plot(
        ident=ident, title=title, note=f"{note} {_thinned(all_of)}".strip(), drawing=drawing,
        wide=axis.wide, tall=tall, keys=keys if len(keys) > 1 else (), y_name=unit,
        x_ticks=axis.ticks(), y_ticks=[(tick / ticks[-1], number_text(tick, 2)) for tick in ticks],
        alt=f"{title} over {duration_text(axis.seconds)}",
        data=_points(all_of, axis, dict(zip(columns, rows, strict=True)), unit=unit),
        table=series_table(all_of, axis, columns, rows, unit=unit),
    )  # fmt: skip


def eviction_plot(
    record: RunRecord, axis: TimeAxis, marks: Mapping[str, str], *, cost: bool, ident: str
) -> Plot:
    """Evictions so far by reason, stacked: their number, or the GPU-hours of work they lost."""
    several = [
        _so_far(record, why, cost=cost) for why in marks
    ]  # fmt: skip
    all_of = align_series(several, axis.seconds)
    stack = np.cumsum(np.array(all_of.rows), axis=0)
    ticks = nice_ticks(float(stack[-1].max(initial=0)))
    xs, tops = _xs(all_of, axis), _scale(ticks[-1])
    drawing = "".join(
        f'<path class="{list(marks.values())[turn]}" '
        f'd="{step_area(xs, tops(stack[turn]), axis.wide)}"/>'
        for turn in reversed(range(len(several)))
    )
    unit = "GPU-hours lost" if cost else "evictions"
    columns = [why or "(no reason)" for why in marks]
    return Plot(
        ident=ident, title="GPU-hours of work lost so far" if cost else "Pods evicted so far",
        drawing=drawing, wide=axis.wide, tall=130, y_name=unit,
        keys=[LegendEntry(mark=mark, text=why or "(no reason)") for why, mark in marks.items()],
        x_ticks=axis.ticks(5), y_ticks=[(tick / ticks[-1], number_text(tick, 2)) for tick in ticks],
        alt=f"{unit} over time, by reason",
        data=_points(all_of, axis, dict(zip(columns, all_of.rows, strict=True)), unit=unit),
        table=series_table(all_of, axis, columns, all_of.rows, unit=unit),
    )  # fmt: skip


def _so_far(record: RunRecord, why: str, *, cost: bool) -> StepFunction:
    mine = [each for each in record.evictions if each.why == why]
    amounts = [each.lost / 3.6e6 if cost else 1.0 for each in mine]
    return steps_from_changes(
        np.array([each.at for each in mine]), np.array(amounts), record.seconds
    )


# -- shared ------------------------------------------------------------------------------------
def _xs(all_of: AlignedSeries, axis: TimeAxis) -> list[int]:
    return [axis.x(float(at)) for at in all_of.at]


def _scale(top: float) -> Any:
    """From values to coordinates: 0 at the bottom, ``top`` at the top, what is above stays there."""

    def tops(values: Floats) -> list[int]:
        found: list[int] = np.rint(TALL * (1 - np.clip(values / top, 0, 1))).astype(int).tolist()
        return found

    return tops


def _points(
    all_of: AlignedSeries, axis: TimeAxis, rows: Mapping[str, Floats], *, unit: str
) -> dict[str, Any]:
    """What the script needs to tell values: coordinates, names and values to three decimals."""
    xs = _xs(all_of, axis)
    return {
        "kind": "steps", "unit": unit, "x": xs, "names": list(rows),
        "rows": [[_short(value) for value in row.tolist()] for row in rows.values()],
    }  # fmt: skip


def _short(value: float) -> float | int:
    rounded = round(value, 3)
    return int(rounded) if rounded == int(rounded) else rounded


def series_table(
    all_of: AlignedSeries, axis: TimeAxis, columns: Sequence[str],
    rows: Sequence[Floats], *, unit: str,
) -> str:  # fmt: skip
    """The series at a dozen moments, as a table."""
    moments = np.linspace(0.0, axis.seconds, TABLE_ROWS, endpoint=False)
    index = np.searchsorted(all_of.at, moments, side="right") - 1
    cells = [
        [duration_text(float(at)), *(number_text(float(row[turn]), 2) for row in rows)]
        for at, turn in zip(moments, index.tolist(), strict=True)
    ]
    return html_table(["at", *columns], cells, caption=f"{unit}, at twelve moments")
