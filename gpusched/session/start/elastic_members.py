"""Members above a gang's minimum, one after another, inside its domain and its quota."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence

import attrs

from gpusched.api.gang.pod_group import SubGroup
from gpusched.api.pod.pod import Pod
from gpusched.cache.gangs.gang import Gang, PodSet
from gpusched.session.allocate.node_sets import (
    ALL_NODES,
    NodeSet,
    Unschedulable,
    candidate_node_sets,
)
from gpusched.session.allocate.pod_by_pod import place_within_rows
from gpusched.session.allocate.refusals.unschedulable import explain_shortage
from gpusched.session.allocate.start_members import in_pod_order
from gpusched.session.allocate.sub_groups import (
    complete_sub_group,
    members_to_complete,
    outermost_incomplete,
    rows_around_sub_group,
    sub_group_rows,
)
from gpusched.session.framework.reasons import Reason, truncate_message
from gpusched.session.framework.verdict import first_refusal
from gpusched.session.state.session import Session
from gpusched.session.state.statement import Statement

GrowthSteps = Generator[None, None, Unschedulable | None]


def grow_step_by_step(session: Session, gang: Gang) -> GrowthSteps:
    """Place members above the minimum within quota, one a step, so that gangs can take turns."""
    areas, refusal = candidate_node_sets(session, gang)
    if refusal is not None:
        return refusal
    if gang.sub_groups:
        return (yield from _grow_sub_groups(session, gang, areas))
    return (yield from _grow_tasks(session, gang, gang.pod_sets, areas))


def _grow_sub_groups(session: Session, gang: Gang, areas: Sequence[NodeSet]) -> GrowthSteps:
    """Extras of complete sub-groups one by one; further sub-groups with their minimum or not."""
    refusal: Unschedulable | None = None
    have = Counter(dict(gang.ready_sub_groups))
    have.update(place.pod.sub_group for place in session.placements.assigned(gang))
    parts = {part.name: part for part in gang.sub_groups}
    tried: set[str] = set()
    for name in sorted({pod_set.sub_group for pod_set in gang.pod_sets}):
        pod_sets = tuple(pod_set for pod_set in gang.pod_sets if pod_set.sub_group == name)
        part = parts.get(name)
        lacking = outermost_incomplete(gang, have, name)
        if lacking is not None:
            if lacking.name in tried:
                continue
            tried.add(lacking.name)
            stopped = _start_sub_group(session, gang, lacking, areas)
            refusal = stopped or refusal
            if stopped is None:
                yield
            continue
        inside = [
            NodeSet(rows, area.where)
            for area in areas
            for around in (
                [area.rows]
                if part is None
                else rows_around_sub_group(session, gang, part, area.rows)
            )
            for rows in (
                [around] if part is None else sub_group_rows(session, gang, part, around, [])
            )
        ]
        refusal = (yield from _grow_tasks(session, gang, pod_sets, inside)) or refusal
    return refusal


def _start_sub_group(
    session: Session, gang: Gang, part: SubGroup, areas: Sequence[NodeSet]
) -> Unschedulable | None:
    """Place what a sub-group lacks that may hold others, within quota, or nothing of it."""
    for area in areas:
        for rows in rows_around_sub_group(session, gang, part, area.rows):
            statement = session.statement()
            if not complete_sub_group(
                session, gang, part, statement, rows=rows, place_all=place_within_rows
            ):
                statement.discard()
                continue
            refusal = _quota_refusal(session, gang, statement) or _reserved_for_other(
                session, gang, statement
            )
            if refusal is None:
                session.placements.commit(gang, statement)
            return refusal
    chosen = members_to_complete(gang, part) if part in gang.sub_groups else []
    if not chosen:
        return None
    pod_set, count = chosen[0]
    where = areas[-1] if areas else ALL_NODES
    return explain_shortage(session, pod_set, count, where, pod=pod_set.pods[0])


def _quota_refusal(session: Session, gang: Gang, statement: Statement) -> Unschedulable | None:
    """The refusal where quotas do not allow these places; moves are undone."""
    placed = {place.pod.uid for place in statement.assignments}
    pod_sets = tuple(
        attrs.evolve(each, pods=tuple(pod for pod in each.pods if pod.uid in placed))
        for each in gang.pod_sets
    )
    alone = attrs.evolve(
        gang, min_member=gang.ready_members + len(placed), min_roles=(), sub_groups=(),
        pod_sets=tuple(each for each in pod_sets if each.pods),
    )  # fmt: skip
    verdict = first_refusal(session.hooks.quota_checks, alone)
    if not verdict.refuses:
        return None
    statement.discard()
    return Unschedulable(Reason(verdict.reason), verdict.message)


def _grow_tasks(
    session: Session, gang: Gang, pod_sets: Sequence[PodSet], areas: Sequence[NodeSet]
) -> GrowthSteps:
    refusal: Unschedulable | None = None
    taken = {place.pod.uid for place in session.placements.assigned(gang)}
    for pod_set in pod_sets:
        ordered = in_pod_order(pod_set.pods, session.hooks.pod_orders)
        waiting = [pod for pod in ordered if pod.uid not in taken]
        for done, pod in enumerate(waiting):
            left = len(waiting) - done
            stopped = _place_extra(session, gang, pod_set, pod, areas=areas, left=left)
            if stopped is not None:
                refusal = refusal or stopped
                break
            yield
    return refusal


def _place_extra(
    session: Session, gang: Gang, pod_set: PodSet, pod: Pod, *, areas: Sequence[NodeSet], left: int
) -> Unschedulable | None:
    alone = attrs.evolve(
        gang, min_member=1, min_roles=(), ready_roles=(), placed=(), succeeded_counted=0, sub_groups=(),
        pod_sets=(PodSet(pod_set.role, pod_set.pod_class, (pod,)),), pending_requests=pod_set.pod_class.charged,
    )  # fmt: skip
    verdict = first_refusal(session.hooks.quota_checks, alone)
    if verdict.refuses:
        return Unschedulable(Reason(verdict.reason), verdict.message)
    info = session.pod_info(pod)
    statement = session.statement()
    while True:
        row = next((r for area in areas if (r := info.class_fit.best_row(area.rows)) >= 0), -1)
        if row < 0:
            area = areas[-1] if areas else ALL_NODES
            return explain_shortage(session, pod_set, left, area, pod=pod)
        if statement.try_assign(pod, row, info.request):
            break
        info.class_fit.refresh()
    if (refusal := _reserved_for_other(session, gang, statement)) is not None:
        return refusal
    session.placements.commit(gang, statement)
    return None


def _reserved_for_other(session: Session, gang: Gang, statement: Statement) -> Unschedulable | None:
    """The refusal where an outside author's action would break a reservation; moves are undone."""
    other = session.placements.broken_reservation(gang, statement)
    if other is None:
        return None
    statement.discard()
    return Unschedulable(
        Reason.RESERVED,
        truncate_message(f"more members would take what is reserved for {other.key}"),
    )
