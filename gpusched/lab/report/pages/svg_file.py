"""Plots as pictures of their own: one SVG file with its style in it, for documents.

A page draws axes and labels in HTML, a picture draws them as text. It follows the light or dark
scheme of the reader, needs no network and no font, and is the same bytes for the same plots.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpusched.lab.report.pages.style import drawing_style
from gpusched.lab.report.plots.svg import LegendEntry, Plot, escape_html

WIDE: Final = 860
"""Pixels of a picture."""
_PAD: Final = 16
_GAP: Final = 28
_LINE: Final = 17
_LETTER: Final = 6.9
"""Pixels that a letter of the small texts takes at most on average."""
_LEFT: Final = 58
_LEFT_MAX: Final = 292
_BELOW: Final = 24


def svg_document(panels: Sequence[Plot], *, title: str, columns: int = 1) -> str:
    """The text of an SVG file with plots below each other, or side by side.

    What is HTML above a plot (``over``) and what scripts need (``data``) is left out.

    Args:
        panels: at least one.
        title: text for screen readers.
        columns: so many plots beside each other.
    """
    wide = (WIDE - 2 * _PAD - (columns - 1) * _GAP) // columns
    drawn: list[str] = []
    top = _PAD
    for first in range(0, len(panels), columns):
        row = panels[first : first + columns]
        heads = [_head(panel, wide) for panel in row]
        high = max(tall for _, tall in heads)
        for turn, (panel, (head, _)) in enumerate(zip(row, heads, strict=True)):
            left = _PAD + turn * (wide + _GAP)
            inner = f"{head}{_plot(panel, wide, high)}"
            drawn.append(f'<g transform="translate({left} {top})">{inner}</g>')
        top += high + max(panel.tall for panel in row) + _BELOW + _GAP
    high = top - _GAP + _PAD // 2
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {high}" width="{WIDE}" '
        f'height="{high}" role="img"><title>{escape_html(title)}</title><style>{drawing_style()}</style>'
        f'<rect class="bg" width="{WIDE}" height="{high}"/>{"".join(drawn)}</svg>\n'
    )


def _head(panel: Plot, wide: int) -> tuple[str, int]:
    """Title, note, legend and name of the axis, and how tall they are together."""
    parts = []
    top = 15
    for line in _wrapped(panel.title, wide, 8.0):
        parts.append(f'<text class="head" y="{top}">{escape_html(line)}</text>')
        top += 20
    for line in _wrapped(panel.note, wide, _LETTER):
        parts.append(f'<text class="say" y="{top}">{escape_html(line)}</text>')
        top += _LINE
    at = 0.0
    for key in panel.keys:
        needs = 26 + len(key.text) * _LETTER
        if at and at + needs > wide:
            at, top = 0.0, top + _LINE
        parts.append(f'<g transform="translate({at:.0f} {top})">{_key(key)}</g>')
        at += needs + 14
    top += _LINE if panel.keys else 0
    if panel.y_name:
        parts.append(f'<text class="say" y="{top + 2}">{escape_html(panel.y_name)}</text>')
        top += _LINE
    return "".join(parts), top - 4


def _wrapped(text: str, wide: int, letter: float) -> list[str]:
    most = max(10, int(wide / letter))
    lines: list[str] = []
    for word in text.split():
        if lines and len(lines[-1]) + 1 + len(word) <= most:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


_SWATCHES: Final = {
    "boxkey": '<path class="hair" d="M0 -4h18"/><path class="median" d="M9 -10v12"/>',
    "p95key": '<path class="p95" d="M9 -10v12"/>',
    "meankey": '<path class="mean" d="M9 -4h0"/>',
    "dotkey": '<path class="dots hair" d="M9 -4h0"/>',
    "linekey": '<path class="hair" d="M0 -4h18"/>',
}


def _key(key: LegendEntry) -> str:
    text = f'<text x="24">{escape_html(key.text)}</text>'
    if key.mark in _SWATCHES:
        return _SWATCHES[key.mark] + text
    if key.mark.startswith("f"):
        return (
            f'<rect class="{escape_html(key.mark)}" y="-10" width="16" height="12" rx="2"/>{text}'
        )
    if key.mark.startswith("dots"):
        return f'<path class="{escape_html(key.mark)}" d="M9 -4h0"/>{text}'
    return f'<path class="{escape_html(key.mark)}" d="M0 -4h18"/>{text}'


def _plot(panel: Plot, wide: int, top: int) -> str:
    """The drawing in its box with axes and labels."""
    left = _left_margin(panel)
    across, tall = wide - left - 6, panel.tall
    net, texts = [], []
    for share, label in panel.y_ticks:
        y = top + tall * (share if panel.rows_down else 1 - share)
        texts.append(
            f'<text class="say end" x="{left - 8}" y="{y + 4:.1f}">{escape_html(label)}</text>'
        )
        if not panel.rows_down:
            net.append(f"M{left} {y:.1f}h{across}")
    shown_to = -1e9
    for share, label in panel.x_ticks:
        x = left + across * share
        net.append(f"M{x:.1f} {top}v{tall}")
        half = len(label) * _LETTER / 2
        if x - half < shown_to:
            continue  # it would stand in the one before it
        shown_to = x + half + 6
        middle = min(x, left + across + 6 - half)
        texts.append(
            f'<text class="say mid" x="{middle:.1f}" y="{top + tall + 18}">{escape_html(label)}</text>'
        )
    inner = (
        f'<svg x="{left}" y="{top}" width="{across}" height="{tall}" overflow="visible" '
        f'viewBox="0 0 {panel.wide} {panel.deep}" preserveAspectRatio="none">{panel.drawing}</svg>'
    )
    axis = f'<path class="axis" d="M{left} {top}v{tall}h{across}"/>'
    return (
        f'<path class="net" d="{"".join(net)}"/>{inner}{axis}{_marks(panel, (left, top, across))}'
        + ("".join(texts))
    )


def _marks(panel: Plot, box: tuple[int, int, int]) -> str:
    """Short lines that hang from the time axis."""
    left, top, across = box
    parts = []
    for look, places in (("act", panel.marks), ("act not", panel.bad_marks)):
        path = "".join(
            f"M{left + across * x / panel.wide:.1f} {top + panel.tall}v5" for x in places
        )
        parts.append(f'<path class="{look}" d="{path}"/>' if path else "")
    return "".join(parts)


def _left_margin(panel: Plot) -> int:
    longest = max((len(label) for _, label in panel.y_ticks), default=0)
    return min(_LEFT_MAX, max(_LEFT if not panel.rows_down else 0, round(longest * _LETTER) + 14))
