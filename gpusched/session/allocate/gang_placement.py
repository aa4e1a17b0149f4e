"""Places for a gang's minimum as a whole: the best there are, or none and the reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from gpusched.base import limits
from gpusched.cache.gangs.gang import Gang
from gpusched.placement.model.problem import Problem, SearchOutcome, Solution
from gpusched.placement.pipeline.elastic_placement import EXTRA, place_most_members
from gpusched.placement.pipeline.gang_placement import place_gang
from gpusched.session.allocate.member_rules.device_values import (
    hold_options,
    matches_devices,
    place_on_best_value,
)
from gpusched.session.allocate.member_rules.own_pod_rules import (
    contradiction_message,
    own_pod_rules,
)
from gpusched.session.allocate.member_rules.shared_claims import place_with_shared_claims
from gpusched.session.allocate.node_sets import (
    LevelConstraint,
    Unschedulable,
    level_constraint_now,
)
from gpusched.session.allocate.placement_problem import (
    NodeBounds,
    apply_solution,
    build_problems,
    placed_rows,
)
from gpusched.session.allocate.pod_by_pod import (
    has_inter_pod_rules,
    is_plain_pod,
    place_plain_pod,
    place_pod_by_pod,
)
from gpusched.session.allocate.refusals.device_claims import claims_not_ready
from gpusched.session.allocate.refusals.kept_refusals import KeptRefusals
from gpusched.session.allocate.refusals.unschedulable import (
    certainty_text,
    explain_split_placement,
    explain_unsolved,
    has_bounded_devices,
)
from gpusched.session.allocate.start_members import choose_start_members
from gpusched.session.allocate.sub_groups import unknown_sub_group_message
from gpusched.session.framework.reasons import Reason, pods_text, truncate_message
from gpusched.session.framework.verdict import first_refusal
from gpusched.session.gpu_types.choice import place_on_best_types
from gpusched.session.gpu_types.options import GpuTypeRefusal, chooses_gpu_types
from gpusched.session.state.search_records import SearchRecord
from gpusched.session.state.session import Session
from gpusched.session.state.statement import Assignment, Statement

OPTIMAL: Final = "optimal"
_DOMAINS_TERM: Final = "domains:"
_TOLD: Final = {"parts": "domains of sub-groups"}
"""Names of terms that are told otherwise than they are called."""


def proof_text(solution: Solution) -> str:
    """``optimal``, or ``rack 4, at least 3`` for the first term that is not proven.

    What is compared after the nodes (fragmentation, scores of policies) is not told: no gang waits
    for it.
    """
    tree = any(term.name.startswith(_DOMAINS_TERM) for term in solution.terms)
    if solution.outcome is SearchOutcome.OPTIMAL and tree:
        return OPTIMAL
    for term in solution.terms:
        if term.name not in (EXTRA, "span") and term.value != term.bound:
            name = _TOLD.get(term.name, term.name.removeprefix(_DOMAINS_TERM))
            return f"{name} {term.value}, at least {term.bound}"
        if term.name == "nodes":
            break
    return OPTIMAL


def scoped_proof(session: Session, gang: Gang, solution: Solution) -> str:
    """The proof and, unless it is about all members that there are, for how many it holds.

    Empty where devices of some node were not searched to the end: more pods may fit there.
    """
    if has_bounded_devices(session, gang):
        return ""
    proof = proof_text(solution)
    count = int(solution.counts.sum())
    if gang.placed:
        return f"{proof} for {pods_text(count)} beside {len(gang.placed)}"
    return proof if count >= gang.pending else f"{proof} for {pods_text(count)}"


def place_ignoring_reservations(
    session: Session, gang: Gang, statement: Statement
) -> Unschedulable | None:
    """Give places to as many members as the gang must start with, or to none, on nodes open to it.

    Reservations of blocked gangs are ignored, and not those of the API. Where types of GPUs make a
    difference for the gang, on the best of them that have room; where its devices are to have
    something in common, with the best of what they can have in common.
    """
    with session.on_open_nodes(gang):
        return place_on_any_nodes(session, gang, statement)


def place_unless_held(
    session: Session, gang: Gang, statement: Statement, held: Callable[[], Unschedulable | None]
) -> Unschedulable | None:
    """As ``place_ignoring_reservations``, but for a gang whose room is known to be held for others no place is searched for.

    Args:
        session: in which it is to start.
        gang: that waits.
        statement: that takes its places.
        held: tells why it does not start; None where that is not known. Asked where nothing is kept of gangs like it.
    """
    with session.on_open_nodes(gang):
        if matches_devices(gang) or chooses_gpu_types(session, gang):
            return place_on_any_nodes(session, gang, statement)
        return _place_on_nodes(session, gang, statement, held)


def place_on_any_nodes(session: Session, gang: Gang, statement: Statement) -> Unschedulable | None:
    """As ``place_ignoring_reservations``, on nodes that Reservations close to the gang, too."""
    if matches_devices(gang):

        def place_held() -> Unschedulable | None:
            return _place_on_types(session, gang, statement)

        return place_on_best_value(session, gang, statement, place_held)
    return _place_on_types(session, gang, statement)


def _place_on_types(session: Session, gang: Gang, statement: Statement) -> Unschedulable | None:
    if not chooses_gpu_types(session, gang):
        return _place_on_nodes(session, gang, statement)

    def place() -> GpuTypeRefusal | None:
        found = _place_on_nodes(session, gang, statement)
        return None if found is None else GpuTypeRefusal(found.reason, found.message)

    refusal = place_on_best_types(session, gang, statement, place)
    return None if refusal is None else Unschedulable(refusal.reason, refusal.message)


def _place_on_nodes(
    session: Session,
    gang: Gang,
    statement: Statement,
    held: Callable[[], Unschedulable | None] = lambda: None,
) -> Unschedulable | None:
    """Give places to as many members as the gang must start with, or to none, on nodes open to it.

    Lone pods, gangs that no policy wants compact, members with rules about other pods and those
    that share GPUs freely take their places one by one; all others as one problem, whose answer
    is proven best where it can be. Gangs of several classes that find no place one by one get the search as well.
    What equal gangs were told before is told again as long as it follows from the room on nodes.
    """
    kept = session.cache.kept.get_or_make(KeptRefusals, KeptRefusals)
    known = kept.find(session, gang)
    if known is not None:
        return known
    others = held()
    if others is not None:
        return others
    before = session.work_budget.spent
    refusal = _place_anew(session, gang, statement)
    if refusal is not None:
        kept.keep(session, gang, refusal, units=session.work_budget.spent - before)
    return refusal


def _place_anew(session: Session, gang: Gang, statement: Statement) -> Unschedulable | None:
    if is_plain_pod(session, gang):
        return place_plain_pod(session, gang, statement)
    confines = level_constraint_now(session, gang)
    if isinstance(confines, Unschedulable):
        return confines
    strange = unknown_sub_group_message(gang)
    if strange:
        return Unschedulable(Reason.INVALID_SPEC, strange)
    unready = claims_not_ready(session, gang)
    if unready is not None:
        return unready
    return place_with_shared_claims(
        session, gang, statement, lambda: _place_within(session, gang, statement, confines)
    )


def _place_within(
    session: Session, gang: Gang, statement: Statement, confines: LevelConstraint
) -> Unschedulable | None:
    """Places where the level and the devices of shared claims leave them: one by one, or as a whole."""
    if _shared_freely(gang):
        return place_pod_by_pod(session, gang, statement, confines)
    if has_inter_pod_rules(session, [(pod_set, len(pod_set.pods)) for pod_set in gang.pod_sets]):
        return _place_with_rules(session, gang, statement, confines)
    if not _is_one_problem(session, gang, confines):
        refusal = place_pod_by_pod(session, gang, statement, confines)
        if refusal is None or len(gang.pod_sets) < 2 or refusal.reason in _FINAL_REASONS:
            return refusal
    return _place_whole(session, gang, statement, confines)


_FINAL_REASONS = (Reason.NOT_ENOUGH_MEMBERS, Reason.INVALID_SPEC)


def _place_with_rules(
    session: Session, gang: Gang, statement: Statement, confines: LevelConstraint
) -> Unschedulable | None:
    """Members with rules about other pods: as a whole where caps say the rules, else one by one."""
    if _is_one_problem(session, gang, confines):
        bounds = whole_bounds(session, gang, confines)
        if bounds is not None and bounds.rules is not None and not confines.waits:
            wrong = contradiction_message(session, gang, bounds.rules, bounds.required)
            if wrong:
                return Unschedulable(Reason.INVALID_SPEC, wrong)
        if bounds is not None and _place_bounded(session, gang, statement, bounds):
            return None
    return place_pod_by_pod(session, gang, statement, confines)


def whole_bounds(session: Session, gang: Gang, confines: LevelConstraint) -> NodeBounds | None:
    """Where a gang may be that is placed as a whole; None where that cannot be said."""
    spare = session.cluster_map.spared_rows(gang)
    rows = None if spare is None else ~spare
    if not has_inter_pod_rules(
        session, [(pod_set, len(pod_set.pods)) for pod_set in gang.pod_sets]
    ):
        return NodeBounds(required=confines.required, rows=rows)
    rules = own_pod_rules(session, gang)
    required = next((each for each in session.levels if each.name == confines.required), None)
    if rules is None or (required is not None and required.crosses):
        return None
    names = [level.name for level in session.levels]
    needed = [name for name in (confines.required, *rules.together) if name]
    return NodeBounds(required=max(needed, key=names.index, default=""), rows=rows, rules=rules)


def _place_bounded(session: Session, gang: Gang, statement: Statement, bounds: NodeBounds) -> bool:
    """Place what the gang must start with inside these bounds, or nothing."""
    for problem in build_problems(session, gang, bounds):
        solution = solve_problem(session, problem)
        if not solution.counts.size or _beyond_quota(session, gang, problem, solution) is not None:
            continue
        mark = statement.checkpoint()
        if apply_solution(session, gang, statement, problem, solution, bounds=bounds):
            statement.proof, statement.terms = scoped_proof(session, gang, solution), solution.terms
            return True
        statement.rollback(mark)
    return False


def _shared_freely(gang: Gang) -> bool:
    """Whether shares of GPUs are to be packed rather than kept together.

    Where shares are of several sizes, or beside whole GPUs, counts do not tell what fits a node.
    """
    wishes = gang.topology.required or gang.topology.preferred or gang.sub_groups
    return gang.requests_gpu_share and (len(gang.pod_sets) > 1 or not wishes)


def is_placed_as_a_whole(session: Session, gang: Gang) -> bool:
    """Whether the search places all members of a gang, so that further ones are placed by it too."""
    confines = level_constraint_now(session, gang)
    if isinstance(confines, Unschedulable) or unknown_sub_group_message(gang):
        return False
    several = gang.pending + len(gang.placed) > 1
    return (
        several
        and not _shared_freely(gang)
        and bool(confines.required or gang.sub_groups or session.hooks.topology.wants_compact(gang))
    )


def _is_one_problem(session: Session, gang: Gang, confines: LevelConstraint) -> bool:
    if confines.required or gang.sub_groups:
        return True
    alone = gang.members_at_start == 1 and not gang.placed
    return not alone and session.hooks.topology.wants_compact(gang)


def _place_whole(
    session: Session, gang: Gang, statement: Statement, confines: LevelConstraint
) -> Unschedulable | None:
    if not gang.sub_groups:
        _, too_few = choose_start_members(gang, largest_first=True)
        if too_few:
            return Unschedulable(Reason.NOT_ENOUGH_MEMBERS, too_few)
    if not gang.pod_sets:
        return place_pod_by_pod(session, gang, statement, confines)
    refusal = explain_split_placement(session, placed_rows(session, gang), confines)
    if refusal is not None:
        return refusal
    spare = session.cluster_map.spared_rows(gang)
    sure = ""
    bounds = NodeBounds(required=confines.required, rows=None if spare is None else ~spare)
    for problem in build_problems(session, gang, bounds):
        solution = solve_problem(session, problem)
        beyond = _beyond_quota(session, gang, problem, solution)
        if beyond is not None:
            return beyond
        if solution.counts.size:
            mark = statement.checkpoint()
            if apply_solution(session, gang, statement, problem, solution):
                statement.proof, statement.terms = (
                    scoped_proof(session, gang, solution),
                    solution.terms,
                )
                return None
            # Pods of several kinds that compete for devices: amounts do not tell what fits together.
            statement.rollback(mark)
            return place_pod_by_pod(session, gang, statement, confines)
        if refusal is None:
            refusal = explain_unsolved(session, gang, solution, confines)
        if not sure or solution.outcome is not SearchOutcome.INFEASIBLE:
            sure = certainty_text(session, gang, solution)
    if not gang.sub_groups:
        return refusal
    # Part by part: an answer where the search gave up, else how far one gets, for the sentence.
    stuck = place_pod_by_pod(session, gang, statement, confines)
    return stuck and Unschedulable(stuck.reason, truncate_message(f"{stuck.message}{sure}"))


def _beyond_quota(
    session: Session, gang: Gang, problem: Problem, solution: Solution
) -> Unschedulable | None:
    """Whether quotas forbid a start with more members than were asked about before."""
    if not solution.counts.size or problem.members <= gang.members_at_start:
        return None
    pod_sets = tuple(
        attrs.evolve(pod_set, pods=pod_set.pods[:count])
        for pod_set, count in zip(gang.pod_sets, solution.counts.sum(axis=1).tolist(), strict=True)
        if count
    )
    start = attrs.evolve(
        gang, min_member=gang.ready_members + problem.members, min_roles=(), ready_roles=(),
        sub_groups=(), pod_sets=pod_sets,
    )  # fmt: skip
    verdict = first_refusal(session.hooks.quota_checks, start)
    return Unschedulable(Reason(verdict.reason), verdict.message) if verdict.refuses else None


def solve_problem(session: Session, problem: Problem) -> Solution:
    """The pipeline's answer, noted for metrics."""
    solution = place_gang(
        problem, session.effort, search=session.search, memory=session.cache.tables
    )
    return _record_solution(session, problem, solution)


