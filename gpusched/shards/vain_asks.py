"""Gangs that were granted enough, and for which their shard had no room all the same: for a while they ask for nothing.

Two such gangs in two shards would else be granted the same amount in turns, at every look at the board.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import attrs

from gpusched.api.meta.identity import GangKey
from gpusched.base.classes import define
from gpusched.shards.board import Amounts, ShardEntry

SILENT_S: Final = 60.0
"""Who may be evicted changes with time alone, so that a gang asks again after so long."""


def free_of(entry: ShardEntry) -> Amounts:
    """What no pod has on the nodes of a shard, in base units."""
    return {name: amount - entry.used.get(name, 0) for name, amount in entry.total.items()}


@define(eq=False)
class VainAsks:
    """See the module."""

    _seen: dict[GangKey, tuple[float, Amounts]] = attrs.Factory(dict)
    """When a gang lacked room last, seconds since the epoch, and what was free in its shard."""

    def note(self, gangs: Iterable[tuple[GangKey, Amounts]], now: float) -> None:
        """These lack room, though all that they need is granted, and so much is free in their shards."""
        self._seen.update((gang, (now, free)) for gang, free in gangs)

    def forget_others(self, known: Collection[GangKey]) -> None:
        """Only these gangs wait."""
        self._seen = {gang: seen for gang, seen in self._seen.items() if gang in known}

    def is_silent(self, gang: GangKey, free: Amounts, now: float) -> bool:
        """Whether a gang asks for nothing, as its shard has no more free than when it lacked room."""
        at, before = self._seen.get(gang, (-SILENT_S, {}))
        more = any(amount > before.get(name, 0) for name, amount in free.items())
        return now < at + SILENT_S and not more
