"""One gang's places: quick methods first, then complete ones, and the verifier after all.

The answer is a pure function of the problem and the effort. Nothing that a method says is used
before it was counted again; a method that answers nonsense costs its answer, never the gang.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from gpusched.arrays.columns import Ints
from gpusched.placement.greedy import place_greedily
from gpusched.placement.model.bounds import lower_bounds
from gpusched.placement.model.problem import (
    Effort,
    Problem,
    SearchOutcome,
    SearchRunner,
    Solution,
    Term,
    search_in_process,
)
from gpusched.placement.model.sub_group_forms import with_fewer_holders
from gpusched.placement.model.verify import objective_names, objective_values, solution_errors
from gpusched.placement.pipeline.certificates import infeasibility_proof, tree_search_certificate
from gpusched.placement.pipeline.launcher_and_workers import place_launcher_and_workers
from gpusched.placement.pipeline.solver_placement import place_by_solver
from gpusched.placement.tree.identical_members import IdenticalMembers, as_identical_members
from gpusched.placement.tree.search import machine_words_of, place_identical_members
from gpusched.placement.tree.table_cache import TableCache


def place_gang(
    problem: Problem,
    effort: Effort,
    *,
    search: SearchRunner = search_in_process,
    memory: TableCache | None = None,
) -> Solution:
    """Give places to the members, or prove that there are none.

    Args:
        problem: what is asked.
        effort: how hard to try.
        search: runs what may take long, here or in another process.
        memory: of earlier problems; with it the answer comes sooner, and is the same.

    Returns:
        OPTIMAL or FEASIBLE with counts that were counted again, INFEASIBLE with a certificate,
        or UNKNOWN. OPTIMAL is in all terms for members that are all alike, and at least in all
        that are about domains for others: ``proven`` names them. ``faults`` says which methods gave answers that could not be used.
    """
    simpler = with_fewer_holders(problem)
    answer = _place_some_way(simpler, effort, search, memory)
    if simpler is problem or not answer.counts.size:
        return answer
    wrong = solution_errors(problem, answer.counts)
    values = tuple(term.value for term in answer.terms)
    if not wrong and values != objective_values(problem, answer.counts):
        wrong = f"it is worth {values} in a simpler form of the problem only"
    return _fault_answer("forms", wrong) if wrong else answer


def _place_some_way(
    problem: Problem, effort: Effort, search: SearchRunner, memory: TableCache | None
) -> Solution:
    certificate = infeasibility_proof(problem)
    if certificate is not None:
        return Solution(outcome=SearchOutcome.INFEASIBLE, certificate=certificate, method="bounds")
    if problem.members == 0:
        return place_by_solver(problem, effort, search)
    if not effort.tables:
        return _place_greedily(problem)
    one = as_identical_members(problem)
    if one is None:
        return _place_by_solver(problem, effort, search, memory)
    words = machine_words_of(one)
    if not words:
        return _place_greedily(problem)
    answer = _by_tree(one, memory, words)
    if not answer.faults:
        return answer
    second = _place_by_solver(problem, effort, search, memory)
    return attrs.evolve(second, faults=answer.faults + second.faults)


def _place_by_solver(
    problem: Problem, effort: Effort, search: SearchRunner, memory: TableCache | None
) -> Solution:
    """What the solver makes of it, with the quick answer as its start and to fall back on."""
    known = _by_leader(problem, memory)
    if known is not None and "nodes" in known.proven:
        return attrs.evolve(known, outcome=SearchOutcome.OPTIMAL)
    quick = _place_greedily(problem)
    if quick.outcome is SearchOutcome.OPTIMAL:
        return quick
    start = min(
        (each for each in (quick, known) if each is not None and each.counts.size),
        key=lambda each: tuple(term.value for term in each.terms),
        default=quick,
    )
    counts = start.counts if start.counts.size else None
    answer = place_by_solver(problem, effort, search, start=counts)
    return attrs.evolve(answer, faults=quick.faults + answer.faults)


def _by_leader(problem: Problem, memory: TableCache | None) -> Solution | None:
    """The large role's best place with the small ones beside it, when that is all right."""
    found = place_launcher_and_workers(problem, memory)
    if found is None or solution_errors(problem, found.counts):
        return None
    values = objective_values(problem, found.counts)
    bounds = list(lower_bounds(problem))
    for index, bound in enumerate(found.bounds):
        bounds[index] = bound
        if values[index] != bound:
            break  # with more of this term there may be less of the next ones
    return _build_answer(problem, found.counts, values, bounds, method="tree")


def _by_tree(one: IdenticalMembers, memory: TableCache | None, words: int) -> Solution:
    """The best answer for members that are all alike; UNKNOWN with faults if it is none."""
    problem = one.problem
    if one.fill_all_room:  # as where a gang gets the places of those that leave for it
        counts = one.counts_by_role(one.fits)
        if not solution_errors(problem, counts):
            values = objective_values(problem, counts)
            return _build_answer(problem, counts, values, values, method="tree")
    found = place_identical_members(one, memory, words=words)
    if found is None:
        return Solution(
            outcome=SearchOutcome.INFEASIBLE,
            certificate=tree_search_certificate(one),
            method="tree",
        )
    counts = one.counts_by_role(found.row)
    wrong = solution_errors(problem, counts)
    if wrong:
        return _fault_answer("tree", wrong)
    values = objective_values(problem, counts)
    if not found.agrees_with(values):
        return _fault_answer("tree", f"it is worth {values}, which is not what its tables say")
    proven = found.proven
    bounds = (
        values if proven == len(values) else (*values[:proven], *lower_bounds(problem)[proven:])
    )
    return _build_answer(problem, counts, values, bounds, method="tree")


def _place_greedily(problem: Problem) -> Solution:
    """What greedy finds; UNKNOWN when it finds nothing that is right."""
    counts = place_greedily(problem)
    if counts is None:
        return Solution(outcome=SearchOutcome.UNKNOWN, method="greedy")
    wrong = solution_errors(problem, counts)
    if wrong and problem.caps:  # it knows none of them
        return Solution(outcome=SearchOutcome.UNKNOWN, method="greedy")
    if wrong:
        return _fault_answer("greedy", wrong)
    values = objective_values(problem, counts)
    return _build_answer(problem, counts, values, lower_bounds(problem), method="greedy")


def _fault_answer(method: str, wrong: str) -> Solution:
    return Solution(outcome=SearchOutcome.UNKNOWN, method=method, faults=(f"{method}: {wrong}",))


def _build_answer(
    problem: Problem, counts: Ints, values: Sequence[int], bounds: Sequence[int], *, method: str
) -> Solution:
    """An answer without trouble, OPTIMAL if it is as good as bounds allow."""
    terms = tuple(
        Term(name, value, bound)
        for name, value, bound in zip(objective_names(problem), values, bounds, strict=True)
    )
    optimal = all(term.value == term.bound for term in terms)
    outcome = SearchOutcome.OPTIMAL if optimal else SearchOutcome.FEASIBLE
    return Solution(outcome=outcome, counts=counts, terms=terms, method=method)
