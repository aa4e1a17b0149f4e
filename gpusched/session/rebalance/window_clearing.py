"""Nodes of Reservations are cleared: what may not be there when a window has begun is evicted whole."""

from __future__ import annotations

from collections.abc import Iterator

from gpusched.cache.gangs.gang import Gang
from gpusched.session.framework.reasons import Reason, node_cause_text, truncate_message
from gpusched.session.preempt.stopped_gangs import budgets_allow_leaving, stop_gang
from gpusched.session.preempt.victims import DisruptionBudgets
from gpusched.session.state.nodes.windows.reserved_windows import NodeWindow
from gpusched.session.state.session import Session

CLEARING_ACTION = "reservation"
"""The name for metrics of evictions because a window of a Reservation has begun."""


def clear_windows(session: Session) -> None:
    """Evict gangs that may not use the nodes of a window that has begun, as far as they may be evicted.

    A gang that is not preemptible, or whose protected time is not over, stays until it ends by
    itself; the Reservation's status tells so. Disruption budgets slow it down, as always.
    """
    if not session.snapshot.reservations or session.outcomes.closed:
        return
    budgets = DisruptionBudgets(session.snapshot.budgets)
    for gang, each in _gangs_to_clear(session):
        if budgets_allow_leaving(gang, budgets):
            stop_gang(
                session, gang, Reason.RESERVED, _eviction_message(session, gang, each),
                action=CLEARING_ACTION,
            )  # fmt: skip


def _gangs_to_clear(session: Session) -> Iterator[tuple[Gang, NodeWindow]]:
    """Gangs that have to leave now, each with the first window for which it has to, by name."""
    now = session.snapshot.now
    seen = set(session.nominations.stops)
    for each in session.windows.windows:
        if not (each.window.is_active_at(now) and each.reservation.evicts):
            continue
        for gang in session.windows.gangs_in_the_way(each):
            if gang.key not in seen and is_stoppable_now(session, gang):
                seen.add(gang.key)
                yield gang, each


def is_stoppable_now(session: Session, gang: Gang) -> bool:
    """Whether the gang runs, is preemptible and its protected time is over."""
    return (
        bool(gang.placed)
        and all(each.confirmed for each in gang.placed)
        and session.windows.is_evictable_at(gang, session.snapshot.now)
    )


def _eviction_message(session: Session, gang: Gang, each: NodeWindow) -> str:
    nodes = session.snapshot.nodes
    rows = {nodes.row[member.node] for member in gang.placed if member.node in nodes.row}
    count = sum(bool(each.rows[row]) for row in rows)
    told = node_cause_text(count, each.words(session.snapshot.now))
    return truncate_message(f"of the nodes that it ran on {told}")
