"""Several runs of one thing under several configurations, side by side on one page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs
import numpy as np

from gpusched.report import over_time
from gpusched.report.compared import STATISTICS, changed_jobs, compared
from gpusched.report.page_frame import bar, document, footer, run_data
from gpusched.report.page_parts import grids, troubles, verdict_list
from gpusched.report.plots import Shown, TimeAxis, duration, esc, figure, number, table, time_axis
from gpusched.report.plots_gantt import gantt_plot
from gpusched.report.plots_use import line_plot, use_plot, use_top
from gpusched.report.plots_waits import Waits, box_plot, share_plot, waits, waits_table
from gpusched.report.record import Record
from gpusched.report.reported import Reported
from gpusched.report.series import RESOURCE, Unit, asked, colours, offered, queues_in_order, unit_of
from gpusched.report.steps import Steps

RUNS_MAX: Final = 6
"""Configurations that people can still tell apart on one plot."""
CHANGED_MAX: Final = 30
"""Jobs whose wait changed most."""


def compared_page(runs: Sequence[Reported], *, title: str, files: Sequence[str]) -> str:
    """The comparison; the first run is what the others are compared with.

    Raises:
        ValueError: fewer than two runs or more than six, or two of one name.
    """
    names = [one.record.name for one in runs]
    if not 2 <= len(runs) <= RUNS_MAX:
        raise ValueError(f"a comparison is of two to {RUNS_MAX} runs, not of {len(runs)}")
    if len(set(names)) < len(names):
        raise ValueError(f"runs that are compared need names of their own, not {', '.join(names)}")
    records = [one.record for one in runs]
    unit = unit_of(records)
    axis = time_axis(max(record.seconds for record in records))
    sections = [
        _table(records, unit),
        _waits(records),
        bar(records[0], unit, axis),
        _lines(records, unit, axis),
        _small(records, unit, axis),
        _changed(records),
        *(_said(one) for one in runs),
    ]
    heading = title or " or ".join(names)
    body = f'<div class="top">{_head(runs, heading)}</div><main>{"".join(sections)}</main>{footer(files, names)}'
    data = run_data(attrs.evolve(records[0], jobs=(), acts=()), axis, {})
    return document(heading, body, data)


def _head(runs: Sequence[Reported], heading: str) -> str:
    items = "".join(
        f'<li><i class="sw l{turn} d{turn}"></i><b>{esc(one.record.name)}</b> {esc(_about(one))}</li>'
        for turn, one in enumerate(runs)
    )
    taught = dict.fromkeys(one.teaches for one in runs if one.teaches)
    teaches = "".join(f'<p class="teaches">{esc(each)}</p>' for each in taught)
    return f'<h1>{esc(heading)}</h1>{teaches}<ul class="runs">{items}</ul>'


def _about(one: Reported) -> str:
    record = one.record
    parts = [one.config if one.config != record.name else "", f"seed {record.seed}",
             f"{duration(record.seconds)} simulated", f"{len(record.jobs):,} jobs"]  # fmt: skip
    if one.verdicts:
        held = sum(each.ok for each in one.verdicts)
        parts.append(f"{held} of {len(one.verdicts)} expectations hold")
    return ", ".join(part for part in parts if part)


# -- numbers -----------------------------------------------------------------------------------
def _table(records: Sequence[Record], unit: Unit) -> str:
    """Each statistic by configuration, with its difference to the first, the best one marked."""
    heads = "".join(f'<th scope="col" class="n">{esc(record.name)}</th>' for record in records)
    lines = []
    for row in compared(records, unit):
        cells = "".join(
            f'<td class="n{" best" if cell.best else ""}">'
            + ('<i class="mark">best</i> ' if cell.best else "")
            + esc(cell.text)
            + (f"<small>{esc(cell.change)}</small>" if cell.change else "")
            + "</td>"
            for cell in row.cells
        )
        lines.append(f'<tr><th scope="row">{esc(row.name)}</th>{cells}</tr>')
    return (
        '<section id="numbers"><h2>Numbers by configuration</h2>'
        f'<p class="note">Below each number: its difference to {esc(records[0].name)}. '
        f"{len(STATISTICS)} statistics are compared; those that nothing can be said about are left "
        "out.</p>"
        f'<div class="wide"><table class="compared"><thead><tr><th></th>{heads}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div></section>"
    )


def _waits(records: Sequence[Record]) -> str:
    several = [waits(record.name, record, record.jobs) for record in records if record.jobs]
    if not several:
        return ""
    marks = {record.name: turn for turn, record in enumerate(records)}
    classes = sorted({job.klass for record in records for job in record.jobs})
    by_class = [
        waits(f"{klass or '(no class)'}: {record.name}", record, mine)
        for klass in classes
        for record in records
        if (mine := [job for job in record.jobs if job.klass == klass])
    ] if len(classes) > 1 else []  # fmt: skip
    more = (
        f"<details open><summary>By class</summary>{_classes(by_class)}</details>"
        if by_class
        else ""
    )
    return (
        '<section id="waits">'
        f"{figure(box_plot(several, marks, ident='waited', by='configuration'))}"
        f'<div class="pair">{figure(share_plot(several, marks, ident="share", by="configuration"), level=3)}'
        f"<div>{waits_table(several, by='configuration')}{more}</div></div></section>"
    )


def _classes(several: Sequence[Waits]) -> str:
    return waits_table(several, by="class")


def _changed(records: Sequence[Record]) -> str:
    """Jobs whose wait differs most between configurations."""
    rows = changed_jobs(records, most=CHANGED_MAX)
    if not rows:
        return ""
    cells = [
        [row.name, row.queue, row.klass, *("-" if wait is None else number(wait) for wait in row.waits),
         number(row.spread)]
        for row in rows
    ]  # fmt: skip
    heads = ["job", "queue", "class", *(f"{record.name}: wait, s" for record in records),
             "largest difference, s"]  # fmt: skip
    return (
        '<section id="changed"><h2>Jobs whose wait differs most</h2>'
        f"{table(heads, cells, kind='sortable')}</section>"
    )


def _said(one: Reported) -> str:
    """Verdicts, tables and troubles of one configuration, where there are any."""
    inner = (
        troubles(one.record) + verdict_list(one.verdicts, ident="") + grids(one.tables, ident="")
    )
    return f"<section><h2>{esc(one.record.name)}</h2>{inner}</section>" if inner else ""


# -- plots -------------------------------------------------------------------------------------
def _lines(records: Sequence[Record], unit: Unit, axis: TimeAxis) -> str:
    """Everything that is one number at a time, one line per configuration."""
    looks = [f"l{turn} d{turn}" for turn in range(len(records))]
    used = {record.name: over_time.use(record, RESOURCE[unit]) for record in records}
    waited = {record.name: asked(record, unit) for record in records}
    there = max(float(offered(record, unit).values.max(initial=0)) for record in records)
    plots = [
        _overlay(used, axis, looks, ident="use", unit=unit, least=there,
                 title=f"{unit[0].upper()}{unit[1:]} in use"),
        _overlay(waited, axis, looks, ident="waiting", unit=unit,
                 title=f"{unit[0].upper()}{unit[1:]} that jobs waited for"),
    ]  # fmt: skip
    if unit == "GPUs" and any(len(over_time.fair_share(record)) > 1 for record in records):
        jain = {record.name: over_time.jain(record) for record in records}
        plots.append(_overlay(jain, axis, looks, ident="jain", unit="index", lasting=True,
                              title="Jain's index of fairness so far, 1 is even"))  # fmt: skip
    if unit == "GPUs":
        useless = {record.name: over_time.fragmentation(record)[0] for record in records}
        plots.append(_overlay(useless, axis, looks, ident="fragments", unit="GPUs",
                              title="Free GPUs that no job of the run can use"))  # fmt: skip
    if any(record.evictions for record in records):
        count = {record.name: over_time.evictions(record) for record in records}
        cost = {record.name: over_time.lost(record) for record in records}
        plots.append(_overlay(count, axis, looks, ident="evicted0", unit="pods", lasting=True,
                              title="Pods evicted so far"))  # fmt: skip
        plots.append(_overlay(cost, axis, looks, ident="evicted1", unit="GPU-hours", lasting=True,
                              title="GPU-hours of work lost so far"))  # fmt: skip
    pairs = "".join(figure(plot) for plot in plots[2:])
    return "".join(figure(plot) for plot in plots[:2]) + f'<div class="pair">{pairs}</div>'


def _overlay(
    lines: dict[str, Steps], axis: TimeAxis, looks: Sequence[str], *,
    ident: str, unit: str, title: str, least: float = 0.0, lasting: bool = False,
) -> Shown:  # fmt: skip
    """One line each; ``lasting`` values stay after the end of a run that is shorter than others."""
    shown = lines if lasting else {name: _ended(part, axis.seconds) for name, part in lines.items()}
    top = max([least, *(float(part.values.max(initial=0)) for part in shown.values())])
    return line_plot(shown, axis, ident=ident, unit=unit, title=title, note="", top=top or 1.0,
                     marks=looks, tall=170)  # fmt: skip


def _ended(part: Steps, seconds: float) -> Steps:
    if part.until >= seconds:
        return part
    return Steps(np.append(part.times, part.until), np.append(part.values, 0.0), seconds)


def _small(records: Sequence[Record], unit: Unit, axis: TimeAxis) -> str:
    """The use by queue and the Gantt picture of each, on the same scales."""
    colour = colours(queues_in_order(records, unit))
    top = max(use_top(record, unit, axis) for record in records)
    uses, gantts = [], []
    for turn, record in enumerate(records):
        plot = use_plot(record, unit, axis, colour, ident=f"use{turn}", top=top, title=record.name)
        keys = [attrs.evolve(key, picks="") for key in plot.keys]
        uses.append(figure(attrs.evolve(plot, keys=keys, tall=150), level=3))
        small = gantt_plot(record, unit, axis, colour, ident=f"gantt{turn}", title=record.name,
                           small=True)  # fmt: skip
        gantts.append(figure(small, level=3))
    what = "GPU" if unit == "GPUs" else "node"
    return (
        f'<section><h2>{unit[0].upper()}{unit[1:]} in use, by queue</h2><div class="pair">'
        f"{''.join(uses)}</div></section><section><h2>Who held which {what} when</h2>"
        '<p class="note">Colour tells the queue, or the job where there is one queue. '
        "Thick edges are evictions, grey is a node that could not be used.</p>"
        f'<div class="pair">{"".join(gantts)}</div></section>'
    )
