"""Nodes of Reservations are cleared: what can be moved is moved first, and what is left is evicted whole."""

from __future__ import annotations

from collections.abc import Iterator

from gpusched.base.limits import MOVES_MAX
from gpusched.cache.gangs.gang import Gang
from gpusched.session.backfill.reservation_guard import place_minimum
from gpusched.session.framework.reasons import Reason, node_cause_text, truncate_message
from gpusched.session.preempt.stopped_gangs import budgets_allow_leaving, stop_gang
from gpusched.session.preempt.victims import DisruptionBudgets
from gpusched.session.rebalance.movable_gangs import is_complete_and_movable, may_start_again
from gpusched.session.state.decided.moved_gangs import as_pending_gang
from gpusched.session.state.nodes.windows.reserved_windows import NodeWindow
from gpusched.session.state.session import Session

CLEARING_ACTION = "reservation"
"""The name for metrics of evictions for the windows of Reservations."""


def clear_windows(session: Session) -> None:
    """Move gangs off nodes whose window is near, and evict what may not be there when one has begun.

    Only preemptible gangs whose protected time is over leave, within their disruption budgets. All
    others stay until they end by themselves; the Reservation's status tells so.
    """
    if not session.snapshot.reservations or session.outcomes.closed:
        return
    budgets = DisruptionBudgets(session.snapshot.budgets)
    for gang, each in _gangs_to_evict(session):
        if budgets_allow_leaving(gang, budgets):
            message = truncate_message(_nodes_text(session, gang, each))
            stop_gang(session, gang, Reason.RESERVED, message, action=CLEARING_ACTION)
    left = MOVES_MAX
    recent = {key for key, _ in session.snapshot.move_records}
    for gang, each in _gangs_to_move(session):
        if left <= 0:
            return  # the next session goes on
        if is_complete_and_movable(session, gang, recent) and budgets_allow_leaving(gang, budgets):
            left -= 1
            _move_gang(session, gang, each)


def _gangs_to_evict(session: Session) -> Iterator[tuple[Gang, NodeWindow]]:
    """Gangs that have to leave now, each with the first window for which it has to, by name."""
    now = session.snapshot.now
    seen = set(session.nominations.stops)
    for each in session.windows.windows:
        if not (each.window.is_active_at(now) and each.reservation.evicts):
            continue
        for gang in session.windows.gangs_in_the_way(each):
            if gang.key not in seen and _may_leave_now(session, gang):
                seen.add(gang.key)
                yield gang, each


def _gangs_to_move(session: Session) -> Iterator[tuple[Gang, NodeWindow]]:
    """Gangs that would run into a window that is near, each with the first such window, by its beginning."""
    now = session.snapshot.now
    near = [
        each
        for each in session.windows.windows
        if each.reservation.evicts
        and each.is_being_emptied(now)
        and not each.window.is_active_at(now)
    ]
    seen = set(session.nominations.stops)
    for each in sorted(near, key=lambda each: (each.window.begins, each.reservation.name)):
        for gang in session.windows.gangs_in_the_way(each):
            late = session.windows.end_of(gang) > each.window.begins
            if late and gang.key not in seen and _may_leave_now(session, gang):
                seen.add(gang.key)
                yield gang, each


def _may_leave_now(session: Session, gang: Gang) -> bool:
    """Whether the gang runs, is preemptible and its protected time is over."""
    return (
        bool(gang.placed)
        and all(each.confirmed for each in gang.placed)
        and session.windows.is_evictable_at(gang, session.snapshot.now)
    )


def _move_gang(session: Session, gang: Gang, each: NodeWindow) -> None:
    """Move a whole gang to other nodes if it may start anew and all of it fits there; else it stays where it is."""
    with session.pipelining():
        statement = session.statement()
        for member in gang.placed:
            if member.node in session.snapshot.nodes.row:
                session.evict(statement, gang, member)
        elsewhere, waiting = session.statement(), as_pending_gang(gang)
        is_placed = (
            may_start_again(session, waiting)
            and place_minimum(session, waiting, elsewhere) is None
            and len(elsewhere.assignments) == len(gang.placed)
        )
        if not is_placed:
            elsewhere.discard()
            statement.discard()
            return
        held_s = session.snapshot.limits.nomination_timeout_s
        message = (
            f"moved to other nodes before the window: {_nodes_text(session, gang, each)}; room "
            f"elsewhere is held for {held_s:g} s"
        )
        session.nominations.move(
            gang,
            statement,
            elsewhere,
            action=CLEARING_ACTION,
            reason=Reason.RESERVED,
            message=truncate_message(message),
        )


def _nodes_text(session: Session, gang: Gang, each: NodeWindow) -> str:
    nodes = session.snapshot.nodes
    rows = {nodes.row[member.node] for member in gang.placed if member.node in nodes.row}
    count = sum(bool(each.rows[row]) for row in rows)
    return f"of its nodes {node_cause_text(count, each.words(session.snapshot.now))}"
