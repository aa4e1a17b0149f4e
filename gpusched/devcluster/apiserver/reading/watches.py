"""Watches: initial state, live changes with selector transitions, bookmarks, the end at 410.

A watcher keeps only a position in the log of its kind. Slow readers are held by the transport's
own back-pressure; when the log has moved past them they get a 410 and the stream ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from itertools import chain
from typing import Any

from gpusched.devcluster.apimachinery import status
from gpusched.devcluster.apimachinery.limits import BOOKMARK_PERIOD_S, WATCH_BATCH_MAX
from gpusched.devcluster.apimachinery.selectors import Match
from gpusched.devcluster.apiserver.reading.lists import ListOptions
from gpusched.devcluster.apiserver.reading.representations import encode
from gpusched.devcluster.apiserver.server_state import ServerState
from gpusched.devcluster.registry.kinds import Resource
from gpusched.devcluster.storage.store import Change, Collection, Stored, event_line

Obj = dict[str, Any]
Render = Callable[[Obj], Obj]
"""Turns a storage object into what this watcher asked to see."""


class Watcher:
    """One watch of one resource: ``stream`` yields chunks of event lines until it ends."""

    def __init__(
        self,
        core: ServerState,
        resource: Resource,
        namespace: str,
        *,
        options: ListOptions,
        render: Render | None,
    ) -> None:
        self._core = core
        self._resource = resource
        self._options = options
        self._render = render
        self._collection: Collection = core.store.collection(resource.storage)
        self._namespace = namespace
        self._prefix = f"{namespace}/" if namespace else ""
        self._wake = asyncio.Event()
        self._ended = False
        self._bookmark_due = False
        self._seen = core.store.version

    async def stream(self) -> AsyncIterator[bytes]:
        """Yield encoded events; ends at the timeout, or after one ERROR event."""
        stop = self._collection.listen(self._wake.set)
        timers = self._timers()
        try:
            first, position = self._start()
            for chunk in first:
                yield chunk
            while position is not None and not self._ended:
                changes = self._collection.since(position, WATCH_BATCH_MAX)
                if changes is None:
                    yield _expired_line(self._seen, self._collection.trimmed_version)
                    return
                if changes:
                    position += len(changes)
                    self._seen = changes[-1].version
                    if chunk := b"".join(map(self._line, changes)):
                        yield chunk
                    continue
                if self._bookmark_due:
                    self._bookmark_due = False
                    yield self._bookmark()
                    continue
                self._wake.clear()
                await self._wake.wait()
        finally:
            stop()
            for timer in timers:
                timer.cancel()

    def _start(self) -> tuple[Iterable[bytes], int | None]:
        """Return the first chunks and the log position to go on from; None ends the watch."""
        options, store = self._options, self._core.store
        version = options.version
        initial = options.initial_events
        if initial is None:
            initial = not version
        if initial:
            end = []
            if options.initial_events and options.bookmarks:
                end.append(self._bookmark(initial_end=True))
            return chain(self._initial(), end), self._collection.end
        if not version or version > store.version:
            return [], self._collection.end
        floor = store.watch_floor(self._collection)
        if version < floor:
            return [_expired_line(version, floor)], None
        return [], self._collection.position_after(version)

    def _initial(self) -> Iterator[bytes]:
        """Return the present objects as events; they are picked now, and encoded as they go out."""
        match = self._options.match
        found = [
            stored
            for _, stored in self._collection.scan(self._namespace)
            if match is None or match(stored.obj)
        ]
        return (
            b"".join(self._frame("ADDED", stored) for stored in found[at : at + WATCH_BATCH_MAX])
            for at in range(0, len(found), WATCH_BATCH_MAX)
        )

    def _line(self, change: Change) -> bytes:
        if self._prefix and not change.key.startswith(self._prefix):
            return b""
        match = self._options.match
        if match is None:
            if self._render is None:
                return change.line
            return self._frame(change.type, change.after)
        return self._selected(change, match)

    def _selected(self, change: Change, match: Match) -> bytes:
        now = change.type != "DELETED" and match(change.after.obj)
        before = change.before is not None and match(change.before.obj)
        if now and before:
            return self._frame("MODIFIED", change.after)
        if now:
            return self._frame("ADDED", change.after)
        if not before:
            return b""
        if change.type == "DELETED":
            return self._frame("DELETED", change.after)
        return self._frame("DELETED", Stored(change.left, change.version))

    def _frame(self, type_: str, stored: Stored) -> bytes:
        if self._render is None:
            return event_line(type_, stored.raw)
        return event_line(type_, encode(self._render(stored.obj)))

    def _bookmark(self, *, initial_end: bool = False) -> bytes:
        meta: Obj = {"resourceVersion": str(self._core.store.version)}
        if initial_end:
            meta["annotations"] = {"k8s.io/initial-events-end": "true"}
        kind = {"kind": self._resource.kind, "apiVersion": self._resource.api_version}
        obj: Obj = {**kind, "metadata": meta}
        if self._resource.storage == "pods":
            obj |= {"spec": {"containers": None}, "status": {}}
        elif self._resource.custom is None and self._resource.strategy.has_status:
            obj |= {"spec": {}, "status": {}}
        if self._render is not None:
            obj = self._render(obj)
        return event_line("BOOKMARK", encode(obj))

    def _timers(self) -> list[asyncio.Task[None]]:
        timers = []
        if self._options.timeout_s:
            timers.append(asyncio.create_task(self._end_after(self._options.timeout_s)))
        if self._options.bookmarks:
            timers.append(asyncio.create_task(self._remind()))
        return timers

    async def _end_after(self, seconds: float) -> None:
        await self._core.clock.sleep(seconds)
        self._ended = True
        self._wake.set()

    async def _remind(self) -> None:
        while True:
            await self._core.clock.sleep(BOOKMARK_PERIOD_S)
            self._bookmark_due = True
            self._wake.set()


def _expired_line(asked: int, floor: int) -> bytes:
    error = status.expired(f"too old resource version: {asked} ({floor})")
    return event_line("ERROR", encode(error.body))
