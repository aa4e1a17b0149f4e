"""Expectations and tables, out of their fields."""

from __future__ import annotations

from typing import Any

from gpusched.api.meta.duration import NANOSECONDS, parse_duration
from gpusched.config.yaml_tree import YamlNode, did_you_mean
from gpusched.lab.report.statistics.named import UnknownStatistic, check_name, known_statistics
from gpusched.lab.scenario.file.context import ReadContext, json_value
from gpusched.lab.scenario.file.expectation_fields import SPANS, TESTS, ExpectationForm
from gpusched.lab.scenario.file.mappings import MappingValues
from gpusched.lab.scenario.file.timeline import read_target
from gpusched.lab.scenario.judge.messages import expectation_message
from gpusched.lab.scenario.model.scenario import (
    Comparator,
    Comparison,
    Count,
    EventSeen,
    Expectation,
    JobIs,
    ObjectIs,
    PrintedRow,
    PrintedTable,
    Span,
    Statistic,
    Subject,
)


def read_expectation(form: ExpectationForm, reading: ReadContext) -> Expectation | None:
    """One expectation; None (and told) when it does not say what it expects."""
    found = form.found
    span = _span(found, reading)
    subject = _subject(form, reading)
    if subject is None:
        return None
    return Expectation(
        subject=subject,
        span=span,
        sentence=found.get("say") or expectation_message(subject, span),
        place=reading.place(found.line),
        unchecked=found.get("unchecked", False),
    )


def _span(found: MappingValues, reading: ReadContext) -> Span:
    kind = next((each for each in SPANS if each in found.values), "end")
    if kind == "end":
        return Span()
    value = found.values[kind]
    if kind != "during":
        return Span(kind=kind, until_s=value)
    if len(value) != 2:
        return Span()
    since, until = value
    if since > until:
        reading.problems.add(found.line_of("during"), "during ends before it begins")
    return Span(kind="during", since_s=since, until_s=until)


def _comparison(
    found: MappingValues, reading: ReadContext, *, seconds: bool = False
) -> Comparison | None:
    """The comparison among some fields.

    Args:
        found: the fields.
        reading: takes what is wrong.
        seconds: a text is a duration.
    """
    key = next((each for each in TESTS if each in found.values), None)
    if key is None:
        return None
    value = found.values[key]
    if isinstance(value, YamlNode):
        value = value.value
    test = Comparator(key)
    if test in _ORDERED and (isinstance(value, bool) or not isinstance(value, int | float | str)):
        reading.problems.add(found.line_of(key), f"{key} needs a number")
    if seconds:
        value = _seconds(value, key, found, reading)
    return Comparison(test, float(value) if type(value) is int else value)


_ORDERED = frozenset({Comparator.AT_LEAST, Comparator.AT_MOST, Comparator.ABOVE, Comparator.BELOW})


def _seconds(value: Any, key: str, found: MappingValues, reading: ReadContext) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return parse_duration(value) / NANOSECONDS
    except ValueError as error:
        reading.problems.add(found.line_of(key), f"{key} needs a number, or a duration: {error}")
        return 0.0


def _number(value: float | MappingValues | None, reading: ReadContext) -> Comparison | None:
    """Of ``pods: 3`` or ``pods: {atLeast: 3}``."""
    if value is None:
        return None
    if isinstance(value, MappingValues):
        return _comparison(value, reading)
    return Comparison(Comparator.EQUALS, value)


def _subject(form: ExpectationForm, reading: ReadContext) -> Subject | None:
    match form.name:
        case "job":
            return _job(form.found, reading)
        case "object":
            return _object(form.found, reading)
        case "count":
            return _count(form.found, reading)
        case "stat":
            return _statistic(form.found, reading)
        case _:
            return _event(form.found, reading)


