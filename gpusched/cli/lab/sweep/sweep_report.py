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

AXES: Final = (("p95(wait)", -1), ("gpuUse", 1))
"""Of the plot and the front, with 1 where more is better and -1 where less is."""
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
        heads = setting_heads(rows, asked)
        cells = [setting_cells(rows[at], at, asked) for at in order[:_ROWS_MAX]]
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


def _columns(asked: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*_TABLE, *asked)))


def setting_heads(rows: Sequence[SweepRow], asked: Sequence[str]) -> list[str]:
    """Heads of the table of settings, one for each of ``setting_cells``."""
    keys = [key for key, _ in rows[0].values]
    called = {each.name: each.called for each in STATISTICS}
    named = [called.get(name, name) for name in _columns(asked)]
    return ["", "configuration", *keys, "played", *named, "never started"]


def setting_cells(row: SweepRow, number: int, asked: Sequence[str]) -> list[str]:
    """A row of it: number and mark, what it is, its means."""
    figures = [statistic_text(name, row.mean(name)) for name in _columns(asked)]
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


def settings_section(
    rows: Sequence[SweepRow], asked: Sequence[str], *, axes: tuple[str, str], first: str = ""
) -> SettingsSection:
    """The settings on one input: a plot of two statistics, and the table.

    Args:
        rows: of one input.
        asked: statistics of the table beside those that every one has.
        axes: names of the statistics across and up.
        first: name of the configuration that the others are compared with.
    """
    dots = [
        ScatterDot(
            number=at + 1, label=row.label, x=across, y=up, marked=row.front,
            first=bool(first) and row.configuration == first,
        )
        for at, row in enumerate(rows)
        if (across := row.mean(axes[0])) is not None and (up := row.mean(axes[1])) is not None
    ]  # fmt: skip
    return SettingsSection(
        title=rows[0].input,
        dots=dots,
        x=sweep_axis(axes[0]),
        y=sweep_axis(axes[1]),
        heads=["*: on the front", *setting_heads(rows, asked)[1:]],
        rows=[setting_cells(row, at, asked) for at, row in enumerate(rows)],
    )


def render_sweep(summary: SweepSummary, asked: Sequence[str]) -> str:
    """The page."""
    axes = (AXES[0][0], AXES[1][0])
    by_input: dict[str, list[SweepRow]] = {}
    for row in summary.rows:
        by_input.setdefault(row.input, []).append(row)
    notes = {
        "Points that failed": [f"{label}: {said}" for label, said in summary.failed.items()],
        "What did not hold": [f"{label}: {said}" for label, said in summary.broken.items()],
    }
    return sweep_page(
        [settings_section(rows, asked, axes=axes) for rows in by_input.values()],
        title=f"Sweep {summary.source}",
        state=summary.state,
        complete=summary.played == summary.points,
        notes=notes,
    )
