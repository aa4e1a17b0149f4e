"""What all plots are made of: axes, frames, legends, and texts that are safe in HTML.

A plot is an SVG stretched over its box (whole numbers for coordinates, so that paths are short)
with axes and labels in HTML above it: text never distorts, and zooming only moves a view box.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from typing import Any, Final

from gpusched.base.classes import frozen

TALL: Final = 1000
"""Coordinates from the bottom of a plot to its top."""
WIDE_MAX: Final = 100_000
"""Coordinates along the time axis at most."""
COLOURS: Final = 8
"""Colours that are told apart; what is beyond shares the one called ``other``."""
_TIME_STEPS: Final = (
    0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800,
    21_600, 43_200, 86_400, 172_800, 604_800, 2_419_200,
)  # fmt: skip


def escape_html(text: object) -> str:
    """The text, safe between tags and in quoted attributes; control characters become U+FFFD."""
    plain = "".join(
        each if each >= " " or each in "\t\n" else "\N{REPLACEMENT CHARACTER}" for each in str(text)
    )
    return html.escape(plain.encode("utf-8", "replace").decode(), quote=True)


def script_json(value: Any) -> str:
    """JSON that may stand inside a script element whatever texts it holds."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), sort_keys=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def duration_text(seconds: float) -> str:
    """As people write it: ``0.4s``, ``90s`` as ``1m30s``, ``75m`` as ``1h15m``, ``2d4h``."""
    sign, rest = ("-", -seconds) if seconds < 0 else ("", seconds)
    if rest < 60:
        return f"{sign}{number_text(rest)}s"
    whole = round(rest)
    days, whole = divmod(whole, 86_400)
    hours, whole = divmod(whole, 3600)
    minutes, whole = divmod(whole, 60)
    parts = [(days, "d"), (hours, "h"), (minutes, "m"), (whole, "s")]
    first = next(index for index, (count, _) in enumerate(parts) if count)
    shown = parts[first : first + 2]
    return sign + "".join(f"{count}{unit}" for count, unit in shown if count)


def number_text(value: float, digits: int = 1) -> str:
    """With so many decimals at most, thousands apart, no needless zeros."""
    text = f"{value:,.{digits}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in ("-0", "") else text


def percent_text(share: float) -> str:
    """``0.983`` as ``98.3 %``."""
    return f"{number_text(100 * share)} %"


@frozen(kw_only=True)
class TimeAxis:
    """Simulated time along the bottom of every plot of a page.

    Attributes:
        seconds: from its left end to its right end.
        per_s: coordinates to a second.
    """

    seconds: float
    per_s: float

    @property
    def wide(self) -> int:
        """Coordinate of the right end."""
        return max(1, round(self.seconds * self.per_s))

    def x(self, at: float) -> int:
        """Coordinate of a moment, within the plot."""
        return min(self.wide, max(0, round(at * self.per_s)))

    def ticks(self, about: int = 8) -> list[tuple[float, str]]:
        """Share of the width from the left, with its label."""
        if self.seconds <= 0:
            return [(0.0, "0s")]
        step = next((s for s in _TIME_STEPS if self.seconds / s <= about), self.seconds)
        count = int(self.seconds / step + 1e-9)
        return [
            (turn * step / self.seconds, duration_text(turn * step)) for turn in range(count + 1)
        ]


def time_axis(seconds: float) -> TimeAxis:
    """The axis of a run of that length; at least a thousandth of a second is told apart."""
    span = max(seconds, 1e-3)
    per_s = 1000.0
    while span * per_s > WIDE_MAX:
        per_s /= 10
    return TimeAxis(seconds=span, per_s=per_s)


