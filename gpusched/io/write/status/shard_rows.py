"""The status of a queue that spans shards: each daemon writes the row of its own, and the sum of all rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from gpusched.api.meta.quantity import QuantityError
from gpusched.api.meta.resources import NOTHING, Resources
from gpusched.api.queue.queue import Queue
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
    rows = [
        row
        for row in msgspec.json.decode(shown).get("shards") or ()
        if set(str(row.get("name")).split(_AND)) <= set(status.other_shards)
    ]
    own = {"name": _AND.join(status.shards)}
    rows.append(own | {each: fields[each] for each in (*_AMOUNTS, *_NUMBERS, *_pools_of(fields))})
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
        "nodePools": _sum_pools(rows, [pool.name for pool in queue.node_pools]),
        "shards": rows,
    }


def _pools_of(fields: Mapping[str, object]) -> Iterable[str]:
    return ("nodePools",) if fields.get("nodePools") else ()


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
