"""Admission: which gangs may ask for places. ``Pending`` becomes ``Inqueue``."""

from __future__ import annotations

from typing import ClassVar

import attrs

from gpusched.plugin import (
    Capability,
    DependsOn,
    Gang,
    Session,
    Verdict,
    admission_age_verdict,
    first_refusal,
    queue_admission,
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
        outcomes, nominations = session.outcomes, session.nominations
        admitted, some_held = outcomes.admitted_keys, bool(nominations.gang_keys())
        for gang in session.gangs:
            session.on_gang(gang.key)
            outcomes.admit(gang, _verdict(session, gang))
            if gang.placed or gang.key not in admitted:
                continue
            if some_held and (nominations.nominated_places(gang) or nominations.moved_places(gang)):
                continue
            fresh.append(gang)
        refuse_beyond_quota(session, fresh)


def _verdict(session: Session, gang: Gang) -> Verdict:
    verdict = queue_admission(session, gang)
    if gang.placed or verdict.refuses:
        return verdict
    if session.hooks.enqueue_checks:
        verdict = first_refusal(session.hooks.enqueue_checks, gang)
    if session.nominations.moved_places(gang) or verdict.refuses:
        return verdict  # a gang whose room is held elsewhere has a time of its own
    return admission_age_verdict(session, gang)
