"""The status of a queue that spans shards: each daemon writes the row of its own, and the sum of all rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gpusched.api.meta.quantity import QuantityError
from gpusched.api.meta.resources import NOTHING, Resources
from gpusched.api.queue.queue import Queue
from gpusched.session.state.plan import QueueStatus

_AMOUNTS: Final = ("allocated", "requested", "fairShare")
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
    rows = [
        row
        for row in msgspec.json.decode(shown).get("shards") or ()
        if set(str(row.get("name")).split(_AND)) <= set(status.other_shards)
    ]
    rows.append(
        {"name": _AND.join(status.shards)} | {each: fields[each] for each in (*_AMOUNTS, *_NUMBERS)}
    )
    rows.sort(key=lambda row: str(row["name"]))
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
        "shards": rows,
    }


def _sum_amounts(parts: Any) -> Resources:
    """The sum of lists of amounts; one that cannot be read counts as nothing until its daemon writes it again."""
    found = NOTHING
    for part in parts:
        try:
            found = found.plus(Resources.parse(part, field="status.shards"))
        except QuantityError:
            continue
    return found