def _job(found: MappingValues, reading: ReadContext) -> JobIs | None:
    said = ("is", "pods", "reason", "says", "within", "on", "evicted")
    if not any(key in found for key in said):
        reading.problems.add(found.line, f"an expectation on a job needs one of {', '.join(said)}")
    if "job" not in found.values:
        return None
    return JobIs(
        job=found.get("job"),
        namespace=found.get("namespace", "default"),
        state=found.get("is", ""),
        pods=_number(found.get("pods"), reading),
        reason=found.get("reason", ""),
        says=found.get("says", ""),
        within=found.get("within", ""),
        on=found.get("on", ""),
        evicted=_number(found.get("evicted"), reading),
    )


def _object(found: MappingValues, reading: ReadContext) -> ObjectIs | None:
    comparison = _comparison(found, reading)
    exists = found.get("exists", True)
    more = [key for key in ("path", "condition", *TESTS) if key in found]
    if not exists and more:
        reading.problems.add(
            found.line_of(more[0]), f"exists: false and {more[0]} cannot both be so"
        )
    if comparison is not None and "path" not in found:
        reading.problems.add(found.line, f"{comparison.test.value} needs the key path")
    if "path" in found and not any(key in found for key in TESTS):
        reading.problems.add(found.line_of("path"), f"path needs one of {', '.join(TESTS)}")
    for key in ("reason", "says"):
        if key in found and "condition" not in found:
            reading.problems.add(found.line_of(key), f"{key} needs the key condition")
    if "object" not in found.values:
        return None
    return ObjectIs(
        target=read_target(found.get("object")),
        exists=exists,
        path=found.get("path", ""),
        comparison=comparison,
        condition=found.get("condition", ""),
        reason=found.get("reason", ""),
        says=found.get("says", ""),
    )


def _count(found: MappingValues, reading: ReadContext) -> Count | None:
    comparison = _comparison(found, reading)
    if comparison is None or "count" not in found.values:
        return None
    where = {path: _word(json_value(node)) for path, node in found.get("where", {}).items()}
    return Count(target=read_target(found.get("count")), comparison=comparison, where=where)


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _statistic(found: MappingValues, reading: ReadContext) -> Statistic | None:
    name = found.get("stat", "")
    if name:
        _check_statistic(name, found.line_of("stat"), reading)
    comparison = _comparison(found, reading, seconds=True)
    if comparison is None or not name:
        return None
    of = found.get("of")
    return Statistic(name=name, comparison=comparison, of=dict(of.values) if of else {})


def _check_statistic(name: str, line: int, reading: ReadContext) -> None:
    try:
        check_name(name)
    except UnknownStatistic as error:
        reading.problems.add(line, f"{error}{did_you_mean(name, known_statistics())}")


def _event(found: MappingValues, reading: ReadContext) -> EventSeen | None:
    if "event" not in found.values:
        return None
    on = found.get("on")
    return EventSeen(
        reason=found.get("event"),
        on=None if on is None else read_target(on),
        says=found.get("says", ""),
        comparison=_comparison(found, reading),
    )


# -- tables ------------------------------------------------------------------------------------
def read_table(found: MappingValues, reading: ReadContext) -> PrintedTable:
    """A printed table with its columns and rows."""
    columns = tuple(found.get("columns", ()))
    rows = []
    for row in found.get("rows", ()):
        measured = "stats" in row
        key = "stats" if measured else "cells"
        cells = tuple(_cell(each) for each in row.get(key, ()))
        if cells and columns and len(cells) != len(columns):
            reading.problems.add(
                row.line_of(key), f"{len(cells)} {key} stand in {len(columns)} columns"
            )
        if measured:
            for name in cells:
                _check_statistic(name, row.line_of(key), reading)
        elif "of" in row:
            reading.problems.add(row.line_of("of"), "of needs the key stats")
        of = row.get("of")
        rows.append(
            PrintedRow(
                name=row.get("name", ""),
                cells=cells,
                measured=measured,
                of=dict(of.values) if of else {},
            )
        )
    return PrintedTable(title=found.get("title", ""), columns=columns, rows=tuple(rows))


def _cell(value: Any) -> str:
    return str(value.value) if isinstance(value, YamlNode) else str(value)
