"""Charts that only the experiments need: values in order, stacked bars, lines over a number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from gpusched.lab.report.plots.svg import (
    TALL,
    LegendEntry,
    Plot,
    duration_text,
    nice_ticks,
    number_text,
    rectangles_path,
)

WIDE: Final = 10_000
ROW: Final = 100
_BAR: Final = (18, 64)
"""Of a row's height: where its bar begins, and how high it is."""
Points = Sequence[tuple[float, float]]


@attrs.frozen(kw_only=True)
class Axis:
    """Numbers along an axis.

    Attributes:
        low, high: at its ends; what lies outside is left out.
        ticks: values with a label.
    """

    low: float
    high: float
    ticks: tuple[float, ...]

    def share(self, value: float) -> float:
        """0 at the low end, 1 at the high one."""
        return (value - self.low) / (self.high - self.low)

    def labelled(self, digits: int = 2) -> list[tuple[float, str]]:
        """As plots want them."""
        return [(self.share(tick), number_text(tick, digits)) for tick in self.ticks]


def from_zero(top: float, *, about: int = 4) -> Axis:
    """An axis from 0 to a round number above ``top``."""
    ticks = nice_ticks(top, about)
    return Axis(low=0.0, high=ticks[-1], ticks=tuple(ticks))


def stepped(low: float, high: float, step: float) -> Axis:
    """An axis from ``low`` to ``high``, a tick each ``step``."""
    count = round((high - low) / step)
    return Axis(low=low, high=high, ticks=tuple(low + turn * step for turn in range(count + 1)))


@attrs.frozen(kw_only=True)
class Series:
    """Points of one kind.

    Attributes:
        look: class of its path: ``l0`` is a line, ``dots l0`` are dots, ``ask`` and ``cap`` are
            the dashed and the plain line of what others are compared with.
    """

    name: str
    look: str
    points: Points


def plot(
    several: Sequence[Series], x: Axis, y: Axis, *,
    title: str, note: str = "", y_name: str = "", tall: int = 200, keys: bool = True,
) -> Plot:  # fmt: skip
    """Points over numbers; points outside of the axes are left out."""
    parts = [f'<path class="{each.look}" d="{_path(each, x, y)}"/>' for each in several]
    return Plot(
        ident="chart", title=title, note=note, y_name=y_name, wide=WIDE, tall=tall, timed=False,
        drawing="".join(parts), x_ticks=x.labelled(), y_ticks=y.labelled(),
        keys=[LegendEntry(mark=each.look, text=each.name) for each in several] if keys else (),
        alt=title,
    )  # fmt: skip


def _path(each: Series, x: Axis, y: Axis) -> str:
    parts = []
    for at, value in each.points:
        if not (x.low <= at <= x.high and y.low <= value <= y.high):
            continue
        place = f"{round(WIDE * x.share(at))} {round(TALL * (1 - y.share(value)))}"
        if each.look.startswith("dots"):
            parts.append(f"M{place}h0")
        else:
            parts.append(f"{'L' if parts else 'M'}{place}")
    return "".join(parts)


def bars(
    rows: Mapping[str, Sequence[float]], parts: Sequence[tuple[str, str]], *,
    title: str, note: str = "",
) -> Plot:  # fmt: skip
    """Seconds of each row as parts behind each other.

    Args:
        rows: seconds of each part, by what the row is called.
        parts: what each part is called, and the class of its area.
        title: above.
        note: below the title.
    """
    top = max(sum(values) for values in rows.values())
    unit = 60 if top > 120 else 1
    ticks = tuple(unit * tick for tick in nice_ticks(top / unit, 8))
    axis = Axis(low=0.0, high=ticks[-1], ticks=ticks)
    boxes: dict[str, list[tuple[int, int, int, int]]] = {look: [] for _, look in parts}
    for turn, values in enumerate(rows.values()):
        at = 0.0
        for (_, look), value in zip(parts, values, strict=True):
            left, right = (round(WIDE * axis.share(end)) for end in (at, at + value))
            boxes[look].append((left, turn * ROW + _BAR[0], right - left, _BAR[1]))
            at += value
    drawing = "".join(
        f'<path class="{look}" d="{rectangles_path(found)}"/>' for look, found in boxes.items()
    )
    return Plot(
        ident="bars", title=title, note=note, drawing=drawing, wide=WIDE, deep=ROW * len(rows),
        tall=30 * len(rows), timed=False, rows_down=True,
        keys=[LegendEntry(mark=look, text=name) for name, look in parts],
        x_ticks=[(axis.share(tick), duration_text(tick)) for tick in axis.ticks],
        y_ticks=[((turn + 0.5) / len(rows), name) for turn, name in enumerate(rows)],
        alt=title,
    )  # fmt: skip
