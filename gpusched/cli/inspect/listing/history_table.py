"""Runs of gangs, or their sums, as lines of a table, and as CSV and Parquet for others' programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, BinaryIO, Final

from gpusched.api.meta.duration import NANOSECONDS, format_duration
from gpusched.base.errors import NotInstalled
from gpusched.cli.command import clean_cell

Json = dict[str, Any]

_LATEST: Final = "9999"
"""Sorts behind every time."""
_SECONDS: Final = frozenset(
    {"waitSeconds", "longestWaitSeconds", "runSeconds", "estimateErrorSeconds"}
)
_HOURS: Final = frozenset({"gpuHours", "lostGpuHours", "cost"})
_COUNTS: Final = frozenset(
    {"priority", "members", "minMember", "evictions", "repeatedEvictions", "runs", "starts"}
)
_TIMES: Final = frozenset(
    {"created", "since", "admitted", "started", "ended", "firstEstimate", "estimate"}
)
RUN_COLUMNS: Final = (
    "namespace", "name", "uid", "gangKind", "queue", "user", "owner", "priority", "members", "minMember",
    "gpus", "gpuType", "state", "created", "since", "admitted", "started", "ended", "waitSeconds",
    "runSeconds", "evictions", "endedBy", "message", "gpuHours", "lostGpuHours", "cost",
    "firstEstimate", "estimate", "estimateErrorSeconds", "estimateKnownBy", "repeatedEvictions",
)  # fmt: skip
"""Of runs in CSV and Parquet."""
SUM_COLUMNS: Final = (
    "by", "name", "runs", "starts", "waitSeconds", "longestWaitSeconds", "runSeconds", "evictions",
    "gpuHours", "lostGpuHours", "cost",
)  # fmt: skip
"""Of sums in CSV and Parquet."""
_COLUMNS: Final = frozenset((*RUN_COLUMNS, *SUM_COLUMNS))
SORT_KEYS: Final[Mapping[str, Callable[[Json], Any]]] = MappingProxyType(
    {
        "ended": lambda run: (run["ended"] or _LATEST, run["since"]),
        "started": lambda run: run["started"] or _LATEST,
        "since": lambda run: run["since"],
        "name": lambda run: (run["metadata"]["namespace"], run["metadata"]["name"], run["since"]),
        "queue": lambda run: (run["queue"], run["ended"] or _LATEST),
        "evictions": lambda run: -run["evictions"],
        "gpu-hours": lambda run: -run["gpuHours"],
    }
)
"""How runs are sorted, by the word of the user."""


def run_rows(items: Sequence[Json], *, wide: bool, everywhere: bool) -> list[list[str]]:
    """A header and a line for each run.

    Args:
        items: as ``run_as_json`` makes them, in their order.
        wide: with all times and sentences.
        everywhere: with namespaces.
    """
    columns: list[tuple[str, Callable[[Json], Any], bool]] = [
        ("NAMESPACE", lambda run: run["metadata"]["namespace"], not everywhere),
        ("NAME", lambda run: run["metadata"]["name"], False),
        ("KIND", lambda run: run["gangKind"], False),
        ("OWNER", lambda run: run["owner"], not wide),
        ("USER", lambda run: run["user"], not wide),
        ("QUEUE", lambda run: run["queue"], False),
        ("STATE", lambda run: run["state"], False),
        ("PODS", lambda run: run["members"], False),
        ("GPUS", lambda run: run["gpus"], False),
        ("TYPE", lambda run: run["gpuType"], not wide),
        ("SINCE", lambda run: run["since"], False),
        ("ADMITTED", lambda run: run["admitted"], not wide),
        ("STARTED", lambda run: run["started"], not wide),
        ("ENDED", lambda run: run["ended"], not wide),
        ("WAIT", lambda run: _span(run["waitSeconds"]), False),
        ("ESTIMATE", lambda run: run.get("estimate", ""), not wide),
        ("ERROR", lambda run: _signed_span(run.get("estimateErrorSeconds")), not wide),
        ("KNOWN-BY", lambda run: run.get("estimateKnownBy", ""), not wide),
        ("RUN", lambda run: _span(run["runSeconds"]) if run["started"] else "", False),
        ("EVICTIONS", lambda run: run["evictions"], False),
        ("REPEATED", lambda run: run.get("repeatedEvictions", ""), not wide),
        ("GPU-HOURS", lambda run: _hours(run["gpuHours"]), False),
        ("COST", lambda run: _hours(run["cost"]), not _is_priced(items)),
        ("LOST", lambda run: _hours(run["lostGpuHours"]), not wide),
        ("ENDED-BY", lambda run: run["endedBy"], False),
        ("MESSAGE", lambda run: run["message"], not wide),
    ]
    return _rows([(title, cell) for title, cell, hidden in columns if not hidden], items)


def sum_rows(items: Sequence[Json], by: str) -> list[list[str]]:
    """A header and a line for each sum, as ``sum_as_json`` makes them."""
    columns: list[tuple[str, Callable[[Json], Any]]] = [
        (by.upper(), lambda each: each["name"] or _unknown(by)),
        ("RUNS", lambda each: each["runs"]),
        ("STARTED", lambda each: each["starts"]),
        ("MEAN-WAIT", lambda each: _span(each["waitSeconds"] / max(1, each["runs"]))),
        ("LONGEST-WAIT", lambda each: _span(each["longestWaitSeconds"])),
        ("MEAN-RUN", lambda each: _span(each["runSeconds"] / max(1, each["starts"]))),
        ("EVICTIONS", lambda each: each["evictions"]),
        ("GPU-HOURS", lambda each: _hours(each["gpuHours"])),
        *([("COST", lambda each: _hours(each["cost"]))] if _is_priced(items) else []),
        ("LOST", lambda each: _hours(each["lostGpuHours"])),
    ]
    return _rows(columns, items)


def _is_priced(items: Sequence[Json]) -> bool:
    """Whether GPU-hours cost something else than themselves."""
    return any(each["cost"] != each["gpuHours"] for each in items)


def flat_item(item: Json) -> Json:
    """One run or sum with plain values only: what CSV and Parquet can hold."""
    plain = {name: value for name, value in item.items() if name in _COLUMNS}
    return {**item.get("metadata", {}), **plain}


def as_csv(items: Sequence[Json], columns: Sequence[str]) -> str:
    """A header and a line for each item; foreign text on one line."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([clean_cell(item.get(name, "")) for name in columns] for item in items)
    return out.getvalue()


