"""The report that people look at: one HTML page for one run, or for several side by side.

A page holds all it needs: no network, no fonts, no libraries. The same runs give the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from gpusched.engine.run_record import RunRecord
from gpusched.lab.report.pages import sections
from gpusched.lab.report.pages.comparison_page import compared_page
from gpusched.lab.report.pages.document import (
    MARKS_MAX,
    html_document,
    page_footer,
    run_data,
    zoom_bar,
)
from gpusched.lab.report.plots.gantt import gantt_plot
from gpusched.lab.report.plots.svg import Plot, TimeAxis, html_table, plot_figure, time_axis
from gpusched.lab.report.plots.utilization import (
    eviction_plot,
    fairness_plot,
    line_plot,
    utilization_plot,
)
from gpusched.lab.report.plots.waiting_times import (
    box_plot,
    share_plot,
    waits_by_class,
    waits_table,
)
from gpusched.lab.report.run_report import NO_NOTES, ComparisonNotes, RunReport
from gpusched.lab.report.statistics import over_time
from gpusched.lab.report.statistics.series import (
    SERIES_MAX,
    Unit,
    colour_numbers,
    queues_in_order,
    unit_of,
)  # fmt: skip

QUEUES_MAX: Final = 12
"""Queues whose dues are drawn; the others are in queues.csv."""
FAR_MAX: Final = 12
"""So few moments with acts get a line through the whole plot."""


def render_page(
    runs: Sequence[RunReport],
    *,
    title: str = "",
    files: Sequence[str] = (),
    back: str = "",
    notes: ComparisonNotes = NO_NOTES,
) -> str:
    """One page.

    Args:
        runs: one, or two to six that are compared: the first is what others are compared with.
        title: of the comparison; else made of the names.
        files: folder of the CSV files of each run, seen from the page; none where there are none.
        back: address of the page that lists this one; empty for none.
        notes: of a comparison.
    """
    if len(runs) != 1:
        return compared_page(runs, title=title, files=files, notes=notes)
    return render_run_page(runs[0], files=files, back=back)


def render_run_page(one: RunReport, *, files: Sequence[str], back: str) -> str:
    """The page of one run."""
    record = one.record
    unit = unit_of([record])
    axis = time_axis(record.seconds)
    colour = colour_numbers(queues_in_order([record], unit))
    plots = [
        _marked(utilization_plot(record, unit, axis, colour), record, axis),
        _marked(gantt_plot(record, unit, axis, colour), record, axis),
        _waits(record),
        _fairness(record, unit, axis, colour),
        _fragmentation(record, unit, axis),
        _evictions(record, axis),
    ]
    body = (
        f'<div class="top">{sections.page_head(one, back=back)}{sections.key_figures(record, unit)}</div>'
        f"<main>{sections.verdict_list(one.verdicts)}{sections.table_section(one.tables)}"
        f"{zoom_bar(record, unit, axis)}{''.join(plots)}"
        f"{sections.act_list(record)}{sections.job_table(record, unit)}</main>{page_footer(files, [record.name])}"
    )
    return html_document(record.name, body, run_data(record, axis, colour))


# -- sections ----------------------------------------------------------------------------------
def _marked(shown: Plot, record: RunRecord, axis: TimeAxis, *, level: int = 2) -> str:
    """A plot over time with the acts of the timeline marked on its axis."""
    good = sorted({axis.x(act.at) for act in record.acts if not act.trouble})[:MARKS_MAX]
    bad = sorted({axis.x(act.at) for act in record.acts if act.trouble})[:MARKS_MAX]
    every = [*good, *bad]
    drawing = shown.drawing
    if 0 < len(every) <= FAR_MAX:
        lines = "".join(f"M{x} 0v{shown.deep}" for x in every if x)
        drawing += f'<path class="far" d="{lines}"/>' if lines else ""
    return plot_figure(attrs.evolve(shown, drawing=drawing, marks=good, bad_marks=bad), level=level)


def _waits(record: RunRecord) -> str:
    several = waits_by_class(record)
    if not several:
        return ""
    marks = colour_numbers([each.name for each in several])
    return (
        f'<section id="waits">{plot_figure(box_plot(several, marks, ident="waited", by="class"))}'
        f'<div class="pair">{plot_figure(share_plot(several, marks, ident="share", by="class"), level=3)}'
        f"<div>{waits_table(several, by='class')}</div></div></section>"
    )


def _fairness(record: RunRecord, unit: Unit, axis: TimeAxis, colour: Mapping[str, int]) -> str:
    """Only where queues without children are told to be due something."""
    due = over_time.fair_share(record)
    names = [name for name in colour if name in due] if unit == "GPUs" else []
    if len(names) < 2:
        return ""
    used = over_time.used_amounts_by_queue(record)
    top = max(
        [float(due[name].values.max(initial=0)) for name in names]
        + [float(used[name].values.max(initial=0)) for name in names if name in used]
    )
    plots = "".join(
        _marked(
            fairness_plot(record, axis, name, colour=colour[name], ident=f"due{turn}", top=top or 1.0),
            record, axis, level=3,
        )
        for turn, name in enumerate(names[:QUEUES_MAX])
    )  # fmt: skip
    more = len(names) - QUEUES_MAX
    left = f" {more} smaller queues are in queues.csv." if more > 0 else ""
    index = line_plot(
        {"Jain's index": over_time.jain_index(record)}, axis, ident="jain", unit="index", top=1.0,
        title="How evenly queues that wanted more were served so far",
        note="Jain's index of GPU-time held over GPU-time due, while a job of the queue waited: "
        "1 is even.",
    )  # fmt: skip
    return (
        '<section id="fair"><h2>What each queue held, and what it was due</h2>'
        '<p class="note">Area: GPUs held. Solid line: due now, by its fair share. '
        f"Dashed line: deserved.{left}</p>"
        f'<div class="many">{plots}</div>{_marked(index, record, axis)}</section>'
    )


def _fragmentation(record: RunRecord, unit: Unit, axis: TimeAxis) -> str:
    if unit != "GPUs":
        return ""
    useless, free = over_time.fragmentation_steps(record)
    top = max(1.0, float(free.values.max(initial=0)))
    return _marked(
        line_plot(
            {"free": free, "free, of no use": useless}, axis, ident="fragments", unit="GPUs",
            title="Free GPUs, and how many of them no job of this run can use", top=top,
            note="Of a node's free whole GPUs those of no use are counted for pods of the sizes in "
            "this run, each as often as it occurs.", marks=("l0", "l5 d1"),
        ),
        record, axis,
    )  # fmt: skip


def _evictions(record: RunRecord, axis: TimeAxis) -> str:
    if not record.evictions:
        return '<section id="evictions"><h2>The scheduler evicted no pod</h2></section>'
    count: dict[str, list[float]] = {}
    for each in record.evictions:
        mine = count.setdefault(each.why, [0, 0.0])
        mine[0] += 1
        mine[1] += each.lost / 3.6e6
    names = sorted(count, key=lambda why: (-count[why][0], why))
    marks = {name: f"f{min(turn, SERIES_MAX)}" for turn, name in enumerate(names)}
    rows = [
        [name or "(no reason)", f"{count[name][0]:.0f}", f"{count[name][1]:.2f}"] for name in names
    ]
    pair = "".join(
        _marked(
            eviction_plot(record, axis, marks, cost=cost, ident=f"evicted{int(cost)}"),
            record,
            axis,
            level=3,
        )
        for cost in (False, True)
    )
    return (
        '<section id="evictions"><h2>Evictions and their cost</h2>'
        f"{html_table(['reason', 'pods', 'GPU-hours lost'], rows)}"
        f'<div class="pair">{pair}</div></section>'
    )
