"""Start of one gang: places for its minimum, or the reason and what is reserved for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from gpusched.base import limits
from gpusched.cache.gangs.gang import Gang
from gpusched.session.allocate.equivalence_cache import EquivalenceCache
from gpusched.session.allocate.gang_placement import nomination_still_fits
from gpusched.session.allocate.node_sets import Unschedulable
from gpusched.session.allocate.pod_by_pod import is_plain_pod
from gpusched.session.allocate.suspended_jobs import node_pool_variants
from gpusched.session.backfill.reservation_guard import own_reservation_message, place_minimum
from gpusched.session.backfill.reservations import session_reservations
from gpusched.session.framework.reasons import Reason, nodes_text, pods_text, truncate_message
from gpusched.session.framework.verdict import first_refusal
from gpusched.session.rebalance.batch_admission import BatchAdmission
from gpusched.session.start.lone_pods import LonePods
from gpusched.session.state.session import Session
from gpusched.session.state.statement import Statement

_OF_NO_ROOM: Final = frozenset({Reason.USER_LIMIT, Reason.BUDGET_EXHAUSTED, Reason.QUOTA_EXCEEDED})
"""Reasons of a gang's own user, budget or size: room that others could use is not kept for it."""
_LACKING_ROOM: Final = frozenset(
    {Reason.INSUFFICIENT_RESOURCES, Reason.NO_FEASIBLE_NODE, Reason.RESERVED}
)
"""Reasons for which gangs like the one that was refused find no room either."""


class GangStarts:
    """Starts gangs in the order in which they are handed over.

    Args:
        session: in which gangs are started.
        moves_others: whether gangs that this action started before may be moved to make room.

    Attributes:
        lost_nominations: gangs that were nominated for room and cannot be started in it.
    """

    def __init__(self, session: Session, *, moves_others: bool = True) -> None:
        self._session = session
        self._refusals = EquivalenceCache(session)
        self._lone = LonePods(session)
        self._batch = BatchAdmission(session) if moves_others else None
        self.lost_nominations: list[Gang] = []

    def start(self, gang: Gang) -> bool:
        """Place a gang's minimum, or refuse it with the reason; whether it was placed."""
        session = self._session
        known = self._refusals.refusal_of(gang)
        if known is not None:
            session.work_budget.spend_units(limits.WORK_GANG)
            refuse_and_reserve(session, gang, known)
            return False
        session.work_budget.spend_units(limits.WORK_GANG + limits.WORK_CLASS * len(gang.pod_sets))
        nominated = session.nominations.has_nomination(gang)
        refusal, variants = self._place_gang(gang, nominated=nominated)
        if refusal is None or (self._batch is not None and self._batch.start(gang, refusal)):
            return True
        if nominated and nomination_still_fits(session, gang):
            message = nominated_message(session, gang)
            session.outcomes.refuse(gang, Reason.PREEMPTION_IN_PROGRESS, message)
            return False
        if not nominate_for_leaving_room(session, gang):
            if refusal.reason in _LACKING_ROOM:
                session.note_no_room_for(gang)
            refuse_and_reserve(session, gang, refusal)
            self._refusals.remember_refusal(gang, refusal, ways=variants)
        if nominated:
            self.lost_nominations.append(gang)
        return False

    def refuse_alike_behind(self, gang: Gang) -> list[Gang]:
        """Refuse those directly behind a gang that was refused for which nothing is other than for it; these have had their turns."""
        session = self._session
        serve, most = session.order_keys.serve_alike, session.turns_left(gang, limits.WORK_GANG)
        known = self._refusals.refusal_of_all_like(gang) if serve is not None and most else None
        if serve is None or known is None or known.reason == Reason.RESERVED:
            return []
        reservations = session_reservations(session)
        if known.reason in _OF_NO_ROOM:
            reservations = None
        if reservations is not None and not reservations.reserves_nothing_for(gang):
            return []
        class_of, namespace = session.cache.equivalence.class_of, gang.key.namespace
        kind = class_of(gang)
        has_nomination = session.nominations.has_nomination if session.nominations else None
        place_of = reservations.blocked.place_of if reservations is not None else None

        def alike(other: Gang) -> bool:
            return (
                class_of(other) is kind
                and other.key.namespace == namespace
                and (has_nomination is None or not has_nomination(other))
                and (place_of is None or place_of(other) is None)
            )

        turns = serve(gang, alike, most)
        gangs = [each for each, _ in turns]
        if gangs:
            session.work_budget.spend_units(limits.WORK_GANG * len(gangs))
            session.outcomes.refuse_all(gangs, known.reason, known.message)
            if reservations is not None:
                reservations.blocked.note_turns(turns)
        return gangs

    def not_refused(self, gangs: Iterable[Gang]) -> Iterator[Gang]:
        """Those of some gangs of which it is not known that they are refused, as one like them was since the session's last move."""
        return self._refusals.not_refused(gangs)

    def _place_gang(self, gang: Gang, *, nominated: bool) -> tuple[Unschedulable | None, int]:
        """Place the gang in the first node pool that takes it; else the last refusal."""
        session = self._session
        refusal: Unschedulable | None = None
        lone = self._lone.start(gang)
        if isinstance(lone, Unschedulable):
            return lone, 1
        if lone:
            if self._batch is not None:
                self._batch.note_movable(gang)
            return None, 1
        variants = node_pool_variants(session, gang)
        for variant in variants:
            statement = session.statement()
            session.nominations.take_back(gang, statement)
            refusal = place_within_quota(session, variant.gang, statement)
            if refusal is None:
                session.placements.commit(gang, statement, variant=variant)
                if self._batch is not None:
                    promised = nominated or statement.in_reserved_room
                    self._batch.note_started(gang, promised=promised)
                return None, len(variants)
            statement.discard()
        assert refusal is not None, "a gang has at least one variant"
        return refusal, len(variants)


