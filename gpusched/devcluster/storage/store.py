"""The one place where objects are stored: one integer version over all kinds, and each kind's history.

A write is one synchronous call, so writes are linearizable by construction. Objects are plain
dicts that are never mutated once stored; a change stores a new top level and shares what it kept.
Watchers do not own queues: they read each kind's log from their own position, so that a slow
one costs nothing and finds its place gone when the log was trimmed.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal

import msgspec
from sortedcontainers import SortedDict

from gpusched.base.classes import define, frozen
from gpusched.devcluster.apimachinery.limits import (
    HISTORY_BYTES_MAX,
    HISTORY_PER_KIND_MAX,
    HISTORY_SLACK,
)

Obj = dict[str, Any]
ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]

_encode: Final = msgspec.json.Encoder().encode


class Stored:
    """An object at one version, encoded at most once."""

    __slots__ = ("_raw", "obj", "version")

    def __init__(self, obj: Obj, version: int) -> None:
        self.obj = obj
        self.version = version
        self._raw: bytes | None = None

    @property
    def raw(self) -> bytes:
        """JSON of the object, ``kind`` and ``apiVersion`` first."""
        raw = self._raw
        if raw is None:
            raw = self._raw = _encode(self.obj)
        return raw

    def supersede(self) -> None:
        """Drop the bytes, which are rarely needed again, and are then encoded again."""
        self._raw = None


@define(slots=True, eq=False)
class Change:
    """One write: the object under its new version, and what was stored before.

    For DELETED ``after`` is the last state stamped with the version of the deletion. ``size`` is
    the length of its JSON in bytes.
    """

    type: ChangeType
    key: str
    after: Stored
    before: Stored | None
    size: int

    @property
    def version(self) -> int:
        """The version this write made."""
        return self.after.version

    @property
    def line(self) -> bytes:
        """The watch event as every unfiltered watcher sees it, around bytes that all share."""
        return event_line(self.type, self.after.raw)

    @property
    def left(self) -> Obj:
        """The state before this write under its new version: what leaving a selector shows."""
        assert self.before is not None
        old = self.before.obj
        version = self.after.obj["metadata"]["resourceVersion"]
        return {**old, "metadata": {**old["metadata"], "resourceVersion": version}}


def event_line(type_: str, raw: bytes) -> bytes:
    """Frame an encoded object as one line of a watch stream."""
    return b'{"type":"%b","object":%b}\n' % (type_.encode(), raw)


@define(slots=True, eq=False)
class Pin:
    """Where a reader in this process stands; what lies behind it may be forgotten."""

    position: int


_NO_ITEMS: Final = SortedDict()
"""Of each collection before its first object; not to be changed. Most kinds never have one."""


class Collection:
    """All objects of one kind and the log of their changes.

    Keys are ``namespace/name``, or ``name`` for cluster-scoped kinds; they sort as etcd sorts.
    """

    def __init__(self, name: str, store: Store) -> None:
        self.name = name
        self._store = store
        self._items: SortedDict = _NO_ITEMS
        self._log: list[Change] = []
        self._trimmed = 0
        self._log_bytes = 0
        self.trimmed_version = 0
        self._listeners: list[Callable[[], None]] = []
        self._pins: list[Pin] = []

    def __len__(self) -> int:
        return len(self._items)

    def get(self, key: str) -> Stored | None:
        """Return the object under a key."""
        found: Stored | None = self._items.get(key)
        return found

    def scan(self, namespace: str = "", *, after: str = "") -> Iterator[tuple[str, Stored]]:
        """Yield objects in key order, of one namespace or of all, beyond key ``after``."""
        low = f"{namespace}/" if namespace else None
        high = f"{namespace}0" if namespace else None  # "0" is what follows "/" in ASCII
        inclusive = (True, False)
        if after and (low is None or after >= low):
            low, inclusive = after, (False, False)
        items = self._items
        for key in items.irange(low, high, inclusive=inclusive):
            yield key, items[key]

    def scan_at(
        self, version: int, namespace: str = "", *, after: str = ""
    ) -> Iterator[tuple[str, Stored]] | None:
        """Yield objects as they were at a version, or return None when history ends above it."""
        if version < self.trimmed_version:
            return None
        past: dict[str, Stored | None] = {}
        for change in reversed(self._log):
            if change.version <= version:
                break
            past[change.key] = change.before
        if not past:
            return self.scan(namespace, after=after)
        prefix = f"{namespace}/" if namespace else ""
        return self._merge(past, self.scan(namespace, after=after), prefix=prefix, after=after)

    def _merge(
        self,
        past: dict[str, Stored | None],
        now: Iterator[tuple[str, Stored]],
        *,
        prefix: str,
        after: str,
    ) -> Iterator[tuple[str, Stored]]:
        older = sorted(
            (
                (key, stored)
                for key, stored in past.items()
                if stored is not None and key.startswith(prefix) and key > after
            ),
            key=lambda item: item[0],
        )
        current = ((key, stored) for key, stored in now if key not in past)
        return heapq.merge(older, current, key=lambda item: item[0])

    def count(self, namespace: str = "", *, after: str = "") -> int:
        """Count the objects that ``scan`` would yield."""
        items = self._items
        low: int = items.bisect_right(after) if after else 0
        high: int = len(items)
        if namespace:
            low = max(low, items.bisect_left(f"{namespace}/"))
            high = items.bisect_left(f"{namespace}0")
        return max(0, high - low)

    # -- the log -----------------------------------------------------------------------------

    @property
    def end(self) -> int:
        """Position behind the newest change; positions never repeat."""
        return self._trimmed + len(self._log)

    def position_after(self, version: int) -> int:
        """Position of the first change newer than a version."""
        return self._trimmed + bisect_right(self._log, version, key=lambda c: c.version)

    def since(self, position: int, limit: int) -> list[Change] | None:
        """Return up to ``limit`` changes from a position, or None when they were trimmed."""
        start = position - self._trimmed
        if start < 0:
            return None
        return self._log[start : start + limit]

    def pin(self) -> Pin:
        """Return a position at the end that keeps later changes from being trimmed."""
        pin = Pin(self.end)
        self._pins.append(pin)
        return pin

    def unpin(self, pin: Pin) -> None:
        """Let go of what a pin kept."""
        self._pins.remove(pin)

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call ``wake`` at every change until the returned function is called."""
        self._listeners.append(wake)

        def stop() -> None:
            self._listeners.remove(wake)

        return stop

    def freeze(self) -> dict[str, Stored]:
        """Return what is stored now, in key order."""
        return dict(self._items)

    def reset(self, items: Mapping[str, Stored], version: int) -> None:
        """Hold other objects from now on, without a past; readers of the log find it gone."""
        self._items = SortedDict(items)
        self._trimmed = self.end + 1
        self._log = []
        self.trimmed_version = version
        for wake in self._listeners:
            wake()

    # -- writes ------------------------------------------------------------------------------

    def write(self, key: str, obj: Obj) -> Stored:
        """Store an object under the next version.

        ``obj`` and its metadata become the store's: the version is written into them.
        """
        before: Stored | None = self._items.get(key)
        after = self._stamp(obj)
        if self._items is _NO_ITEMS:
            self._items = SortedDict()
        self._items[key] = after
        self._append("ADDED" if before is None else "MODIFIED", key, after, before=before)
        return after

    def remove(self, key: str, last: Obj | None = None) -> Stored:
        """Remove an object; ``last`` replaces its final state in the event and in the answer."""
        before: Stored = self._items.pop(key)
        final = dict(before.obj if last is None else last)
        final["metadata"] = dict(final["metadata"])
        after = self._stamp(final)
        self._append("DELETED", key, after, before=before)
        return after

    def _stamp(self, obj: Obj) -> Stored:
        version = self._store.next_version()
        obj["metadata"]["resourceVersion"] = str(version)
        return Stored(obj, version)

    def _append(self, type_: ChangeType, key: str, after: Stored, *, before: Stored | None) -> None:
        change = Change(type_, key, after, before, len(after.raw))
        if before is not None:
            before.supersede()
        self._log.append(change)
        self._log_bytes += change.size
        if (
            len(self._log) > HISTORY_SLACK * HISTORY_PER_KIND_MAX
            or self._log_bytes > HISTORY_SLACK * HISTORY_BYTES_MAX
        ):
            self._trim()
        for observe in self._store.observers:
            observe(self.name, change)
        for wake in self._listeners:
            wake()

    def _trim(self) -> None:
        """Forget the oldest changes beyond what is kept; the newest and pinned ones stay."""
        first_kept = min((pin.position for pin in self._pins), default=self.end)
        most = min(first_kept - self._trimmed, len(self._log) - 1)
        count = max(0, min(most, len(self._log) - HISTORY_PER_KIND_MAX))
        size = sum(change.size for change in self._log[:count])
        while count < most and self._log_bytes - size > HISTORY_BYTES_MAX:
            size += self._log[count].size
            count += 1
        if count == 0:
            return
        self._log_bytes -= size
        self.trimmed_version = self._log[count - 1].version
        del self._log[:count]
        self._trimmed += count


