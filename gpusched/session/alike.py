"""Gangs that differ in nothing a placement reads: what one was refused, the next need not ask.

Thousands of equal jobs wait in a busy queue. The first of them that finds no room answers for all
that follow, as long as nothing has moved in the session since.
"""

from __future__ import annotations

from gpusched.cache.gangs import Gang
from gpusched.session.areas import Refusal
from gpusched.session.kinds import Kind
from gpusched.session.reasons import Reason
from gpusched.session.related import is_related
from gpusched.session.session import Session
from gpusched.session.verdict import first_refusal

State = tuple[int, int, bool]


class Refusals:
    """What was refused in this session, by what gangs have in common.

    Args:
        session: whose moves make refusals stale.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known: dict[Kind, tuple[State, Refusal]] = {}
        self._no_room: dict[Kind, tuple[State, Refusal]] = {}
        """By kind without regard to lengths: no place was found, whatever is reserved."""

    def of(self, gang: Gang) -> Refusal | None:
        """Why a gang like this one was refused since the last move; None when none was."""
        kind = likeness(self._session, gang) if self._known else None
        if kind is None:
            return None
        state = self._state()
        known = self._known.get(kind)
        if known is None or known[0] != state:
            known = self._no_room.get(kind.timeless)
            if known is None or known[0] != state or not self._quota_allows(gang):
                return None
            self._known[kind] = known
        return known[1]

    def remember(self, gang: Gang, refusal: Refusal, *, ways: int) -> None:
        """The gang found no room. What only a reservation kept it from is not remembered.

        Args:
            gang: that was refused.
            refusal: what it is told.
            ways: in how many the gang could have started.
        """
        kind = likeness(self._session, gang)
        if kind is None or refusal.reason == Reason.RESERVED:
            return
        known = self._known[kind] = (self._state(), refusal)
        # Room that is becoming free, or is made by moving others, may depend on reservations.
        moves = self._session.bench.parts or any(self._session.started)
        if ways > 1 or moves or refusal.reason != Reason.INSUFFICIENT_RESOURCES:
            return
        if self._quota_allows(gang):
            self._no_room[kind.timeless] = known

    def _quota_allows(self, gang: Gang) -> bool:
        return not first_refusal(self._session.hooks.quota_checks, gang).refuses

    def _state(self) -> State:
        session = self._session
        return (session.accounts.version, len(session.bench.touched), session.bench.later)


def likeness(session: Session, gang: Gang) -> Kind | None:
    """All that decides where a gang may go in this session; None for one that is like no other.

    Those with promises have rooms of their own, and rules between pods read their labels.
    """
    kind = session.masks.kinds.of(gang)
    if kind is None or gang.key in session.promises:
        return None
    if session.seats.concern_kind(kind) and is_related(
        session, [(task, len(task.pods)) for task in gang.tasks]
    ):
        return None
    return kind
