"""Gangs with reservations, and how much of each reservation others may use all the same."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import attrs

from gpusched.api.meta.identity import GangKey
from gpusched.arrays.columns import Bools, Ints, RequestVector
from gpusched.base.classes import define, frozen
from gpusched.cache.gangs.gang import Gang
from gpusched.session.backfill.availability_profile import Reservation
from gpusched.session.state.equivalence import EquivalenceClass, EquivalenceClasses


@define(slots=True, eq=False)
class ReservedGang:
    """A gang with a reservation.

    Attributes:
        position: its place in queue order among blocked gangs, from 0.
        slack: what others may still take of each reserved row without breaking the reservation, as
            ``reservation.amounts``; only columns that the gang requests count.
        requested_columns: columns that it requests on each of these rows.
        usable: rows on which any of its members could ever sit.
        basis: a gang whose end frees the room; None when it waits for no end.
        due: the room is there as soon as the victims of preemption are evicted.
    """

    gang: Gang
    position: int
    reservation: Reservation
    slack: Ints
    requested_columns: Bools
    usable: Bools
    basis: GangKey | None
    due: bool

    def __attrs_post_init__(self) -> None:
        """Index the reserved rows by their number."""
        self.index = {int(row): number for number, row in enumerate(self.reservation.rows)}

    index: dict[int, int] = attrs.field(factory=dict, init=False)

    def is_in_the_way(self, room: Bools, request: RequestVector) -> bool:
        """Whether a member would break the reservation on some row, of those where it has room, shape (rows,)."""
        columns = request.columns
        lacks = self.slack.take(columns, axis=1) < request.amounts
        asked = self.requested_columns.take(columns, axis=1)
        return bool((lacks & asked)[room[self.reservation.rows]].any())

    def change_spare_room(self, rows: Ints, amounts: Ints, *, sign: int) -> None:
        """Raise (1) or lower (-1) what others may take of some rows when the reservation begins."""
        for row, amount in zip(rows.tolist(), amounts, strict=True):
            number = self.index.get(row)
            if number is not None:
                self.slack[number] += sign * amount


@frozen(slots=True, eq=False)
class StrictFifoHead:
    """A blocked gang of a StrictFifo queue that has no reservation."""

    gang: Gang
    position: int
    usable: Bools

    def is_in_the_way(self, room: Bools, _request: RequestVector) -> bool:
        """Whether it could use some of the rows where a member of another gang has room, shape (rows,)."""
        return bool((self.usable & room).any())


class ReservationPools:
    """Nodes that gangs could use, and whether one more may be reserved among them.

    Args:
        kinds: of gangs.
        per_pool: most gangs with reservations whose usable nodes overlap.
        total: most gangs with reservations of one session.
    """

    def __init__(self, kinds: EquivalenceClasses, per_pool: int, total: int) -> None:
        self._total = total
        self._kinds = kinds
        self._per_pool = per_pool
        self._usable: dict[Hashable, Bools] = {}
        """Rows by kind, or by queue and classes of members: most gangs are of few kinds."""
        self._crowded: dict[int, bool] = {}
        """By identity of the rows, while the same gangs have reservations."""
        self._closed: set[EquivalenceClass] = set()
        """Classes, whatever their walltimes, for which nothing is reserved, while reservations are the same."""

    def known_usable_rows(self, gang: Gang) -> Bools | None:
        """Rows that any member could ever use; None when they were not worked out yet."""
        return self._usable.get(self._equivalence_key(gang))

    def learn_usable_rows(self, gang: Gang, usable: Callable[[], Bools]) -> Bools:
        """The same, asked once for gangs whose members are of the same classes."""
        who = self._equivalence_key(gang)
        known = self._usable.get(who)
        if known is None:
            known = self._usable[who] = usable()
        return known

    def forget_reserved_gangs(self) -> None:
        """Forget what depends on which gangs have reservations."""
        self._crowded.clear()
        self._closed.clear()

    def close(self, gang: Gang) -> None:
        """Reserve nothing for equal gangs as long as the same gangs have reservations."""
        kind = self._kinds.class_of(gang)
        if kind is not None:
            self._closed.add(kind.timeless)

    def is_closed_for(self, gang: Gang) -> bool:
        """Whether nothing is to be reserved for gangs equal to this one."""
        kind = self._kinds.class_of(gang)
        return kind is not None and kind.timeless in self._closed

    def has_room_for_one(self, usable: Bools, reserved_gangs: Sequence[ReservedGang]) -> bool:
        """Whether one more gang may reserve some of these rows, which ``learn_usable_rows`` returned."""
        if len(reserved_gangs) >= self._total:
            return False
        crowded = self._crowded.get(id(usable))
        if crowded is None:
            same_pool = sum(bool((usable & reserved.usable).any()) for reserved in reserved_gangs)
            crowded = self._crowded[id(usable)] = same_pool >= self._per_pool
        return not crowded

    def _equivalence_key(self, gang: Gang) -> Hashable:
        kind = self._kinds.class_of(gang)
        if kind is not None:
            return kind.timeless
        return (gang.queue, tuple(pod_set.pod_class.digest for pod_set in gang.pod_sets))
