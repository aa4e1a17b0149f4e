"""The one way to places for a gang's minimum: none that breaks a reservation of another gang."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from gpusched.api.meta.duration import NANOSECONDS, format_duration
from gpusched.api.meta.identity import format_time
from gpusched.base import limits
from gpusched.cache.gangs.gang import Gang
from gpusched.session.admission.readiness import may_start_later
from gpusched.session.allocate.gang_placement import (
    place_ignoring_reservations,
    place_on_any_nodes,
    place_unless_held,
)
from gpusched.session.allocate.node_sets import Unschedulable
from gpusched.session.allocate.queue_order import in_queue_order
from gpusched.session.allocate.refusals.kept_refusals import rows_with_room
from gpusched.session.backfill.reservations import Reservations, session_reservations
from gpusched.session.backfill.reserved_gangs import ReservedGang, StrictFifoHead
from gpusched.session.backfill.walltimes import UNKNOWN_WALLTIME
from gpusched.session.framework.plugin import Capability
from gpusched.session.framework.reasons import (
    Reason,
    node_cause_text,
    nodes_text,
    pods_text,
    truncate_message,
)
from gpusched.session.state.nodes.windows.reserved_windows import (
    ClosedNodes,
    NodeWindow,
    shortest_walltime_s,
)
from gpusched.session.state.session import Session
from gpusched.session.state.statement import Statement

_NOT_ABOUT_NODES: Final = (
    Reason.RESERVED,
    Reason.NOT_ENOUGH_MEMBERS,
    Reason.INVALID_SPEC,
    Reason.BACK_OFF,
)
"""Refusals for which it does not matter which nodes there are."""
_WINDOWS_TOLD_MAX: Final = 2
_UNTOLD: Final = "for a time that it does not tell (expectedDuration, or annotation gpusched.io/expected-duration)"


def reserved_for_other_message(
    reservations: Reservations, gang: Gang, reserved: ReservedGang | StrictFifoHead
) -> str:
    """The message for a gang that would fit, were it not for the reservation of another gang."""
    other = reserved.gang
    if isinstance(reserved, StrictFifoHead):
        queue = gang.queue
        return truncate_message(
            f"{other.key} is before it in queue {queue}, which is StrictFifo, and needs the same "
            f"nodes for {pods_text(other.members_at_start)}"
        )
    length = reservations.walltimes.seconds_of(gang)
    runs = f"for {format_duration(length * NANOSECONDS)}" if length < UNKNOWN_WALLTIME else _UNTOLD
    count = _nodes_are_text(len(reserved.reservation.rows))
    if reserved.due or reservations.walltimes.has_come(reserved.reservation.start):
        since = "now"
    else:
        since = format_time(reserved.reservation.start)
    return truncate_message(
        f"fits now and would run {runs}, but {count} held from {since} on for {other.key}, "
        f"which needs room for {pods_text(other.members_at_start)}"
    )


def own_reservation_message(reservations: Reservations, reserved: ReservedGang) -> str:
    """The end of the message for a blocked gang that has a reservation: from when on and why."""
    count = _nodes_are_text(len(reserved.reservation.rows))
    if reserved.due:
        return f"{count} held for it until preemption has decided"
    if reservations.walltimes.has_come(reserved.reservation.start):
        return f"it is its turn, so {count} held for it until they suffice"
    basis = reserved.basis
    when = f"held for it from {format_time(reserved.reservation.start)} on"
    if basis is None:
        return f"{count} {when}"
    if basis in reservations.walltimes.overruns:
        return f"{count} held for it as soon as {basis} ends, which is over its walltime"
    return f"{count} {when}, when {basis} is to have ended"


def _nodes_are_text(count: int) -> str:
    return f"{nodes_text(count)} {'is' if count == 1 else 'are'}"


def place_minimum(session: Session, gang: Gang, statement: Statement) -> Unschedulable | None:
    """Place as many members as a gang must start with, or none, and break no reservation.

    Room that is reserved for gangs whose turn comes before is left to them, as far as this gang
    would still run then. A gang that uses the room for which it was nominated may have any: no
    reservation counts on it.

    Returns:
        Why there is no place; None when there is.
    """
    refusal = _place_beside_reservations(session, gang, statement)
    closed = session.windows.closed_to(gang)
    if refusal is None or closed is None or refusal.reason in _NOT_ABOUT_NODES:
        return refusal
    return _refusal_by_windows(session, gang, statement, closed)


def lacks_only_reserved_room(session: Session, gang: Gang, claimant: Gang) -> bool:
    """Whether a gang that was refused for a reservation would still fit, did it ignore it.

    Args:
        session: that refused it, or that has changed since.
        gang: that waits.
        claimant: the gang with those members alone that are to start.
    """
    refusal = session.outcomes.refusal(gang)
    if refusal is None or refusal.reason != Reason.RESERVED:
        return False
    statement = session.statement()
    fits = place_ignoring_reservations(session, claimant, statement) is None
    statement.discard()
    return fits


def _place_beside_reservations(
    session: Session, gang: Gang, statement: Statement
) -> Unschedulable | None:
    before = statement.checkpoint()
    reservations = session_reservations(session)
    if reservations is None or statement.unnominated:
        return place_ignoring_reservations(session, gang, statement)
    with reservations.own_reservation(gang) as has_own:
        refusal = place_ignoring_reservations(session, gang, statement) if has_own else None
    statement.in_reserved_room = has_own and refusal is None
    if not statement.in_reserved_room:
        held = partial(_refusal_by_held_room, session, reservations, gang, statement)
        refusal = place_unless_held(session, gang, statement, held)
    if refusal is not None:
        return refusal
    reserved = reservations.find_conflict(gang, statement)
    if reserved is None:
        return None
    statement.rollback(before)
    statement.in_reserved_room = False
    if _may_fit_beside(session, reservations, gang, statement):
        with reservations.exclude_reserved_room(gang, statement):
            elsewhere = place_ignoring_reservations(session, gang, statement)
        if elsewhere is None and reservations.find_conflict(gang, statement) is None:
            return None
        statement.rollback(before)
    return Unschedulable(Reason.RESERVED, reserved_for_other_message(reservations, gang, reserved))


def _refusal_by_held_room(
    session: Session, reservations: Reservations, gang: Gang, statement: Statement
) -> Unschedulable | None:
    """Why a gang does not start that has room now, but none beside what is held for others; None where a search has to tell."""
    if not reservations.binds_any or session.snapshot.reservations:
        return None
    room = rows_with_room(session, gang)
    if room is None:
        return None
    request = session.class_info(gang.pod_sets[0].pod_class).request
    binding = reservations.gangs_binding(gang)
    reserved = next((each for each in binding if each.is_in_the_way(room, request)), None)
    if reserved is None or _may_fit_beside(session, reservations, gang, statement):
        return None
    # As much as a search is charged for.
    session.work_budget.spend_units(limits.WORK_CLASS + len(room) // limits.WORK_NODES_A_UNIT)
    return Unschedulable(Reason.RESERVED, reserved_for_other_message(reservations, gang, reserved))


def _may_fit_beside(
    session: Session, reservations: Reservations, gang: Gang, statement: Statement
) -> bool:
    """Whether room that is not reserved may be enough for a gang: a bound that looks for no place.

    Args:
        session: in which it is to start.
        reservations: of the session.
        gang: that waits.
        statement: without a place for it.
    """
    if statement.evictions or gang.placed or any(each.pod_class.share for each in gang.pod_sets):
        return True
    rows, spare = reservations.spare_room(gang)
    found = sum(
        min(len(each.pods), session.class_info(each.pod_class).class_fit.count_beside(rows, spare))
        for each in gang.pod_sets
    )
    return found >= gang.members_at_start


def _refusal_by_windows(
    session: Session, gang: Gang, statement: Statement, closed: ClosedNodes
) -> Unschedulable:
    """Why a gang finds no place of which Reservations of the API keep some nodes.

    Args:
        session: in which it found none.
        gang: that waits.
        statement: without a place for it, as it is again afterwards.
        closed: nodes that they close to the gang.
    """
    before = statement.checkpoint()
    elsewhere = place_on_any_nodes(session, gang, statement)
    rows = {place.row for place in statement.assignments}
    statement.rollback(before)
    kept = [session.windows.windows[number] for number in closed.numbers]
    if elsewhere is not None:
        told = " and ".join(
            node_cause_text(int(each.rows.sum()), each.words(session.snapshot.now))
            for each in kept[:_WINDOWS_TOLD_MAX]
        )
        return Unschedulable(elsewhere.reason, truncate_message(f"{elsewhere.message}; {told}"))
    mine = [each for each in kept if any(each.rows[row] for row in rows)] or kept
    return Unschedulable(Reason.RESERVED, _closed_message(session, gang, mine), by_windows=True)


def _closed_message(session: Session, gang: Gang, kept: Sequence[NodeWindow]) -> str:
    """The message for a gang that would fit, were it not for Reservations of the API."""
    told = " and ".join(
        node_cause_text(int(each.rows.sum()), each.words(session.snapshot.now))
        for each in kept[:_WINDOWS_TOLD_MAX]
    )
    length = shortest_walltime_s(session.hooks, gang)
    runs = f"for {format_duration(length * NANOSECONDS)}" if length else _UNTOLD
    if all(each.window.is_active_at(session.snapshot.now) for each in kept):
        return truncate_message(f"fits now, but of the nodes {told}")
    return truncate_message(f"fits now and would run {runs}, but of the nodes {told}")


def make_reservations(session: Session) -> None:
    """Begin to reserve room for gangs that are blocked, where an action of the session asks for it."""
    per_pool = session.hooks.reservations_per_pool
    if Capability.RESERVATIONS in session.capabilities and per_pool:
        session.track_reservations(Reservations(session, per_pool=per_pool))


def keep_reserved(session: Session, gang: Gang) -> None:
    """Reserve room for a gang that has no turn in this session, as if it had had one, where it lacks room or quota."""
    reservations = session_reservations(session)
    if reservations is not None:
        reservations.reserve_ahead([gang])


def reserve_ahead(session: Session) -> None:
    """Reserve room for gangs that are blocked as things stand, whether or not they had their turn.

    An action of an outside author places gangs in an order of its own. What it finds reserved is
    what gangs in queue order would have reserved before the first of them started.
    """
    if session.reservations is not None:
        return
    make_reservations(session)
    reservations = session_reservations(session)
    if reservations is not None and reservations.may_reserve:
        waiting = [gang for gang in session.gangs if may_start_later(session, gang)]
        reservations.reserve_ahead(in_queue_order(session, waiting))
