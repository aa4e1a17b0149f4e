"""PodGroups as lines of a table: the printer columns of their CRD."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from gpusched.cli.command import clean_cell
from gpusched.cli.inspect.listing.view_table import age_text
from gpusched.cli.inspect.pod_groups import API

_Cell = Callable[[dict[str, Any], float], Any]


def _field(*path: str) -> _Cell:
    def cell(item: dict[str, Any], _: float) -> Any:
        value: Any = item
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return value

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
    return age_text(str(_field("metadata", "creationTimestamp")(item, now) or ""), now)


# Title, cell, and whether only -o wide shows it: the printer columns of the CRD.
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


def group_rows(
    items: Sequence[dict[str, Any]], now: float, *, wide: bool, everywhere: bool
) -> list[list[str]]:
    """A header and a line for each group.

    Args:
        items: in their order.
        now: seconds since the epoch.
        wide: with the columns that only ``-o wide`` shows.
        everywhere: with namespaces.
    """
    wanted = [
        (title, cell)
        for title, cell, only_wide in _GROUP_COLUMNS
        if (wide or not only_wide) and (title != "NAMESPACE" or everywhere)
    ]
    rows = [[title for title, _ in wanted]]
    return rows + [[clean_cell(cell(item, now)) for _, cell in wanted] for item in items]
