"""One gang with all that is told of it."""

from __future__ import annotations

from gpusched.view.model import DecisionView, GangView, MemberView, OrderView
from gpusched.view.over_time.future import RoomView


class GangStory(GangView, frozen=True, kw_only=True):
    """One gang with its pods and, as only the daemon knows them, decisions, its place in the order and its room.

    Attributes:
        story: what was decided about it, oldest first.
        order: of one that waits; None for others.
        room: kept for it while it waits; None for none.
    """

    members: tuple[MemberView, ...] = ()
    story: tuple[DecisionView, ...] = ()
    order: OrderView | None = None
    room: RoomView | None = None
