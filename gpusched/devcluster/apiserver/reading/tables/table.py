"""Tables: what ``kubectl get`` prints, computed on the server's side.

Times are ages, so a table is made for a moment: ``now`` in seconds since the Unix epoch.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, Literal

import attrs
import msgspec

from gpusched.cel.schema_nodes import Doc, Json
from gpusched.devcluster.apiserver.reading.tables.ages import duration_text, seconds_of
from gpusched.devcluster.apiserver.reading.tables.columns import (
    EVENTS,
    NAME,
    SIMPLE,
    Column,
    Columns,
    field_cell,
)
from gpusched.devcluster.apiserver.reading.tables.gangs import GANGS
from gpusched.devcluster.apiserver.reading.tables.json_path import JsonPathError, compile_path
from gpusched.devcluster.apiserver.reading.tables.stored_kinds import STORED
from gpusched.devcluster.apiserver.reading.tables.workloads import (
    JOBS,
    NODES,
    PODS,
    row_conditions,
)
from gpusched.devcluster.schema.build import load_shipped

__all__ = ["Columns", "IncludeObject", "columns_for", "custom_columns", "table"]

IncludeObject = Literal["Metadata", "Object", "None"]
"""The query parameter ``includeObject``: what a row carries beside its cells."""

_BUILTIN: dict[tuple[str, str], Columns] = {
    **SIMPLE,
    **STORED,
    **GANGS,
    ("", "Pod"): PODS,
    ("", "Node"): NODES,
    ("batch", "Job"): JOBS,
    ("", "Event"): EVENTS,
    ("events.k8s.io", "Event"): EVENTS,
}
_GENERIC: Columns = (
    NAME,
    Column(
        "Created At",
        field_cell("metadata", "creationTimestamp"),
        type="date",
        description="When the object was created.",
    ),
)
_AGE_ONLY = ({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},)


@functools.cache
def columns_for(group: str, kind: str) -> Columns:
    """Columns of a built-in kind; name and creation time for kinds without their own."""
    return _described(_BUILTIN.get((group, kind), _GENERIC), kind)


@functools.cache
def _descriptions() -> dict[str, dict[str, str]]:
    """What the real server says of columns, as far as it was recorded, by kind."""
    texts: dict[str, dict[str, str]] = load_shipped("column-descriptions.json.gz")
    return texts


def _described(columns: Columns, kind: str) -> Columns:
    texts = _descriptions()
    known = {**texts["any"], **texts.get(kind, {})}
    return tuple(attrs.evolve(c, description=known.get(c.name, c.description)) for c in columns)


def custom_columns(printer_columns: Iterable[Doc] | None) -> Columns:
    """Columns of a custom kind from ``additionalPrinterColumns``; its age when there are none.

    A path that cannot be read ends the columns, as on a real server.
    """
    columns = [*_described((NAME,), "")]
    for raw in printer_columns or _AGE_ONLY:
        try:
            columns.append(_custom(raw))
        except JsonPathError:
            break
    return tuple(columns)


def _custom(raw: Doc) -> Column:
    find = compile_path(raw["jsonPath"])
    kind = raw.get("type", "string")

    def cell(obj: Doc, now: float) -> Json:
        found = find(obj)
        return _typed(found[0], kind, now) if found else None

    return Column(
        raw["name"],
        cell,
        type=kind,
        format=raw.get("format", ""),
        priority=raw.get("priority", 0),
        description=raw.get("description")
        or f"Custom resource definition column (in JSONPath format): {raw['jsonPath']}",
    )


def _typed(value: Any, kind: str, now: float) -> Json:
    """A value as a cell of a declared type; None when it is not of that type."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    match kind:
        case "integer":
            return int(value) if number else None
        case "number":
            return value if number else None
        case "boolean":
            return value if isinstance(value, bool) else None
        case "date":
            then = seconds_of(value)
            return "<invalid>" if then is None else duration_text(now - then)
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def table(
    columns: Columns,
    objects: Iterable[Doc],
    *,
    now: float,
    metadata: Doc,
    include: IncludeObject = "Metadata",
    headers: bool = True,
) -> Doc:
    """A meta.k8s.io/v1 Table with a row for each object.

    Args:
        columns: from ``columns_for`` or ``custom_columns``.
        objects: with apiVersion and kind, which rows repeat.
        now: seconds since the Unix epoch.
        metadata: of the list, or of the single object (its version alone is used there).
        include: what a row carries.
        headers: False leaves the column definitions null, as later events of a watch do.
    """
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [c.header() for c in columns] if headers else None,
        "rows": [_row(columns, obj, now, include=include) for obj in objects],
    }


def _row(columns: Columns, obj: Doc, now: float, *, include: IncludeObject) -> Doc:
    row: Doc = {"cells": [column.cell(obj, now) for column in columns]}
    if obj.get("kind") == "Pod" and (conditions := row_conditions(obj)):
        row["conditions"] = conditions
    if include == "Object":
        row["object"] = obj
    elif include == "Metadata":
        row["object"] = {
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": obj["metadata"],
        }
    return row
