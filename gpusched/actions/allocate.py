"""Places for gangs: first everybody's minimum as a whole, then extras into what is left."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import ClassVar

import attrs

from gpusched.actions.enqueue import queue_admission
from gpusched.api.meta.identity import GangKey
from gpusched.base import limits
from gpusched.cache.gangs.gang import Gang
from gpusched.session.allocate.elastic_members import GrowthSteps, grow_step_by_step
from gpusched.session.allocate.equivalence_cache import EquivalenceCache
from gpusched.session.allocate.gang_placement import nomination_still_fits
from gpusched.session.allocate.gang_repair import nominate_for_repair, split_repairs
from gpusched.session.allocate.node_sets import Unschedulable
from gpusched.session.allocate.queue_order import in_queue_order
from gpusched.session.allocate.suspended_jobs import node_pool_variants
from gpusched.session.backfill.reservation_guard import (
    own_reservation_message,
    place_within_reservations,
)
from gpusched.session.backfill.reservations import Reservations, session_reservations
from gpusched.session.framework.reasons import (
    Reason,
    nodes_text,
    not_enough_members_message,
    pods_text,
    truncate_message,
)
from gpusched.session.framework.verdict import first_refusal
from gpusched.session.rebalance.batch_admission import BatchAdmission
from gpusched.session.state.session import Session
from gpusched.session.state.statement import Statement


@attrs.frozen
class Allocate:
    """Takes queues and gangs by key; a gang that does not fit blocks nobody behind it."""

    name: ClassVar[str] = "allocate"

    def run(self, session: Session) -> None:
        """See the class."""
        if "backfill" in session.actions and session.hooks.reservations_per_pool:
            session.track_reservations(
                Reservations(session, per_pool=session.hooks.reservations_per_pool)
            )
        ready = [gang for gang in session.gangs if gang.pending and _admitted(session, gang)]
        broken: list[Gang] = []
        if session.nominations:
            trying = {gang.key for gang in ready}
            for gang in session.gangs:
                if session.nominations.has(gang) and gang.key not in trying:
                    session.nominations.cancel(gang)
        self._fill(session, ready, broken)
        # Held until here: what was freed for a gang is not given to others before the actions
        # that evict have had the chance to complete it.
        for gang in broken:
            if gang.key not in session.nominations.plans:
                session.nominations.cancel(gang)

    def _fill(self, session: Session, ready: list[Gang], broken: list[Gang]) -> None:
        refused, joint = EquivalenceCache(session), BatchAdmission(session)
        first, later = split_repairs(session, ready)
        for gang in in_queue_order(session, first):
            if gang.pending < gang.need:
                nominate_for_repair(session, gang)
            elif start_gang(session, gang, refused, joint=joint):
                broken.append(gang)
        for gang in in_queue_order(session, later):
            if session.placements.is_full:
                return
            waits = gang.need or not gang.placed
            if not waits or not session.has_budget_for(gang):
                continue
            if start_gang(session, gang, refused, joint=joint):
                broken.append(gang)
        _grow_in_turn(session, [gang for gang in ready if _may_grow(session, gang)])


def _admitted(session: Session, gang: Gang) -> bool:
    if not session.outcomes.has_admission(gang):
        session.outcomes.admit(gang, queue_admission(session, gang))
    if not session.outcomes.is_admitted(gang):
        return False
    have = gang.ready + gang.pending
    if have < gang.min_member:
        session.outcomes.refuse(
            gang,
            Reason.NOT_ENOUGH_MEMBERS,
            not_enough_members_message(
                gang.min_member, have=have, gated=gang.gated, leaving=gang.leaving
            ),
        )
        return False
    verdict = first_refusal(session.hooks.ready_checks, gang)
    if verdict.refuses:
        session.outcomes.refuse(gang, verdict.reason, verdict.sentence)
    return not verdict.refuses


def start_gang(
    session: Session, gang: Gang, refused: EquivalenceCache, *, joint: BatchAdmission | None = None
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
        _refuse_and_reserve(session, gang, known)
        return False
    session.work.spend(limits.WORK_GANG + limits.WORK_CLASS * len(gang.tasks))
    promised = session.nominations.has(gang)
    refusal: Unschedulable | None = None
    ways = 0
    for variant in node_pool_variants(session, gang):
        ways += 1
        statement = session.statement()
        session.nominations.take_back(gang, statement)
        refusal = _place_within_quota(session, variant.gang, statement)
        if refusal is None:
            session.placements.commit(gang, statement, variant=variant)
            if joint is not None:
                joint.started(gang, promised=promised)
            return False
        statement.discard()
    assert refusal is not None, "a gang has at least one variant"
    if joint is not None and joint.start(gang, refusal):
        return False
    if promised and nomination_still_fits(session, gang):
        told = nominated_message(session, gang)
        session.outcomes.refuse(gang, Reason.PREEMPTION_IN_PROGRESS, told)
        return False
    if not _nominate_leaving_room(session, gang):
        _refuse_and_reserve(session, gang, refusal)
        refused.remember(gang, refusal, ways=ways)
    return promised


def _refuse_and_reserve(session: Session, gang: Gang, refusal: Unschedulable) -> None:
    """It is blocked: the next in turn may have to leave it room."""
    sentence, reservations = refusal.sentence, session_reservations(session)
    if reservations is None:
        session.outcomes.refuse(gang, refusal.reason, sentence)
        return
    before = reservations.looked_at
    holder = reservations.blocked(gang, passed=refusal.reason == Reason.RESERVED)
    session.work.spend(limits.WORK_MOMENT * (reservations.looked_at - before))
    if holder is not None:
        sentence = truncate_message(f"{sentence}; {own_reservation_message(reservations, holder)}")
    session.outcomes.refuse(gang, refusal.reason, sentence)


def _place_within_quota(session: Session, gang: Gang, statement: Statement) -> Unschedulable | None:
    verdict = first_refusal(session.hooks.quota_checks, gang)
    if verdict.refuses:
        return Unschedulable(Reason(verdict.reason), verdict.sentence)
    return place_within_reservations(session, gang, statement)


def _nominate_leaving_room(session: Session, gang: Gang) -> bool:
    """Promise room that is becoming free anyway to a gang that fits as soon as it is."""
    if not session.bench.parts:
        return False
    with session.pipelining():
        statement = session.statement()
        session.nominations.take_back(gang, statement)
        if _place_within_quota(session, gang, statement) is not None:
            statement.discard()
            return False
        session.nominations.nominate(gang, statement, action="allocate", reason="", sentence="")
    told = nominated_message(session, gang)
    session.outcomes.refuse(gang, Reason.PREEMPTION_IN_PROGRESS, told)
    return True


def _may_grow(session: Session, gang: Gang) -> bool:
    """Whether it has its minimum and more members than that wait."""
    return session.outcomes.refusal(gang) is None and gang.pending > len(
        session.placements.assigned(gang)
    )


def _grow_in_turn(session: Session, gangs: Sequence[Gang]) -> None:
    """Extras one by one, so that gangs of equal right grow in turn."""
    growing: dict[GangKey, GrowthSteps] = {}
    finished: set[GangKey] = set()
    for gang in in_queue_order(session, gangs, again=lambda gang: gang.key not in finished):
        if session.placements.is_full:
            return
        if not session.has_budget_for(gang):
            finished.add(gang.key)
            continue
        session.work.spend(limits.WORK_CLASS)
        if gang.key not in growing:
            variant = session.placements.variant(gang)
            growing[gang.key] = grow_step_by_step(session, variant.gang)
        steps = 1 if len(finished) < len(gangs) - 1 else None
        if _grow_some(session, gang, growing[gang.key], steps):
            finished.add(gang.key)


def _grow_some(session: Session, gang: Gang, extras: GrowthSteps, steps: int | None) -> bool:
    """Let a gang grow by so many members (None: as far as it can); whether it has come to its end."""
    room = nullcontext() if session.reservations is None else session.reservations.around(gang)
    with room:
        while steps is None or steps > 0:
            try:
                next(extras)
            except StopIteration as end:
                refusal: Unschedulable | None = end.value
                if refusal is not None:
                    session.outcomes.refuse(gang, refusal.reason, refusal.sentence)
                return True
            if session.placements.is_full:
                return True
            steps = None if steps is None else steps - 1
    return False


def nominated_message(session: Session, gang: Gang) -> str:
    """The sentence for a gang whose room is promised and not free yet."""
    places = session.nominations.places(gang)
    rows = {place.row for place in places}
    return truncate_message(
        f"room for {pods_text(len(places))} is being freed on {nodes_text(len(rows))} and is held for it"
    )
