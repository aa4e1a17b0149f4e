"""Places for gangs: first everybody's minimum as a whole, then extras into what is left."""

from __future__ import annotations

from typing import ClassVar

import attrs

from gpusched.actions.enqueue import admission
from gpusched.cache.gangs import Gang
from gpusched.session.hooks import first_refusal
from gpusched.session.jobs import variants
from gpusched.session.placing import Refusal, grow
from gpusched.session.reasons import Reason, cut, members, nodes, not_enough_members
from gpusched.session.reservations import Reservations
from gpusched.session.reservations_kept import place_clear
from gpusched.session.reservations_told import reserved_for_it
from gpusched.session.session import Session
from gpusched.session.statement import Statement
from gpusched.session.turns import turns


@attrs.frozen
class Allocate:
    """Takes queues and gangs by key; a gang that does not fit blocks nobody behind it."""

    name: ClassVar[str] = "allocate"

    def run(self, session: Session) -> None:
        """See the class."""
        if "backfill" in session.actions and session.hooks.reservations_per_pool:
            session.reservations = Reservations(
                session, per_pool=session.hooks.reservations_per_pool
            )
        ready = [gang for gang in session.gangs if gang.pending and _admitted(session, gang)]
        broken: list[Gang] = []
        trying = {gang.key for gang in ready}
        for gang in session.gangs:
            if gang.key in session.promises and gang.key not in trying:
                session.withdraw(gang)
        self._fill(session, ready, broken)
        # Held until here: what was freed for a gang is not given to others before the actions
        # that evict have had the chance to complete it.
        for gang in broken:
            if gang.key not in session.claims:
                session.withdraw(gang)

    def _fill(self, session: Session, ready: list[Gang], broken: list[Gang]) -> None:
        for gang in turns(session, ready):
            if session.full:
                return
            if (gang.need or not gang.placed) and start(session, gang):
                broken.append(gang)
        for gang in turns(session, ready):
            if session.full:
                return
            if gang.key not in session.asks:
                _extend(session, gang)


def _admitted(session: Session, gang: Gang) -> bool:
    if not session.enqueue_ran:
        session.admit(gang, admission(session, gang))
    if gang.key not in session.admitted:
        return False
    have = gang.ready + gang.pending
    if have < gang.min_member:
        session.refuse(
            gang,
            Reason.NOT_ENOUGH_MEMBERS,
            not_enough_members(gang.min_member, have=have, gated=gang.gated, leaving=gang.leaving),
        )
        return False
    verdict = first_refusal(session.hooks.ready_checks, gang)
    if verdict.refuses:
        session.refuse(gang, verdict.reason, verdict.sentence)
    return not verdict.refuses


def start(session: Session, gang: Gang) -> bool:
    """Place a gang's minimum, or say why not; whether a promise to it cannot be kept."""
    refusal: Refusal | None = None
    for variant in variants(session, gang):
        statement = session.statement()
        session.lift(statement, gang)
        refusal = _attempt(session, variant.gang, statement)
        if refusal is None:
            session.variants[gang.key] = variant
            session.keep(gang, statement)
            return False
        statement.discard()
    assert refusal is not None, "a gang has at least one variant"
    promised = gang.key in session.promises
    if promised and session.promise_holds(gang):
        told = room_is_being_freed(session, gang)
        session.refuse(gang, Reason.PREEMPTION_IN_PROGRESS, told)
        return False
    if not _wait_for_leaving(session, gang):
        _refuse(session, gang, refusal)
    return promised


def _refuse(session: Session, gang: Gang, refusal: Refusal) -> None:
    """It is blocked: the next in turn may have to leave it room."""
    sentence, reservations = refusal.sentence, session.reservations
    if reservations is None:
        session.refuse(gang, refusal.reason, sentence)
        return
    holder = reservations.blocked(gang, passed=refusal.reason == Reason.RESERVED)
    if holder is not None:
        sentence = cut(f"{sentence}; {reserved_for_it(reservations, holder)}")
    session.refuse(gang, refusal.reason, sentence)


def _attempt(session: Session, gang: Gang, statement: Statement) -> Refusal | None:
    verdict = first_refusal(session.hooks.quota_checks, gang)
    if verdict.refuses:
        return Refusal(Reason(verdict.reason), verdict.sentence)
    return place_clear(session, gang, statement)


def _wait_for_leaving(session: Session, gang: Gang) -> bool:
    """Promise room that is becoming free anyway to a gang that fits as soon as it is."""
    if not session.bench.parts:
        return False
    with session.looking_later():
        statement = session.statement()
        session.lift(statement, gang)
        if _attempt(session, gang, statement) is not None:
            statement.discard()
            return False
        session.claim(gang, statement, action="allocate", reason="", sentence="")
    told = room_is_being_freed(session, gang)
    session.refuse(gang, Reason.PREEMPTION_IN_PROGRESS, told)
    return True


def _extend(session: Session, gang: Gang) -> None:
    if gang.pending <= len(session.kept(gang)):
        return
    variant = session.variants.get(gang.key)
    growing = variant.gang if variant else gang
    if session.reservations is None:
        refusal = grow(session, growing)
    else:
        with session.reservations.around(gang):
            refusal = grow(session, growing)
    if refusal is not None:
        session.refuse(gang, refusal.reason, refusal.sentence)


def room_is_being_freed(session: Session, gang: Gang) -> str:
    """The sentence for a gang whose room is promised and not free yet."""
    places = session.promises[gang.key]
    rows = {place.row for place in places}
    return cut(
        f"room for {members(len(places))} is being freed on {nodes(len(rows))} and is held for it"
    )
