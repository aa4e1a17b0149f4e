"""What is answered: tables of both clusters side by side, gangs that start at another time, and sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gpusched.api.meta.identity import format_time
from gpusched.cli.command import table
from gpusched.cli.lab.simulate.simulation_report import trouble_lines
from gpusched.cli.lab.whatif.inputs import WhatIfQuestion, question_json
from gpusched.engine.run_record import RunRecord
from gpusched.lab.report.statistics.comparison import ComparedRow, ComparedValue
from gpusched.lab.report.statistics.named import StatisticValue
from gpusched.lab.scenario.judge.messages import duration_text
from gpusched.lab.whatif.outcome import Outcome, OutcomeRow
from gpusched.lab.whatif.play import CHANGED, UNCHANGED


def answer_lines(
    question: WhatIfQuestion, outcome: Outcome, records: Sequence[RunRecord], *, top: int
) -> Iterator[str]:
    """The answer for people.

    Args:
        question: that was asked.
        outcome: of it.
        records: of both plays, for what went wrong in them.
        top: gangs that are listed at most.
    """
    yield question.source
    for message in question.changes:
        yield f"  what if  {message}"
    for message in question.assumptions:
        yield f"  assumed  {message}"
    yield ""
    yield table([["", UNCHANGED, CHANGED, "difference"], *map(_cells, outcome.rows)])
    if outcome.waits:
        yield ""
        yield table([["wait of", UNCHANGED, CHANGED, "difference"], *map(_cells, outcome.waits)])
    yield from _gang_tables(question, outcome, top)
    yield ""
    for sentence in outcome.sentences:
        yield f"{sentence[0].upper()}{sentence[1:]}."
    yield from trouble_lines(records)


def _cells(row: OutcomeRow) -> list[str]:
    return [row.name, _figure(row.before), _figure(row.after), row.difference]


def _figure(value: StatisticValue) -> str:
    if value.value is None:
        return "-"
    return duration_text(round(value.value)) if value.unit == "s" else str(value)


def _gang_tables(question: WhatIfQuestion, outcome: Outcome, top: int) -> Iterator[str]:
    if outcome.moved and top:
        rows = [
            [gang.key, gang.queue, _moment(question, gang.before), _moment(question, gang.after), _shift(gang.by_s)]
            for gang in outcome.moved[:top]
        ]  # fmt: skip
        yield ""
        yield table([["starts of", "queue", UNCHANGED, CHANGED, ""], *rows])
        yield from _more(len(outcome.moved), top)
    if outcome.evicted and top:
        evicted = [
            [gang.key, gang.queue, f"{gang.pods} pods, {gang.why}", f"{gang.lost_gpu_hours:,.1f} GPU-h"]
            for gang in outcome.evicted[:top]
        ]  # fmt: skip
        yield ""
        yield table([["evicted where changed", "queue", "", "lost"], *evicted])
        yield from _more(len(outcome.evicted), top)


def _more(count: int, top: int) -> Iterator[str]:
    if count > top:
        yield f"and {count - top:,} more; --top {count} shows all"


def _moment(question: WhatIfQuestion, seconds: float | None) -> str:
    return "not until the end" if seconds is None else format_time(question.given.epoch + seconds)


def _shift(by_s: float) -> str:
    text = duration_text(round(abs(by_s)))
    return f"{text} {'later' if by_s >= 0 else 'earlier'}"


def answer_json(
    question: WhatIfQuestion, outcome: Outcome, records: Sequence[RunRecord]
) -> dict[str, Any]:
    """The answer for programs; times are those of the API, waits seconds."""

    def moment(seconds: float | None) -> str:
        return "" if seconds is None else format_time(question.given.epoch + seconds)

    return {
        **question_json(question),
        "figures": [_row_json(row) for row in outcome.rows],
        "waits": [_row_json(row) for row in outcome.waits],
        "starts": [
            {"gang": gang.key, "queue": gang.queue, "asItIs": moment(gang.before),
             "changed": moment(gang.after), "laterSeconds": round(gang.by_s, 3)}
            for gang in outcome.moved
        ],
        "evicted": [
            {"gang": gang.key, "queue": gang.queue, "pods": gang.pods, "why": gang.why,
             "lostGpuHours": round(gang.lost_gpu_hours, 4)}
            for gang in outcome.evicted
        ],
        "sentences": list(outcome.sentences),
        "sessions": {record.name: record.counters["sessions"] for record in records},
        "trouble": list(trouble_lines(records)),
    }  # fmt: skip


def _row_json(row: OutcomeRow) -> dict[str, Any]:
    return {
        "name": row.name, "unit": row.before.unit or row.after.unit,
        "asItIs": row.before.value, "changed": row.after.value,
    }  # fmt: skip


def compared_rows(outcome: Outcome) -> list[ComparedRow]:
    """The figures as the page of a comparison shows them."""
    return [
        ComparedRow(
            f"wait of {row.name}" if row in outcome.waits else row.name,
            (
                ComparedValue(text=_figure(row.before), value=row.before.value),
                ComparedValue(
                    text=_figure(row.after), value=row.after.value, change=row.difference
                ),
            ),
        )
        for row in (*outcome.rows, *outcome.waits)
    ]
