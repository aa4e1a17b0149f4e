"""Finding places for a gang: the minimum as a whole, extras one by one, inside its domain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence

import attrs

from gpusched.arrays.columns import Bools
from gpusched.cache.gangs import Gang, Task
from gpusched.objects.group import SubGroup
from gpusched.objects.pod import Pod
from gpusched.session.hooks import first_refusal
from gpusched.session.pod_order import in_pod_order
from gpusched.session.reasons import Reason, cut, members, what
from gpusched.session.related import RelatedSearch, is_related
from gpusched.session.search import search
from gpusched.session.session import Session
from gpusched.session.shortage import Shortage
from gpusched.session.statement import Statement
from gpusched.session.sub_groups import members_of, part_areas, place_parts
from gpusched.session.wanting import wanted
from gpusched.topology.domain import Level


@attrs.frozen(slots=True)
class Refusal:
    """Why a gang got no places."""

    reason: Reason
    sentence: str


@attrs.frozen(slots=True, eq=False)
class Area:
    """Where a gang may sit: rows (None: anywhere) and words for its sentence."""

    rows: Bools | None
    where: str


Growth = Generator[None, None, Refusal | None]
ANYWHERE = Area(None, "")


def place_minimum(session: Session, gang: Gang, statement: Statement) -> Refusal | None:
    """Give places to as many members as the gang must start with, or to none.

    Areas are tried in order; inside one, the largest members first and, where classes differ
    and any members would do, the smallest first. For members of one class the answer is exact:
    they fit if and only if the sum over nodes of what fits each says so. Members of several
    classes get a complete search where that fails.
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
    solver = session.placement.solver == "cpsat" and not is_related(session, _all(gang))
    if len(gang.tasks) > 1 and solver:
        searched = search(session, gang, statement, [area.rows for area in areas])
        if searched is None:
            return None
        last = Refusal(last.reason, cut(f"{last.sentence}; {searched}")) if last else None
    if areas and areas[-1].rows is None:
        assert last is not None, "the whole cluster is always tried"
        return last
    return _no_domain(session, gang, areas)


def _place_parts(
    session: Session, gang: Gang, statement: Statement, areas: Sequence[Area]
) -> Refusal | None:
    rows = [area.rows for area in areas]
    told = place_parts(session, gang, statement, areas=rows, place_all=_place_inside)
    if told is None:
        return None
    bound = any(part.topology.required for part in gang.sub_groups) or gang.topology.required
    reason = Reason.TOPOLOGY_UNSATISFIABLE if bound else Reason.INSUFFICIENT_RESOURCES
    return Refusal(reason, cut(told))


def _place_inside(
    session: Session, chosen: list[tuple[Task, int]], statement: Statement, rows: Bools | None
) -> bool:
    return _place_all(session, chosen, statement, Area(rows, "")) is None


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
            if _place_inside(session, chosen, statement, rows):
                session.keep(gang, statement)
                return None
            statement.discard()
    task, count = chosen[0]
    where = areas[-1] if areas else ANYWHERE
    return _told(session, task, count, where, pod=task.pods[0])


def _all(gang: Gang) -> list[tuple[Task, int]]:
    return [(task, len(task.pods)) for task in gang.tasks]


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
        return _told(session, task, left, areas[-1] if areas else ANYWHERE, pod=pod)
    statement = session.statement()
    statement.place(pod, row, seat.ask)
    session.keep(gang, statement)
    return None


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
                return _told(session, task, count, area, pod=pod)
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
    told = _told(session, stuck.task, count, area, pod=stuck.pod, placed=stuck.placed)
    if search.others():
        return None
    statement.rollback(start)
    return told


