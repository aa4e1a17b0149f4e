"""One screen: header, line of views, as many rows as fit, footer; and where the cursor goes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs
from rich.text import Text

from gpusched.base.classes import frozen
from gpusched.cli.inspect.live.screen.picture import DrawnView

GUTTER: Final = 2
"""Columns left of each row, in which the cursor stands."""

CURSOR: Final = "> "


@frozen(kw_only=True)
class ScreenPlace:
    """Where somebody looks.

    Attributes:
        row: of the cursor, -1 before it stands anywhere; of a view without rows that can be opened
            the first one that is shown.
        first: row that is shown first.
        key: what the cursor's row is about.
    """

    row: int = -1
    first: int = 0
    key: str = ""


def compose_screen(
    above: Sequence[Text],
    drawn: DrawnView,
    below: Sequence[Text],
    place: ScreenPlace,
    *,
    height: int,
) -> list[Text]:
    """Exactly so many lines.

    Args:
        above: header and line of views.
        drawn: the view.
        below: the last lines, of which the very last tells how many rows are left, too.
        place: within the view's rows; as ``settle_place`` made it for this height.
        height: lines of the terminal.
    """
    gutter = " " * GUTTER
    lines = [*above, *(Text.assemble(gutter, head) for head in drawn.heads)]
    room = max(0, height - len(lines) - len(below))
    opens = can_open(drawn)
    for number in range(place.first, min(place.first + room, len(drawn.lines))):
        here = opens and number == place.row
        line = Text.assemble((CURSOR if here else gutter), drawn.lines[number])
        if here:
            line.stylize("bold")
        lines.append(line)
    left = len(drawn.lines) - place.first - room
    *detail, footer = below
    if left > 0:
        footer = Text.assemble((f"{left} below  ", "bold"), footer)
    fill = [Text()] * (height - len(lines) - len(below))
    return [*lines, *fill, *detail, footer][-height:]


def rows_that_fit(
    above: Sequence[Text], drawn: DrawnView, below: Sequence[Text], *, height: int
) -> int:
    """How many rows of a view are shown at once."""
    return max(1, height - len(above) - len(drawn.heads) - len(below))


def settle_place(place: ScreenPlace, drawn: DrawnView, *, room: int) -> ScreenPlace:
    """The same row after the view changed: the one with its key, else as near as there is one."""
    last = max(0, len(drawn.lines) - 1)
    row = min(place.row, last)
    if row < 0:
        row = next((number for number, key in enumerate(drawn.keys[:room]) if key), 0)
    if place.key and drawn.keys and drawn.keys[row] != place.key and place.key in drawn.keys:
        rows = [number for number, key in enumerate(drawn.keys) if key == place.key]
        row = min(rows, key=lambda number: abs(number - place.row))
    if not can_open(drawn):
        first = min(row, max(0, len(drawn.lines) - room))
        return ScreenPlace(row=first, first=first)
    first = min(place.first, max(0, len(drawn.lines) - room))
    first = min(first, row) if row < first + room else row - room + 1
    return ScreenPlace(row=row, first=first, key=drawn.keys[row] if drawn.keys else "")


def move_place(place: ScreenPlace, drawn: DrawnView, steps: int, *, room: int) -> ScreenPlace:
    """So many rows further down, or up."""
    row = max(0, min(place.row + steps, len(drawn.lines) - 1))
    key = drawn.keys[row] if can_open(drawn) else ""
    return settle_place(attrs.evolve(place, row=row, key=key), drawn, room=room)


def can_open(drawn: DrawnView) -> bool:
    """Whether a row of it is about something that Enter opens."""
    return any(drawn.keys)
