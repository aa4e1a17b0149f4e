"""What is said of a sweep: a table, and a page with what can be had of two statistics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from gpusched.cli.command import table
from gpusched.cli.lab.sweep.results import SweepRow, SweepSummary
from gpusched.lab.report.pages.sweep_page import SettingsSection, sweep_page
from gpusched.lab.report.plots.scatter import ScatterAxis, ScatterDot
from gpusched.lab.report.statistics.comparison import STATISTICS
from gpusched.lab.report.statistics.named import StatisticValue, unit_of

AXES: Final = ("p95(wait)", "gpuUse")
"""Of the plot and the front: the first is better where it is less, the second where it is more."""
_TABLE: Final = ("median(wait)", "p95(wait)", "gpuUse", "evictions", "fairness")
_ROWS_MAX: Final = 40
"""Rows that are printed for an input, those of the front first; all are in the files."""
_FAILED_MAX: Final = 20


def sweep_lines(summary: SweepSummary, asked: Sequence[str]) -> Iterator[str]:
    """The answer for people."""
    yield f"{summary.source}: {summary.state}"
    for given in dict.fromkeys(row.input for row in summary.rows):
        rows = [row for row in summary.rows if row.input == given]
        order = sorted(range(len(rows)), key=lambda at: (not rows[at].front, at))
        yield ""
        heads = _heads(rows, asked)
        cells = [_cells(rows[at], at, heads_asked=asked) for at in order[:_ROWS_MAX]]
        yield f"{given}: {len(rows):,} settings, means over seeds; * nothing is better in both wait and use"
        yield table([heads, *cells], indent="  ")
        if len(rows) > _ROWS_MAX:
            yield f"  and {len(rows) - _ROWS_MAX:,} more, in results.csv"
    yield from _failures(summary)


def _failures(summary: SweepSummary) -> Iterator[str]:
    for heading, found in (("failed", summary.failed), ("did not hold", summary.broken)):
        if found:
            yield ""
            yield f"{len(found):,} points {heading}"
            for label, said in list(found.items())[:_FAILED_MAX]:
                yield f"  {label}: {said}"
            if len(found) > _FAILED_MAX:
                yield f"  and {len(found) - _FAILED_MAX:,} more, in results.json"


def _heads(rows: Sequence[SweepRow], asked: Sequence[str]) -> list[str]:
    keys = [key for key, _ in rows[0].values]
    called = {each.name: each.called for each in STATISTICS}
    named = [called.get(name, name) for name in (*_TABLE, *asked)]
    return ["", "configuration", *keys, "played", *named, "never started"]


def _cells(row: SweepRow, number: int, *, heads_asked: Sequence[str]) -> list[str]:
    figures = [statistic_text(name, row.mean(name)) for name in (*_TABLE, *heads_asked)]
    played = f"{len(row.results)} of {row.points}"
    mark = f"{number + 1}{'*' if row.front else ''}"
    values = [value for _, value in row.values]
    return [mark, row.configuration, *values, played, *figures, f"{row.never_started:,}"]


def statistic_text(name: str, value: float | None) -> str:
    """A figure as people write it; ``-`` where it is not known."""
    unit = unit_of(name.partition(" of ")[0])
    return "-" if value is None else str(StatisticValue(value, unit))


def sweep_axis(name: str) -> ScatterAxis:
    """A statistic along an axis: a second, a hundredth of a share, are the least that is drawn."""
    called = {each.name: each.called for each in STATISTICS}
    least = {"s": 1.0, "share": 0.01}.get(unit_of(name.partition(" of ")[0]), 1.0)
    return ScatterAxis(name=called.get(name, name), text=partial(statistic_text, name), least=least)


def render_sweep(
    summary: SweepSummary, asked: Sequence[str], *, axes: tuple[str, str] = AXES
) -> str:
    """The page."""
    x, y = (sweep_axis(name) for name in axes)
    sections = []
    for given in dict.fromkeys(row.input for row in summary.rows):
        rows = [row for row in summary.rows if row.input == given]
        dots = [
            ScatterDot(number=at + 1, label=row.label, x=across, y=up, marked=row.front)
            for at, row in enumerate(rows)
            if (across := row.mean(axes[0])) is not None and (up := row.mean(axes[1])) is not None
        ]
        cells = [_cells(row, at, heads_asked=asked) for at, row in enumerate(rows)]
        heads = ["*: on the front", *_heads(rows, asked)[1:]]
        sections.append(SettingsSection(title=given, dots=dots, x=x, y=y, heads=heads, rows=cells))
    notes = {
        "Points that failed": [f"{label}: {said}" for label, said in summary.failed.items()],
        "What did not hold": [f"{label}: {said}" for label, said in summary.broken.items()],
    }
    return sweep_page(
        sections, title=f"Sweep {summary.source}", state=summary.state,
        complete=summary.played == summary.points, notes=notes,
    )  # fmt: skip
