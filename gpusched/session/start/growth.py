"""Growth of gangs above their minimum, in turn and beside the reservations of others."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

from gpusched.api.meta.identity import GangKey
from gpusched.base import limits
from gpusched.cache.gangs.gang import Gang
from gpusched.session.allocate.member_rules.device_values import held_as_members
from gpusched.session.allocate.node_sets import Unschedulable
from gpusched.session.allocate.queue_order import in_queue_order
from gpusched.session.framework.reasons import Reason
from gpusched.session.gpu_types.options import on_types_of_members
from gpusched.session.start.elastic_growth import (
    TOGETHER_MAX,
    arrange_together,
    place_all_extras,
    place_extras,
)
from gpusched.session.start.elastic_members import GrowthSteps, grow_step_by_step
from gpusched.session.start.gang_start import nominated_message
from gpusched.session.start.nominated_growth import grow_into_nominations
from gpusched.session.state.session import Session


def grow(session: Session, gang: Gang) -> Unschedulable | None:
    """Place waiting members above a gang's minimum, each within quota and beside reservations.

    Returns:
        Why some stay without a place; None when all have one.
    """
    grow_into_nominations(session, gang)
    if session.nominations.has_nomination(gang):
        message = nominated_message(session, gang)
        return Unschedulable(Reason.PREEMPTION_IN_PROGRESS, message)
    place_extras(session, gang)
    return _grow_by(session, gang, _growth_steps(session, gang), None)[1]


def grow_in_turn(session: Session, gangs: Sequence[Gang]) -> None:
    """Place members above the minimum, so that gangs of equal right grow in turn.

    One gang alone gets all of them at once, and so do several where there is room for all of all.
    Else each gets one in its turn; when no more follow, each is arranged anew with what it got.
    """
    for gang in gangs if session.nominations else ():
        if not session.placements.is_full:
            grow_into_nominations(session, gang)
    gangs = [gang for gang in gangs if _may_grow(session, gang)]
    if not gangs or session.placements.is_full:
        return
    whole = False
    if len(gangs) == 1 and session.has_budget_for(gangs[0]):
        place_extras(session, gangs[0])
    elif len(gangs) > 1:
        whole = place_all_extras(session, list(in_queue_order(session, gangs)))
    if not whole:
        _grow_one_by_one(session, gangs)
    _arrange_grown(session, gangs, settled=whole or len(gangs) == 1)


def _arrange_grown(session: Session, gangs: Sequence[Gang], *, settled: bool) -> None:
    """Arrange gangs that grew with those that started beside them: for these there is other room now.

    Args:
        session: in which they grew.
        gangs: that may have grown.
        settled: whether each of them is where the search put it with all its members.
    """
    grown = {gang.key for gang in gangs if session.placements.assigned(gang)}
    started = [
        gang
        for gang in session.placements.in_order()
        if gang.key in grown or session.placements.proof(gang)
    ]
    if grown and len(started) <= TOGETHER_MAX:
        if not settled or len(started) > len(grown):
            arrange_together(session, started, sure=grown if settled else ())
        return
    if not settled:
        in_turn = in_queue_order(session, gangs)
        arrange_together(session, [gang for gang in in_turn if gang.key in grown])


def _grow_one_by_one(session: Session, gangs: Sequence[Gang]) -> None:
    growing: dict[GangKey, GrowthSteps] = {}
    finished: set[GangKey] = set()
    for gang in in_queue_order(session, gangs, again=lambda gang: gang.key not in finished):
        if session.placements.is_full:
            return
        if not session.has_budget_for(gang):
            finished.add(gang.key)
            continue
        session.work_budget.spend_units(limits.WORK_CLASS)
        if gang.key not in growing:
            growing[gang.key] = _growth_steps(session, gang)
        count = 1 if len(finished) < len(gangs) - 1 else None
        ended, refusal = _grow_by(session, gang, growing[gang.key], count)
        if refusal is not None:
            session.outcomes.refuse(gang, refusal.reason, refusal.message)
        if ended:
            finished.add(gang.key)


def _may_grow(session: Session, gang: Gang) -> bool:
    """Whether the gang has its minimum and more members than that wait."""
    assigned = session.placements.assigned(gang)
    if not assigned and (gang.missing_members or not gang.placed):
        return False  # its turn to start has not come in this session
    return session.outcomes.refusal(gang) is None and gang.pending > len(assigned)


def _growth_steps(session: Session, gang: Gang) -> GrowthSteps:
    return grow_step_by_step(session, session.placements.variant(gang).gang)


def _grow_by(
    session: Session, gang: Gang, steps: GrowthSteps, count: int | None
) -> tuple[bool, Unschedulable | None]:
    """Place so many more members, all of them for None; whether no more follow, and the refusal."""
    reservations = session.reservations
    room = nullcontext() if reservations is None else reservations.exclude_reserved_room(gang)
    with (
        session.on_open_nodes(gang),
        room,
        on_types_of_members(session, gang),
        held_as_members(session, gang),
    ):
        while count is None or count > 0:
            try:
                next(steps)
            except StopIteration as end:
                refusal: Unschedulable | None = end.value
                return True, refusal
            if session.placements.is_full:
                return True, None
            count = None if count is None else count - 1
    return False, None
