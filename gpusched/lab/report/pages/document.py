"""What stands around the plots of a page: the bar that zooms, the data of the script, the footer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gpusched.engine.run_record import RunRecord
from gpusched.lab.report.pages.asset_files import read_asset
from gpusched.lab.report.pages.style import style_sheet
from gpusched.lab.report.plots.gantt import job_rows
from gpusched.lab.report.plots.svg import TALL, TimeAxis, escape_html, script_json, step_area
from gpusched.lab.report.statistics import over_time
from gpusched.lab.report.statistics.series import RESOURCE, SERIES_MAX, Unit, align_series

MARKS_MAX: Final = 400
"""Acts that are marked on time axes and told when pointed at."""


def zoom_bar(record: RunRecord, unit: Unit, axis: TimeAxis) -> str:
    """What zooms all plots in time: an overview to drag on, with the use of the whole run."""
    used = align_series([over_time.used_amounts(record, RESOURCE[unit])], axis.seconds, most=300)
    top = float(used.rows[0].max(initial=0)) or 1.0
    tops = [round(TALL * (1 - value / top)) for value in used.rows[0].tolist()]
    path = step_area([axis.x(at) for at in used.at.tolist()], tops, axis.wide)
    buttons = "".join(
        f'<button type="button" data-zoom="{act}" aria-label="{says}" title="{says}">{sign}</button>'
        for act, sign, says in (
            ("in", "+", "zoom in"), ("out", "\N{MINUS SIGN}", "zoom out"),
            ("all", "whole run", "show the whole run"),
        )
    )  # fmt: skip
    return (
        f'<div id="bar" hidden><span id="range"></span>{buttons}'
        '<button type="button" id="picked" aria-label="show all jobs again"></button>'
        f'<div id="mini" aria-hidden="true"><svg viewBox="0 0 {axis.wide} {TALL}" '
        f'preserveAspectRatio="none"><path class="f{SERIES_MAX}" d="{path}"/></svg><i></i></div></div>'
    )


def run_data(record: RunRecord, axis: TimeAxis, colour: Mapping[str, int]) -> dict[str, Any]:
    """What the script knows of the run."""
    queues = list(colour)
    jobs = job_rows(record, queues)
    acts = [[axis.x(act.at), act.sentence[:120]] for act in record.acts[:MARKS_MAX]]
    return {"wide": axis.wide, "per_s": axis.per_s, "seconds": axis.seconds, "queues": queues,
            "jobs": jobs, "acts": acts}  # fmt: skip


def page_footer(files: Sequence[str], names: Sequence[str]) -> str:
    """How to read the page, and where the numbers of each run are."""
    links = ", ".join(
        f'<a href="{escape_html(folder)}/jobs.csv">{escape_html(name)}</a>'
        for folder, name in zip(files, names, strict=False)
    )
    data = f"The numbers are CSV files: {links}, and those beside jobs.csv. " if links else ""
    return (
        f"<footer><p>{data}Times are seconds of the run. Drag over a plot to zoom all of them, "
        "double-click to see the whole run again; with the keyboard: arrows, +, \N{MINUS SIGN}, 0. "
        "Press a job or a queue to see it alone.</p></footer>"
    )


def html_document(title: str, body: str, data: Mapping[str, Any] | None) -> str:
    """The page as a whole; its policy forbids every request."""
    script = "" if data is None else (
        f'<script type="application/json" id="run">{script_json(data)}</script>'
        f"<script>{read_asset('page.js')}</script>"
    )  # fmt: skip
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape_html(title)} \N{MIDDLE DOT} gpusched</title><style>{style_sheet()}</style></head>"
        f"<body>{body}{script}</body></html>\n"
    )
