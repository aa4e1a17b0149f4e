"""The Gantt picture: which job held which GPU when."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gpusched.engine.run_record import RunRecord
from gpusched.lab.report.plots.gantt_layout import ROW, GanttBar, GanttChart, layout_gantt
from gpusched.lab.report.plots.svg import (
    COLOURS,
    LegendEntry,
    Plot,
    TimeAxis,
    duration_text,
    escape_html,
    html_table,
    rectangles_path,
)  # fmt: skip
from gpusched.lab.report.plots.utilization import queue_label
from gpusched.lab.report.statistics.series import OTHERS, SERIES_MAX, Unit

TALL_MAX: Final = 1400
"""Pixels; of more rows each becomes thinner than a pixel."""
SCROLL: Final = 720
"""Pixels of the picture that are seen at once."""
LABELS_MAX: Final = 300
"""Texts on bars without a script, which places them anew for every zoom."""
PIXELS: Final = 900
"""Width for which labels and edges are placed."""
NAMES_MAX: Final = 40
"""Nodes that are all named at the left; of more only some are."""


POINTED_MAX: Final = 3000
"""Bars of a small picture that can be pointed at: the data of more would outgrow the page."""
TABLE_MAX: Final = 200
"""Nodes in the table below the picture."""
NAME_MAX: Final = 11
"""Characters of a node's name that have room at the left."""