def nice_ticks(top: float, about: int = 4) -> list[float]:
    """Round numbers from 0 to at least ``top``: the last is the top of the axis."""
    if top <= 0:
        return [0.0, 1.0]
    step = 10.0**-12
    while top / step > about:
        for factor in (2.0, 2.5, 2.0):
            step *= factor
            if top / step <= about:
                break
    ticks = [0.0]
    while ticks[-1] < top * (1 - 1e-9):
        ticks.append(round(len(ticks) * step, 12))
    return ticks


@frozen(kw_only=True)
class LegendEntry:
    """One entry of a legend.

    Attributes:
        mark: class of its swatch, such as ``f0`` (area), ``l0`` (line) or ``cap``.
        picks: name of the queue that it picks when it is pressed; empty for none.
    """

    mark: str
    text: str
    picks: str = ""


def legend_html(keys: Sequence[LegendEntry]) -> str:
    """The legend of a plot: what its colours and lines are."""
    if not keys:
        return ""
    parts = []
    for key in keys:
        swatch = f'<i class="sw {key.mark}"></i>{escape_html(key.text)}'
        if key.picks:
            parts.append(
                f'<li><button type="button" data-queue="{escape_html(key.picks)}">{swatch}</button></li>'
            )
        else:
            parts.append(f"<li>{swatch}</li>")
    return f'<ul class="legend">{"".join(parts)}</ul>'


@frozen(kw_only=True)
class Plot:
    """One plot, ready for a page.

    Attributes:
        ident: of its element, unique on the page.
        title: says what is seen.
        note: one or two sentences below it.
        tall: pixels.
        drawing: inside of the SVG element; coordinates ``wide`` by ``deep``.
        alt: what the picture tells, for screen readers.
        x_ticks, y_ticks: share of the axis from its origin, and label.
        timed: the x axis is time, and zooms with all others.
        data: for pointing at it; ``kind`` tells the script what it is.
        table: the same as a table, HTML.
        over: HTML above the drawing, such as labels.
        rows_down: y labels count from the top.
        scroll: pixels after which it scrolls; 0 for never.
        marks, bad_marks: coordinates of what is marked below the axis, such as acts.
    """

    ident: str
    title: str
    drawing: str
    wide: int
    deep: int = TALL
    note: str = ""
    tall: int = 200
    alt: str = ""
    keys: Sequence[LegendEntry] = ()
    x_ticks: Sequence[tuple[float, str]] = ()
    y_ticks: Sequence[tuple[float, str]] = ()
    y_name: str = ""
    timed: bool = True
    data: Any = None
    table: str = ""
    over: str = ""
    rows_down: bool = False
    scroll: int = 0
    marks: Sequence[int] = ()
    bad_marks: Sequence[int] = ()


def plot_figure(shown: Plot, *, level: int = 2) -> str:
    """The plot with its title, legend, axes and fallback table."""
    side = "top" if shown.rows_down else "bottom"
    y_labels = "".join(
        f'<span style="{side}:{100 * share:.4g}%">{escape_html(label)}</span>'
        for share, label in shown.y_ticks
    )
    x_labels = "".join(
        f'<span style="left:{100 * share:.4g}%">{escape_html(label)}</span>'
        for share, label in shown.x_ticks
    )
    lines = "".join(f'<b style="left:{100 * share:.4g}%"></b>' for share, _ in shown.x_ticks)
    kind = "timed" if shown.timed else "fixed"
    rows = " rows" if shown.rows_down else ""
    scroll = f' style="max-height:{shown.scroll}px"' if shown.scroll else ""
    data = "" if shown.data is None else (
        f'<script type="application/json" class="data">{script_json(shown.data)}</script>'
    )  # fmt: skip
    table = "" if not shown.table else (
        f"<details><summary>As a table</summary>{shown.table}</details>"
    )  # fmt: skip
    note = f'<p class="note">{escape_html(shown.note)}</p>' if shown.note else ""
    return (
        f'<figure id="{shown.ident}" class="plot {kind}{rows}" style="--tall:{shown.tall}px">'
        f"<figcaption><h{level}>{escape_html(shown.title)}</h{level}>{note}</figcaption>"
        f"{legend_html(shown.keys)}"
        f'<div class="yname">{escape_html(shown.y_name)}</div>'
        f'<div class="scroll"{scroll}><div class="box">'
        f'<div class="ys" aria-hidden="true">{y_labels}</div>'
        f'<div class="area" tabindex="0" role="group" aria-label="{escape_html(shown.title)}"><div class="grid">{lines}</div>'
        f'<svg class="view" viewBox="0 0 {shown.wide} {shown.deep}" preserveAspectRatio="none" '
        f'role="img" aria-label="{escape_html(shown.alt or shown.title)}">'
        f"<title>{escape_html(shown.alt or shown.title)}</title>{shown.drawing}</svg>"
        f'<div class="over">{shown.over}</div></div></div></div>'
        f"{_marks(shown)}"
        f'<div class="xs" aria-hidden="true">{x_labels}</div>{data}{table}</figure>'
    )