def place_within_quota(session: Session, gang: Gang, statement: Statement) -> Unschedulable | None:
    """Place a gang's minimum where its quotas and the reservations of others allow it."""
    verdict = first_refusal(session.hooks.quota_checks, gang)
    if verdict.refuses:
        return Unschedulable(Reason(verdict.reason), verdict.message)
    return place_minimum(session, gang, statement)


def refuse_and_reserve(session: Session, gang: Gang, refusal: Unschedulable) -> None:
    """Refuse a gang that is blocked, and reserve room for it where a start is known."""
    message, reservations = refusal.message, session_reservations(session)
    if reservations is None or refusal.reason in _OF_NO_ROOM:
        session.outcomes.refuse(gang, refusal.reason, message)
        return
    before = reservations.looked_at
    reserved = reservations.note_blocked(gang, passed=refusal.reason == Reason.RESERVED)
    if moments := reservations.looked_at - before:
        session.work_budget.spend_units(limits.WORK_MOMENT * moments)
    if reserved is not None:
        message = truncate_message(f"{message}; {own_reservation_message(reservations, reserved)}")
    session.outcomes.refuse(gang, refusal.reason, message)


def nominate_for_leaving_room(session: Session, gang: Gang) -> bool:
    """Nominate a gang for room that becomes free anyway; whether it fits as soon as that is."""
    if not session.node_usage.now_and_later_differ:
        return False
    nominated = session.nominations.has_nomination(gang)
    with session.pipelining():
        if not nominated and is_plain_pod(session, gang) and not _has_room(session, gang):
            return False
        statement = session.statement()
        session.nominations.take_back(gang, statement)
        if place_within_quota(session, gang, statement) is not None:
            statement.discard()
            return False
        session.nominations.nominate(gang, statement, action="allocate", reason="", message="")
    message = nominated_message(session, gang)
    session.outcomes.refuse(gang, Reason.PREEMPTION_IN_PROGRESS, message)
    return True


def _has_room(session: Session, gang: Gang) -> bool:
    """Whether a node has room for a gang of one pod, whoever it is reserved for."""
    return session.class_info(gang.pod_sets[0].pod_class).class_fit.count_fitting(most=1) > 0


def nominated_message(session: Session, gang: Gang) -> str:
    """The message for a gang that is nominated for room which is not free yet."""
    places = session.nominations.nominated_places(gang)
    rows = {place.row for place in places}
    return truncate_message(
        f"room for {pods_text(len(places))} is being freed on {nodes_text(len(rows))} and is held for it"
    )


def withdraw_idle_nominations(session: Session, ready: list[Gang]) -> None:
    """Give up room for which gangs are nominated that will not be placed in this session."""
    if not session.nominations:
        return
    trying = {gang.key for gang in ready}
    for gang in session.gangs:
        if session.nominations.has_nomination(gang) and gang.key not in trying:
            session.nominations.cancel(gang)
