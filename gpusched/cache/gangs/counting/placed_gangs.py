"""Gangs of which a member has a place, for one snapshot after another, and which of them are others than before."""

from __future__ import annotations

from collections import deque
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from typing import Any, Final

from gpusched.api.meta.identity import GangKey
from gpusched.cache.gangs.gang import Gang

LOGGED_MAX: Final = 32
"""Snapshots back to which changes are known: those who follow gangs look at one of the last few."""


_BASE_ANEW_FROM: Final = 64
"""Snapshots begin anew where a sixty-fourth of all gangs have changed since they last did."""


class PlacedByKey(Mapping[GangKey, Gang]):
    """Gangs by key as one snapshot shows them, in any order.

    Snapshots share what they were some time ago and have each what has changed since: who looks at single gangs
    costs no copy of all. All are put together when somebody goes through them.

    Args:
        log: that made it.
        number: of the snapshot.
        base: gangs that several share.
        since: those that are others; None for one that is gone.
        count: how many there are now.
    """

    def __init__(
        self,
        log: PlacedLog,
        number: int,
        base: dict[GangKey, Gang],
        since: dict[GangKey, Gang | None],
        count: int,
    ) -> None:
        self.log, self.number, self.base, self.since = log, number, base, since
        self._count = count
        self._all: dict[GangKey, Gang] | None = None if since else base

    def __getitem__(self, key: GangKey) -> Gang:
        """The gang with a key."""
        gang = self.since[key] if key in self.since else self.base[key]
        if gang is None:
            raise KeyError(key)
        return gang

    def get(self, key: GangKey, default: Any = None) -> Any:
        """The gang with a key; the default for none."""
        if key in self.since:
            gang = self.since[key]
            return default if gang is None else gang
        return self.base.get(key, default)

    def __contains__(self, key: object) -> bool:
        """Whether there is a gang with a key."""
        return self.since[key] is not None if key in self.since else key in self.base

    def __len__(self) -> int:
        """How many gangs there are."""
        return self._count

    def __iter__(self) -> Iterator[GangKey]:
        """Their keys."""
        return iter(self._put_together)

    def keys(self) -> KeysView[GangKey]:
        """Their keys."""
        return self._put_together.keys()

    def values(self) -> ValuesView[Gang]:
        """All gangs."""
        return self._put_together.values()

    def items(self) -> ItemsView[GangKey, Gang]:
        """All gangs with their keys."""
        return self._put_together.items()

    @property
    def _put_together(self) -> dict[GangKey, Gang]:
        if self._all is None:
            found = self.base | self.since
            self._all = {key: gang for key, gang in found.items() if gang is not None}
        return self._all


class PlacedLog:
    """Makes ``PlacedByKey``, and knows for the last ones which keys have changed since."""

    def __init__(self) -> None:
        self._number = 0
        self._changes: deque[tuple[int, frozenset[GangKey]]] = deque(maxlen=LOGGED_MAX)
        self._base: dict[GangKey, Gang] = {}
        self._since: dict[GangKey, Gang | None] = {}

    def show(self, gangs: Mapping[GangKey, Gang], touched: Iterable[GangKey]) -> PlacedByKey:
        """The gangs of now, of which these keys may be others than the last time."""
        self._number += 1
        names = frozenset(touched)
        self._changes.append((self._number, names))
        since = self._since | {key: gangs.get(key) for key in names}
        if len(since) * _BASE_ANEW_FROM > len(gangs):
            self._base, since = dict(gangs), {}
        self._since = since
        return PlacedByKey(self, self._number, self._base, since, len(gangs))

    def touched_since(self, before: int, now: int) -> set[GangKey] | None:
        """Keys that may have changed between two of them; None where that is too long ago."""
        if not self._changes or before + 1 < self._changes[0][0] or before > now:
            return None
        return {key for number, keys in self._changes if before < number <= now for key in keys}


def changed_keys(before: Mapping[GangKey, Gang], now: Mapping[GangKey, Gang]) -> set[GangKey]:
    """Keys of gangs that came, went, or are other objects, for what follows gangs between sessions."""
    if before is now:
        return set()
    if isinstance(before, PlacedByKey) and isinstance(now, PlacedByKey) and before.log is now.log:
        touched = now.log.touched_since(before.number, now.number)
        if touched is not None:
            return {key for key in touched if before.get(key) is not now.get(key)}
    changed = {key for key, gang in now.items() if before.get(key) is not gang}
    changed.update(before.keys() - now.keys())
    return changed
