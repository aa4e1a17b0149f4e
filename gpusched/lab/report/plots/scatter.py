"""Many configurations as dots: one statistic across, another up, those that nothing beats marked."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from gpusched.base.classes import frozen
from gpusched.lab.report.plots.svg import TALL, LegendEntry, Plot, escape_html, nice_ticks

WIDE: Final = 10_000
_NUMBERED_MAX: Final = 60
"""Dots that carry their number; more of them would cover each other."""


@frozen(kw_only=True)
class ScatterDot:
    """One configuration.

    Attributes:
        number: as in the table beside the plot.
        label: what it is, told when it is pointed at.
        marked: no other is better in both statistics.
        first: what the others are compared with.
    """

    number: int
    label: str
    x: float
    y: float
    marked: bool = False
    first: bool = False


@frozen(kw_only=True)
class ScatterAxis:
    """A statistic along an axis.

    Attributes:
        text: writes a value with its unit.
        least: the axis is at least so long, so that rounding does not look like a difference.
    """

    name: str
    text: Callable[[float], str]
    least: float = 0.0


def scatter_plot(
    dots: Sequence[ScatterDot], *, ident: str, title: str, x: ScatterAxis, y: ScatterAxis
) -> Plot:
    """The plot; axes begin and end near the dots, not at zero."""
    x_ticks = axis_ticks([dot.x for dot in dots], x.least)
    y_ticks = axis_ticks([dot.y for dot in dots], y.least)
    looks = {"dots l8": [], "dots l0": [], "dots l5": []}  # type: dict[str, list[str]]
    labels = []
    for dot in dots:
        across, up = _share(dot.x, x_ticks), _share(dot.y, y_ticks)
        look = "dots l5" if dot.first else "dots l0" if dot.marked else "dots l8"
        said = f"{dot.number}: {dot.label}: {x.name} {x.text(dot.x)}, {y.name} {y.text(dot.y)}"
        looks[look].append(
            f'<path class="{look}" d="M{round(WIDE * across)} {round(TALL * (1 - up))}h0">'
            f"<title>{escape_html(said)}</title></path>"
        )
        if dot.marked or dot.first or len(dots) <= _NUMBERED_MAX:
            labels.append(
                f'<span style="left:{100 * across:.4g}%;top:{100 * (1 - up):.4g}%">{dot.number}</span>'
            )
    keys = [
        LegendEntry(mark="dotkey l0", text="nothing is better in both"),
        LegendEntry(mark="dotkey l8", text="the others"),
    ]
    if any(dot.first for dot in dots):
        keys.insert(0, LegendEntry(mark="dotkey l5", text="what the others are compared with"))
    return Plot(
        ident=ident, title=title, wide=WIDE, tall=360, timed=False, keys=keys,
        drawing="".join(part for parts in looks.values() for part in parts),
        over="".join(labels), y_name=f"{y.name} (up) by {x.name} (across)",
        note="Numbers are those of the table; a dot tells what it is when it is pointed at. Axes do not begin at zero.",
        x_ticks=[(_share(at, x_ticks), x.text(at)) for at in x_ticks],
        y_ticks=[(_share(at, y_ticks), y.text(at)) for at in y_ticks],
        alt=f"{y.name} by {x.name} of {len(dots)} configurations, which the table lists",
    )  # fmt: skip


def axis_ticks(values: Sequence[float], least: float = 0.0) -> list[float]:
    """Round numbers from below the smallest to above the largest value, at least so far apart."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    span = max(high - low, least) or abs(high) * 0.1 or 1.0
    step = nice_ticks(span)[1]
    first = math.floor(low / step)
    last = max(first + 1, math.ceil(high / step))
    return [round(step * turn, 12) for turn in range(first, last + 1)]


def _share(value: float, ticks: Sequence[float]) -> float:
    return (value - ticks[0]) / (ticks[-1] - ticks[0])
