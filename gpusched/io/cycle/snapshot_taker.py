"""Takes a snapshot whatever one object does: the one in hand when it raises is left out.

The object counts as one that cannot be believed until it is shown again; a pod's room stays charged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Final

from gpusched.api.meta.identity import ObjectKey
from gpusched.api.node.node import Node
from gpusched.api.pod.pod import Pod
from gpusched.api.policy.kinds import DisruptionBudget, Topology
from gpusched.api.policy.reservation import AdvanceReservation
from gpusched.api.queue.queue import Queue
from gpusched.base.errors import Fenced
from gpusched.cache.cache import Cache
from gpusched.cache.queues.tree import QueueNode
from gpusched.cache.snapshot import Snapshot
from gpusched.io.observe.logs import Logger
from gpusched.io.watch.informers import rejected_for

_log = Logger(__name__)
TRIES: Final = 16
"""Objects that one snapshot may leave out."""
_PACKED_MAX: Final = 8
"""Most values of a tuple that is read: arguments, not all objects of a kind."""
_Object = Node | Queue | Pod | Topology | AdvanceReservation | DisruptionBudget


async def count_ahead(cache: Cache, now: float) -> None:
    """Count what has changed, where that is much, in parts between which the event loop goes on.

    A leader that takes a large cluster in would else be silent for seconds, on a busy machine for longer than its Lease.
    """
    for parts in (
        cache.settle_slot_doubts(),
        cache.rows.sum_ahead(cache.ledger),
        cache.families.count_ahead(now),
    ):
        try:
            for _ in parts:
                await asyncio.sleep(0)  # noqa: TID251 - a turn, no time
        except Exception as error:  # noqa: BLE001 - the snapshot meets it again, tells it and leaves it out
            _log.debug("counting ahead broke off", why=str(error))


def take_snapshot(
    cache: Cache, now: float, failed: Callable[[str, BaseException, object], None]
) -> Snapshot:
    """This moment, without what stands in its way.

    Args:
        cache: of which it is taken.
        now: seconds since the epoch.
        failed: told of each object that is left out.
    """
    seen: set[tuple[str, str, str]] = set()
    for _ in range(TRIES):
        try:
            snapshot = cache.take_snapshot(now)
            cache.part.note_snapshot(snapshot)
        except Fenced:
            raise
        except Exception as error:
            cache.recount_everything()
            item = _in_hand(error.__traceback__)
            if item is None:
                raise
            who = (type(item).__name__, getattr(item, "namespace", ""), item.name)
            if who in seen:
                _drop(cache, item)  # not even as one that cannot be believed
                continue
            seen.add(who)
            failed("snapshot", error, f"{who[0]} {who[2]}")
            _leave_out(cache, item, error)
        else:
            return snapshot
    return cache.take_snapshot(now)


def _leave_out(cache: Cache, item: _Object, error: Exception) -> None:
    rejected = rejected_for(item, error)
    if isinstance(item, Node):
        cache.put_node(rejected)
    elif isinstance(item, Pod):
        cache.put_pod(rejected)
    elif isinstance(item, Queue):
        cache.put_queue(ObjectKey("", item.name), rejected)
    elif isinstance(item, Topology):
        cache.topologies.put(ObjectKey("", item.name), rejected)
    elif isinstance(item, AdvanceReservation):
        cache.reservations.put(ObjectKey("", item.name), rejected)
    else:
        cache.budgets.put(ObjectKey(item.namespace, item.name), rejected)


def _drop(cache: Cache, item: _Object) -> None:
    key = ObjectKey(getattr(item, "namespace", ""), item.name)
    if isinstance(item, Node):
        cache.drop_node(item.name)
    elif isinstance(item, Pod):
        cache.drop_pod(key)
    elif isinstance(item, Queue):
        cache.drop_queue(key)
    elif isinstance(item, Topology):
        cache.topologies.drop(key)
    elif isinstance(item, AdvanceReservation):
        cache.reservations.drop(key)
    else:
        cache.budgets.drop(key)


def _in_hand(stack: TracebackType | None) -> _Object | None:
    """What the innermost frame that holds any object holds."""
    found: _Object | None = None
    while stack is not None:
        values = list(stack.tb_frame.f_locals.values())
        packed = [each for each in values if isinstance(each, tuple) and len(each) <= _PACKED_MAX]
        for value in (*values, *(each for those in packed for each in those)):
            inner = value.queue if isinstance(value, QueueNode) else value
            if isinstance(inner, _Object):
                found = inner
                break
        stack = stack.tb_next
    return found
