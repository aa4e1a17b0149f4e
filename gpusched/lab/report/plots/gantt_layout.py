"""Which rows of the Gantt picture a pod fills, and as how few rectangles a run can be drawn.

A row is one GPU of one node, in a cluster without GPUs one pod's place on a node. Shares of one
GPU that run beside each other divide its row. Runs of one job that lie on neighbouring rows and
begin and end together become one rectangle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import attrs

from gpusched.base.classes import frozen
from gpusched.engine.run_record import LifeEnd, NodeLife, PodLife, RunRecord
from gpusched.lab.report.plots.svg import TimeAxis
from gpusched.lab.report.statistics.series import Unit

ROW: Final = 12
"""Coordinates of one row: it divides by 2, 3, 4 and 6."""
SHADES: Final = 4
"""Of one colour, so that neighbouring jobs of a queue are told apart."""


@frozen
class GanttBar:
    """A rectangle: coordinates, index of the job, shade, and whether it ended in an eviction."""

    y: int
    h: int
    x: int
    w: int
    job: int
    shade: int
    evicted: bool


@frozen
class GanttNodeRows:
    """Rows of one node, first and how many."""

    name: str
    first: int
    count: int


@frozen(kw_only=True)
class GanttChart:
    """The picture as rectangles.

    Attributes:
        down: rectangles in which a node was not usable or not there: x, y, width, height.
        kept: rectangles in which a Reservation kept a node.
        left_out: bound pods that ask for none of what the rows are made of.
    """

    nodes: tuple[GanttNodeRows, ...]
    rows: int
    bars: tuple[GanttBar, ...]
    down: tuple[tuple[int, int, int, int], ...]
    left_out: int
    kept: tuple[tuple[int, int, int, int], ...] = ()


@frozen
class _PodSegment:
    """A pod's part of one row, before rectangles are joined: twelfths of the row and coordinates."""

    row: int
    top: int
    deep: int
    x: int
    until: int
    pod: PodLife


def layout_gantt(record: RunRecord, unit: Unit, axis: TimeAxis) -> GanttChart:
    """Lay out a run."""
    of_node: dict[str, list[PodLife]] = {}
    left_out = 0
    for pod in record.pods:
        if pod.bound is None or not pod.node:
            continue
        if unit == "GPUs" and not pod.gpus:
            left_out += 1
            continue
        of_node.setdefault(pod.node, []).append(pod)
    lives = {node.name: node for node in record.nodes}
    laid: list[_PodSegment] = []
    nodes: list[GanttNodeRows] = []
    down: list[tuple[int, int, int, int]] = []
    first = 0
    for name in sorted({*lives, *of_node}, key=_natural):
        node = lives.get(name)
        count, parts = _lay(of_node.get(name, []), _slots(node, unit), record.seconds, axis)
        if not count:
            continue
        laid += [attrs.evolve(part, row=part.row + first) for part in parts]
        if node is not None:
            down += [(x, first * ROW, w, count * ROW) for x, w in _down(node, record.seconds, axis)]
        nodes.append(GanttNodeRows(name, first, count))
        first += count
    index = {job.key: turn for turn, job in enumerate(record.jobs)}
    return GanttChart(nodes=tuple(nodes), rows=first, bars=tuple(_bars(laid, index)),
                 down=tuple(down), left_out=left_out, kept=_kept(record, nodes, axis))  # fmt: skip


def _kept(
    record: RunRecord, nodes: Sequence[GanttNodeRows], axis: TimeAxis
) -> tuple[tuple[int, int, int, int], ...]:
    """Rectangles of nodes that Reservations kept: x, y, width, height."""
    rows = {node.name: node for node in nodes}
    boxes = (
        (
            axis.x(span.since),
            node.first * ROW,
            axis.x(span.until) - axis.x(span.since),
            node.count * ROW,
        )
        for span in record.kept
        for name in span.nodes
        if (node := rows.get(name)) is not None
    )
    return tuple(box for box in boxes if box[2] > 0)


def _natural(name: str) -> list[tuple[int, int, str]]:
    """Sort key that puts ``node-2`` before ``node-10``."""
    parts: list[tuple[int, int, str]] = []
    digits = ""
    for each in name + "\0":
        if each.isascii() and each.isdigit():
            digits += each
            continue
        if digits:
            parts.append((0, int(digits), digits))
            digits = ""
        parts.append((1, 0, each))
    return parts


