"""Pauses of gangs for which a long search for victims was in vain, as others would have been evicted in turn.

Such a search costs more than the rest of a session, and is in vain in the next one again, mostly. So the
gang, and with it all that are alike, pauses: longer pauses cost others their places, as who has waited for long may have anybody evicted. The pause is
over once the gang on whose account the search was in vain does not run, or wait, any more.
"""

from __future__ import annotations

from math import inf
from typing import Final

from gpusched.base.classes import frozen
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.snapshot import ClaimPause
from gpusched.session.state.session import Session

PAUSES_FROM: Final = 600
"""Work of a search, some three a gang that may leave, as ``VictimSelector`` counts it: shorter ones are made in every session."""
PAUSE_S: Final = 30.0
"""From a search that was in vain to the next one."""


@frozen(slots=True, eq=False)
class Pause:
    """Why no victims are looked for: on account of which gang, and whether that one waits and would take over."""

    about: Gang
    takes_over: bool


class ClaimPauses:
    """The pauses of one session: those that the last one left, and those that begin.

    Args:
        session: one of these is made for it.
    """

    def __init__(self, session: Session) -> None:
        snapshot = self._snapshot = session.snapshot
        self._pauses = {(each.gang, each.action): each for each in snapshot.claim_pauses}
        self._waiting = (
            {gang.key: gang for gang in snapshot.gangs if gang.missing_members and gang.pending}
            if self._pauses
            else {}
        )

    def of_gang(self, gang: Gang, action: str) -> Pause | None:
        """Why no victims are looked for; None where they are."""
        pause = self._pauses.get((gang.key, action))
        return None if pause is None else self._in_force(pause)

    def begin(
        self, gang: Gang, action: str, stays: Gang | None, taker: Gang | None, *, chains_from: float
    ) -> None:
        """No victims are looked for until a pause is over.

        Args:
            gang: that waits.
            action: that would evict.
            stays: a victim that would have others evicted; None for none.
            taker: a gang that waits and would have the gang evicted; None for none.
            chains_from: when victims may have others evicted, seconds since the epoch: till then it pauses at most.
        """
        chains = self._snapshot.is_past(chains_from)
        about = taker or (None if chains else stays)
        if about is None:
            return
        now = self._snapshot.now
        until = min(now + PAUSE_S, inf if chains else chains_from)
        self._pauses[gang.key, action] = ClaimPause(
            gang.key, action, until, about.key, takes_over=taker is not None
        )
        self._waiting.update({each.key: each for each in (gang, taker) if each is not None})

    def left_to_next(self) -> tuple[ClaimPause, ...]:
        """Pauses that the next session goes by, sorted."""
        return tuple(
            pause
            for (key, _), pause in sorted(self._pauses.items())
            if key in self._waiting and self._in_force(pause) is not None
        )

    def _in_force(self, pause: ClaimPause) -> Pause | None:
        there = self._waiting if pause.takes_over else self._snapshot.placed_gangs
        about = there.get(pause.about)
        if about is None or self._snapshot.is_past(pause.until):
            return None
        return Pause(about, pause.takes_over)


def claim_pauses(session: Session) -> ClaimPauses:
    """The pauses of a session."""
    return session.cycle_state.get_or_make(ClaimPauses, lambda: ClaimPauses(session))
