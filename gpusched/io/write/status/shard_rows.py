"""The status of a queue that spans shards: each daemon writes the row of its own, and the sum of all rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from gpusched.api.meta.quantity import QuantityError
from gpusched.api.meta.resources import NOTHING, Resources
from gpusched.api.meta.status import StartTallyStatus
from gpusched.api.queue.decode import decode_start_errors
from gpusched.api.queue.queue import Queue
from gpusched.api.queue.start_errors import (
    NO_START_ERRORS,
    StartErrors,
    add_start_errors,
    start_errors_without,
)
from gpusched.session.state.plan import QueueStatus

_AMOUNTS: Final = ("allocated", "requested", "fairShare")
_OF_POOL: Final = ("allocated", "fairShare")
_NUMBERS: Final = ("pending", "inqueue", "running")
_AND: Final = ","
"""Between names of shards that one daemon holds."""


def queue_fields_of_shards(
    status: QueueStatus, queue: Queue, fields: Mapping[str, object], shown: bytes
) -> dict[str, object]:
    """Fields of a queue's status, over all shards.

    Args:
        status: of the shards that are held here.
        queue: as the API has it.
        fields: made of the status.
        shown: the status as last seen, in which the rows of other shards stand.
    """
    known = msgspec.json.decode(shown)
    before = known.get("shards") or ()
    rows = [
        row for row in before if set(str(row.get("name")).split(_AND)) <= set(status.other_shards)
    ]
    own = {"name": _AND.join(status.shards)}
    rows.append(own | {each: fields[each] for each in (*_AMOUNTS, *_NUMBERS, *_given_of(fields))})
    rows.sort(key=lambda row: str(row["name"]))
    starts = _sum_starts(known, before, rows, counted={own["name"], *status.start_rows})
    sums = {name: _sum_amounts(row.get(name) for row in rows) for name in _AMOUNTS}
    borrowed = {
        name: held - amount
        for name, amount in queue.deserved.items
        if (held := sums["allocated"].get(name)) > amount
    }
    return {
        **{name: amounts.quantities() for name, amounts in sums.items()},
        "borrowed": Resources.of(borrowed).quantities(),
        **{name: sum(int(row.get(name) or 0) for row in rows) for name in _NUMBERS},
        "nodePools": _sum_pools(rows, [pool.name for pool in queue.node_pools]),
        "startEstimates": start_estimates(starts),
        "shards": rows,
    }


def _given_of(fields: Mapping[str, object]) -> Iterable[str]:
    return (name for name in ("nodePools", "startEstimates") if fields.get(name))


def _sum_starts(
    known: Mapping[str, Any],
    before: Iterable[Mapping[str, Any]],
    rows: Iterable[Mapping[str, Any]],
    *,
    counted: Collection[str],
) -> StartErrors:
    """How gangs of a queue started in all shards: what rows count, and what is left of rows that went away.

    Args:
        known: the status as last seen.
        before: its rows.
        rows: that are written.
        counted: names of rows whose starts are in the row of one's own.
    """
    kept = {row["name"] for row in rows}
    rest = start_errors_without(
        _starts_of(known), add_start_errors(_starts_of(row) for row in before)
    )
    gone = [row for row in before if row.get("name") not in {*kept, *counted}]
    left = add_start_errors((rest, *(_starts_of(row) for row in gone)))
    return add_start_errors((left, *(_starts_of(row) for row in rows)))


def _starts_of(status: Mapping[str, Any]) -> StartErrors:
    """Starts that a status, or a row of it, counts; nothing where that cannot be read."""
    found = status.get("startEstimates")
    try:
        return decode_start_errors(msgspec.convert(found or (), list[StartTallyStatus]))
    except msgspec.ValidationError:
        return NO_START_ERRORS


def start_estimates(errors: StartErrors) -> list[dict[str, object]] | None:
    """The field ``startEstimates``; None for no starts."""
    return [
        {
            "knownBy": tally.known_by,
            "startsByPercent": {str(edge): count for edge, count in tally.ratios},
            "ranged": tally.ranged,
            "held": tally.held,
        }
        for tally in errors.tallies
    ] or None


def _sum_pools(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> object:
    """What a queue holds in its node pools and is due there, in the order of its pools; None for no pools."""
    found = []
    for name in names:
        parts = [
            pool for row in rows for pool in row.get("nodePools") or () if pool.get("name") == name
        ]
        amounts = {
            each: _sum_amounts(pool.get(each) for pool in parts).quantities() for each in _OF_POOL
        }
        found.append({"name": name, **amounts})
    return found or None


def _sum_amounts(parts: Any) -> Resources:
    """The sum of lists of amounts; one that cannot be read counts as nothing until its daemon writes it again."""
    found = NOTHING
    for part in parts:
        try:
            found = found.plus(Resources.parse(part, field="status.shards"))
        except QuantityError:
            continue
    return found