def write_parquet(items: Sequence[Json], columns: Sequence[str], out: BinaryIO) -> None:
    """One table with typed columns.

    Raises:
        NotInstalled: pyarrow is not there.
    """
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra
        from pyarrow import parquet  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise NotInstalled(
            "-o parquet needs pyarrow: pip install 'gpusched[history]', or take -o csv"
        ) from error
    types = {
        name: pa.float64() if name in _SECONDS | _HOURS
        else pa.int64() if name in _COUNTS
        else pa.timestamp("ms", tz="UTC") if name in _TIMES
        else pa.string()
        for name in columns
    }  # fmt: skip
    schema = pa.schema(list(types.items()))
    arrays = []
    for name in columns:
        values = [item.get(name) for item in items]  # an older daemon's runs lack some
        if name in _TIMES:
            texts = pa.array(
                [(text or "").removesuffix("Z") or None for text in values], pa.string()
            )
            arrays.append(texts.cast(pa.timestamp("ms")).cast(types[name]))
        else:
            arrays.append(pa.array(values, types[name]))
    parquet.write_table(pa.table(arrays, schema=schema), out)


def _rows(
    columns: Sequence[tuple[str, Callable[[Json], Any]]], items: Sequence[Json]
) -> list[list[str]]:
    rows = [[title for title, _ in columns]]
    return rows + [[clean_cell(cell(item)) for _, cell in columns] for item in items]


def _unknown(by: str) -> str:
    return {"day": "<goes on>", "user": "<not known>"}.get(by, "<none>")


def _span(seconds: float) -> str:
    """Whole seconds: ``1h2m3s``."""
    return format_duration(int(seconds) * NANOSECONDS)


def _signed_span(seconds: float | None) -> str:
    """The same with ``-`` before what is below zero; empty for None."""
    if seconds is None:
        return ""
    return f"{'-' if seconds <= -1 else ''}{_span(abs(seconds))}"


def _hours(amount: float) -> str:
    return f"{amount:.{1 if amount >= 10 else 2}f}" if amount else ""
