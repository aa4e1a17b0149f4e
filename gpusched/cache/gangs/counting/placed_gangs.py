"""Gangs of which a member has a place, for one snapshot after another, and which of them are others than before."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from gpusched.api.meta.identity import GangKey
from gpusched.cache.gangs.gang import Gang

LOGGED_MAX: Final = 32
"""Snapshots back to which changes are known: those who follow gangs look at one of the last few."""


class PlacedByKey(dict[GangKey, Gang]):
    """Gangs by key as one snapshot shows them. Not to be changed."""

    log: PlacedLog
    number: int


class PlacedLog:
    """Makes ``PlacedByKey``, and knows for the last ones which keys have changed since."""

    def __init__(self) -> None:
        self._number = 0
        self._changes: deque[tuple[int, frozenset[GangKey]]] = deque(maxlen=LOGGED_MAX)

    def show(self, gangs: Mapping[GangKey, Gang], touched: Iterable[GangKey]) -> PlacedByKey:
        """The gangs of now, of which these keys may be others than the last time."""
        self._number += 1
        self._changes.append((self._number, frozenset(touched)))
        shown = PlacedByKey(gangs)
        shown.log, shown.number = self, self._number
        return shown

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
