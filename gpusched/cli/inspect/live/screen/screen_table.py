"""Tables of a terminal: columns by their importance, as wide as there is room; lines are made when they are looked at."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, TypeVar, overload

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from gpusched.base.classes import frozen

T = TypeVar("T")
_GAP: Final = "  "
_MEASURED: Final = 250
_MATTERS_LITTLE: Final = 5
"""Columns of this importance at most go before others are made narrower."""
Cell: TypeAlias = str | Text
"""A text without a style, or one with."""


@frozen(kw_only=True)
class ScreenColumn:
    """One column.

    Attributes:
        title: of it, in capitals.
        right: whether it stands to the right, as numbers do.
        importance: columns with the least are left out first where there is no room.
        widest: columns of a terminal at most; 0 for no bound.
        narrowest: it gets as much at least or is left out; 0 for all that its cells need.
        takes_rest: whether it gets what the others leave.
        wanted: so much it should get, if need be in the place of columns that matter little.
    """

    title: str
    right: bool = False
    importance: int = 5
    widest: int = 0
    narrowest: int = 0
    takes_rest: bool = False
    wanted: int = 0


@frozen
class TableLines(Sequence[Text]):
    """The lines of a table, each made when it is asked for."""

    columns: Sequence[tuple[int, ScreenColumn, int]]
    """Place among the cells of a row, column and width of those that are shown."""
    rows: Sequence[Any]
    cells: Callable[[Any], Sequence[Cell]]
    """Of a row."""

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> Text: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Text]: ...
    def __getitem__(self, index: int | slice) -> Text | Sequence[Text]:
        """A line, or several."""
        if isinstance(index, slice):
            return [self._line(self.cells(row)) for row in self.rows[index]]
        return self._line(self.cells(self.rows[index]))

    def titles(self) -> Text:
        """The line above them."""
        line = self._line([""] * (1 + max((at for at, _, _ in self.columns), default=0)), head=True)
        line.stylize("bold")
        return line

    def wrapped(self) -> list[Text]:
        """All lines, with the last column on as many as it takes."""
        if not self.columns:
            return []
        at, _, width = self.columns[-1]
        indent = " " * (
            sum(each[2] for each in self.columns[:-1]) + len(_GAP) * len(self.columns[:-1])
        )
        lines = []
        for row in self.rows:
            *others, last = self.cells(row)[: at + 1]
            plain = last.plain if isinstance(last, Text) else last
            first, *rest = textwrap.wrap(plain, max(1, width)) or [""]
            lines.append(self._line([*others, first]))
            lines += [Text(indent + each) for each in rest]
        return lines

    def _line(self, row: Sequence[Cell], *, head: bool = False) -> Text:
        line = Text(no_wrap=True, end="")
        for number, (at, column, width) in enumerate(self.columns):
            if number:
                line.append(_GAP)
            cell = column.title if head else row[at]
            if isinstance(cell, Text):
                fitted = cell.copy()
                fitted.truncate(width, overflow="ellipsis")
                line.append_text(_padded(fitted, width, right=column.right))
            else:
                line.append(fit_text(cell, width, right=column.right))
        line.rstrip()
        return line


@frozen
class JoinedLines(Sequence[Text]):
    """Lines of several sequences, one behind the other, each made when it is asked for."""

    parts: Sequence[Sequence[Text]]

    def __len__(self) -> int:
        """Number of lines."""
        return sum(map(len, self.parts))

    @overload
    def __getitem__(self, index: int) -> Text: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Text]: ...
    def __getitem__(self, index: int | slice) -> Text | Sequence[Text]:
        """A line, or several."""
        if isinstance(index, slice):
            return [self[at] for at in range(len(self))[index]]
        for part in self.parts:
            if 0 <= index < len(part):
                return part[index]
            index -= len(part)
        raise IndexError


def layout_table(
    columns: Sequence[ScreenColumn],
    rows: Sequence[T],
    cells: Callable[[T], Sequence[Cell]],
    *,
    width: int,
) -> TableLines:
    """The lines of a table on a terminal of so many columns.

    Widths are those that 500 rows need, the first ones and others evenly drawn from the rest; a
    column in which none of them has anything is left out.
    """
    first, rest = rows[:_MEASURED], rows[_MEASURED:]
    measured = [cells(row) for row in (*first, *rest[:: 1 + len(rest) // _MEASURED])]
    natural = []
    for at, column in enumerate(columns):
        widest = max((_cell_width(row[at]) for row in measured), default=0)
        needed = max(widest, cell_len(column.title)) if widest else 0
        natural.append(min(column.widest or width, needed))
    shown = [at for at in range(len(columns)) if natural[at]]
    wanted = [min(n, each.wanted or n) for n, each in zip(natural, columns, strict=True)]
    while _sum(wanted, shown) > width and (least := _least_important(columns, shown)) is not None:
        if columns[least].importance > _MATTERS_LITTLE:
            break
        shown.remove(least)
    narrowest = [_narrowest(column, natural[at]) for at, column in enumerate(columns)]
    while (
        _sum(narrowest, shown) > width and (least := _least_important(columns, shown)) is not None
    ):
        shown.remove(least)
    given = {at: narrowest[at] for at in shown}
    left = width - sum(given.values()) - len(_GAP) * (len(shown) - 1)
    for at in sorted(shown, key=lambda each: (columns[each].takes_rest, -columns[each].importance)):
        more = max(0, min(left, natural[at] - given[at]))
        given[at] += more
        left -= more
    if left < 0 and shown:
        given[shown[0]] = max(1, given[shown[0]] + left)
    return TableLines([(at, columns[at], given[at]) for at in shown], rows, cells)


def fit_text(text: str, width: int, *, right: bool = False) -> str:
    """A text in so many columns, cut with an ellipsis where it is longer."""
    size = cell_len(text)
    if size > width:
        return set_cell_size(text, width - 1) + "…" if width > 1 else "…"[:width]
    fill = " " * (width - size)
    return fill + text if right else text + fill


def _padded(text: Text, width: int, *, right: bool) -> Text:
    fill = " " * (width - text.cell_len)
    return Text.assemble(fill, text) if right else text.append(fill)


def _cell_width(cell: Cell) -> int:
    return cell.cell_len if isinstance(cell, Text) else cell_len(cell)


def _narrowest(column: ScreenColumn, natural: int) -> int:
    return min(natural, column.narrowest) if column.narrowest else natural


def _sum(widths: Sequence[int], shown: Sequence[int]) -> int:
    return sum(widths[at] for at in shown) + len(_GAP) * (len(shown) - 1)


def _least_important(columns: Sequence[ScreenColumn], shown: Sequence[int]) -> int | None:
    """The one to be left out first, of several the last; None where only one is left."""
    if len(shown) < 2:
        return None
    return min(reversed(shown), key=lambda at: columns[at].importance)