def _marks(shown: Plot) -> str:
    """Short lines that hang from the time axis."""
    if not shown.marks and not shown.bad_marks:
        return ""
    paths = "".join(
        f'<path class="{look}" d="{"".join(f"M{x} 0v1" for x in xs)}"/>'
        for look, xs in (("act", shown.marks), ("act not", shown.bad_marks))
        if xs
    )
    return (
        f'<div class="marks" aria-hidden="true"><svg viewBox="0 0 {shown.wide} 1" '
        f'preserveAspectRatio="none">{paths}</svg></div>'
    )


def html_table(
    heads: Sequence[str], rows: Sequence[Sequence[object]], *, caption: str = "", kind: str = ""
) -> str:
    """A table; cells that are numbers or begin with a digit stand right, texts are escaped."""
    right = [_is_number(each) for each in rows[0]] if rows else [False] * len(heads)
    head = "".join(
        f'<th scope="col"{" class=n" if number_column else ""}>{escape_html(each)}</th>'
        for each, number_column in zip(heads, right, strict=True)
    )
    body = "".join(f"<tr>{''.join(_cell(each) for each in row)}</tr>" for row in rows)
    says = f"<caption>{escape_html(caption)}</caption>" if caption else ""
    return (
        f'<div class="wide"><table class="{kind}">{says}<thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _cell(value: object) -> str:
    right = ' class="n"' if _is_number(value) else ""
    return f"<td{right}>{escape_html(_text(value))}</td>"


def _text(value: object) -> str:
    return number_text(value) if isinstance(value, int | float) else str(value)


def _is_number(value: object) -> bool:
    text = _text(value)
    return text.lstrip("-\N{MINUS SIGN}")[:1].isdigit() or text in ("-", "\N{EN DASH}")


# -- paths -------------------------------------------------------------------------------------
def step_area(xs: Sequence[int], tops: Sequence[int], wide: int, *, floor: int = TALL) -> str:
    """Path of the area under steps: ``tops[i]`` is the height from ``xs[i]`` on."""
    return f"M0 {floor}{_steps(xs, tops, wide)}V{floor}Z"


def step_line(xs: Sequence[int], tops: Sequence[int], wide: int) -> str:
    """Path of a line of steps."""
    if not xs:
        return ""
    return f"M{xs[0]} {tops[0]}{_steps(xs[1:], tops[1:], wide)}"


def _steps(xs: Sequence[int], tops: Sequence[int], wide: int) -> str:
    parts = []
    last = None
    for x, top in zip(xs, tops, strict=True):
        if top != last:
            parts.append(f"H{x}V{top}")
            last = top
    return "".join(parts) + f"H{wide}"


def rectangles_path(boxes: Sequence[tuple[int, int, int, int]]) -> str:
    """Path of rectangles: x, y, width, height."""
    return "".join(f"M{x} {y}h{w}v{h}h-{w}z" for x, y, w, h in boxes)
