"""Hands each change of a collection to functions of this process, in the next turn of the loop.

A dozen controllers look at every pod and need hardly any. One callback for all of them costs far
less than a task of each that is woken, looks and sleeps again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, Literal

from gpusched.base.classes import define, frozen
from gpusched.devcluster.storage.store import Collection, Pin

Obj = dict[str, Any]
_BATCH: Final = 64


@frozen(slots=True)
class WatchItem:
    """One change: its type, the object after it (for DELETED: as it was last), and before it."""

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    object: Obj
    previous: Obj | None


See = Callable[[WatchItem], None]


@define(slots=True, eq=False)
class _Subscriber:
    see: See
    since: int
    fault: asyncio.Future[None]


class ChangeFeed:
    """The followers of one collection, called in the order in which they came.

    Args:
        collection: whose changes; kept for them however late the loop is.
    """

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self._followers: list[_Subscriber] = []
        self._pin: Pin | None = None
        self._stop: Callable[[], None] = _nothing
        self._due = False

    async def follow(self, see: See) -> None:
        """Tell of the objects there are as ADDED, then of each change; never ends by itself.

        Raises:
            Exception: whatever ``see`` raised; it is called no more.
        """
        collection = self._collection
        for _, stored in list(collection.scan()):
            see(WatchItem("ADDED", stored.obj, None))
        if self._pin is None:
            self._pin = collection.pin()
            self._stop = collection.listen(self._wake)
        fault: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        follower = _Subscriber(see, collection.end, fault)
        self._followers.append(follower)
        try:
            await fault
        finally:
            self._followers.remove(follower)
            if not self._followers:
                self._stop()
                collection.unpin(self._pin)
                self._pin = None

    def _wake(self) -> None:
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._call_followers)

    def _call_followers(self) -> None:
        self._due = False
        pin = self._pin
        if pin is None:
            return
        changes = self._collection.since(pin.position, _BATCH)
        assert changes is not None, "the pin keeps them"
        for change in changes:
            position, pin.position = pin.position, pin.position + 1
            before = change.before
            item = WatchItem(change.type, change.after.obj, None if before is None else before.obj)
            for follower in self._followers:
                if follower.since <= position and not follower.fault.done():
                    try:
                        follower.see(item)
                    except Exception as fault:  # noqa: BLE001 - it is raised where it belongs
                        follower.fault.set_exception(fault)
        if len(changes) == _BATCH:
            self._wake()  # a long backlog must not hold up the server


def _nothing() -> None:
    """Do nothing: the listener was removed."""
