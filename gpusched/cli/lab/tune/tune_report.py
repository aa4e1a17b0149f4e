"""What is said of a search: what can be had, what was chosen, and whether it is better where it was not tuned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from gpusched.base.classes import frozen
from gpusched.cli.command import table
from gpusched.cli.lab.sweep.results import SweepRow
from gpusched.cli.lab.sweep.settings_drawn import Values
from gpusched.cli.lab.sweep.sweep_report import settings_section, statistic_text
from gpusched.cli.lab.tune.study import UnseenObjective
from gpusched.lab.report.pages.sweep_page import sweep_page
from gpusched.lab.report.statistics.asked import AskedStatistic

_ROWS_MAX: Final = 20


@frozen(kw_only=True)
class Tuned:
    """What a search found.

    Attributes:
        rows: settings on what was tuned on, the shipped one first; ``front`` is of the objectives.
        chosen: the setting that was checked; None where none is better than the shipped one.
        unseen_rows: the shipped and the tuned one on what was not seen.
        beaten: the shipped configuration is beaten there, too.
        varied: keys with what they may be.
    """

    trace: str
    objectives: tuple[AskedStatistic, ...]
    rows: tuple[SweepRow, ...]
    chosen: SweepRow | None
    unseen_rows: tuple[SweepRow, ...]
    unseen: tuple[UnseenObjective, ...]
    beaten: bool
    failed: Mapping[str, str]
    varied: Values

    @property
    def names(self) -> list[str]:
        """Of the objectives."""
        return [each.text for each in self.objectives]


def settings_text(count: int) -> str:
    """So many settings, beside the shipped one."""
    return f"{count:,} setting{'s' * (count != 1)}"


def verdict_sentences(tuned: Tuned) -> Iterator[str]:
    """What was found, the answer first."""
    tried = sum(len(row.results) == row.points for row in tuned.rows[1:])
    if tuned.chosen is None:
        yield (
            f"The shipped configuration is not beaten: none of {settings_text(tried)} is better in one of "
            f"{', '.join(tuned.names)} and worse in none, on {tuned.trace}."
        )
        yield from _failure_sentence(tuned)
        return
    changed = ", ".join(f"{key}={value}" for key, value in _changed(tuned))
    if not tuned.unseen:
        yield f"What is best of {settings_text(tried)} ({changed}) could not be checked: its points failed."
        return
    if tuned.beaten:
        yield f"Better than the shipped configuration, also where it was not tuned: {changed}."
    else:
        yield (
            f"The shipped configuration is not beaten: what is best of {settings_text(tried)} where it was tuned "
            f"({changed}) is not better where it was not."
        )
    yield from _failure_sentence(tuned)
    for each in tuned.unseen:
        before, after = (
            statistic_text(each.asked.text, value) for value in (each.before, each.after)
        )
        yield (
            f"Not seen while tuning: {each.asked.text} {after}, shipped {before}: better in {each.wins} and "
            f"worse in {each.losses} of {each.of}."
        )


def _failure_sentence(tuned: Tuned) -> Iterator[str]:
    if tuned.failed:
        yield f"{len(tuned.failed):,} points failed, so that not every setting could be looked at."


def _changed(tuned: Tuned) -> list[tuple[str, str]]:
    """Values of the chosen setting that the shipped one does not have."""
    assert tuned.chosen is not None
    now = dict(tuned.rows[0].values)
    return [(key, value) for key, value in tuned.chosen.values if now[key] != value]


def tuned_lines(tuned: Tuned) -> Iterator[str]:
    """The answer for people."""
    yield from verdict_sentences(tuned)
    front = [row for row in tuned.rows if row.front]
    first = tuned.rows[0]
    shown = [first, *(row for row in front if row is not first)][:_ROWS_MAX]
    yield ""
    yield (
        f"what can be had on {tuned.trace}: of {settings_text(len(tuned.rows) - 1)} and the shipped one, "
        f"{len(front):,} that none beats (*)"
    )
    heads = ["", "", *tuned.names, "differs from the shipped one in"]
    yield table([heads, *(_line(tuned, row) for row in shown)], indent="  ")
    for label, said in list(tuned.failed.items())[:_ROWS_MAX]:
        yield f"failed: {label}: {said}"


def _line(tuned: Tuned, row: SweepRow) -> list[str]:
    now = dict(tuned.rows[0].values)
    differs = [f"{key}={value}" for key, value in row.values if now[key] != value]
    mark = "*" if row.front else ""
    called = "chosen" if row is tuned.chosen else row.configuration
    figures = [statistic_text(name, row.mean(name)) for name in tuned.names]
    return [mark, called, *figures, ", ".join(differs) or "-"]


def render_tuned(tuned: Tuned) -> str:
    """The page."""
    across = tuned.names[0]
    up = next(
        (name for name in (*tuned.names[1:], "gpuUse", "p95(wait)") if name != across), across
    )
    shown = [tuned.rows, tuned.unseen_rows] if tuned.unseen_rows else [tuned.rows]
    ranges = [f"{key}: {span}" for key, span in tuned.varied]
    return sweep_page(
        [settings_section(rows, tuned.names, axes=(across, up), first="shipped") for rows in shown],
        title=f"Tuned on {tuned.trace}: {', '.join(tuned.names)}",
        state="the shipped configuration is beaten" if tuned.beaten else "the shipped configuration is not beaten",
        complete=tuned.beaten,
        notes={
            "What was found": list(verdict_sentences(tuned)),
            "What was varied": ranges,
            "Points that failed": [f"{label}: {said}" for label, said in tuned.failed.items()],
        },
    )  # fmt: skip


def tuned_json(tuned: Tuned) -> dict[str, Any]:
    """The same for programs."""
    return {
        "trace": tuned.trace,
        "objectives": tuned.names,
        "beaten": tuned.beaten,
        "sentences": list(verdict_sentences(tuned)),
        "chosen": None if tuned.chosen is None else dict(tuned.chosen.values),
        "unseen": [
            {
                "objective": each.asked.text, "shipped": each.before, "tuned": each.after,
                "better": each.wins, "worse": each.losses, "of": each.of,
            }
            for each in tuned.unseen
        ],
        "settings": [_row(row, tuned.names) for row in tuned.rows],
        "failed": dict(tuned.failed),
    }  # fmt: skip


def _row(row: SweepRow, names: Sequence[str]) -> dict[str, Any]:
    return {
        "configuration": row.configuration,
        "values": dict(row.values),
        "front": row.front,
        "means": {name: row.mean(name) for name in names},
    }
