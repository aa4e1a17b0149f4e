"""Members placed one by one, each on the node that policies like best: no search, no proof.

For lone pods, for gangs that policies do not want compact, and for members with rules about other
pods, each other included, which no table of counts can tell.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpusched.arrays.columns import Bools
from gpusched.cache.gangs import Gang, Task
from gpusched.session.areas import Area, Confines, Refusal, areas_of
from gpusched.session.no_place import no_domain, told
from gpusched.session.pod_order import in_pod_order
from gpusched.session.reasons import Reason, cut
from gpusched.session.related import RelatedSearch, is_related
from gpusched.session.session import Session
from gpusched.session.statement import Statement
from gpusched.session.sub_groups import place_parts
from gpusched.session.wanting import wanted


def place_one_by_one(
    session: Session, gang: Gang, statement: Statement, confines: Confines
) -> Refusal | None:
    """Give places to as many members as the gang must start with, or to none.

    Areas are tried in order; inside one, the largest members first and, where classes differ
    and any members would do, the smallest first. For members of one class without rules about
    other pods the answer is exact: they fit if and only if the sum over nodes of what fits each
    says so.
    """
    areas, refusal = areas_of(session, gang)
    if refusal is not None:
        return refusal
    if gang.sub_groups:
        return _place_parts(session, gang, statement, areas)
    last: Refusal | None = None
    for largest_first in (True, False) if len(gang.tasks) > 1 else (True,):
        tasks, too_few = wanted(gang, largest_first=largest_first)
        if too_few:
            return Refusal(Reason.NOT_ENOUGH_MEMBERS, too_few)
        for area in _promising(session, tasks, areas):
            failed = _place_all(session, tasks, statement, area)
            if failed is None:
                return None
            last = failed if largest_first or last is None else last
    if areas and not areas[-1].where:
        assert last is not None, "the whole cluster is always tried"
        return last
    return no_domain(session, gang, confines)


def _place_parts(
    session: Session, gang: Gang, statement: Statement, areas: Sequence[Area]
) -> Refusal | None:
    rows = [area.rows for area in areas]
    stuck = place_parts(session, gang, statement, areas=rows, place_all=place_inside)
    if stuck is None:
        return None
    bound = any(part.topology.required for part in gang.sub_groups) or gang.topology.required
    reason = Reason.TOPOLOGY_UNSATISFIABLE if bound else Reason.INSUFFICIENT_RESOURCES
    return Refusal(reason, cut(stuck))


def place_inside(
    session: Session, chosen: list[tuple[Task, int]], statement: Statement, rows: Bools | None
) -> bool:
    """Place so many of each task on these rows (None: anywhere), or nothing."""
    return _place_all(session, chosen, statement, Area(rows, "")) is None


def _place_all(
    session: Session, tasks: Sequence[tuple[Task, int]], statement: Statement, area: Area
) -> Refusal | None:
    if is_related(session, tasks):
        return _place_related(session, tasks, statement, area)
    start = statement.checkpoint()
    for task, count in tasks:
        seat = session.seat(task.pod_class)
        for pod in in_pod_order(task.pods, session.hooks.pod_orders)[:count]:
            row = seat.board.best(area.rows)
            if row < 0:
                statement.rollback(start)
                return told(session, task, count, area, pod=pod)
            statement.place(pod, row, seat.ask)
            seat.board.refresh()
    return None


def _place_related(
    session: Session, tasks: Sequence[tuple[Task, int]], statement: Statement, area: Area
) -> Refusal | None:
    start = statement.checkpoint()
    search = RelatedSearch(session, tasks, statement, area.rows)
    stuck = search.first()
    if stuck is None:
        return None
    # Told as things stand with the others placed: their rules are part of the reason.
    count = next(count for task, count in tasks if task is stuck.task)
    refusal = told(session, stuck.task, count, area, pod=stuck.pod, placed=stuck.placed)
    if search.others():
        return None
    statement.rollback(start)
    return refusal


def _promising(
    session: Session, tasks: Sequence[tuple[Task, int]], areas: Sequence[Area]
) -> list[Area]:
    """Areas in which each class fits on its own, tightest first inside one level."""
    kept: list[tuple[int, int, Area]] = []
    rank = 0
    where = None
    for area in areas:
        if area.where != where:
            rank, where = rank + 1, area.where
        if not area.where:
            kept.append((rank, 0, area))
            continue
        spare = 0
        for task, count in tasks:
            fit = session.seat(task.pod_class).board.total(area.rows, most=count)
            if fit < count:
                break
            spare += session.seat(task.pod_class).board.total(area.rows, most=2**20)
        else:
            kept.append((rank, spare, area))
    kept.sort(key=lambda each: each[:2])
    return [area for _, _, area in kept]
