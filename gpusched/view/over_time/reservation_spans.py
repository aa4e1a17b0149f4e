"""Windows of Reservations on the axis of time: the current or next one, and those that follow it soon."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final

from gpusched.api.meta.identity import format_time
from gpusched.api.policy.reservation import AdvanceReservation
from gpusched.session.state.plan import ReservationStatus
from gpusched.view.over_time.future import SpanView

KEPT: Final = "kept"
_AHEAD_S: Final = 7 * 86_400
_WINDOWS_MAX: Final = 8
"""Windows of one Reservation that are shown, in the next days."""


def reservation_spans(
    reservations: Sequence[AdvanceReservation], statuses: Sequence[ReservationStatus], now: float
) -> tuple[SpanView, ...]:
    """Spans of the windows ahead, by name and time.

    Args:
        reservations: as the session saw them.
        statuses: what it says of them.
        now: of that session, seconds since the epoch.
    """
    told = {status.name: status for status in statuses}
    return tuple(
        SpanView(
            namespace="",
            kind="Reservation",
            name=each.name,
            queue=", ".join(each.queues),
            gpus="",
            nodes=told[each.name].nodes,
            begins=format_time(window.begins),
            ends=format_time(window.ends),
            what=KEPT,
        )
        for each in reservations
        if each.name in told and told[each.name].nodes
        for window in islice(each.windows_from(now), _WINDOWS_MAX)
        if window.begins <= now + _AHEAD_S
    )