def _slots(node: NodeLife | None, unit: Unit) -> int:
    """Whole GPUs that a node ever had."""
    if node is None or unit != "GPUs":
        return 0
    return max((-(-span.gpus // 1000) for span in node.spans), default=0)


def _down(node: NodeLife, seconds: float, axis: TimeAxis) -> list[tuple[int, int]]:
    """Where it was of no use: x and width."""
    gaps, at = [], 0.0
    for span in node.spans:
        if span.since > at:
            gaps.append((at, span.since))
        if not span.usable:
            gaps.append((span.since, span.until))
        at = max(at, span.until)
    if at < seconds:
        gaps.append((at, seconds))
    found = [(axis.x(a), axis.x(b) - axis.x(a)) for a, b in gaps]
    return [(x, w) for x, w in found if w > 0]


def _lay(
    pods: Sequence[PodLife], slots: int, seconds: float, axis: TimeAxis
) -> tuple[int, list[_PodSegment]]:
    """Rows of one node and which parts of them its pods fill."""
    ordered = sorted(pods, key=lambda pod: (pod.bound or 0.0, pod.name))
    taken: dict[int, list[tuple[float, float, PodLife]]] = {}
    free_at: dict[int, float] = {}
    for pod in ordered:
        since = pod.bound or 0.0
        until = seconds if pod.ended is None else pod.ended
        for row in pod.slots or _first_free(free_at, since, max(1, -(-pod.gpus // 1000))):
            taken.setdefault(row, []).append((since, until, pod))
            free_at[row] = max(free_at.get(row, 0.0), until)
    count = max([slots, *(row + 1 for row in taken)], default=0)
    laid = []
    for row in sorted(taken):
        for lane, lanes, (since, until, pod) in _shared(taken[row]):
            top, bottom = lane * ROW // lanes, (lane + 1) * ROW // lanes
            x = axis.x(since)
            laid.append(
                _PodSegment(row, top, max(1, bottom - top), x, max(x + 1, axis.x(until)), pod)
            )
    return count, laid


def _first_free(free_at: Mapping[int, float], since: float, count: int) -> tuple[int, ...]:
    """The lowest rows that no pod holds, for pods that do not tell theirs."""
    found: list[int] = []
    row = 0
    while len(found) < count:
        if free_at.get(row, 0.0) <= since:
            found.append(row)
        row += 1
    return tuple(found)


def _shared(
    spans: Iterable[tuple[float, float, PodLife]],
) -> list[tuple[int, int, tuple[float, float, PodLife]]]:
    """Lane and number of lanes of spans on one row; whole GPUs come one after the other in one."""
    ends: list[float] = []
    lanes = []
    for span in spans:
        lane = next((turn for turn, end in enumerate(ends) if end <= span[0]), len(ends))
        if lane == len(ends):
            ends.append(span[1])
        ends[lane] = span[1]
        lanes.append((lane, span))
    # Beyond twelve shares at once the lanes of one row lie on each other.
    return [(min(lane, ROW - 1), min(len(ends), ROW), span) for lane, span in lanes]


def _bars(laid: Sequence[_PodSegment], index: Mapping[str, int]) -> list[GanttBar]:
    """Rectangles; those of one job that touch and begin and end together are one."""
    ordered = sorted(
        laid,
        key=lambda part: (
            index.get(part.pod.job, -1), part.x, part.until, part.pod.end is LifeEnd.EVICTED,
            part.row, part.top, part.pod.name,
        ),
    )  # fmt: skip
    joined: list[tuple[_PodSegment, int]] = []
    for part in ordered:
        if joined:
            last, deep = joined[-1]
            if _alike(last, part) and last.row * ROW + last.top + deep == part.row * ROW + part.top:
                joined[-1] = (last, deep + part.deep)
                continue
        joined.append((part, part.deep))
    joined.sort(key=lambda pair: (pair[0].x, pair[0].row, pair[0].top, pair[0].pod.name))
    return _shaded(joined, index)


def _alike(one: _PodSegment, other: _PodSegment) -> bool:
    evicted = (one.pod.end is LifeEnd.EVICTED) == (other.pod.end is LifeEnd.EVICTED)
    return evicted and (one.pod.job, one.x, one.until) == (other.pod.job, other.x, other.until)


def _shaded(joined: Sequence[tuple[_PodSegment, int]], index: Mapping[str, int]) -> list[GanttBar]:
    """Give each job a shade that what ran before it on its rows does not have."""
    shade_of: dict[str, int] = {}
    last: dict[int, int] = {}
    bars = []
    for part, deep in joined:
        first = part.row
        rows = range(first, first + max(1, -(-deep // ROW)))
        shade = shade_of.get(part.pod.job)
        if shade is None:
            near = {last.get(row) for row in (first - 1, *rows, rows[-1] + 1)}
            turn = len(shade_of)
            choices = [(turn + step) % SHADES for step in range(SHADES)]
            shade = next((each for each in choices if each not in near), choices[0])
            shade_of[part.pod.job] = shade
        last.update(dict.fromkeys(rows, shade))
        bars.append(GanttBar(
            first * ROW + part.top, deep, part.x, part.until - part.x,
            index.get(part.pod.job, -1), shade, part.pod.end is LifeEnd.EVICTED,
        ))  # fmt: skip
    return bars
