"""Windows of Reservations as the search for starts sees them: whole nodes that are reserved in them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np

from gpusched.api.meta.identity import GangKey
from gpusched.api.policy.reservation import ReservationWindow
from gpusched.arrays.columns import Ints
from gpusched.base.limits import WINDOWS_AHEAD_MAX
from gpusched.cache.gangs.gang import Gang
from gpusched.session.backfill.availability_profile import Reservation
from gpusched.session.backfill.running.release_order import FOREVER
from gpusched.session.state.nodes.windows.reserved_windows import NodeWindow
from gpusched.session.state.session import Session


class WindowReservations:
    """Reservations of whole nodes that bind gangs which may not use them.

    Args:
        session: whose windows count.
        allocatable: amounts of all nodes, int64, shape (rows, resources).
        until: the last moment at which starts are looked for.
    """

    def __init__(self, session: Session, allocatable: Ints, until: int) -> None:
        self._session = session
        self._allocatable = allocatable
        self._until = until
        self._made: dict[tuple[str, bool], tuple[Reservation, ...]] = {}

    def reservations_binding(self, gang: Gang, *, length: int) -> tuple[Reservation, ...]:
        """Windows in which the gang may be on none of their nodes, as reservations, by name.

        Args:
            gang: that is looked for a start.
            length: seconds it will run; FOREVER when that is unknown.
        """
        endless = length >= FOREVER
        found: list[Reservation] = []
        for each in self._session.windows.binding(gang):
            key = (each.reservation.name, endless)
            if key not in self._made:
                self._made[key] = tuple(self._as_reservations(each, endless=endless))
            found += self._made[key]
        return tuple(found)

    def _as_reservations(self, each: NodeWindow, *, endless: bool) -> Iterator[Reservation]:
        rows = np.flatnonzero(each.rows).astype(np.int64)
        amounts = self._allocatable[rows]
        key = GangKey("Reservation", "", each.reservation.name)
        if endless and each.reservation.recurs and not each.reservation.until:
            # What never ends runs into some window of those that always come again.
            yield Reservation(key, each.window.begins, FOREVER, rows, amounts)
            return
        ahead = each.reservation.windows_from(self._session.snapshot.now)
        for window in islice(ahead, WINDOWS_AHEAD_MAX):
            yield Reservation(key, window.begins, window.ends, rows, amounts)
            if self._is_beyond(window):
                return

    def _is_beyond(self, window: ReservationWindow) -> bool:
        """Whether what starts in time has to have ended before it: more is not looked at."""
        return window.begins > self._until + (self._until - int(self._session.snapshot.now))