def solve_most(session: Session, problem: Problem, extra: int) -> Solution:
    """The same for as many members as fit, up to so many beyond those of the problem."""
    solution = place_most_members(
        problem, extra, session.effort, search=session.search, memory=session.cache.tables
    )
    return _record_solution(session, problem, solution)


def _record_solution(session: Session, problem: Problem, solution: Solution) -> Solution:
    session.record_search(SearchRecord.from_solution(solution, problem))
    size = problem.nodes * len(problem.roles) // limits.WORK_NODES_A_UNIT
    solver = int(solution.work * limits.WORK_SOLVER_S)
    session.work_budget.spend_units(limits.WORK_CLASS + size + solver)
    return solution


def nomination_still_fits(session: Session, gang: Gang) -> bool:
    """Whether the room nominated for a gang will be free for it when leaving pods are gone.

    A promise for fewer members than it needs, as a crash may leave one, is none; nor is one of a
    queue that the gang has left for another, which has no quota for it.
    """
    if len(session.nominations.nominated_places(gang)) < gang.members_at_start:
        return False
    with session.on_open_nodes(gang):
        return _nomination_fits_open_nodes(session, gang)


def _nomination_fits_open_nodes(session: Session, gang: Gang) -> bool:
    if not matches_devices(gang):
        return _nominated_places_fit(session, gang)
    with session.pipelining():
        holds = hold_options(session, gang, later=True).holds
    for hold in holds:
        with session.devices.claims.held_to(hold):
            if _nominated_places_fit(session, gang):
                return True
    return False


def _nominated_places_fit(session: Session, gang: Gang) -> bool:
    statement = session.statement()
    with session.pipelining():
        # Each is lifted and placed again, so that none is in the way of itself.
        session.nominations.take_back(gang, statement)
        left = list(session.nominations.nominated_places(gang))
        found = not first_refusal(session.hooks.quota_checks, gang).refuses
        while left and found:
            # Members may wait for each other: whoever can go first does.
            rest = [place for place in left if not _assign_again(session, statement, place)]
            found, left = len(rest) < len(left), rest
        statement.discard()
    return not left


def _assign_again(session: Session, statement: Statement, place: Assignment) -> bool:
    info = session.pod_info(place.pod)
    if not info.class_fit.fits[place.row]:
        return False
    return statement.try_assign(place.pod, place.row, info.request)
