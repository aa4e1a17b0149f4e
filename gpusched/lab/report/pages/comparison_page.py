"""Several runs of one thing under several configurations, side by side on one page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs
import numpy as np

from gpusched.engine.run_record import RunRecord
from gpusched.lab.report.pages.document import html_document, page_footer, run_data, zoom_bar
from gpusched.lab.report.pages.sections import run_errors, table_section, verdict_list
from gpusched.lab.report.plots.gantt import gantt_plot
from gpusched.lab.report.plots.svg import (
    Plot,
    TimeAxis,
    duration_text,
    escape_html,
    html_table,
    number_text,
    plot_figure,
    time_axis,
)
from gpusched.lab.report.plots.utilization import (
    line_plot,
    utilization_plot,
    utilization_plot_height,
)
from gpusched.lab.report.plots.waiting_times import (
    WaitSummary,
    box_plot,
    share_plot,
    wait_summary,
    waits_table,
)
from gpusched.lab.report.run_report import ComparisonNotes, RunReport
from gpusched.lab.report.statistics import over_time
from gpusched.lab.report.statistics.comparison import STATISTICS, changed_jobs, compare_runs
from gpusched.lab.report.statistics.series import (
    RESOURCE,
    Unit,
    asked_series,
    colour_numbers,
    offered_series,
    queues_in_order,
    unit_of,
)
from gpusched.lab.report.statistics.steps import StepFunction

RUNS_MAX: Final = 6
"""Configurations that people can still tell apart on one plot."""
CHANGED_MAX: Final = 30
"""Jobs whose wait changed most."""


def compared_page(
    runs: Sequence[RunReport],
    *,
    title: str,
    files: Sequence[str],
    notes: ComparisonNotes,
) -> str:
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
        *(_note_list(name, sentences) for name, sentences in notes.sentences.items() if sentences),
        _table(records, unit, notes),
        _waits(notes.waited or records),
        zoom_bar(records[0], unit, axis),
        _lines(records, unit, axis),
        _small(records, unit, axis),
        _changed(records),
        *(_said(one) for one in runs),
    ]
    heading = title or " or ".join(names)
    body = f'<div class="top">{_head(runs, heading)}</div><main>{"".join(sections)}</main>{page_footer(files, names)}'
    data = run_data(attrs.evolve(records[0], jobs=(), acts=()), axis, {})
    return html_document(heading, body, data)


def _head(runs: Sequence[RunReport], heading: str) -> str:
    items = "".join(
        f'<li><i class="sw l{turn} d{turn}"></i><b>{escape_html(one.record.name)}</b> {escape_html(_run_summary(one))}</li>'
        for turn, one in enumerate(runs)
    )
    taught = dict.fromkeys(one.teaches for one in runs if one.teaches)
    teaches = "".join(f'<p class="teaches">{escape_html(each)}</p>' for each in taught)
    return f'<h1>{escape_html(heading)}</h1>{teaches}<ul class="runs">{items}</ul>'


def _run_summary(one: RunReport) -> str:
    record = one.record
    parts = [one.config if one.config != record.name else "", f"seed {record.seed}",
             f"{duration_text(record.seconds)} simulated", f"{len(record.jobs):,} jobs"]  # fmt: skip
    if one.verdicts:
        held = sum(each.ok for each in one.verdicts)
        parts.append(f"{held} of {len(one.verdicts)} expectations hold")
    return ", ".join(part for part in parts if part)


def _note_list(name: str, sentences: Sequence[str]) -> str:
    items = "".join(f"<li>{escape_html(each)}</li>" for each in sentences)
    return f"<section><h2>{escape_html(name)}</h2><ul>{items}</ul></section>"


# -- numbers -----------------------------------------------------------------------------------
def _table(records: Sequence[RunRecord], unit: Unit, notes: ComparisonNotes) -> str:
    """Each statistic by configuration, with its difference to the first, the best one marked."""
    heads = "".join(
        f'<th scope="col" class="n">{escape_html(record.name)}</th>' for record in records
    )
    lines = []
    rows = compare_runs(records, unit) if notes.figures is None else notes.figures
    for row in rows:
        cells = "".join(
            f'<td class="n{" best" if cell.best else ""}">'
            + ('<i class="mark">best</i> ' if cell.best else "")
            + escape_html(cell.text)
            + (f"<small>{escape_html(cell.change)}</small>" if cell.change else "")
            + "</td>"
            for cell in row.cells
        )
        lines.append(f'<tr><th scope="row">{escape_html(row.name)}</th>{cells}</tr>')
    count = f" {len(STATISTICS)} statistics are compared; those that nothing can be said about are left out."
    return (
        '<section id="numbers"><h2>Numbers by configuration</h2>'
        f'<p class="note">Below each number: its difference to {escape_html(records[0].name)}.'
        f"{count if notes.figures is None else ''}</p>"
        f'<div class="wide"><table class="compared"><thead><tr><th></th>{heads}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div></section>"
    )


def _waits(records: Sequence[RunRecord]) -> str:
    several = [wait_summary(record.name, record, record.jobs) for record in records if record.jobs]
    if not several:
        return ""
    marks = {record.name: turn for turn, record in enumerate(records)}
    classes = sorted({job.klass for record in records for job in record.jobs})
    by_class = [
        wait_summary(f"{klass or '(no class)'}: {record.name}", record, mine)
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
        f"{plot_figure(box_plot(several, marks, ident='waited', by='configuration'))}"
        f'<div class="pair">{plot_figure(share_plot(several, marks, ident="share", by="configuration"), level=3)}'
        f"<div>{waits_table(several, by='configuration')}{more}</div></div></section>"
    )


def _classes(several: Sequence[WaitSummary]) -> str:
    return waits_table(several, by="class")


def _changed(records: Sequence[RunRecord]) -> str:
    """Jobs whose wait differs most between configurations."""
    rows = changed_jobs(records, most=CHANGED_MAX)
    if not rows:
        return ""
    cells = [
        [row.name, row.queue, row.klass, *("-" if wait is None else number_text(wait) for wait in row.waits),
         number_text(row.spread)]
        for row in rows
    ]  # fmt: skip
    heads = ["job", "queue", "class", *(f"{record.name}: wait, s" for record in records),
             "largest difference, s"]  # fmt: skip
    return (
        '<section id="changed"><h2>Jobs whose wait differs most</h2>'
        f"{html_table(heads, cells, kind='sortable')}</section>"
    )


def _said(one: RunReport) -> str:
    """Verdicts, tables and troubles of one configuration, where there are any."""
    inner = (
        run_errors(one.record)
        + verdict_list(one.verdicts, ident="")
        + table_section(one.tables, ident="")
    )
    return f"<section><h2>{escape_html(one.record.name)}</h2>{inner}</section>" if inner else ""


# -- plots -------------------------------------------------------------------------------------
def _lines(records: Sequence[RunRecord], unit: Unit, axis: TimeAxis) -> str:
    """Everything that is one number at a time, one line per configuration."""
    looks = [f"l{turn} d{turn}" for turn in range(len(records))]
    used = {record.name: over_time.used_amounts(record, RESOURCE[unit]) for record in records}
    waited = {record.name: asked_series(record, unit) for record in records}
    there = max(float(offered_series(record, unit).values.max(initial=0)) for record in records)
    plots = [
        _overlay(used, axis, looks, ident="use", unit=unit, least=there,
                 title=f"{unit[0].upper()}{unit[1:]} in use"),
        _overlay(waited, axis, looks, ident="waiting", unit=unit,
                 title=f"{unit[0].upper()}{unit[1:]} that jobs waited for"),
    ]  # fmt: skip
    if unit == "GPUs" and any(len(over_time.fair_share(record)) > 1 for record in records):
        jain = {record.name: over_time.jain_index(record) for record in records}
        plots.append(_overlay(jain, axis, looks, ident="jain", unit="index", lasting=True,
                              title="Jain's index of fairness so far, 1 is even"))  # fmt: skip
    if unit == "GPUs":
        useless = {record.name: over_time.fragmentation_steps(record)[0] for record in records}
        plots.append(_overlay(useless, axis, looks, ident="fragments", unit="GPUs",
                              title="Free GPUs that no job of the run can use"))  # fmt: skip
    if any(record.evictions for record in records):
        count = {record.name: over_time.eviction_steps(record) for record in records}
        cost = {record.name: over_time.lost_gpu_hours(record) for record in records}
        plots.append(_overlay(count, axis, looks, ident="evicted0", unit="pods", lasting=True,
                              title="Pods evicted so far"))  # fmt: skip
        plots.append(_overlay(cost, axis, looks, ident="evicted1", unit="GPU-hours", lasting=True,
                              title="GPU-hours of work lost so far"))  # fmt: skip
    pairs = "".join(plot_figure(plot) for plot in plots[2:])
    return "".join(plot_figure(plot) for plot in plots[:2]) + f'<div class="pair">{pairs}</div>'


def _overlay(
    lines: dict[str, StepFunction], axis: TimeAxis, looks: Sequence[str], *,
    ident: str, unit: str, title: str, least: float = 0.0, lasting: bool = False,
) -> Plot:  # fmt: skip
    """One line each; ``lasting`` values stay after the end of a run that is shorter than others."""
    shown = lines if lasting else {name: _ended(part, axis.seconds) for name, part in lines.items()}
    top = max([least, *(float(part.values.max(initial=0)) for part in shown.values())])
    return line_plot(shown, axis, ident=ident, unit=unit, title=title, note="", top=top or 1.0,
                     marks=looks, tall=170)  # fmt: skip


def _ended(part: StepFunction, seconds: float) -> StepFunction:
    if part.until >= seconds:
        return part
    return StepFunction(np.append(part.times, part.until), np.append(part.values, 0.0), seconds)


def _small(records: Sequence[RunRecord], unit: Unit, axis: TimeAxis) -> str:
    """The use by queue and the Gantt picture of each, on the same scales."""
    colour = colour_numbers(queues_in_order(records, unit))
    top = max(utilization_plot_height(record, unit, axis) for record in records)
    uses, gantts = [], []
    for turn, record in enumerate(records):
        plot = utilization_plot(
            record, unit, axis, colour, ident=f"use{turn}", top=top, title=record.name
        )
        keys = [attrs.evolve(key, picks="") for key in plot.keys]
        uses.append(plot_figure(attrs.evolve(plot, keys=keys, tall=150), level=3))
        small = gantt_plot(record, unit, axis, colour, ident=f"gantt{turn}", title=record.name,
                           small=True)  # fmt: skip
        gantts.append(plot_figure(small, level=3))
    what = "GPU" if unit == "GPUs" else "node"
    return (
        f'<section><h2>{unit[0].upper()}{unit[1:]} in use, by queue</h2><div class="pair">'
        f"{''.join(uses)}</div></section><section><h2>Who held which {what} when</h2>"
        '<p class="note">Colour tells the queue, or the job where there is one queue. '
        "Thick edges are evictions, grey is a node that could not be used.</p>"
        f'<div class="pair">{"".join(gantts)}</div></section>'
    )
