"""Reservations as a session sees them: the part of ``session.backfill`` that its moves must tell."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from gpusched.cache.gangs.gang import Gang
from gpusched.session.state.statement import Assignment, Statement


class ReservedFor(Protocol):
    """A reservation that a statement would break; it names the gang for which it was made."""

    @property
    def gang(self) -> Gang:
        """The gang for which nodes are reserved."""


class ReservationTracker(Protocol):
    """Room reserved for blocked gangs, kept in step with what the session places."""

    def note_started(self, gang: Gang, places: Sequence[Assignment], /) -> None:
        """Take note that a gang, or a part of one, was given or nominated places."""

    def note_unassigned(self, gang: Gang, places: Sequence[Assignment], /) -> None:
        """Take note that places which a gang was given in this session are free again."""

    def find_conflict(self, gang: Gang, statement: Statement, /) -> ReservedFor | None:
        """The reservation that a statement for the gang would break, None when it breaks none."""

    def exclude_reserved_room(
        self, gang: Gang, statement: Statement | None = None, /
    ) -> AbstractContextManager[None]:
        """Inside, the gang finds only room that breaks no reservation of another gang."""

    def own_reservation(self, gang: Gang, /) -> AbstractContextManager[bool]:
        """Inside, a gang that is due finds the room reserved for it and no other."""
