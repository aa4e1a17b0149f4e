"""Members above a gang's minimum for which room was made: bound where it is free, waited for else."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from gpusched.api.meta.resources import total
from gpusched.cache.gangs.gang import Gang, PodSet
from gpusched.session.allocate.member_rules.device_values import held_as_members
from gpusched.session.framework.reasons import Reason
from gpusched.session.framework.verdict import first_refusal
from gpusched.session.start.gang_start import nominated_message
from gpusched.session.state.session import Session
from gpusched.session.state.statement import Assignment, Statement


def grow_into_nominations(session: Session, gang: Gang) -> None:
    """Give members the places for which they are nominated, as far as these are free.

    The others stay nominated while their room is to become free, and the gang does not grow
    elsewhere meanwhile. A nomination whose room is gone is given up.
    """
    if not session.nominations.has_nomination(gang) or gang.missing_members or not gang.placed:
        return
    places = session.nominations.nominated_places(gang)
    statement = session.statement()
    session.nominations.take_back(gang, statement)
    left = _assign_nominated(session, gang, statement, places)
    session.placements.commit(gang, statement)
    with session.pipelining():
        statement = session.statement()
        _assign_nominated(session, gang, statement, left)
        if statement.assignments:
            session.nominations.nominate_for_session(gang, statement)
        else:
            statement.discard()
    if session.nominations.has_nomination(gang):
        message = nominated_message(session, gang)
        session.outcomes.refuse(gang, Reason.PREEMPTION_IN_PROGRESS, message)


def _assign_nominated(
    session: Session, gang: Gang, statement: Statement, places: Sequence[Assignment]
) -> list[Assignment]:
    """Assign members where they are nominated; those for which there is no room or no quota."""
    left = list(places)
    found = True
    with session.on_open_nodes(gang), held_as_members(session, gang):
        while left and found:  # members may wait for each other: whoever can go first does
            rest = [place for place in left if not _assign_one(session, gang, statement, place)]
            found, left = len(rest) < len(left), rest
    return left


def _assign_one(session: Session, gang: Gang, statement: Statement, place: Assignment) -> bool:
    if session.placements.binds_left <= len(statement.assignments):
        return False
    info = session.pod_info(place.pod)
    if not info.class_fit.fits[place.row]:
        return False
    pods = [*(each.pod for each in statement.assignments), place.pod]
    asked = attrs.evolve(
        gang, min_member=len(pods), min_roles=(), ready_roles=(), placed=(), succeeded_counted=0,
        sub_groups=(), pod_sets=tuple(PodSet("", pod.pod_class, (pod,)) for pod in pods),
        pending_requests=total(pod.pod_class.charged for pod in pods),
    )  # fmt: skip
    if first_refusal(session.hooks.quota_checks, asked).refuses:
        return False
    return statement.try_assign(place.pod, place.row, info.request)
