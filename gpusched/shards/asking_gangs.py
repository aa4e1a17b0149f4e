"""Which gangs ask for what is granted to other shards, and for which it is kept, as sessions tell of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

import attrs

from gpusched.api.meta.identity import GangKey
from gpusched.base.classes import define
from gpusched.cache.gangs.gang import Gang
from gpusched.session.state.plan import Plan
from gpusched.shards.board import Amounts, ShardEntry
from gpusched.shards.handover import LACKS_GRANTS, LACKS_ROOM

SILENT_S: Final = 60.0
"""Who may be evicted changes with time alone, so that a gang asks again after so long."""


def free_of(entry: ShardEntry) -> Amounts:
    """What no pod has on the nodes of a shard, in base units."""
    return {name: amount - entry.used.get(name, 0) for name, amount in entry.total.items()}


@define(eq=False)
class AskingGangs:
    """See the module.

    A gang that was granted enough, and for which its shard had no room all the same, asks for nothing for a while: two of
    them in two shards would else be granted the same amount in turns, at every look at the board.

    Attributes:
        blocked: gangs that wait for what they may not use.
        short_of_room: those for which there is no room.
        promised: those for which room is being made: what they were granted is kept for them, as others would else have been
            evicted for nothing.
    """

    blocked: set[GangKey] = attrs.Factory(set)
    short_of_room: set[GangKey] = attrs.Factory(set)
    promised: set[GangKey] = attrs.Factory(set)
    _in_vain: dict[GangKey, tuple[float, Amounts]] = attrs.Factory(dict)
    """When a gang lacked room last, seconds since the epoch, and what was free in its shard."""

    def note_session(
        self, waiting: Collection[GangKey], plan: Plan, ungranted: Collection[GangKey]
    ) -> None:
        """What a session tells of gangs that wait; of whom it tells nothing, it is as before.

        Args:
            waiting: gangs that wait.
            plan: that came of the session.
            ungranted: those of them whose start was not granted.
        """
        reasons = {each.gang: (each.pending_reason or each.scheduled).reason for each in plan.gangs}
        lacks = {each.gang: each.scheduled.reason in LACKS_ROOM for each in plan.gangs}
        nominated = {each.gang: bool(each.nominated) for each in plan.gangs}
        self.blocked = {
            gang
            for gang in waiting
            if gang in ungranted
            or (reasons[gang] in LACKS_GRANTS if gang in reasons else gang in self.blocked)
        }
        self.short_of_room = {
            gang for gang in waiting if lacks.get(gang, gang in self.short_of_room)
        }
        self.promised = {gang for gang in waiting if nominated.get(gang, gang in self.promised)}

    def was_in_vain(self, gang: GangKey) -> bool:
        """Whether a gang lacked room when it was last granted enough, so that it does not ask now."""
        return gang in self._in_vain

    def find(
        self,
        waiting: Sequence[Gang],
        free: Callable[[Gang], Amounts],
        lacks_pool: Callable[[Gang], bool],
        now: float,
    ) -> dict[GangKey, bool]:
        """Gangs that ask, and whether nodes that no pool limits are full.

        Args:
            waiting: gangs that wait.
            free: what is free in the shard of a gang.
            lacks_pool: whether a gang waits for a part of a node pool, which is told as a lack of room.
            now: seconds since the epoch.
        """
        found: dict[GangKey, bool] = {}
        in_vain: dict[GangKey, tuple[float, Amounts]] = {}
        for gang in waiting:
            key, short = gang.key, gang.key in self.short_of_room
            if short and lacks_pool(gang):
                found[key] = True
            elif key not in self.blocked:
                if short:
                    in_vain[key] = (now, free(gang))
            elif self._is_silent(key, free(gang), now):
                in_vain[key] = self._in_vain[key]
            else:
                found[key] = short
        self._in_vain = in_vain
        return found

    def _is_silent(self, gang: GangKey, free: Amounts, now: float) -> bool:
        """Whether a gang asks for nothing, as its shard has no more free than when it lacked room."""
        if gang not in self._in_vain:
            return False
        at, before = self._in_vain[gang]
        more = any(amount > before.get(name, 0) for name, amount in free.items())
        return now < at + SILENT_S and not more
