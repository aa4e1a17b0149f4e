"""Places for gangs: first everybody's minimum as a whole, then extras into what is left."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import ClassVar

import attrs

from gpusched import limits
from gpusched.actions.enqueue import admission
from gpusched.cache.gangs import Gang
from gpusched.objects.meta import GangKey
from gpusched.session.alike import Refusals
from gpusched.session.areas import Refusal
from gpusched.session.growing import Growth, growth
from gpusched.session.jobs import variants
from gpusched.session.joint import JointStarts
from gpusched.session.promised_again import promise_holds
from gpusched.session.reasons import Reason, cut, members, nodes, not_enough_members
from gpusched.session.repairs import hold_for_repair, repairs_first
from gpusched.session.reservations import Reservations
from gpusched.session.reservations_kept import place_clear
from gpusched.session.reservations_told import reserved_for_it
from gpusched.session.session import Session
from gpusched.session.statement import Statement
from gpusched.session.turns import turns
from gpusched.session.verdict import first_refusal


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
        if session.promises:
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
        refused, joint = Refusals(session), JointStarts(session)
        first, later = repairs_first(session, ready)
        for gang in turns(session, first):
            if gang.pending < gang.need:
                hold_for_repair(session, gang)
            elif start(session, gang, refused, joint=joint):
                broken.append(gang)
        for gang in turns(session, later):
            if session.full:
                return
            waits = gang.need or not gang.placed
            if not waits or not session.may_look(gang):
                continue
            if start(session, gang, refused, joint=joint):
                broken.append(gang)
        _grow(session, [gang for gang in ready if _may_grow(session, gang)])


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


def start(
    session: Session, gang: Gang, refused: Refusals, *, joint: JointStarts | None = None
) -> bool:
    """Place a gang's minimum, or say why not; whether a promise to it cannot be kept.

    Args:
        session: in which it is its turn.
        gang: that is to start.
        refused: what others like it were told.
        joint: moves gangs that started before it where that makes room; None for nobody.
    """
    known = refused.of(gang)
    if known is not None:
        session.work.spend(limits.WORK_GANG)
        _refuse(session, gang, known)
        return False
    session.work.spend(limits.WORK_GANG + limits.WORK_CLASS * len(gang.tasks))
    promised = gang.key in session.promises
    refusal: Refusal | None = None
    ways = 0
    for variant in variants(session, gang):
        ways += 1
        statement = session.statement()
        session.lift(statement, gang)
        refusal = _attempt(session, variant.gang, statement)
        if refusal is None:
            session.variants[gang.key] = variant
            session.keep(gang, statement)
            if joint is not None:
                joint.started(gang, promised=promised)
            return False
        statement.discard()
    assert refusal is not None, "a gang has at least one variant"
    if joint is not None and joint.start(gang, refusal):
        return False
    if promised and promise_holds(session, gang):
        told = room_is_being_freed(session, gang)
        session.refuse(gang, Reason.PREEMPTION_IN_PROGRESS, told)
        return False
    if not _wait_for_leaving(session, gang):
        _refuse(session, gang, refusal)
        refused.remember(gang, refusal, ways=ways)
    return promised


def _refuse(session: Session, gang: Gang, refusal: Refusal) -> None:
    """It is blocked: the next in turn may have to leave it room."""
    sentence, reservations = refusal.sentence, session.reservations
    if reservations is None:
        session.refuse(gang, refusal.reason, sentence)
        return
    before = reservations.looked_at
    holder = reservations.blocked(gang, passed=refusal.reason == Reason.RESERVED)
    session.work.spend(limits.WORK_MOMENT * (reservations.looked_at - before))
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


def _may_grow(session: Session, gang: Gang) -> bool:
    """Whether it has its minimum and more members than that wait."""
    return gang.key not in session.asks and gang.pending > len(session.kept(gang))


def _grow(session: Session, gangs: Sequence[Gang]) -> None:
    """Extras one by one, so that gangs of equal right grow in turn."""
    growing: dict[GangKey, Growth] = {}
    finished: set[GangKey] = set()
    for gang in turns(session, gangs, again=lambda gang: gang.key not in finished):
        if session.full:
            return
        if not session.may_look(gang):
            finished.add(gang.key)
            continue
        session.work.spend(limits.WORK_CLASS)
        if gang.key not in growing:
            variant = session.variants.get(gang.key)
            growing[gang.key] = growth(session, variant.gang if variant else gang)
        steps = 1 if len(finished) < len(gangs) - 1 else None
        if _step(session, gang, growing[gang.key], steps):
            finished.add(gang.key)


def _step(session: Session, gang: Gang, extras: Growth, steps: int | None) -> bool:
    """Let a gang grow by so many members (None: as far as it can); whether it has come to its end."""
    room = nullcontext() if session.reservations is None else session.reservations.around(gang)
    with room:
        while steps is None or steps > 0:
            try:
                next(extras)
            except StopIteration as end:
                refusal: Refusal | None = end.value
                if refusal is not None:
                    session.refuse(gang, refusal.reason, refusal.sentence)
                return True
            if session.full:
                return True
            steps = None if steps is None else steps - 1
    return False


def room_is_being_freed(session: Session, gang: Gang) -> str:
    """The sentence for a gang whose room is promised and not free yet."""
    places = session.promises[gang.key]
    rows = {place.row for place in places}
    return cut(
        f"room for {members(len(places))} is being freed on {nodes(len(rows))} and is held for it"
    )
