"""Consolidation: gangs that could run elsewhere are moved so that one that waits fits."""

from __future__ import annotations

from typing import ClassVar

import attrs

from gpusched.plugin import (
    CONSOLIDATE,
    ActionNeeds,
    Capability,
    Consolidation,
    DependsOn,
    Session,
    preemption_claimants,
    queue_admission,
    session_victims,
)


@attrs.frozen
class Consolidate:
    """No gang ends for good: each that moves has a place held until its pods are made again."""

    name: ClassVar[str] = CONSOLIDATE
    depends_on: ClassVar[DependsOn] = DependsOn.VIEW
    provides: ClassVar[tuple[Capability, ...]] = (Capability.CONSOLIDATION,)
    needs: ClassVar[ActionNeeds] = ActionNeeds(
        after=(Capability.ADMISSION, Capability.PLACEMENT),
        otherwise="it moves before free room was tried",
    )

    def run(self, session: Session) -> None:
        """Make room by moves for gangs that free room and evictions did not serve."""
        claimants = preemption_claimants(session)
        if not claimants:
            return
        with session.pipelining():
            Consolidation(session, session_victims(session), queue_admission).serve_all(claimants)
