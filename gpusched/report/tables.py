"""Tables of a scenario: what others published beside the statistics of this run, as text."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import attrs

from gpusched.report.record import Record
from gpusched.report.statistics import Figure, statistic

_NONE: Final = "-"


class RowSaid(Protocol):
    """One line of a table as its scenario says it, see ``gpusched.scenario.model.Row``."""

    @property
    def name(self) -> str:
        """Of the system."""

    @property
    def cells(self) -> Sequence[str]:
        """Texts, or names of statistics."""

    @property
    def measured(self) -> bool:
        """Whether the cells are statistics."""

    @property
    def of(self) -> Mapping[str, str]:
        """Which jobs they count; empty for all."""


class TableSaid(Protocol):
    """A table as its scenario says it, see ``gpusched.scenario.model.Table``."""

    @property
    def title(self) -> str:
        """Above it."""

    @property
    def columns(self) -> Sequence[str]:
        """Heads of the columns after the one of names."""

    @property
    def rows(self) -> Sequence[RowSaid]:
        """Its lines."""


@attrs.frozen(kw_only=True)
class Cell:
    """One cell.

    Attributes:
        text: as shown.
        figure: what was measured; None of published texts and names.
    """

    text: str
    figure: Figure | None = None


@attrs.frozen(kw_only=True)
class FilledTable:
    """A table with its figures: every row has a name first and as many cells as there are heads."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


def filled(table: TableSaid, record: Record) -> FilledTable:
    """The table with the figures of a run; ``-`` where a row has no cell.

    Raises:
        NoStatistic: a cell names none.
    """
    heads = ("", *table.columns)
    rows = []
    for row in table.rows:
        cells = [Cell(text=row.name)]
        for said in row.cells:
            figure = statistic(record, said, of=row.of) if row.measured and said else None
            known = figure is None or figure.value is not None
            cells.append(Cell(text=str(said if figure is None else figure), figure=figure))
            if not known:
                cells[-1] = Cell(text=_NONE, figure=figure)
        missing = len(heads) - len(cells)
        rows.append((*cells, *(Cell(text=_NONE) for _ in range(missing))))
    return FilledTable(title=table.title, heads=heads, rows=tuple(rows))


def plain(table: FilledTable) -> str:
    """For a terminal: the title, then columns side by side; names left, cells right."""
    grid = [table.heads, *([cell.text for cell in row] for row in table.rows)]
    widths = [max(len(line[place]) for line in grid) for place in range(len(table.heads))]
    lines = [
        "  ".join(
            text.ljust(width) if not place else text.rjust(width)
            for place, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in grid
    ]
    return "\n".join([table.title, *lines])


def markdown(table: FilledTable) -> str:
    """For documents: the title in bold, then a table."""
    aligned = ["---", *("---:" for _ in table.heads[1:])]
    grid = [table.heads, aligned, *([cell.text for cell in row] for row in table.rows)]
    lines = ["| " + " | ".join(text.replace("|", "\\|") for text in line) + " |" for line in grid]
    return "\n".join([f"**{table.title}**", "", *lines])


def html_rows(table: FilledTable) -> list[list[str]]:
    """Heads, then rows, every cell escaped for HTML."""
    grid = [list(table.heads), *([cell.text for cell in row] for row in table.rows)]
    return [[html.escape(text) for text in line] for line in grid]
