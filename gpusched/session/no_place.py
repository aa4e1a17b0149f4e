"""Why a gang finds no place, in words with numbers: what is needed, what there is, who holds it."""

from __future__ import annotations

import numpy as np

from gpusched.arrays.columns import Bools
from gpusched.cache.gangs import Gang, Task
from gpusched.objects.pod import Pod
from gpusched.placement.problem import Certificate, Outcome, Solution
from gpusched.session.areas import ANYWHERE, Area, Confines, Refusal
from gpusched.session.holders import holders
from gpusched.session.reasons import Reason, cut, members, nodes, what
from gpusched.session.session import Session
from gpusched.session.shortage import Shortage
from gpusched.session.wanting import wanted
from gpusched.topology.domain import Level

NOT_FOUND = "no placement was found within the time budget of the search"
NOT_SEARCHED = "a quick pass finds no place, and placement.solver allows no more than that"
PROVEN = "a complete search proves that no placement exists now"


def explained(session: Session, gang: Gang, solution: Solution, confines: Confines) -> Refusal:
    """The refusal of a gang whose problem has no answer, or of which none was found.

    Args:
        session: on whose nodes.
        gang: whose tasks are the problem's roles.
        solution: without counts.
        confines: within which it was to be placed.
    """
    for task in gang.tasks:
        if task.pod_class.unsupported:
            return told(session, task, 1, ANYWHERE, pod=task.pods[0])
    unanswered = _unanswered(session, gang)
    if unanswered is not None:
        return unanswered
    proof = solution.certificate
    if confines.required:
        return _no_level(session, gang, solution, confines)
    task, count = _lacking(gang, proof)
    refusal = told(session, task, count, ANYWHERE, pod=task.pods[0])
    more = how_sure(session, solution)
    return Refusal(refusal.reason, cut(refusal.sentence + more))


def how_sure(session: Session, solution: Solution) -> str:
    """Whether it is proven that there is no place, where counting does not show it."""
    if solution.outcome is not Outcome.INFEASIBLE:
        return f"; {NOT_FOUND if session.effort.solver else NOT_SEARCHED}"
    counted = solution.certificate is not None and solution.certificate.kind in ("role", "domain")
    return "" if counted and solution.method in ("bounds", "tree") else f"; {PROVEN}"


def _lacking(gang: Gang, proof: Certificate | None) -> tuple[Task, int]:
    """The task that is told about, and how many of it are needed."""
    if proof is not None and len(proof.roles) == 1:
        return gang.tasks[proof.roles[0]], proof.needed
    tasks, _ = wanted(gang, largest_first=True)
    return tasks[0] if tasks else (gang.tasks[0], gang.at_once)


def _no_level(session: Session, gang: Gang, solution: Solution, confines: Confines) -> Refusal:
    """No domain of the required level holds the gang: how far the best one gets."""
    proof = solution.certificate
    if proof is None or not proof.roles or proof.domain < 0:
        alone = _lacking(gang, proof) if proof is not None and len(proof.roles) == 1 else None
        return no_domain(session, gang, confines, of=alone, more=how_sure(session, solution))
    task = gang.tasks[proof.roles[0]]
    several = len(proof.roles) > 1
    asked = members(proof.needed) if several else what(proof.needed, task.pod_class)
    text = _best(session, gang, task, proof, name=confines.required, asked=asked)
    text += how_sure(session, solution) + _patience(gang, confines)
    return Refusal(_reason(confines), cut(text))


def _best(
    session: Session, gang: Gang, task: Task, proof: Certificate, *, name: str, asked: str
) -> str:
    """``needs 3 pods with 8 GPUs in one rack; best rack r3 has room for 2 (1 held by b/llm-7)``."""
    level = next(each for each in session.levels if each.name == name)
    text = f"needs {asked} in one {name}"
    if not level.names:
        return f"no node is labelled for topology level {name[:64]!r}"
    if not 0 <= proof.domain < len(level.names):
        return f"{text}; no {name} has room for them"
    path = level.names[proof.domain]
    inside = level.domain == proof.domain
    held = holders(session, task, inside, lacking=proof.needed - proof.room, claimant=gang.key)
    text = f"{text}; best {name} {path} has room for {proof.room}"
    if held:
        text = f"{text} ({held})"
    why = _causes(session, task, inside)
    return f"{text}: {why}" if why and not held else text


