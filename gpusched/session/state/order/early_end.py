"""The end of a session that has started somebody: everybody else is looked at by the next one.

What is decided of a gang rests on those who had their turn before it. So a gang that starts need not wait until the
session has looked at those behind it: with a long line that takes several times as long. All that is cut off follows at once, in a
session that does not end early; a start is a change for which it would be held anyway.

Where a session has started Jobs, and knows that all who wait behind them are refused as one before them, nothing is cut off but
what it would tell of them. Pods of these Jobs come a moment later, and with them more to tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from gpusched.api.meta.identity import GangKey
from gpusched.cache.gangs.gang import Gang


class EarlyEnd:
    """Whether a session has ended early, and who had a turn in it.

    Args:
        possible: whether the session may end early.
        awaited: gangs that it does not end before.
        settles: whether it may end where starts of Jobs are all that it comes to.
        starts_whole: whether all of a gang that has started is a Job that waited.
        room_as_left: whether awaited gangs have got the places on which the session before counted, and nodes are as full as it
            left them.
    """

    def __init__(
        self,
        *,
        possible: bool,
        awaited: Iterable[GangKey] = (),
        settles: bool = False,
        starts_whole: Callable[[Gang], bool] = lambda _gang: False,
        room_as_left: Callable[[], bool] = lambda: False,
    ) -> None:
        self._possible = possible
        self._awaited = set(awaited)
        self._counted_on = frozenset(self._awaited)
        self._as_foreseen = bool(self._awaited)
        """Whether it awaits gangs, and none had a turn that did not start, nor did anybody else start."""
        self._settles = settles
        self._starts_whole = starts_whole
        self._room_as_left = room_as_left
        self._had_turn: set[GangKey] = set()
        self._started = False
        self.reached = False
        """Whether no gang has a turn any more."""
        self.settled = False
        """Whether those who had none would not have started."""

    def note_turn(self, gang: Gang, *, started: bool) -> None:
        """A gang had its turn; the first one that does not start behind one that did ends the session."""
        if self._possible:
            self._had_turn.add(gang.key)
            self._as_foreseen &= started == (gang.key in self._awaited)
            self._awaited.discard(gang.key)
            self._started |= started
            if self._started and not started and not self._awaited:
                self._end()
        elif self._settles:
            self._had_turn.add(gang.key)
            self._settles = not started or self._starts_whole(gang)
            self._started |= started

    @property
    def outlasts_refusals(self) -> bool:
        """Whether the session goes on, however many have turns next in which they do not start."""
        return not (self.reached or (self._possible and self._started))

    def note_refused(self, gangs: Iterable[Gang]) -> None:
        """Some gangs had their turns and did not start, where none of them could end the session."""
        if self._possible or self._settles:
            keys = {gang.key for gang in gangs}
            self._had_turn |= keys
            self._as_foreseen &= self._awaited.isdisjoint(keys)
            self._awaited -= keys

    def keep_whole(self) -> None:
        """Somebody started who may grow in this session: with all its members it may have other places, and others beside it."""
        self._possible = self._settles = False

    def end_where_all_are_refused(
        self, waiting: Iterable[Gang], not_refused: Callable[[Iterable[Gang]], Iterable[Gang]]
    ) -> None:
        """End the session behind a gang that did not start where it started Jobs alone and all others who wait are refused.

        Args:
            waiting: gangs with members that wait for a place.
            not_refused: those of some gangs of which it is not known that they do not start, whatever else the session does.
        """
        if self._settles and self._started:
            self._settles = False
            had = self._had_turn
            self.reached = self.settled = all(gang.key in had for gang in not_refused(waiting))

    def note_awaited(self, gang: Gang, *, started: bool) -> None:
        """A gang had its turn before all that is new; it counts where it was awaited."""
        if gang.key in self._awaited:
            self.note_turn(gang, started=started)

    @property
    def came_as_foreseen(self) -> bool:
        """Whether all gangs that were awaited have started where that was counted on, and none had a turn behind them: the session
        that counted on them has found that nobody else starts.
        """
        started = self._possible and self._started and self._as_foreseen
        return started and not self._awaited and self._room_as_left()

    def note_last_turn(self) -> None:
        """Everybody had a turn: where one of them started, what is left of the session is for the next one, too."""
        if not self.reached and self._possible and self._started:
            self._end()

    def _end(self) -> None:
        # All others were decided about with the room of those that came taken, by the session that counted on them.
        self.reached, self.settled = True, self._as_foreseen and not self._awaited
        if self.settled:
            # Who was asked for want of what that session has found claims nothing, as where nobody is asked.
            self._had_turn &= self._counted_on

    def with_turn(self, gangs: Sequence[Gang]) -> Sequence[Gang]:
        """Those of some gangs that are not left to the next session."""
        if not self.reached:
            return gangs
        had = self._had_turn
        return [gang for gang in gangs if gang.key in had]
