"""Preemption: inside one queue, gangs of lower priority leave for one that cannot start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import attrs

from gpusched.plugin import (
    PREEMPT,
    ActionNeeds,
    Capability,
    DependsOn,
    EvictOperation,
    Gang,
    Preemption,
    Reason,
    Session,
    VictimRules,
    Victims,
    extras_of_native_groups,
    extras_rules,
    gang_text,
    late_claims,
    may_have_claimants,
    pods_text,
    preempt_rules,
    preemption_claimants,
    session_victims,
)


@attrs.frozen
class Preempt:
    """Victims are of the same queue and of strictly lower priority; the queue's quota holds."""

    name: ClassVar[str] = PREEMPT
    depends_on: ClassVar[DependsOn] = DependsOn.VIEW
    provides: ClassVar[tuple[Capability, ...]] = (Capability.PREEMPTION,)
    needs: ClassVar[ActionNeeds] = ActionNeeds(
        after=(Capability.ADMISSION, Capability.PLACEMENT),
        otherwise="it evicts before free room was tried",
    )

    def run(self, session: Session) -> None:
        """Make room for gangs of the queues in which something of lower priority runs."""
        if may_have_claimants(session):
            self._make_room(session, session_victims(session))
        late_claims(session).add(lambda victims: self._make_room(session, victims, late=victims))

    def _make_room(
        self, session: Session, victims: Victims, *, late: Victims | None = None
    ) -> None:
        lowest = victims.lowest

        def has_lower(gang: Gang) -> bool:
            return (least := lowest(gang.queue)) is not None and least < gang.priority

        claimants = preemption_claimants(session, has_lower)
        if claimants:
            with session.pipelining():
                self._preemption(session, preempt_rules(), late).serve_all(claimants)
        extras = extras_of_native_groups(session, has_lower)
        if extras and not session.early_end.reached:
            with session.pipelining():
                self._serve_extras(session, extras, late)

    def _serve_extras(
        self, session: Session, extras: list[list[Gang]], late: Victims | None
    ) -> None:
        """Make room for members of running groups, for as many of each as find victims."""
        for rules in extras_rules():
            room = self._preemption(session, rules, late)
            asking = [list(claimants) for claimants in extras]
            while any(asking) and not room.full:
                turn = [claimants.pop(0) for claimants in asking if claimants]
                room.serve_all(
                    [each for each in turn if not session.nominations.has_nomination(each)]
                )

    def _preemption(self, session: Session, rules: VictimRules, late: Victims | None) -> Preemption:
        return Preemption(
            session, rules, reason=Reason.PREEMPTED, message=_victim_message, late=late
        )


def _victim_message(gang: Gang, evictions: Sequence[EvictOperation]) -> str:
    verb = "leaves" if len(evictions) == 1 else "leave"
    highest = max((each.gang.priority for each in evictions), default=0)
    return (
        f"preempted for {gang_text(gang)}: it needs room for {pods_text(gang.members_at_start)} and has "
        f"priority {gang.priority} in queue {gang.queue}; {pods_text(len(evictions))} of priority "
        f"{highest} or lower {verb} for it"
    )
