"""Gangs that got places in this session sit elsewhere instead: nothing is bound yet.

The same members keep their start, so queues are charged as they were. Whatever is tried is
either carried through for all, or nothing of it happened.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpusched.cache.gangs import Gang
from gpusched.errors import InvariantBroken
from gpusched.objects.meta import GangKey
from gpusched.session.session import Session
from gpusched.session.statement import Place, Statement


class Moves:
    """Gangs without their places, until they have others or their own again.

    Args:
        session: in which they were given places, all of which are free once this is made.
        gangs: that started in this session, and had neither places nor promises before.
    """

    def __init__(self, session: Session, gangs: Sequence[Gang]) -> None:
        self._session = session
        self._cleared = session.statement()
        self._before: dict[GangKey, tuple[Place, ...]] = {}
        self._settled: list[tuple[Gang, Statement]] = []
        self._gangs = tuple(gangs)
        # What was proven of the places they had says nothing of others.
        self._proofs = {gang.key: session.proofs.pop(gang.key, "") for gang in gangs}
        for gang in gangs:
            places = tuple(session.kept(gang))
            self._before[gang.key] = places
            for place in reversed(places):
                self._cleared.clear(place)
            self._enter(gang, (), before=places)

    def settle(self, gang: Gang, statement: Statement) -> bool:
        """Give a gang the places of a statement; False, and nothing done, for other members."""
        before = sorted(place.pod.uid for place in self._before[gang.key])
        places = statement.places
        if sorted(place.pod.uid for place in places) != before:
            return False
        self._settled.append((gang, statement))
        self._enter(gang, places)
        return True

    def keep(self) -> None:
        """All have settled, and stay.

        Raises:
            InvariantBroken: somebody has not.
        """
        if len(self._settled) != len(self._gangs):
            raise InvariantBroken("a gang that was to move has no places")
        self._cleared.keep()
        for gang, statement in self._settled:
            statement.keep()
            if statement.proof:
                self._session.proofs[gang.key] = statement.proof

    def discard(self) -> None:
        """Everybody is where he was. Statements made since must be discarded already."""
        while self._settled:
            gang, statement = self._settled.pop()
            self._enter(gang, (), before=statement.places)
            statement.discard()
        self._cleared.discard()
        for gang in self._gangs:
            self._enter(gang, self._before[gang.key])
            if self._proofs[gang.key]:
                self._session.proofs[gang.key] = self._proofs[gang.key]

    def _enter(self, gang: Gang, places: Sequence[Place], *, before: Sequence[Place] = ()) -> None:
        session = self._session
        session.move(gang, places)
        if session.reservations is None:
            return
        if before:
            session.reservations.taken_back(gang, before)
        if places:
            session.reservations.started(gang, places)