def gantt_plot(
    record: RunRecord, unit: Unit, axis: TimeAxis, colour: Mapping[str, int], *,
    ident: str = "gantt", title: str = "", small: bool = False,
) -> Plot:  # fmt: skip
    """A row per GPU; colour is the queue's, or the job's own where there is only one queue."""
    laid = layout_gantt(record, unit, axis)
    queues = sorted({record.jobs[bar.job].queue for bar in laid.bars if bar.job >= 0})
    own = len(queues) <= 1
    tints = [_tint(bar, record, colour, own=own) for bar in laid.bars]
    row_px = 3 if small else max(14, min(26, 260 // max(1, laid.rows)))
    tall = max(24, min(TALL_MAX // (4 if small else 1), laid.rows * row_px))
    inset = 1 if tall / max(1, laid.rows) >= 4 else 0
    parts = [_bands(laid, axis)]
    if laid.kept:
        parts.append(f'<path class="kept" d="{rectangles_path(laid.kept)}"/>')
    for tint in sorted(set(tints)):
        boxes = [
            (bar.x, bar.y, bar.w, max(1, bar.h - inset))
            for bar, own_tint in zip(laid.bars, tints, strict=True)
            if own_tint == tint
        ]
        parts.append(f'<path class="{tint}" d="{rectangles_path(boxes)}"/>')
    # Left edges keep bars of equal looks apart; bars that are hardly seen would vanish under them.
    edges = "".join(
        f"M{bar.x} {bar.y}v{bar.h}" for bar in laid.bars if bar.w * PIXELS > axis.wide * 3
    )
    if edges:
        parts.append(f'<path class="edge" d="{edges}"/>')
    if laid.down:
        parts.append(f'<path class="down" d="{rectangles_path(laid.down)}"/>')
    cuts = "".join(f"M{bar.x + bar.w} {bar.y}v{bar.h}" for bar in laid.bars if bar.evicted)
    if cuts:
        parts.append(f'<path class="cut" d="{cuts}"/>')
    return Plot(
        ident=ident, title=title or f"Who held which {'GPU' if unit == 'GPUs' else 'node'} when",
        note=_note(laid, unit, own=own) if not title else "",
        drawing="".join(parts), wide=axis.wide, deep=max(1, laid.rows * ROW), tall=tall,
        scroll=0 if small or tall <= SCROLL else SCROLL, rows_down=True,
        keys=() if title else _keys(laid, queues, colour, own=own),
        x_ticks=axis.ticks(5 if small else 8), y_ticks=_names(laid, 6 if small else NAMES_MAX),
        alt=f"Gantt picture of {laid.rows} rows on {len(laid.nodes)} nodes over "
        f"{duration_text(record.seconds)}, {len(laid.bars)} runs",
        over="" if small else _labels(laid, record, tints, axis, tall / max(1, laid.rows)),
        data=None if small and len(laid.bars) > POINTED_MAX
        else _data(laid, tints, record, own_jobs=small), table="" if small else _runs(laid, record, axis),
    )  # fmt: skip


def _tint(bar: GanttBar, record: RunRecord, colour: Mapping[str, int], *, own: bool) -> str:
    if own:
        # Jobs in order take the hues in turn; shades tell those apart that meet in one hue.
        return f"f{max(bar.job, 0) % COLOURS} h{bar.shade}"
    queue = record.jobs[bar.job].queue if bar.job >= 0 else ""
    return f"f{colour.get(queue, SERIES_MAX)} h{bar.shade}"


def _note(laid: GanttChart, unit: Unit, *, own: bool) -> str:
    rows = "One row per GPU." if unit == "GPUs" else "Rows of a node are its pods side by side."
    paint = (
        "Neighbouring jobs differ in colour." if own
        else "Colour tells the queue, shade tells neighbouring jobs apart."
    )  # fmt: skip
    left = f" {laid.left_out:,} pods without GPUs are not drawn." if laid.left_out else ""
    return f"{rows} {paint}{left}"


def _keys(
    laid: GanttChart, queues: Sequence[str], colour: Mapping[str, int], *, own: bool
) -> list[LegendEntry]:
    keys = []
    if not own:
        drawn = sorted((q for q in queues if colour.get(q, SERIES_MAX) < SERIES_MAX),
                       key=lambda queue: colour[queue])  # fmt: skip
        keys = [
            LegendEntry(mark=f"f{colour[queue]}", text=queue_label(queue), picks=queue)
            for queue in drawn
        ]
        if len(drawn) < len(queues):
            keys.append(LegendEntry(mark=f"f{SERIES_MAX}", text=OTHERS))
    if any(bar.evicted for bar in laid.bars):
        keys.append(LegendEntry(mark="cutkey", text="evicted here"))
    if laid.down:
        keys.append(LegendEntry(mark="downkey", text="node not usable"))
    if laid.kept:
        keys.append(LegendEntry(mark="keptkey", text="kept by a Reservation"))
    return keys


def _bands(laid: GanttChart, axis: TimeAxis) -> str:
    """Every second node on a faint ground."""
    boxes = [
        (0, node.first * ROW, axis.wide, node.count * ROW)
        for turn, node in enumerate(laid.nodes)
        if turn % 2
    ]
    return f'<path class="band" d="{rectangles_path(boxes)}"/>' if boxes else ""


def _names(laid: GanttChart, most: int) -> list[tuple[float, str]]:
    """Names of nodes, without what all begin with where they are long."""
    names = [node.name for node in laid.nodes]
    cut = 0
    if len(names) > 1 and max(map(len, names)) > NAME_MAX:
        first, last = min(names), max(names)
        same = next((at for at, each in enumerate(first) if each != last[at : at + 1]), len(first))
        cut = min(same, max(0, min(map(len, names)) - 1))
    step = max(1, -(-len(names) // most))
    return [
        ((node.first + node.count / 2) / laid.rows, node.name[cut:] if cut else node.name)
        for node in laid.nodes[::step]
    ]


def _labels(
    laid: GanttChart, record: RunRecord, tints: Sequence[str], axis: TimeAxis, row_px: float
) -> str:
    """Names on the bars that are wide and high enough, the largest ones first."""
    fits = []
    for turn, bar in enumerate(laid.bars):
        wide, high = bar.w / axis.wide * PIXELS, bar.h / ROW * row_px
        name = _short(record, bar)
        if high >= 12 and wide >= 6.2 * len(name) + 6:
            fits.append((-wide * high, turn, name))
    parts = []
    for _, turn, name in sorted(fits)[:LABELS_MAX]:
        bar = laid.bars[turn]
        style = (
            f"left:{100 * bar.x / axis.wide:.3f}%;width:{100 * bar.w / axis.wide:.3f}%;"
            f"top:{100 * (bar.y + bar.h / 2) / (laid.rows * ROW):.3f}%"
        )
        colour, shade = tints[turn].split(" ")
        parts.append(
            f'<span class="t{colour[1:]} {shade}" style="{style}">{escape_html(name)}</span>'
        )
    return "".join(parts)


def _short(record: RunRecord, bar: GanttBar) -> str:
    """The job's name without its namespace."""
    return record.jobs[bar.job].key.partition("/")[2] if bar.job >= 0 else ""


def _data(
    laid: GanttChart, tints: Sequence[str], record: RunRecord, *, own_jobs: bool
) -> dict[str, Any]:
    """Bars for pointing: flat list of y, height, x, width, job, and 1 where it was evicted."""
    flat: list[int] = []
    for bar in laid.bars:
        flat += [bar.y, bar.h, bar.x, bar.w, bar.job, int(bar.evicted)]
    looks = sorted(set(tints))
    at = {tint: turn for turn, tint in enumerate(looks)}
    nodes: list[str | int] = []
    for node in laid.nodes:
        nodes += [node.name, node.first, node.count]
    data: dict[str, Any] = {
        "kind": "gantt", "row": ROW, "bars": flat, "nodes": nodes, "looks": looks,
        "look": [at[tint] for tint in tints], "down": [each for box in laid.down for each in box],
    }  # fmt: skip
    if own_jobs:
        queues = sorted({job.queue for job in record.jobs})
        data |= {"queues": queues, "jobs": job_rows(record, queues)}
    return data


def job_rows(record: RunRecord, queues: Sequence[str]) -> list[list[Any]]:
    """Jobs for the script: name, index of the queue, pods, made, started, ended, end."""
    at = {name: turn for turn, name in enumerate(queues)}
    return [
        [job.key.removeprefix("default/"), at[job.queue], job.size, round(job.created, 3),
         _moment(job.started), _moment(job.ended), job.end.value]
        for job in record.jobs
    ]  # fmt: skip


def _moment(at: float | None) -> float | None:
    return None if at is None else round(at, 3)


def _runs(laid: GanttChart, record: RunRecord, axis: TimeAxis) -> str:
    """How long each node was held, as a table: what the picture shows at a glance."""
    spent, count = [0] * len(laid.nodes), [0] * len(laid.nodes)
    firsts = [node.first for node in laid.nodes]
    for bar in laid.bars:
        at = bisect_right(firsts, bar.y // ROW) - 1
        while at < len(laid.nodes) and firsts[at] * ROW < bar.y + bar.h:
            node = laid.nodes[at]
            low = max(bar.y, node.first * ROW)
            high = min(bar.y + bar.h, (node.first + node.count) * ROW)
            spent[at] += (high - low) * bar.w
            count[at] += 1
            at += 1
    rows = [
        [node.name, str(node.count), str(count[at]),
         f"{100 * spent[at] / (node.count * ROW * axis.wide):.1f} %"]
        for at, node in enumerate(laid.nodes[:TABLE_MAX])
    ]  # fmt: skip
    more = len(laid.nodes) - TABLE_MAX
    left = f"; {more:,} more nodes" if more > 0 else ""
    heads = ["node", "rows", "runs", "held, share of the time"]
    return html_table(
        heads, rows, caption=f"{len(record.jobs)} jobs{left}; every pod is in pods.csv"
    )
