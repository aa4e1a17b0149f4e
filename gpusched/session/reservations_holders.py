"""Who has room kept for it, and how much others may take of it all the same."""

from __future__ import annotations

import attrs

from gpusched.arrays.columns import Bools, Ints
from gpusched.cache.gangs import Gang
from gpusched.objects.meta import GangKey
from gpusched.session.reservations_profile import Hold


@attrs.define(slots=True, eq=False)
class Holder:
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
    hold: Hold
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
class Strict:
    """A blocked gang of a StrictFifo queue that has no reservation."""

    gang: Gang
    turn: int
    usable: Bools
