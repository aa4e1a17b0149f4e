"""Many settings of one configuration on one page: for each input a plot of what can be had, and a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpusched.base.classes import frozen
from gpusched.lab.report.pages.document import html_document
from gpusched.lab.report.plots.scatter import ScatterAxis, ScatterDot, scatter_plot
from gpusched.lab.report.plots.svg import escape_html, html_table, plot_figure


@frozen(kw_only=True)
class SettingsSection:
    """The settings on one input.

    Attributes:
        title: the input.
        dots: of settings that have both statistics.
        x, y: the statistics of the plot.
        heads, rows: the table, texts.
    """

    title: str
    dots: Sequence[ScatterDot]
    x: ScatterAxis
    y: ScatterAxis
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


def sweep_page(
    sections: Sequence[SettingsSection],
    *,
    title: str,
    state: str,
    complete: bool,
    notes: Mapping[str, Sequence[str]],
) -> str:
    """The page.

    Args:
        sections: one for each input.
        title: of the page.
        state: how much of the sweep there is, in words.
        complete: all of it is there.
        notes: sentences by heading, above the plots: failures and broken invariants, say.
    """
    look, sign = ("good", "\N{CHECK MARK}") if complete else ("bad", "\N{MULTIPLICATION X}")
    badge = f'<span class="badge {look}">{sign} {escape_html(state)}</span>'
    parts = [_notes(heading, said) for heading, said in notes.items() if said]
    parts += [_section(each, turn) for turn, each in enumerate(sections)]
    body = (
        f'<div class="top"><h1>{escape_html(title)}</h1>{badge}</div><main>{"".join(parts)}</main>'
        "<footer><p>The numbers are in results.csv and results.json. Press a head of a table to sort "
        "by it.</p></footer>"
    )
    nothing = {"wide": 1, "per_s": 1, "seconds": 1, "queues": [], "jobs": [], "acts": []}
    return html_document(title, body, nothing)


def _notes(heading: str, said: Sequence[str]) -> str:
    items = "".join(f"<li>{escape_html(each)}</li>" for each in said)
    return f"<section><h2>{escape_html(heading)}</h2><ul>{items}</ul></section>"


def _section(section: SettingsSection, turn: int) -> str:
    plot = ""
    if section.dots:
        shown = scatter_plot(
            section.dots, ident=f"front{turn}", title="What can be had", x=section.x, y=section.y
        )
        plot = plot_figure(shown, level=3)
    table = html_table(section.heads, section.rows, kind="sortable")
    return f"<section><h2>{escape_html(section.title)}</h2>{plot}{table}</section>"
