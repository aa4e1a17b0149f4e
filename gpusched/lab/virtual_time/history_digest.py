"""What happened in a cluster, reduced to one number that two runs can compare."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from gpusched.devcluster.storage.store import Change, Store


class HistoryDigest:
    """A SHA-256 over every write of a store: version, type, kind, key and the object's bytes.

    What the store holds already when this is made counts as its beginning.

    Args:
        store: looked at until ``end``.
        tell: also given each write as one line of text, to find where two runs part.
    """

    def __init__(self, store: Store, *, tell: Callable[[bytes], None] | None = None) -> None:
        self._store = store
        self._tell = tell
        self._hash = hashlib.sha256()
        self.writes = 0
        for collection in store.collections():
            for key, stored in collection.scan():
                self._add("HELD", collection.name, key, raw=stored.raw, version=stored.version)
        store.observers.append(self._see)

    @property
    def digest(self) -> str:
        """The hash of all writes so far, as hexadecimal text."""
        return self._hash.hexdigest()

    def end(self) -> None:
        """Stop observing the store."""
        self._store.observers.remove(self._see)

    def _see(self, kind: str, change: Change) -> None:
        self.writes += 1
        stored = change.after
        self._add(change.type, kind, change.key, raw=stored.raw, version=stored.version)

    def _add(self, type_: str, kind: str, key: str, *, raw: bytes, version: int) -> None:
        line = b"%d %b %b %b %b\n" % (version, type_.encode(), kind.encode(), key.encode(), raw)
        self._hash.update(line)
        if self._tell is not None:
            self._tell(line)
