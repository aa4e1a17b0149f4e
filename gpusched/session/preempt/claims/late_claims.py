"""Claims that are asked for once more after the last action, for starts that would not last.

A claim changes room and what queues hold. A gang that found no victims before it may find some
after it, gangs among them that this session starts: the next session would evict them at once. So
where a session made claims, or started gangs after them, actions that evict go through the gangs
that still wait once more. A claim is made then if it takes back a start of this session, and with all
that is asked of claims. All others are left to the next session.

What is taken back does not come back on the same facts, as its room is held for another gang.
Whoever was asked on the facts as they are is not asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

from gpusched.session.preempt.claims.session_starts import started_places
from gpusched.session.preempt.victims import Victims
from gpusched.session.state.session import Session

ROUNDS_MAX: Final = 4
"""Times that waiting gangs are asked after the last action of one session."""
CLASSES_MAX: Final = 32
"""Classes of gangs that one action asks in one round: each costs about as much as a claim."""
RUNNING_MAX: Final = 200
"""Gangs that run and may leave together with starts; where there are more, only starts leave, and
only for gangs that wait for their minimum."""

ClaimRound = Callable[[Victims], None]
"""An action's claims, made once more with these victims and only over starts of this session."""


class LateClaims:
    """Rounds that actions registered, and the facts on which claimants found no victims.

    Args:
        session: one of these is made for it.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._rounds: list[ClaimRound] = []
        self._asked: dict[Hashable, tuple[tuple[int, int], int]] = {}
        self._facts_then = (0, 0)

    def add(self, claims: ClaimRound) -> None:
        """Register the claims of an action, which has just made all that it could."""
        self._rounds.append(claims)
        self._facts_then = self._facts

    def note_refusal(self, kind: Hashable, need: int) -> None:
        """A claimant that needs so many members found no victims on the facts as they are."""
        self._asked[kind] = (self._facts, need)

    def is_known(self, kind: Hashable, need: int) -> bool:
        """Whether a claimant of the class was refused no more than this on the same facts."""
        known = self._asked.get(kind)
        return known is not None and known[0] == self._facts and known[1] <= need

    def make(self) -> None:
        """Let claims that take back starts of this session be made, as long as there are any."""
        session = self._session
        if not self._rounds or not session.hooks.stable.starts:
            return
        many = len(session.snapshot.placed_gangs) > RUNNING_MAX
        if not session.nominations.plans and self._facts == self._facts_then:
            # Gangs that start with a part of their members may grow over others in the next session.
            by_gang = session.placements.by_gang()
            if many or not any(gang.pending > len(places) for gang, places in by_gang):
                return
        session.renew_shares()
        for _ in range(ROUNDS_MAX):
            before = len(session.nominations.plans)
            if not started_places(session):
                return
            victims = Victims(session, only_starts=many)
            for claims in self._rounds:
                claims(victims)
            if len(session.nominations.plans) == before:
                return

    @property
    def _facts(self) -> tuple[int, int]:
        """Changes with each claim that is made, and with each start."""
        return len(self._session.nominations.plans), self._session.placements.binds_left


def late_claims(session: Session) -> LateClaims:
    """The late claims of a session."""
    return session.cycle_state.get_or_make(LateClaims, lambda: LateClaims(session))