@frozen(kw_only=True)
class Frozen:
    """All objects at one version, by storage name and key."""

    version: int
    collections: Mapping[str, Mapping[str, Stored]]


class Store:
    """Every collection under one version counter.

    Attributes:
        observers: called with the collection's name at every write; they must not write.
    """

    def __init__(self) -> None:
        self.version = 0
        self.window_start = 0
        self.observers: list[Callable[[str, Change], None]] = []
        self._collections: dict[str, Collection] = {}

    def next_version(self) -> int:
        """Count one write and return its version."""
        self.version += 1
        return self.version

    def collection(self, name: str) -> Collection:
        """Return the collection of a storage name, made on first use."""
        found = self._collections.get(name)
        if found is None:
            found = self._collections[name] = Collection(name, self)
        return found

    def collections(self) -> list[Collection]:
        """Return all collections in order of first use."""
        return list(self._collections.values())

    def freeze(self) -> Frozen:
        """Return the present state; it costs no copies, since stored objects never change."""
        held = {name: found.freeze() for name, found in self._collections.items()}
        return Frozen(version=self.version, collections=held)

    def reset(self, state: Frozen) -> None:
        """Go to another state: versions may go back, and nothing is known of before it."""
        self.version = self.window_start = state.version
        for name in state.collections:
            self.collection(name)
        for name, collection in self._collections.items():
            collection.reset(state.collections.get(name, {}), state.version)

    def open_window(self) -> None:
        """Forget for watchers what happened so far; past lists stay possible."""
        self.window_start = self.version

    def watch_floor(self, collection: Collection) -> int:
        """Return the oldest version from which a watch of the collection can start."""
        return max(self.window_start, collection.trimmed_version)
