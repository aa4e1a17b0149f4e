"""The report that people look at: one HTML page for one run, or for several side by side.

A page holds all it needs: no network, no fonts, no libraries. The same runs give the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from gpusched.report import over_time, page_parts
from gpusched.report.page_compare import compared_page
from gpusched.report.page_frame import MARKS_MAX, bar, document, footer, run_data
from gpusched.report.plots import Shown, TimeAxis, figure, table, time_axis
from gpusched.report.plots_gantt import gantt_plot
from gpusched.report.plots_use import eviction_plot, fairness_plot, line_plot, use_plot
from gpusched.report.plots_waits import box_plot, by_class, share_plot, waits_table
from gpusched.report.record import Record
from gpusched.report.reported import Reported
from gpusched.report.series import (
    SERIES_MAX,
    Unit,
    colours,
    queues_in_order,
    unit_of,
)  # fmt: skip

QUEUES_MAX: Final = 12
"""Queues whose dues are drawn; the others are in queues.csv."""
FAR_MAX: Final = 12
"""So few moments with acts get a line through the whole plot."""


def page(
    runs: Sequence[Reported], *, title: str = "", files: Sequence[str] = (), back: str = ""
) -> str:
    """One page.

    Args:
        runs: one, or two to six that are compared: the first is what others are compared with.
        title: of the comparison; else made of the names.
        files: folder of the CSV files of each run, seen from the page; none where there are none.
        back: address of the page that lists this one; empty for none.
    """
    if len(runs) != 1:
        return compared_page(runs, title=title, files=files)
    return one_page(runs[0], files=files, back=back)


def one_page(one: Reported, *, files: Sequence[str], back: str) -> str:
    """The page of one run."""
    record = one.record
    unit = unit_of([record])
    axis = time_axis(record.seconds)
    colour = colours(queues_in_order([record], unit))
    plots = [
        _marked(use_plot(record, unit, axis, colour), record, axis),
        _marked(gantt_plot(record, unit, axis, colour), record, axis),
        _waits(record),
        _fairness(record, unit, axis, colour),
        _fragmentation(record, unit, axis),
        _evictions(record, axis),
    ]
    body = (
        f'<div class="top">{page_parts.head(one, back=back)}{page_parts.key_figures(record, unit)}</div>'
        f"<main>{page_parts.verdict_list(one.verdicts)}{page_parts.grids(one.tables)}"
        f"{bar(record, unit, axis)}{''.join(plots)}"
        f"{page_parts.acts(record)}{page_parts.jobs(record, unit)}</main>{footer(files, [record.name])}"
    )
    return document(record.name, body, run_data(record, axis, colour))


# -- sections ----------------------------------------------------------------------------------
def _marked(shown: Shown, record: Record, axis: TimeAxis, *, level: int = 2) -> str:
    """A plot over time with the acts of the timeline marked on its axis."""
    good = sorted({axis.x(act.at) for act in record.acts if not act.trouble})[:MARKS_MAX]
    bad = sorted({axis.x(act.at) for act in record.acts if act.trouble})[:MARKS_MAX]
    every = [*good, *bad]
    drawing = shown.drawing
    if 0 < len(every) <= FAR_MAX:
        lines = "".join(f"M{x} 0v{shown.deep}" for x in every if x)
        drawing += f'<path class="far" d="{lines}"/>' if lines else ""
    return figure(attrs.evolve(shown, drawing=drawing, marks=good, bad_marks=bad), level=level)


def _waits(record: Record) -> str:
    several = by_class(record)
    if not several:
        return ""
    marks = colours([each.name for each in several])
    return (
        f'<section id="waits">{figure(box_plot(several, marks, ident="waited", by="class"))}'
        f'<div class="pair">{figure(share_plot(several, marks, ident="share", by="class"), level=3)}'
        f"<div>{waits_table(several, by='class')}</div></div></section>"
    )


def _fairness(record: Record, unit: Unit, axis: TimeAxis, colour: Mapping[str, int]) -> str:
    """Only where queues without children are told to be due something."""
    due = over_time.fair_share(record)
    names = [name for name in colour if name in due] if unit == "GPUs" else []
    if len(names) < 2:
        return ""
    used = over_time.use_by_queue(record)
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
        {"Jain's index": over_time.jain(record)}, axis, ident="jain", unit="index", top=1.0,
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


def _fragmentation(record: Record, unit: Unit, axis: TimeAxis) -> str:
    if unit != "GPUs":
        return ""
    useless, free = over_time.fragmentation(record)
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


def _evictions(record: Record, axis: TimeAxis) -> str:
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
        f"{table(['reason', 'pods', 'GPU-hours lost'], rows)}"
        f'<div class="pair">{pair}</div></section>'
    )
