"""Preemption: inside one queue, gangs of lower priority leave for one that cannot start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import attrs

from gpusched.cache.gangs.gang import Gang
from gpusched.session.framework.proposal import PREEMPT
from gpusched.session.framework.reasons import Reason, pods_text, shorten
from gpusched.session.preempt.preemption import Preemption, session_victims
from gpusched.session.preempt.victim_selection import VictimRules
from gpusched.session.state.session import Session
from gpusched.session.state.statement import EvictOperation


@attrs.frozen
class Preempt:
    """Victims are of the same queue and of strictly lower priority; the queue's quota holds."""

    name: ClassVar[str] = PREEMPT

    def run(self, session: Session) -> None:
        """See the class."""
        victims = session_victims(session)
        lowest = victims.lowest
        claimants = preemption_claimants(
            session,
            lambda gang: (least := lowest(gang.queue)) is not None and least < gang.priority,
        )
        if not claimants:
            return
        rules = VictimRules(
            action=PREEMPT,
            queues=lambda claimant: (claimant.queue,),
            may_be_victim=lambda claimant, victim: victim.priority < claimant.priority,
        )
        with session.pipelining():
            room = Preemption(session, rules, reason=Reason.PREEMPTED, sentence=_victim_message)
            room.serve_all(claimants)


def preemption_claimants(
    session: Session, might: Callable[[Gang], bool] = lambda _gang: True
) -> list[Gang]:
    """Gangs for which somebody might be evicted: admitted, not started, and nothing promised.

    Args:
        session: in which they find no room.
        might: whether there is anybody who could leave for a gang; asked first.
    """
    return [
        gang
        for gang in session.gangs
        if might(gang)
        and gang.pending
        and (gang.need or not gang.placed)
        and session.outcomes.is_admitted(gang)
        and not session.nominations.has(gang)
        and not session.placements.assigned(gang)
        and gang.ready + gang.pending >= gang.min_member
    ]


def gang_text(gang: Gang) -> str:
    """A gang in a sentence."""
    return shorten(f"{gang.key.namespace}/{gang.key.name}")


def _victim_message(gang: Gang, evictions: Sequence[EvictOperation]) -> str:
    highest = max((each.gang.priority for each in evictions), default=0)
    return (
        f"preempted for {gang_text(gang)}: it needs room for {pods_text(gang.at_once)} and has "
        f"priority {gang.priority} in queue {gang.queue}; {pods_text(len(evictions))} of priority "
        f"{highest} or lower leave for it"
    )
