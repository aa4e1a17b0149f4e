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
        for gang in sorted(waiting, key=lambda gang: (gang.need, gang.key)):
            if session.full:
                return
            _start(session, gang)


def _complete(gang: Gang, session: Session) -> bool:
    """Admitted, not started, and every missing member is there to be placed."""
    return gang.key in session.admitted and 0 < gang.need <= gang.pending


def _start(session: Session, gang: Gang) -> None:
    hooks = session.hooks
    verdict = first_refusal((*hooks.ready_checks, *hooks.quota_checks), gang)
    if verdict.refuses:
        session.refuse(gang, verdict.reason, verdict.sentence)
        return
    statement = session.statement()
    session.lift(statement, gang)  # what an earlier session promised to this gang it may use
    refusal = place_minimum(session, gang, statement)
    if refusal is None:
        session.keep(gang, statement)
    else:
        statement.discard()
        session.refuse(gang, refusal.reason, refusal.sentence)
