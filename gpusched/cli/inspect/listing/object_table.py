"""Queues and PodGroups as lines of a table: the printer columns of their CRDs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.api.meta.identity import InvalidObject, parse_time
from gpusched.api.meta.quantity import QuantityError, format_quantity, parse_quantity
from gpusched.cli.command import age, clean_cell
from gpusched.cli.inspect.pod_groups import API

_Cell = Callable[[dict[str, Any], float], Any]


def _field(*path: str) -> _Cell:
    def cell(item: dict[str, Any], _: float) -> Any:
        value: Any = item
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    return cell


def _gpus(*path: str) -> _Cell:
    """GPUs of all resources in a ResourceList: as it is written where it names one of them."""

    def cell(item: dict[str, Any], now: float) -> Any:
        amounts = _field(*path)(item, now)
        names = gpu_resources().names
        found = [amounts[name] for name in names if name in amounts] if amounts else []
        if len(found) < 2:
            return found[0] if found else None
        try:
            total = sum(parse_quantity(str(text), power=3) for text in found)
        except QuantityError:
            return "<invalid>"
        return format_quantity(total, resource=names[0])

    return cell


def _condition(kind: str, key: str) -> _Cell:
    def cell(item: dict[str, Any], now: float) -> Any:
        conditions = _field("status", "conditions")(item, now)
        for condition in conditions if isinstance(conditions, list) else ():
            if isinstance(condition, dict) and condition.get("type") == kind:
                return condition.get(key)
        return None

    return cell


def _age(item: dict[str, Any], now: float) -> str:
    created = _field("metadata", "creationTimestamp")(item, now)
    try:
        return age(now - parse_time(str(created))) if created else "<unknown>"
    except InvalidObject:
        return "<invalid>"


# Title, cell, and whether only -o wide shows it: the printer columns of the CRDs.
_QUEUE_COLUMNS: Final[tuple[tuple[str, _Cell, bool], ...]] = (
    ("NAME", _field("metadata", "name"), False),
    ("PARENT", _field("spec", "parent"), False),
    ("STATE", _field("status", "state"), False),
    ("WEIGHT", _field("spec", "weight"), False),
    ("RUNNING", _field("status", "running"), False),
    ("INQUEUE", _field("status", "inqueue"), False),
    ("PENDING", _field("status", "pending"), False),
    ("GPUS", _gpus("status", "allocated"), False),
    ("DESERVED", _gpus("spec", "deserved"), False),
    ("AGE", _age, False),
    ("FAIRSHARE", _gpus("status", "fairShare"), True),
    ("BORROWED", _gpus("status", "borrowed"), True),
    ("REQUESTED", _gpus("status", "requested"), True),
    ("LIMIT", _gpus("spec", "capability"), True),
    ("ORDERING", _field("spec", "ordering"), True),
    ("READY", _condition("Ready", "status"), True),
)
_GROUP_COLUMNS: Final[tuple[tuple[str, _Cell, bool], ...]] = (
    ("NAMESPACE", _field("metadata", "namespace"), False),
    ("NAME", _field("metadata", "name"), False),
    ("QUEUE", _field("spec", "queue"), False),
    ("PHASE", _field("status", "phase"), False),
    ("MIN", _field("spec", "minMember"), False),
    ("SCHEDULED", _field("status", "scheduled"), False),
    ("RUNNING", _field("status", "running"), False),
    ("REASON", _condition("Scheduled", "reason"), False),
    ("AGE", _age, False),
    ("POSITION", _field("status", "queuePosition"), True),
    ("ESTIMATE", _field("status", "estimatedStartTime"), True),
    ("API", _field(API), True),
    ("MESSAGE", _condition("Scheduled", "message"), True),
)


def object_rows(
    kind: str, items: Sequence[dict[str, Any]], now: float, *, wide: bool, everywhere: bool
) -> list[list[str]]:
    """A header and a line for each object.

    Args:
        kind: ``queues`` or ``podgroups``.
        items: in their order.
        now: seconds since the epoch.
        wide: with the columns that only ``-o wide`` shows.
        everywhere: with namespaces.
    """
    columns = _QUEUE_COLUMNS if kind == "queues" else _GROUP_COLUMNS
    wanted = [
        (title, cell)
        for title, cell, only_wide in columns
        if (wide or not only_wide) and (title != "NAMESPACE" or everywhere)
    ]
    rows = [[title for title, _ in wanted]]
    return rows + [[clean_cell(cell(item, now)) for _, cell in wanted] for item in items]
