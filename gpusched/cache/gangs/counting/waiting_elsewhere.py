"""Gangs that wait in shards of other daemons: they stand in the lines of users whom queues limit (``maxPending``)."""

from __future__ import annotations

from collections.abc import Iterable

from gpusched.api.meta.identity import GangKey
from gpusched.base.classes import frozen
from gpusched.cache.gangs.gang import Gang


@frozen(slots=True)
class WaitingElsewhere:
    """A gang that waits in another shard.

    Attributes:
        since: from when it counts among those that wait, seconds since the epoch.
        accounts: of its user and groups in queues that limit them.
    """

    gang: GangKey
    since: float
    accounts: tuple[str, ...]


class ForeignLines:
    """Gangs of other shards that wait, as they were counted last."""

    def __init__(self) -> None:
        self._waiting: dict[GangKey, tuple[WaitingElsewhere, ...]] = {}
        self._shown: tuple[WaitingElsewhere, ...] | None = ()

    def note_counted(self, key: GangKey, family: Iterable[Gang]) -> None:
        """All gangs of one key, as they were counted just now; none when they are decided about here."""
        waiting = tuple(
            WaitingElsewhere(gang.key, gang.waits_since, gang.accounts)
            for gang in family
            if gang.accounts and gang.pod_sets and not gang.placed
        )
        if waiting == self._waiting.get(key, ()):
            return
        self._shown = None
        if waiting:
            self._waiting[key] = waiting
        else:
            del self._waiting[key]

    def all_waiting(self) -> tuple[WaitingElsewhere, ...]:
        """All of them, sorted by key: the same object while nothing changes."""
        if self._shown is None:
            self._shown = tuple(
                each for _, those in sorted(self._waiting.items()) for each in those
            )
        return self._shown
