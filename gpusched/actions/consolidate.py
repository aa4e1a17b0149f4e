"""Consolidation: gangs that could run elsewhere are moved so that one that waits fits."""

from __future__ import annotations

from typing import ClassVar

import attrs

from gpusched.actions.enqueue import queue_admission
from gpusched.actions.preempt import preemption_claimants
from gpusched.session.framework.proposal import CONSOLIDATE
from gpusched.session.preempt.preemption import session_victims
from gpusched.session.rebalance.consolidation import Consolidation
from gpusched.session.state.session import Session


@attrs.frozen
class Consolidate:
    """Nobody ends for good: whoever moves has a place that is held until its pods are made again."""

    name: ClassVar[str] = CONSOLIDATE

    def run(self, session: Session) -> None:
        """See the class."""
        claimants = preemption_claimants(session)
        if not claimants:
            return
        with session.pipelining():
            Consolidation(session, session_victims(session), queue_admission).serve_all(claimants)
