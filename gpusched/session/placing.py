"""Places for a gang's minimum as a whole: the best there are, or none and the reason."""

from __future__ import annotations

import attrs

from gpusched import limits
from gpusched.cache.gangs import Gang
from gpusched.placement.pipeline import place
from gpusched.placement.problem import Outcome, Problem, Solution
from gpusched.session.areas import Confines, Refusal, confines_of
from gpusched.session.no_place import explained, how_sure, torn
from gpusched.session.one_by_one import place_one_by_one
from gpusched.session.proven import proof_text
from gpusched.session.reasons import Reason, cut
from gpusched.session.related import is_related
from gpusched.session.searches import Record
from gpusched.session.session import Session
from gpusched.session.statement import Statement
from gpusched.session.sub_groups import strange_sub_group
from gpusched.session.verdict import first_refusal
from gpusched.session.wanting import wanted
from gpusched.session.wishes import Bounds, carry_out, home_rows, problems


def place_minimum(session: Session, gang: Gang, statement: Statement) -> Refusal | None:
    """Give places to as many members as the gang must start with, or to none.

    Lone pods, gangs that no policy wants compact, members with rules about other pods and those
    that share GPUs freely take their places one by one; all others as one problem, whose answer
    is proven best where it can be. Gangs of several classes that find no place one by one get the search as well.
    """
    confines = confines_of(session, gang)
    if isinstance(confines, Refusal):
        return confines
    strange = strange_sub_group(gang)
    if strange:
        return Refusal(Reason.INSUFFICIENT_RESOURCES, strange)
    if _shared_freely(gang) or is_related(session, [(task, len(task.pods)) for task in gang.tasks]):
        return place_one_by_one(session, gang, statement, confines)
    if not _as_one(session, gang, confines):
        refusal = place_one_by_one(session, gang, statement, confines)
        if refusal is None or len(gang.tasks) < 2 or refusal.reason in _FINAL:
            return refusal
    return _place_whole(session, gang, statement, confines)


_FINAL = (Reason.NOT_ENOUGH_MEMBERS, Reason.INVALID_SPEC)


def _shared_freely(gang: Gang) -> bool:
    """Whether shares of GPUs are to be packed rather than kept together.

    Where shares are of several sizes, or beside whole GPUs, counts do not tell what fits a node.
    """
    wishes = gang.topology.required or gang.topology.preferred or gang.sub_groups
    return gang.shares and (len(gang.tasks) > 1 or not wishes)


def _as_one(session: Session, gang: Gang, confines: Confines) -> bool:
    if confines.required or gang.sub_groups:
        return True
    alone = gang.at_once == 1 and not gang.placed
    return not alone and session.hooks.topology.wants_compact(gang)


def _place_whole(
    session: Session, gang: Gang, statement: Statement, confines: Confines
) -> Refusal | None:
    if not gang.sub_groups:
        _, too_few = wanted(gang, largest_first=True)
        if too_few:
            return Refusal(Reason.NOT_ENOUGH_MEMBERS, too_few)
    if not gang.tasks:
        return place_one_by_one(session, gang, statement, confines)
    refusal = torn(session, home_rows(session, gang), confines)
    if refusal is not None:
        return refusal
    spare = session.map.spare_rows(gang)
    sure = ""
    bounds = Bounds(required=confines.required, rows=None if spare is None else ~spare)
    for problem in problems(session, gang, bounds):
        solution = solve(session, problem)
        beyond = _beyond_quota(session, gang, problem, solution)
        if beyond is not None:
            return beyond
        if solution.counts.size:
            carry_out(session, gang, statement, problem, solution)
            statement.proof = proof_text(solution)
            return None
        if refusal is None:
            refusal = explained(session, gang, solution, confines)
        if not sure or solution.outcome is not Outcome.INFEASIBLE:
            sure = how_sure(session, solution)
    if not gang.sub_groups:
        return refusal
    # Part by part: an answer where the search gave up, else how far one gets, for the sentence.
    stuck = place_one_by_one(session, gang, statement, confines)
    return stuck and Refusal(stuck.reason, cut(f"{stuck.sentence}{sure}"))


def _beyond_quota(
    session: Session, gang: Gang, problem: Problem, solution: Solution
) -> Refusal | None:
    """Whether quotas forbid a start with more members than were asked about before."""
    if not solution.counts.size or problem.members <= gang.at_once:
        return None
    tasks = tuple(
        attrs.evolve(task, pods=task.pods[:count])
        for task, count in zip(gang.tasks, solution.counts.sum(axis=1).tolist(), strict=True)
        if count
    )
    start = attrs.evolve(
        gang, min_member=gang.ready + problem.members, min_roles=(), ready_roles=(),
        sub_groups=(), tasks=tasks,
    )  # fmt: skip
    verdict = first_refusal(session.hooks.quota_checks, start)
    return Refusal(Reason(verdict.reason), verdict.sentence) if verdict.refuses else None


def solve(session: Session, problem: Problem) -> Solution:
    """The pipeline's answer, noted for metrics."""
    solution = place(problem, session.effort, search=session.search, memory=session.masks.memory)
    session.searches.append(Record.of(solution, problem))
    size = problem.nodes * len(problem.roles) // limits.WORK_NODES_A_UNIT
    solver = int(solution.work * limits.WORK_SOLVER_S)
    session.work.spend(limits.WORK_CLASS + size + solver)
    return solution
