"""Consolidation: gangs that could run elsewhere are moved so that one that waits fits."""

from __future__ import annotations

from typing import ClassVar

import attrs

from gpusched.actions.enqueue import admission
from gpusched.actions.preempt import claimants_of
from gpusched.session.consolidation import Consolidation
from gpusched.session.making_room import victims_of
from gpusched.session.proposal import CONSOLIDATE
from gpusched.session.session import Session


@attrs.frozen
class Consolidate:
    """Nobody ends for good: whoever moves has a place that is held until its pods are made again."""

    name: ClassVar[str] = CONSOLIDATE

    def run(self, session: Session) -> None:
        """See the class."""
        claimants = claimants_of(session)
        if not claimants:
            return
        with session.looking_later():
            Consolidation(session, victims_of(session), admission).serve_all(claimants)
