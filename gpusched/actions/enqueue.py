"""Admission: which gangs may ask for places. ``Pending`` becomes ``Inqueue``."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import ClassVar

import attrs

from gpusched.plugin import (
    ALLOW,
    Capability,
    DependsOn,
    Gang,
    Session,
    Verdict,
    admission_age_verdict,
    first_refusal,
    queue_gate,
    refuse_beyond_quota,
)


@attrs.frozen
class Enqueue:
    """Admits a gang when its queue exists, is open to it, and every check agrees."""

    name: ClassVar[str] = "enqueue"
    depends_on: ClassVar[DependsOn] = DependsOn.VIEW
    provides: ClassVar[tuple[Capability, ...]] = (Capability.ADMISSION,)

    def run(self, session: Session) -> None:
        """Admit gangs in queue order. A gang that has places already stays admitted.

        Each gang is judged with the room of those admitted before it counted as taken. A gang that
        only waits for quota stays ``Pending``, but may still be served: with room that preemption
        makes inside its own queue, say.
        """
        fresh = []
        outcomes, nominations, on_gang = session.outcomes, session.nominations, session.on_gang
        some_held, verdict_on = bool(nominations.gang_keys()), _verdicts(session)
        admitted = _admit_applicants(session)
        for gang in session.gangs:
            if id(gang) in admitted:
                fresh.append(gang)
                continue
            on_gang(gang.key)
            if not outcomes.admit(gang, verdict_on(gang)) or gang.placed:
                continue
            if some_held and (nominations.nominated_places(gang) or nominations.moved_places(gang)):
                continue
            fresh.append(gang)
        refuse_beyond_quota(session, fresh)


def _admit_applicants(session: Session) -> AbstractSet[int]:
    """Admit whole lines of which only their queue is asked, as thousands may wait in one; the ``id`` of each such gang."""
    found = set[int]()
    asked = session.hooks.enqueue_checks or session.nominations.gang_keys()
    if asked or session.gang_selection.leaves_out:
        return found
    of_queue = queue_gate(session)
    for line in session.lines.lines.values():
        gangs = line.applicants
        if gangs and of_queue(gangs[0]) is ALLOW and session.outcomes.admit_all(gangs):
            found.update(map(id, gangs))
    return found


def _verdicts(session: Session) -> Callable[[Gang], Verdict]:
    of_queue, checks = queue_gate(session), session.hooks.enqueue_checks
    moved_places = session.nominations.moved_places

    def verdict_on(gang: Gang) -> Verdict:
        verdict = of_queue(gang)
        if gang.placed or (verdict is not ALLOW and verdict.refuses):
            return verdict
        if checks:
            verdict = first_refusal(checks, gang)
        if (verdict is not ALLOW and verdict.refuses) or moved_places(gang):
            return verdict  # a gang whose room is held elsewhere has a time of its own
        return admission_age_verdict(session, gang)

    return verdict_on
