"""Members above a gang's minimum, one after another, inside its domain and its quota."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence

import attrs

from gpusched.cache.gangs import Gang, Task
from gpusched.objects.group import SubGroup
from gpusched.objects.pod import Pod
from gpusched.session.areas import ANYWHERE, Area, Refusal, areas_of
from gpusched.session.no_place import told
from gpusched.session.one_by_one import place_inside
from gpusched.session.pod_order import in_pod_order
from gpusched.session.reasons import Reason
from gpusched.session.session import Session
from gpusched.session.sub_groups import members_of, part_areas
from gpusched.session.verdict import first_refusal

Growth = Generator[None, None, Refusal | None]


def grow(session: Session, gang: Gang) -> Refusal | None:
    """Give places to members above the minimum, one after another, each within its quota.

    Returns:
        Why some stay without a place; None when all have one.
    """
    steps = growth(session, gang)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            refusal: Refusal | None = end.value
            return refusal


def growth(session: Session, gang: Gang) -> Growth:
    """The same step by step, so that gangs can take turns: stops after each place it gave."""
    areas, refusal = areas_of(session, gang)
    if refusal is not None:
        return refusal
    if gang.sub_groups:
        return (yield from _grow_parts(session, gang, areas))
    return (yield from _grow_tasks(session, gang, gang.tasks, areas))


def _grow_parts(session: Session, gang: Gang, areas: Sequence[Area]) -> Growth:
    """Extras of complete sub-groups one by one; further sub-groups with their minimum or not."""
    refusal: Refusal | None = None
    have = Counter(dict(gang.ready_sub_groups))
    have.update(place.pod.sub_group for place in session.kept(gang))
    parts = {part.name: part for part in gang.sub_groups}
    for name in sorted({task.sub_group for task in gang.tasks}):
        tasks = tuple(task for task in gang.tasks if task.sub_group == name)
        part = parts.get(name)
        if part is not None and have[name] < part.min_member:
            stopped = _start_part(session, gang, part, areas)
            refusal = stopped or refusal
            if stopped is None:
                yield
            continue
        inside = [
            Area(rows, area.where)
            for area in areas
            for rows in (
                [area.rows] if part is None else part_areas(session, gang, part, area.rows, [])
            )
        ]
        refusal = (yield from _grow_tasks(session, gang, tasks, inside)) or refusal
    return refusal


def _start_part(
    session: Session, gang: Gang, part: SubGroup, areas: Sequence[Area]
) -> Refusal | None:
    chosen = members_of(gang, part)
    if not chosen:
        return None
    tasks = tuple(attrs.evolve(task, pods=task.pods[:count]) for task, count in chosen)
    alone = attrs.evolve(
        gang, min_member=gang.ready + sum(count for _, count in chosen), min_roles=(),
        sub_groups=(), tasks=tasks,
    )  # fmt: skip
    verdict = first_refusal(session.hooks.quota_checks, alone)
    if verdict.refuses:
        return Refusal(Reason(verdict.reason), verdict.sentence)
    for area in areas:
        for rows in part_areas(session, gang, part, area.rows, chosen):
            statement = session.statement()
            if place_inside(session, chosen, statement, rows):
                session.keep(gang, statement)
                return None
            statement.discard()
    task, count = chosen[0]
    where = areas[-1] if areas else ANYWHERE
    return told(session, task, count, where, pod=task.pods[0])


def _grow_tasks(
    session: Session, gang: Gang, tasks: Sequence[Task], areas: Sequence[Area]
) -> Growth:
    refusal: Refusal | None = None
    taken = {place.pod.uid for place in session.kept(gang)}
    for task in tasks:
        ordered = in_pod_order(task.pods, session.hooks.pod_orders)
        waiting = [pod for pod in ordered if pod.uid not in taken]
        for done, pod in enumerate(waiting):
            left = len(waiting) - done
            stopped = _place_extra(session, gang, task, pod, areas=areas, left=left)
            if stopped is not None:
                refusal = refusal or stopped
                break
            yield
    return refusal


def _place_extra(
    session: Session, gang: Gang, task: Task, pod: Pod, *, areas: Sequence[Area], left: int
) -> Refusal | None:
    alone = attrs.evolve(
        gang, min_member=1, min_roles=(), ready_roles=(), placed=(), credit=0, sub_groups=(),
        tasks=(Task(task.role, task.pod_class, (pod,)),), asked=task.pod_class.requests,
    )  # fmt: skip
    verdict = first_refusal(session.hooks.quota_checks, alone)
    if verdict.refuses:
        return Refusal(Reason(verdict.reason), verdict.sentence)
    seat = session.seat_of(pod)
    row = next((r for area in areas if (r := seat.board.best(area.rows)) >= 0), -1)
    if row < 0:
        return told(session, task, left, areas[-1] if areas else ANYWHERE, pod=pod)
    statement = session.statement()
    statement.place(pod, row, seat.ask)
    session.keep(gang, statement)
    return None
