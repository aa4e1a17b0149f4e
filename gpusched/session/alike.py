"""Gangs that differ in nothing a placement reads: what one was refused, the next need not ask.

Thousands of equal jobs wait in a busy queue. The first of them that finds no room answers for all
that follow, as long as nothing has moved in the session since.
"""

from __future__ import annotations

from gpusched.cache.gangs import Gang
from gpusched.session.areas import Refusal
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
        self._known: dict[tuple[object, ...], tuple[State, Refusal]] = {}

    def of(self, gang: Gang) -> Refusal | None:
        """Why a gang like this one was refused since the last move; None when none was."""
        known = self._known.get(likeness(self._session, gang)) if self._known else None
        return known[1] if known is not None and known[0] == self._state() else None

    def remember(self, gang: Gang, refusal: Refusal) -> None:
        """The gang found no room. What only a reservation kept it from is not remembered."""
        kind = likeness(self._session, gang)
        if kind and refusal.reason != Reason.RESERVED:
            self._known[kind] = (self._state(), refusal)

    def _state(self) -> State:
        session = self._session
        return (session.accounts.version, len(session.bench.touched), session.bench.later)


def likeness(session: Session, gang: Gang) -> tuple[object, ...]:
    """All that decides where a gang may go; empty for gangs that are like no other.

    Those with places or promises have rooms of their own, those that wait for a
    preferred topology have waited for different times, and rules between pods read their labels.
    """
    if (
        gang.placed
        or gang.credit
        or gang.sub_groups
        or gang.unborn
        or gang.topology.max_wait_ns
        or gang.key in session.promises
    ):
        return ()
    tasks = tuple((task.pod_class.digest, len(task.pods), task.role) for task in gang.tasks)
    related = is_related(session, [(task, len(task.pods)) for task in gang.tasks])
    if related or any(task.pod_class.unsupported for task in gang.tasks):
        return ()
    return (
        gang.queue,
        gang.priority,
        gang.terms,
        gang.min_member,
        gang.min_roles,
        gang.topology,
        gang.pod_group.min_resources if gang.pod_group else None,
        session.bench.later,
        tasks,
    )
