"""Starts what may start around reservations, and tells those who wait when their turn comes."""

from __future__ import annotations

from typing import ClassVar

import attrs

from gpusched.actions.allocate import start_gang
from gpusched.base import limits
from gpusched.cache.gangs.gang import Gang
from gpusched.session.allocate.equivalence_cache import EquivalenceCache
from gpusched.session.backfill.reservations import Reservations, session_reservations
from gpusched.session.backfill.start_estimates import estimate_starts
from gpusched.session.framework.reasons import Reason
from gpusched.session.state.session import Session


@attrs.frozen
class Backfill:
    """Reservations are made, and kept by everybody, while gangs are placed (``allocate``).

    What is left for this action: when preemption and reclaim have moved things, holds are worked
    out once more, and who was held back tries again. Configured without this action, nobody
    holds room for a later time.
    """

    name: ClassVar[str] = "backfill"

    def run(self, session: Session) -> None:
        """See the class."""
        reservations = session_reservations(session)
        if reservations is None:
            return
        if reservations.settle():
            _retry_reserved(session, reservations)
        waiting = [gang for gang in reservations.waiting if _is_waiting(session, gang)]
        _number_positions(session, waiting)
        session.outcomes.set_estimates(estimate_starts(reservations, waiting))


def _retry_reserved(session: Session, reservations: Reservations) -> None:
    refused = EquivalenceCache(session)
    for gang in tuple(reservations.waiting):
        if session.placements.is_full:
            return
        ask = session.outcomes.refusal(gang)
        if ask is not None and ask.reason == Reason.RESERVED and _is_waiting(session, gang):
            start_gang(session, gang, refused)
            if session.placements.assigned(gang):
                session.outcomes.retract_refusal(gang)


def _is_waiting(session: Session, gang: Gang) -> bool:
    return not session.placements.assigned(gang) and not session.nominations.has(gang)


def _number_positions(session: Session, waiting: list[Gang]) -> None:
    """Number them within their queues; far behind, in steps, so that one start moves few."""
    counts: dict[str, int] = {}
    step = limits.POSITIONS_EXACT_MAX
    for gang in waiting:
        place = counts[gang.queue] = counts.get(gang.queue, 0) + 1
        session.outcomes.set_position(gang, place if place <= step else -(-place // step) * step)
