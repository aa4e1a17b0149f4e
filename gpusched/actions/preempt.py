"""Preemption: inside one queue, gangs of lower priority leave for one that cannot start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import attrs

from gpusched.cache.gangs import Gang
from gpusched.session.making_room import MakingRoom, victims_of
from gpusched.session.proposal import PREEMPT
from gpusched.session.reasons import Reason, members, short
from gpusched.session.session import Session
from gpusched.session.statement import Evict
from gpusched.session.victim_choice import Rules


@attrs.frozen
class Preempt:
    """Victims are of the same queue and of strictly lower priority; the queue's quota holds."""

    name: ClassVar[str] = PREEMPT

    def run(self, session: Session) -> None:
        """See the class."""
        victims = victims_of(session)
        lowest = victims.lowest
        claimants = claimants_of(
            session,
            lambda gang: (least := lowest(gang.queue)) is not None and least < gang.priority,
        )
        if not claimants:
            return
        rules = Rules(
            action=PREEMPT,
            queues=lambda claimant: (claimant.queue,),
            fair_game=lambda claimant, victim: victim.priority < claimant.priority,
        )
        with session.looking_later():
            room = MakingRoom(session, rules, reason=Reason.PREEMPTED, sentence=_sentence)
            room.serve_all(claimants)


def claimants_of(
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
        and gang.key in session.admitted
        and gang.key not in session.promises
        and not session.kept(gang)
        and gang.ready + gang.pending >= gang.min_member
    ]


def name_of(gang: Gang) -> str:
    """A gang in a sentence."""
    return short(f"{gang.key.namespace}/{gang.key.name}")


def _sentence(gang: Gang, evictions: Sequence[Evict]) -> str:
    highest = max((each.gang.priority for each in evictions), default=0)
    return (
        f"preempted for {name_of(gang)}: it needs room for {members(gang.at_once)} and has "
        f"priority {gang.priority} in queue {gang.queue}; {members(len(evictions))} of priority "
        f"{highest} or lower leave for it"
    )
