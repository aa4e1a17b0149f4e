"""Gangs that a snapshot shows, sorted: from one to the next only those are put in order that may be others."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from operator import attrgetter
from typing import Final

from gpusched.api.meta.identity import GangKey
from gpusched.cache.gangs.gang import Gang

_KEY: Final = attrgetter("key")
_SORTED_ANEW_FROM: Final = 8
"""A list of which an eighth may be another is made anew."""


class ShownGangs:
    """Gangs of the last snapshot by the keys of their families; see ``GangIndex``."""

    def __init__(self) -> None:
        self._families: dict[GangKey, tuple[Gang, ...]] = {}
        self._passing: set[GangKey] = set()
        """Keys that were shown though nothing of them waits: they are asked about again."""
        self._again: set[GangKey] = set()
        """Keys that passed before and are shown once more."""
        self._gangs: list[Gang] = []
        self._shown: tuple[Gang, ...] = ()

    def passing_gangs(self) -> Iterator[Gang]:
        """Gangs that were shown last and not because they wait, in any order."""
        return chain.from_iterable(self._families.get(key, ()) for key in self._passing)

    def show_again(self) -> None:
        """Show next time what was shown last, too."""
        self._again = self._passing

    def show(
        self,
        passing: set[GangKey],
        touched: Collection[GangKey],
        waiting: Collection[GangKey],
        families: Mapping[GangKey, tuple[Gang, ...]],
    ) -> tuple[Gang, ...]:
        """Gangs sorted by key; the same object as before where none is another.

        Args:
            passing: keys that are shown this time whatever becomes of them.
            touched: keys whose gangs may be others, all of which are passing.
            waiting: keys that are shown as long as they are here; they come and go when touched.
            families: gangs by the key under which they are counted.
        """
        passing = passing | self._again
        asked = passing | self._passing
        self._passing, self._again = passing, set()
        now = {
            key: families.get(key, ()) if key in passing or key in waiting else () for key in asked
        }
        changed = [
            key for key in asked if key in touched or bool(now[key]) != (key in self._families)
        ]
        if not changed:
            return self._shown
        few = len(changed) * _SORTED_ANEW_FROM < len(self._gangs)
        for key in changed:
            before = self._families.pop(key, ())
            if few:
                self._take_out(before)
            if now[key]:
                self._families[key] = now[key]
            for gang in now[key] if few else ():
                insort(self._gangs, gang, key=_KEY)
        if not few:
            self._gangs = sorted((g for each in self._families.values() for g in each), key=_KEY)
        self._shown = tuple(self._gangs)
        return self._shown

    def _take_out(self, gangs: tuple[Gang, ...]) -> None:
        for gang in gangs:
            place = bisect_left(self._gangs, gang.key, key=_KEY)
            while self._gangs[place] is not gang:
                place += 1
            del self._gangs[place]