def _unanswered(session: Session, gang: Gang) -> Refusal | None:
    """That a filter failed for a task of the gang: nobody knows where it might go."""
    if not session.hooks.faults:
        return None
    for task in gang.tasks:
        failed = _shortage(session, task, None).failed() if task.pods else ""
        if failed:
            return Refusal(Reason.BACK_OFF, failed)
    return None


def _shortage(session: Session, task: Task, within: Bools | None) -> Shortage:
    seat = session.seat_of(task.pods[0])
    filters, refused = session.seats.causes(seat)
    return Shortage(
        pod_class=task.pod_class, bench=session.bench, board=seat.board, filters=filters,
        refused=refused, within=within,
    )  # fmt: skip


def _causes(session: Session, task: Task, inside: Bools) -> str:
    shortage = _shortage(session, task, inside)
    causes = ", ".join(f"{count} {text}" for count, text in shortage.causes()[:3])
    return f"of its {nodes(int(inside.sum()))} {causes}" if causes else ""


def _reason(confines: Confines) -> Reason:
    return Reason.WAITING_FOR_TOPOLOGY if confines.waits else Reason.TOPOLOGY_UNSATISFIABLE


def _patience(gang: Gang, confines: Confines) -> str:
    if not confines.waits:
        return ""
    return f", holds out for it up to {gang.topology.max_wait_ns // 10**9} s"


def torn(session: Session, rows: list[int], confines: Confines) -> Refusal | None:
    """That the placed members are not in one domain of the required level."""
    if not confines.required or not rows:
        return None
    level = next(each for each in session.levels if each.name == confines.required)
    if len(np.unique(level.domain[rows])) == 1 and level.domain[rows[0]] >= 0:
        return None
    return Refusal(_reason(confines), f"its placed pods do not share one {confines.required}")


def no_domain(
    session: Session,
    gang: Gang,
    confines: Confines,
    *,
    of: tuple[Task, int] | None = None,
    more: str = "",
) -> Refusal:
    """No domain holds the minimum: how far the best one gets, each task counted alone.

    Args:
        session: as its bench is looked at.
        gang: that finds no domain.
        confines: within which it was to be placed.
        of: the task that alone finds too little room anywhere, and how many of it are needed.
        more: how sure that is, appended.
    """
    name = confines.required
    level = next(each for each in session.levels if each.name == name)
    if not level.names:
        sentence = f"no node is labelled for topology level {name[:64]!r}"
        return Refusal(_reason(confines), sentence)
    found, _ = wanted(gang, largest_first=True)
    tasks = [of] if of is not None else found or [(gang.tasks[0], gang.at_once)]
    for task, count in tasks:
        if task.pod_class.unsupported:
            return told(session, task, count, ANYWHERE, pod=task.pods[0])
    unanswered = _unanswered(session, gang)
    if unanswered is not None:
        return unanswered
    places = range(len(level.names))
    rooms = [_rooms(session, task, count, level) for task, count in tasks]
    # A task that no domain holds says more than all of them together.
    short = [at for at, (_, count) in enumerate(tasks) if max(rooms[at]) < count]
    if short:
        tasks, rooms = [tasks[short[0]]], [rooms[short[0]]]
    total = [sum(each[number] for each in rooms) for number in places]
    best = max(places, key=lambda number: (total[number], -number))
    count = sum(count for _, count in tasks)
    task = tasks[0][0]
    asked = members(count) if len(tasks) > 1 else what(count, task.pod_class)
    if total[best] < count:
        proof = Certificate("domain", -1, best, (), count, total[best])
        text = _best(session, gang, task, proof, name=name, asked=asked)
    else:
        text = (
            f"needs {asked} in one {name}; counted one by one they fit {level.names[best]}, "
            f"but no {name} was found that takes them together"
        )
    return Refusal(_reason(confines), cut(text + more + _patience(gang, confines)))


def _rooms(session: Session, task: Task, count: int, level: Level) -> list[int]:
    """How many of so many members of a task each domain of a level takes, beside nobody else."""
    board = session.seat(task.pod_class).board
    return [
        min(count, board.total(level.domain == number, most=count))
        for number in range(len(level.names))
    ]


def told(
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
