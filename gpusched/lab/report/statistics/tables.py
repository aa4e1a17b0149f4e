"""Tables of a scenario: what others published beside the statistics of this run, as text."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from gpusched.base.classes import frozen
from gpusched.engine.run_record import RunRecord
from gpusched.lab.report.statistics.named import StatisticValue, statistic

_NONE: Final = "-"


class RowText(Protocol):
    """One line of a table as its scenario says it, see ``gpusched.lab.scenario.model.scenario.Row``."""

    @property
    def name(self) -> str:
        """Name of the system in the first column."""

    @property
    def cells(self) -> Sequence[str]:
        """Texts, or names of statistics."""

    @property
    def measured(self) -> bool:
        """Whether the cells are statistics."""

    @property
    def of(self) -> Mapping[str, str]:
        """Which jobs they count; empty for all."""


class TableText(Protocol):
    """A table as its scenario says it, see ``gpusched.lab.scenario.model.scenario.Table``."""

    @property
    def title(self) -> str:
        """Heading above the table."""

    @property
    def columns(self) -> Sequence[str]:
        """Heads of the columns after the one of names."""

    @property
    def rows(self) -> Sequence[RowText]:
        """Lines of the table in their order."""


@frozen(kw_only=True)
class TableCell:
    """One cell.

    Attributes:
        text: as shown.
        figure: what was measured; None of published texts and names.
    """

    text: str
    figure: StatisticValue | None = None


@frozen(kw_only=True)
class FilledTable:
    """A table with its figures: every row has a name first and as many cells as there are heads."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[TableCell, ...], ...]


def fill_table(table: TableText, record: RunRecord) -> FilledTable:
    """The table with the figures of a run; ``-`` where a row has no cell.

    Raises:
        NoStatistic: a cell names none.
    """
    heads = ("", *table.columns)
    rows = []
    for row in table.rows:
        cells = [TableCell(text=row.name)]
        for said in row.cells:
            figure = statistic(record, said, of=row.of) if row.measured and said else None
            known = figure is None or figure.value is not None
            cells.append(TableCell(text=str(said if figure is None else figure), figure=figure))
            if not known:
                cells[-1] = TableCell(text=_NONE, figure=figure)
        missing = len(heads) - len(cells)
        rows.append((*cells, *(TableCell(text=_NONE) for _ in range(missing))))
    return FilledTable(title=table.title, heads=heads, rows=tuple(rows))


def table_as_text(table: FilledTable) -> str:
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


def table_as_markdown(table: FilledTable) -> str:
    """For documents: the title in bold, then a table."""
    aligned = ["---", *("---:" for _ in table.heads[1:])]
    grid = [table.heads, aligned, *([cell.text for cell in row] for row in table.rows)]
    lines = ["| " + " | ".join(text.replace("|", "\\|") for text in line) + " |" for line in grid]
    return "\n".join([f"**{table.title}**", "", *lines])


def html_rows(table: FilledTable) -> list[list[str]]:
    """Heads, then rows, every cell escaped for HTML."""
    grid = [list(table.heads), *([cell.text for cell in row] for row in table.rows)]
    return [[html.escape(text) for text in line] for line in grid]
