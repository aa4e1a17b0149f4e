"""Starts what may start around reservations, and tells those who wait when their turn comes."""

from __future__ import annotations

from typing import ClassVar

import attrs

from gpusched import limits
from gpusched.actions.allocate import start
from gpusched.cache.gangs import Gang
from gpusched.session.alike import Refusals
from gpusched.session.reasons import Reason
from gpusched.session.reservations import Reservations
from gpusched.session.reservations_estimates import estimates
from gpusched.session.session import Session


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
        reservations = session.reservations
        if reservations is None:
            return
        if reservations.settle():
            _try_again(session, reservations)
        waiting = [gang for gang in reservations.waiting if _waits(session, gang)]
        _queue_up(session, waiting)
        session.estimates.update(estimates(reservations, waiting))


def _try_again(session: Session, reservations: Reservations) -> None:
    refused = Refusals(session)
    for gang in tuple(reservations.waiting):
        if session.full:
            return
        ask = session.asks.get(gang.key)
        if ask is not None and ask.reason == Reason.RESERVED and _waits(session, gang):
            start(session, gang, refused)
            if session.kept(gang):
                del session.asks[gang.key]


def _waits(session: Session, gang: Gang) -> bool:
    return not session.kept(gang) and gang.key not in session.promises


def _queue_up(session: Session, waiting: list[Gang]) -> None:
    """Number them within their queues; far behind, in steps, so that one start moves few."""
    counts: dict[str, int] = {}
    step = limits.POSITIONS_EXACT_MAX
    for gang in waiting:
        place = counts[gang.queue] = counts.get(gang.queue, 0) + 1
        session.positions[gang.key] = place if place <= step else -(-place // step) * step
