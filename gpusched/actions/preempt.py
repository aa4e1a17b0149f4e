"""Preemption: inside one queue, gangs of lower priority leave for one that cannot start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import attrs

from gpusched.plugin import (
    PREEMPT,
    ActionNeeds,
    Capability,
    EvictOperation,
    Gang,
    Preemption,
    Reason,
    Session,
    gang_text,
    pods_text,
    preempt_rules,
    preemption_claimants,
    session_victims,
)


@attrs.frozen
class Preempt:
    """Victims are of the same queue and of strictly lower priority; the queue's quota holds."""

    name: ClassVar[str] = PREEMPT
    provides: ClassVar[tuple[Capability, ...]] = (Capability.PREEMPTION,)
    needs: ClassVar[ActionNeeds] = ActionNeeds(
        after=(Capability.ADMISSION, Capability.PLACEMENT),
        otherwise="it evicts before free room was tried",
    )

    def run(self, session: Session) -> None:
        """Make room for gangs of the queues in which something of lower priority runs."""
        victims = session_victims(session)
        lowest = victims.lowest
        claimants = preemption_claimants(
            session,
            lambda gang: (least := lowest(gang.queue)) is not None and least < gang.priority,
        )
        if not claimants:
            return
        with session.pipelining():
            room = Preemption(
                session, preempt_rules(), reason=Reason.PREEMPTED, message=_victim_message
            )
            room.serve_all(claimants)


def _victim_message(gang: Gang, evictions: Sequence[EvictOperation]) -> str:
    highest = max((each.gang.priority for each in evictions), default=0)
    return (
        f"preempted for {gang_text(gang)}: it needs room for {pods_text(gang.members_at_start)} and has "
        f"priority {gang.priority} in queue {gang.queue}; {pods_text(len(evictions))} of priority "
        f"{highest} or lower leave for it"
    )
