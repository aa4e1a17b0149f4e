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

State = tuple[int, int, bool]


class Refusals:
    """What was refused in this session, by what gangs have in common.

    Args:
        session: whose moves make refusals stale.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known: dict[Kind, tuple[State, Refusal]] = {}

    def of(self, gang: Gang) -> Refusal | None:
        """Why a gang like this one was refused since the last move; None when none was."""
        kind = likeness(self._session, gang) if self._known else None
        known = self._known.get(kind) if kind is not None else None
        return known[1] if known is not None and known[0] == self._state() else None

    def remember(self, gang: Gang, refusal: Refusal) -> None:
        """The gang found no room. What only a reservation kept it from is not remembered."""
        kind = likeness(self._session, gang)
        if kind is not None and refusal.reason != Reason.RESERVED:
            self._known[kind] = (self._state(), refusal)

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
