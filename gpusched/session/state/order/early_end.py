"""The end of a session that has started somebody: everybody else is looked at by the next one.

What is decided of a gang rests on those who had their turn before it. So a gang that starts need not wait until the
session has looked at those behind it: with a long line that takes several times as long. All that is cut off follows at once, in a
session that does not end early; a start is a change for which it would be held anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpusched.api.meta.identity import GangKey
from gpusched.cache.gangs.gang import Gang


class EarlyEnd:
    """Whether a session has ended early, and who had a turn in it.

    Args:
        possible: whether the session may end early.
        awaited: gangs that it does not end before.
    """

    def __init__(self, *, possible: bool, awaited: Iterable[GangKey] = ()) -> None:
        self._possible = possible
        self._awaited = set(awaited)
        self._had_turn: set[GangKey] = set()
        self._started = False
        self.reached = False
        """Whether no gang has a turn any more."""

    def note_turn(self, gang: Gang, *, started: bool) -> None:
        """A gang had its turn; the first one that does not start behind one that did ends the session."""
        if self._possible:
            self._had_turn.add(gang.key)
            self._awaited.discard(gang.key)
            self.reached = self._started and not started and not self._awaited
            self._started |= started

    def note_awaited(self, gang: Gang, *, started: bool) -> None:
        """A gang had its turn before all that is new; it counts where it was awaited."""
        if gang.key in self._awaited:
            self.note_turn(gang, started=started)

    def note_last_turn(self) -> None:
        """Everybody had a turn: where one of them started, what is left of the session is for the next one, too."""
        self.reached = self._started

    def with_turn(self, gangs: Sequence[Gang]) -> Sequence[Gang]:
        """Those of some gangs that are not left to the next session."""
        if not self.reached:
            return gangs
        had = self._had_turn
        return [gang for gang in gangs if gang.key in had]
