"""Second tries around reservations, and the expected start of gangs that wait."""

from __future__ import annotations

from typing import ClassVar

import attrs

from gpusched.plugin import (
    ActionNeeds,
    Capability,
    DependsOn,
    Session,
    expected_starts,
    number_positions,
    retry_reserved,
    session_reservations,
    waiting_gangs,
)


@attrs.frozen
class Backfill:
    """Reservations are made, and respected by all actions, while gangs are placed (``allocate``).

    What is left for this action: when preemption and reclaim have moved things, reservations are
    worked out once more, and gangs that were held back are tried again. Configured without this
    action, no room is reserved for a later time.
    """

    name: ClassVar[str] = "backfill"
    depends_on: ClassVar[DependsOn] = DependsOn.VIEW
    provides: ClassVar[tuple[Capability, ...]] = (Capability.RESERVATIONS,)
    needs: ClassVar[ActionNeeds] = ActionNeeds(
        after=(
            Capability.ADMISSION,
            Capability.PLACEMENT,
            Capability.PREEMPTION,
            Capability.RECLAIM,
        ),
        otherwise="small jobs take room before larger ones were tried",
    )

    def run(self, session: Session) -> None:
        """Try again what reservations held back, then number and estimate what waits."""
        reservations = session_reservations(session)
        if reservations is None:
            return
        if reservations.recompute_if_evicted():
            retry_reserved(session, reservations)
        self._tell_starts(session)

    def _tell_starts(self, session: Session) -> None:
        reservations = session_reservations(session)
        if reservations is None:
            return
        waiting = waiting_gangs(session, reservations)
        number_positions(session, waiting)
        session.outcomes.set_expected_starts(expected_starts(reservations, waiting))
