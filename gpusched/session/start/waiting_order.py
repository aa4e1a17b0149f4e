"""Waiting gangs: their second try once reservations have moved, and their place in the queue."""

from __future__ import annotations

from collections.abc import Sequence

from gpusched.base import limits
from gpusched.cache.gangs.gang import Gang
from gpusched.session.backfill.reservations import Reservations, session_reservations
from gpusched.session.framework.reasons import Reason
from gpusched.session.start.gang_start import GangStarts
from gpusched.session.start.growth import grow_in_turn
from gpusched.session.state.session import Session


def waiting_gangs(session: Session, reservations: Reservations) -> list[Gang]:
    """Blocked gangs in the order of their turns, without those that have got room since."""
    return [gang for gang in reservations.blocked.waiting if _is_waiting(session, gang)]


def retry_reserved(session: Session, reservations: Reservations) -> None:
    """Try gangs again that only a reservation kept from starting; those that start grow as well."""
    starts = GangStarts(session, moves_others=False)
    started: list[Gang] = []
    for gang in tuple(reservations.blocked.waiting):
        if session.placements.is_full:
            return
        pending = session.outcomes.refusal(gang)
        if pending is None or pending.reason != Reason.RESERVED or not _is_waiting(session, gang):
            continue
        if starts.start(gang):
            session.outcomes.retract_refusal(gang)
            started.append(gang)
    grow_in_turn(session, started)


def number_positions(session: Session, waiting: Sequence[Gang]) -> None:
    """Number waiting gangs within their queues; far behind, in steps, so that one start moves few.

    What shows their order keeps their turns as well, each with the keys that it was sorted by.
    """
    reservations = session_reservations(session)
    turns = reservations.blocked.turns if reservations is not None else {}
    found = [turn for gang in waiting if (turn := turns.get(gang.key)) is not None]
    session.outcomes.set_waiting_order(session.order_keys.waiting_order(found))
    counts: dict[str, int] = {}
    step = limits.POSITIONS_EXACT_MAX
    for gang in waiting:
        place = counts[gang.queue] = counts.get(gang.queue, 0) + 1
        session.outcomes.set_position(gang, place if place <= step else -(-place // step) * step)


def _is_waiting(session: Session, gang: Gang) -> bool:
    return not session.placements.assigned(gang) and not session.nominations.has_nomination(gang)
