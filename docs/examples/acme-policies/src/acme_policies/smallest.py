"""Start many small gangs before a few large ones, whatever queues they wait in."""

from __future__ import annotations

from typing import ClassVar

import attrs

from gpusched.plugin import Gang, Session, first_refusal, place_minimum


@attrs.frozen
class Smallest:
    """Tries gangs in the order of their missing members; runs after ``enqueue``.

    What it leaves out, elastic extras for one, is for ``allocate`` behind it.
    """

    name: ClassVar[str] = "smallest"

    def run(self, session: Session) -> None:
        """See the class."""
        waiting = [gang for gang in session.gangs if _complete(gang, session)]
        for gang in sorted(waiting, key=lambda gang: (gang.missing_members, gang.key)):
            if session.placements.is_full:
                return
            _start(session, gang)


def _complete(gang: Gang, session: Session) -> bool:
    """Admitted, not started, and every missing member is there to be placed."""
    return session.outcomes.is_admitted(gang) and 0 < gang.missing_members <= gang.pending


def _start(session: Session, gang: Gang) -> None:
    hooks = session.hooks
    verdict = first_refusal((*hooks.ready_checks, *hooks.quota_checks), gang)
    if verdict.refuses:
        session.outcomes.refuse(gang, verdict.reason, verdict.message)
        return
    statement = session.statement()
    # What an earlier session nominated for this gang it may use itself.
    session.nominations.take_back(gang, statement)
    refusal = place_minimum(session, gang, statement)
    if refusal is None:
        session.placements.commit(gang, statement)
    else:
        statement.discard()
        session.outcomes.refuse(gang, refusal.reason, refusal.message)
