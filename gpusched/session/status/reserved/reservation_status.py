"""Status of each Reservation: its window, the nodes that it keeps, and what is still in its way."""

from __future__ import annotations

from typing import Final

from gpusched.api.meta.identity import format_time
from gpusched.api.policy.reservation import MAINTENANCE, AdvanceReservation
from gpusched.cache.gangs.gang import Gang
from gpusched.session.framework.reasons import nodes_text, shorten, truncate_message
from gpusched.session.state.nodes.windows.reserved_windows import NO_END, NodeWindow
from gpusched.session.state.plan import PendingReason, ReservationStatus
from gpusched.session.state.session import Session

ANNOUNCED: Final = "Announced"
ACTIVE: Final = "Active"
ENDED: Final = "Ended"
PHASES: Final = (ANNOUNCED, ACTIVE, ENDED)
NO_NODES_REASON: Final = "NodesMissing"
"""The reason of the condition Ready where its nodes are not what it asks for."""
_NAMES_TOLD_MAX: Final = 3


def reservation_statuses(session: Session) -> tuple[ReservationStatus, ...]:
    """The status of every Reservation, by name."""
    if not session.snapshot.reservations:
        return ()
    current = {each.reservation.name: each for each in session.windows.windows}
    return tuple(
        _status_in_window(session, current[each.name])
        if each.name in current
        else _status_when_ended(each)
        for each in session.snapshot.reservations
    )


def _status_when_ended(reservation: AdvanceReservation) -> ReservationStatus:
    last = reservation.last_end
    message = (
        f"its last window ended at {format_time(last)}: delete it, or give it a later from"
        if reservation.recurs
        else f"it ended at {format_time(last)}: delete it, give it a later from, or let it recur"
    )
    return ReservationStatus(
        name=reservation.name,
        uid=reservation.uid,
        generation=reservation.generation,
        phase=ENDED,
        begins=0,
        ends=0,
        nodes=(),
        in_the_way=0,
        is_ready=True,
        ready=PendingReason(reason=ENDED, message=message),
    )


def _status_in_window(session: Session, each: NodeWindow) -> ReservationStatus:
    reservation, window, nodes = each.reservation, each.window, session.snapshot.nodes.nodes
    phase = ACTIVE if window.is_active_at(session.snapshot.now) else ANNOUNCED
    names = tuple(sorted(nodes[row].name for row in each.rows.nonzero()[0].tolist()))
    gangs = list(session.windows.gangs_in_the_way(each))
    staying = [gang for gang in gangs if session.windows.end_of(gang) > window.begins]
    if each.error:
        message, reason = each.error, NO_NODES_REASON
        if names:
            message = f"{message}; it keeps the {nodes_text(len(names))} that it finds"
    else:
        message, reason = _window_text(each, len(names)), phase
        message += _text_of_unknown(session, reservation) + _text_of_staying(session, each, staying)
    return ReservationStatus(
        name=reservation.name,
        uid=reservation.uid,
        generation=reservation.generation,
        phase=phase,
        begins=window.begins,
        ends=window.ends,
        nodes=names,
        in_the_way=len(gangs),
        is_ready=not each.error,
        ready=PendingReason(reason=reason, message=truncate_message(message)),
    )


def _window_text(each: NodeWindow, count: int) -> str:
    begins, ends = format_time(each.window.begins), format_time(each.window.ends)
    return (
        f"{nodes_text(count)} {'is' if count == 1 else 'are'} kept from {begins} to {ends} "
        f"for {users_text(each.reservation)}"
    )


def users_text(reservation: AdvanceReservation) -> str:
    """Who may use its nodes, in words: ``queue team-a``, ``maintenance``."""
    if reservation.purpose == MAINTENANCE:
        return "maintenance"
    told = [
        f"{word if len(names) == 1 else word + 's'} {_names_text(names)}"
        for word, names in (("queue", reservation.queues), ("namespace", reservation.namespaces))
        if names
    ]
    return " and ".join(told) or "nobody"


def _text_of_unknown(session: Session, reservation: AdvanceReservation) -> str:
    """Who of those that it names is not there: nodes are kept for them all the same, until somebody is."""
    snapshot = session.snapshot
    queues = tuple(each for each in reservation.queues if snapshot.queues.get(each) is None)
    spaces = tuple(each for each in reservation.namespaces if each not in snapshot.namespaces)
    return "".join(
        f"; there is no {word} {_names_text(names)}"
        for word, names in (("queue", queues), ("namespace", spaces))
        if names
    )


def _names_text(names: tuple[str, ...]) -> str:
    told = ", ".join(shorten(name) for name in names[:_NAMES_TOLD_MAX])
    return (
        told if len(names) <= _NAMES_TOLD_MAX else f"{told} and {len(names) - _NAMES_TOLD_MAX} more"
    )


def _text_of_staying(session: Session, each: NodeWindow, staying: list[Gang]) -> str:
    """What of the gangs that may not be there is not known to end before the window begins."""
    if not staying:
        return ""
    when = max(each.window.begins, int(session.snapshot.now))
    fixed = [
        gang for gang in staying if not session.windows.is_gone_by(gang, each.reservation, when)
    ]
    leaving = len(staying) - len(fixed)
    soon = "now" if each.window.is_active_at(session.snapshot.now) else "then"
    told = []
    if leaving:
        told.append(f"{_gangs_text(leaving)} {'is' if leaving == 1 else 'are'} evicted {soon}")
    if fixed:
        ends = [session.windows.end_of(gang) for gang in fixed]
        known = all(end < NO_END for end in ends)
        until = f" until {format_time(max(ends))}" if known else ", for nobody knows how long"
        told.append(
            f"{_gangs_text(len(fixed))} that cannot be evicted "
            f"{'stays' if len(fixed) == 1 else 'stay'}{until}"
        )
    return "; " + "; ".join(told)


def _gangs_text(count: int) -> str:
    return "1 gang" if count == 1 else f"{count} gangs"