def _told(
    session: Session, task: Task, count: int, area: Area, *, pod: Pod, placed: int = 0
) -> Refusal:
    """Why so many of a task find no place; ``pod`` is the first that did not."""
    if task.pod_class.unsupported:
        return Refusal(
            Reason.INVALID_SPEC,
            cut(
                f"pod {task.pods[0].name} {task.pod_class.unsupported}, which this version of "
                f"gpusched does not place; remove it or use another schedulerName"
            ),
        )
    seat = session.seat_of(pod)
    if seat.gate is None and seat.board.total(area.rows, most=count) >= count:
        alone = what(count, task.pod_class)
        sentence = f"{alone} find no place beside the gang's other members, though alone they would"
        return Refusal(Reason.INSUFFICIENT_RESOURCES, cut(sentence))
    filters, refused = session.seats.causes(seat)
    shortage = Shortage(
        pod_class=task.pod_class,
        bench=session.bench,
        board=seat.board,
        filters=filters,
        refused=refused,
        within=area.rows,
        where=area.where,
        placed=placed if seat.gate is not None else None,
    )
    return Refusal(*shortage.told(count))


# -- topology ------------------------------------------------------------------------------
def areas_of(
    session: Session, gang: Gang, *, at: float | None = None
) -> tuple[list[Area], Refusal | None]:
    """The areas in which a gang may start, best level first; or why it has none.

    From the preferred level outwards to the required one, or to the whole cluster; while the
    gang still holds out for its preferred level, that level alone.

    Args:
        session: whose topology counts.
        gang: with its wishes.
        at: when it would start, seconds since the epoch; None for now.
    """
    wish = gang.topology
    if not wish.required and not wish.preferred:
        return [ANYWHERE], None
    names = [level.name for level in session.levels]
    for name in (wish.required, wish.preferred):
        if name and name not in names:
            known = ", ".join(names) or "none"
            sentence = f"topology level {name[:64]!r} does not exist; levels are: {known}"
            return [], Refusal(Reason.INVALID_SPEC, sentence)
    widest = names.index(wish.required) if wish.required else 0
    narrowest = max(widest, names.index(wish.preferred)) if wish.preferred else widest
    at = session.snapshot.now if at is None else at
    holds_out = at - gang.created < wish.max_wait_ns / 1e9
    if wish.preferred and holds_out:
        widest = narrowest
    areas: list[Area] = []
    for level in reversed(session.levels[widest : narrowest + 1]):
        areas.extend(_domains(session, gang, level))
    if not wish.required and not holds_out:
        areas.append(ANYWHERE)
    return areas, None


def _level(session: Session, name: str) -> Level | None:
    return next((level for level in session.levels if level.name == name), None)


def _domains(session: Session, gang: Gang, level: Level) -> list[Area]:
    """The domains of a level, only that of the placed members when there are any."""
    rows = [session.snapshot.nodes.row.get(member.node, -1) for member in gang.placed]
    rows += [place.row for place in session.kept(gang)]
    fixed = {int(level.domain[row]) for row in rows if row >= 0}
    if len(fixed) > 1 or -1 in fixed:
        return []
    numbers = sorted(fixed) if fixed else range(len(level.names))
    return [Area(level.domain == number, f"in one {level.name}") for number in numbers]


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
        if area.rows is None:
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


def _no_domain(session: Session, gang: Gang, areas: Sequence[Area]) -> Refusal:
    """No domain holds the minimum: tell how far the best one gets."""
    wish = gang.topology
    name = wish.required or wish.preferred
    waiting = not wish.required
    reason = Reason.WAITING_FOR_TOPOLOGY if waiting else Reason.TOPOLOGY_UNSATISFIABLE
    tasks, _ = wanted(gang, largest_first=True)
    if not areas:
        if gang.placed:
            return Refusal(reason, f"its placed pods do not share one {name}")
        return Refusal(reason, f"no node is labelled for topology level {name[:64]!r}")
    for task, count in tasks:
        if task.pod_class.unsupported:
            return _told(session, task, count, ANYWHERE, pod=task.pods[0])
    task, count = max(tasks, key=lambda each: each[1])
    board = session.seat(task.pod_class).board
    level = _level(session, name)
    assert level is not None
    best, path = 0, ""
    for number, domain in enumerate(level.names):
        fit = board.total(level.domain == number, most=count)
        if fit > best or not path:
            best, path = fit, domain
    limit = f", holds out for it up to {wish.max_wait_ns // 10**9} s" if waiting else ""
    return Refusal(
        reason,
        cut(
            f"needs {members(count)} in one {name}; best {name} {path or 'none'} has room for "
            f"{best}{limit}"
        ),
    )
