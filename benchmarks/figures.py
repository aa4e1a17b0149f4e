"""One measured figure, the table of all of them, and whether promises are kept."""

from __future__ import annotations

import json
from collections.abc import Sequence
from statistics import median

import attrs
from rich.console import Console
from rich.table import Table


@attrs.frozen(kw_only=True)
class Figure:
    """What was measured.

    Attributes:
        measured: in ``unit``.
        spread: smallest and largest of the runs, as text; empty for one run.
        raw: what this machine does without us, in the same unit; None where nothing compares.
        raw_is: what ``raw`` measured.
        target: in words.
        met: None for a figure that is only shown.
    """

    name: str
    measured: float
    unit: str
    spread: str = ""
    raw: float | None = None
    raw_is: str = ""
    target: str = ""
    met: bool | None = None

    @property
    def ratio(self) -> float | None:
        """Measured to raw."""
        return self.measured / self.raw if self.raw else None


def middle(values: Sequence[float]) -> tuple[float, str]:
    """The median and, as text, smallest and largest."""
    return median(values), f"{number(min(values))} .. {number(max(values))}"


def number(value: float) -> str:
    """Three digits that matter."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def show(figures: Sequence[Figure]) -> None:
    """Print the table."""
    table = Table(title="gpusched figures", title_justify="left")
    for heading in ("figure", "measured", "min .. max", "raw limit", "ratio", "target", "met"):
        right = heading in ("measured", "raw limit", "ratio")
        table.add_column(heading, justify="right" if right else "left")
    for each in figures:
        raw = "" if each.raw is None else f"{number(each.raw)} {each.raw_is}".strip()
        met = {None: "", True: "[green]yes[/]", False: "[red]no[/]"}[each.met]
        ratio = "" if each.ratio is None else f"{each.ratio:.2f}"
        table.add_row(
            each.name, f"{number(each.measured)} {each.unit}", each.spread, raw, ratio,
            each.target, met,
        )  # fmt: skip
    # The table is for files too: never narrower than it is wide.
    console = Console()
    console = Console(width=max(console.width, 150))
    console.print(table)


def as_json(figures: Sequence[Figure]) -> str:
    """All figures for a machine."""
    rows = [{**attrs.asdict(each), "ratio": each.ratio} for each in figures]
    return json.dumps(rows, indent=1)
