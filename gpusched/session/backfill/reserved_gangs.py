"""Who has room kept for it, and how much others may take of it all the same."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import attrs

from gpusched.api.meta.identity import GangKey
from gpusched.arrays.columns import Bools, Ints
from gpusched.cache.gangs.gang import Gang
from gpusched.session.backfill.availability_profile import Reservation
from gpusched.session.state.equivalence import EquivalenceClass, EquivalenceClasses


@attrs.define(slots=True, eq=False)
class ReservedGang:
    """A gang with a reservation.

    Attributes:
        turn: its place among the blocked, from 0.
        slack: what others may still take of each row of the hold without breaking it, as
            ``hold.amounts``; only columns that the holder asks for count.
        asked: columns that it asks for on each of these rows.
        usable: rows on which any of its members could ever sit.
        basis: a gang whose end makes the room; None when it waits for nobody's end.
        due: the room is there as soon as those who give way are evicted.
    """

    gang: Gang
    turn: int
    hold: Reservation
    slack: Ints
    asked: Bools
    usable: Bools
    basis: GangKey | None
    due: bool

    def __attrs_post_init__(self) -> None:
        """Index the rows."""
        self.index = {int(row): number for number, row in enumerate(self.hold.rows)}

    index: dict[int, int] = attrs.field(factory=dict, init=False)

    def change(self, rows: Ints, amounts: Ints, *, sign: int) -> None:
        """So much more (1) or less (-1) may be taken of some rows, when it begins."""
        for row, amount in zip(rows.tolist(), amounts, strict=True):
            number = self.index.get(row)
            if number is not None:
                self.slack[number] += sign * amount


@attrs.frozen(slots=True, eq=False)
class StrictFifoHead:
    """A blocked gang of a StrictFifo queue that has no reservation."""

    gang: Gang
    turn: int
    usable: Bools


class ReservationPools:
    """Nodes that gangs could use, and whether there is room for one more holder among them.

    Args:
        kinds: of gangs.
        per_pool: most holders whose usable nodes overlap.
        total: most holders of one session.
    """

    def __init__(self, kinds: EquivalenceClasses, per_pool: int, total: int) -> None:
        self._total = total
        self._kinds = kinds
        self._per_pool = per_pool
        self._usable: dict[Hashable, Bools] = {}
        """Rows by kind, or by queue and classes of members: most gangs are of few kinds."""
        self._crowded: dict[int, bool] = {}
        """By identity of the rows, while holders are the same."""
        self._closed: set[EquivalenceClass] = set()
        """Kinds, without regard to lengths, of which nobody may hold room, while holders are the same."""

    def usable(self, gang: Gang) -> Bools | None:
        """Rows on which any of its members could ever sit; None when nobody has told yet."""
        return self._usable.get(self._who(gang))

    def learn(self, gang: Gang, usable: Callable[[], Bools]) -> Bools:
        """The same, asked once for gangs whose members are of the same classes."""
        who = self._who(gang)
        known = self._usable.get(who)
        if known is None:
            known = self._usable[who] = usable()
        return known

    def changed(self) -> None:
        """There are other holders than before."""
        self._crowded.clear()
        self._closed.clear()

    def close(self, gang: Gang) -> None:
        """Gangs of its kind hold no room as long as holders are the same."""
        kind = self._kinds.class_of(gang)
        if kind is not None:
            self._closed.add(kind.timeless)

    def closed(self, gang: Gang) -> bool:
        """Whether that was said of its kind."""
        kind = self._kinds.class_of(gang)
        return kind is not None and kind.timeless in self._closed

    def room(self, usable: Bools, holders: Sequence[ReservedGang]) -> bool:
        """Whether one more may hold room on some of these rows, which ``learn`` returned."""
        if len(holders) >= self._total:
            return False
        crowded = self._crowded.get(id(usable))
        if crowded is None:
            same_pool = sum(bool((usable & holder.usable).any()) for holder in holders)
            crowded = self._crowded[id(usable)] = same_pool >= self._per_pool
        return not crowded

    def _who(self, gang: Gang) -> Hashable:
        kind = self._kinds.class_of(gang)
        if kind is not None:
            return kind.timeless
        return (gang.queue, tuple(task.pod_class.digest for task in gang.tasks))
