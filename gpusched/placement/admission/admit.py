"""Decides a window of gangs: greedy orders first, then pools by the solver, made true at the end.

What the solver says of pools is a proposal: every gang that it admits is placed before it counts.
Where that fails the set is given up, for good when a model of single nodes proves that it cannot
be, and the next best is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs

from gpusched.arrays.columns import Ints
from gpusched.base.errors import SolverFault
from gpusched.placement.admission.assignment import assign_members
from gpusched.placement.admission.model import (
    Admission,
    AdmissionBatch,
    AdmissionCandidate,
    admission_errors,
    amounts_used_by,
    problem_on_free_amounts,
)
from gpusched.placement.admission.pools import PooledBatch, build_pooled_batch
from gpusched.placement.admission.solver_model import AdmissionJob, PoolSearchResult
from gpusched.placement.greedy import place_greedily
from gpusched.placement.model.problem import (
    Effort,
    Problem,
    SearchOutcome,
    SearchRunner,
    Solution,
    search_in_process,
)
from gpusched.placement.model.verify import objective_values, solution_errors
from gpusched.placement.pipeline.gang_placement import place_gang

ROUNDS_MAX: Final = 12
"""Sets that the solver may propose for one window."""
SUMS_MAX: Final = 8
"""Of these, so many by the sums of domains alone."""
COUNTS_MAX: Final = 20_000
"""Counts of one model by nodes: larger ones take seconds to build."""
WORK_MAX: Final = 3
"""Together, searches of one window may take so many times the effort of one."""

Places = dict[int, Ints]
"""By contender, members by role and node."""


def admit_batch(
    window: AdmissionBatch,
    effort: Effort,
    *,
    search: SearchRunner = search_in_process,
    polish: bool = True,
) -> Admission:
    """Admit the contenders that are worth the most together, each with a place.

    Args:
        window: at least one contender.
        effort: for one search; several are done, see ``ROUNDS_MAX``.
        search: runs the solver, here or in another process.
        polish: whether each gets the best place that is left for it; else any place will do,
            as for gangs that are placed again afterwards.

    Returns:
        An answer that was counted again. Without the solver: the best greedy order, never called
        more than FEASIBLE unless all are admitted. None is given where several candidates have
        mixes of roles: nothing tells what devices one candidate leaves to another.
    """
    if sum(each.problem.mixes is not None for each in window.contenders) > 1:
        return Admission(
            outcome=SearchOutcome.UNKNOWN, bound=window.total_weight(range(len(window.contenders)))
        )
    best = best_greedy_order(window)
    everything = window.total_weight(range(len(window.contenders)))
    found = _verified_admission(window, best, bound=everything, method="greedy")
    if found.outcome is SearchOutcome.OPTIMAL or not effort.solver:
        return found
    return _BatchSearch(window, effort, search, best=best, polish=polish).run()


def best_greedy_order(window: AdmissionBatch) -> Places | None:
    """The best of three greedy orders; None when none admits those that must be.

    By weight, by weight for what is asked, and the largest first.
    """

    def size(each: AdmissionCandidate) -> int:
        problem = each.problem
        return sum(
            role.most * max(1, role.gpus or int(role.request.max(initial=0)))
            for role in problem.roles
        )

    def order(key: Callable[[AdmissionCandidate], object]) -> list[int]:
        every = range(len(window.contenders))
        ordered: list[int] = sorted(every, key=lambda n: (key(window.contenders[n]), n))
        return ordered

    orders = [
        order(lambda each: (not each.must, -each.weight)),
        order(lambda each: (not each.must, -each.weight * 2**20 // size(each))),
        order(lambda each: (not each.must, -each.problem.required, -size(each))),
    ]
    if len(window.required_numbers) == len(window.contenders):
        orders = orders[2:]  # where all must start, weights decide nothing
    best: Places | None = None
    for each in orders:
        places = admit_in_order(window, each)
        whole = all(number in places for number in window.required_numbers)
        if whole and (
            best is None or window.total_weight([*places]) > window.total_weight([*best])
        ):
            best = places
    return best


def admit_in_order(window: AdmissionBatch, order: Sequence[int]) -> Places:
    """Place one candidate after another greedily; one that finds no place is left out."""
    free = window.free.copy()
    places: Places = {}
    for number in order:
        if not window.is_allowed([*places, number]):
            continue
        problem = place_on_free_amounts(window.contenders[number].problem, free)
        counts = place_greedily(problem)
        if counts is not None and not solution_errors(problem, counts):
            places[number] = counts
            free -= amounts_used_by(problem, counts)
    return places


def place_on_free_amounts(problem: Problem, free: Ints) -> Problem:
    """The gang on what others leave. Slots are chosen when it is bound, so they do not count."""
    return attrs.evolve(problem_on_free_amounts(problem, free), slots=None)


class _BatchSearch:
    """One window while it is being decided."""

    def __init__(
        self,
        window: AdmissionBatch,
        effort: Effort,
        search: SearchRunner,
        *,
        best: Places | None,
        polish: bool,
    ) -> None:
        self._window = window
        self._effort = effort
        self._search = search
        self._best = best
        self._polish = polish
        self._apart: list[tuple[int, ...]] = []
        self._bound = window.total_weight(range(len(window.contenders)))
        self._guessed = False
        """Whether a set was given up without proof: bounds fall no more from then on."""
        self._rounds = 0
        self._seconds = self._work = 0.0
        self._faults: list[str] = []

    def run(self) -> Admission:
        """Propose and place, until nothing better is left or the budget is used."""
        pools = build_pooled_batch(self._window)
        refuted = False
        while self._rounds < ROUNDS_MAX and not self._spent:
            self._rounds += 1
            # Sums are quick and seldom wrong; where they are again and again, pools are not.
            answer = self._propose_set(pools, divided=self._rounds > SUMS_MAX)
            if answer is None or answer.outcome is SearchOutcome.UNKNOWN:
                break
            if answer.outcome is SearchOutcome.INFEASIBLE:
                refuted = not self._guessed
                break
            if not self._guessed:
                self._bound = min(self._bound, answer.bound)
            places = self._place_set(pools, answer)
            if places is None:
                self._apart.append(answer.admitted)
                continue
            self._best = places
            if answer.outcome is SearchOutcome.OPTIMAL:
                break
        if refuted:
            self._bound = max(0, self._worth)
        return self._finish_search(refuted=refuted)

    @property
    def _spent(self) -> bool:
        return self._work >= WORK_MAX * self._effort.budget_s

    @property
    def _worth(self) -> int:
        return -1 if self._best is None else self._window.total_weight([*self._best])

    def _finish_search(self, *, refuted: bool) -> Admission:
        found = _verified_admission(self._window, self._best, bound=self._bound, method="pooled")
        outcome = found.outcome
        if self._best is None and refuted:
            outcome = SearchOutcome.INFEASIBLE
        return attrs.evolve(
            found,
            outcome=outcome,
            rounds=self._rounds,
            seconds=self._seconds,
            work=self._work,
            faults=tuple(self._faults),
        )

    def _search_pools(self, job: AdmissionJob) -> PoolSearchResult | None:
        try:
            answer = self._search(job)
        except SolverFault as fault:
            self._faults.append(str(fault))
            return None
        if not isinstance(answer, PoolSearchResult):
            self._faults.append(f"the search answered with {type(answer).__name__}")
            return None
        self._seconds += answer.seconds
        self._work += answer.work
        return answer

    def _propose_set(self, pools: PooledBatch, *, divided: bool) -> PoolSearchResult | None:
        """The set that is worth the most as far as pools can tell, of those not given up."""
        window = self._window
        return self._search_pools(
            AdmissionJob(
                pools=pools,
                weights=tuple(each.weight for each in window.contenders),
                must=window.required_numbers,
                quotas=window.quotas,
                apart=tuple(self._apart),
                above=self._worth,
                effort=self._effort,
                divided=divided,
            )
        )

    # -- making it true ----------------------------------------------------------------------
    def _place_set(self, pools: PooledBatch, answer: PoolSearchResult) -> Places | None:
        """Places for a set that pools seem to have room for; None gives the set up."""
        admitted = answer.admitted
        places = self._one_by_one(admitted) if self._polish else None
        if places is not None:
            return places
        if answer.counts.any():
            places = self._place_by_counts(self._window, pools, answer, admitted)
        only = self._batch_of(admitted)
        homes = _renumber_homes(pools, answer)
        # Where the domains are those of the proposal, counts are found at once or not at all.
        for by_node, fixed in ((False, homes), (False, None), (True, homes), (True, None)):
            if places is not None:
                return places
            chosen = build_pooled_batch(only, by_node=by_node)
            if chosen.size > COUNTS_MAX or self._spent:
                break
            exact = self._split_exactly(chosen, admitted, homes=fixed or {})
            if exact is None:
                break
            if exact.outcome is SearchOutcome.INFEASIBLE and not fixed:
                return None
            places = self._place_by_counts(only, chosen, exact, admitted)
        self._guessed = self._guessed or places is None
        return places

    def _one_by_one(self, admitted: Sequence[int]) -> Places | None:
        """The largest first, each as well as it can be; the best answer where it works."""
        window = self._window
        free = window.free.copy()
        places: Places = {}
        for number in sorted(admitted, key=lambda number: (-self._gang_size(number), number)):
            problem = place_on_free_amounts(window.contenders[number].problem, free)
            solution = self._solve_problem(problem)
            if not solution.counts.size:
                return None
            places[number] = solution.counts
            free -= amounts_used_by(problem, solution.counts)
        return places

    def _solve_problem(self, problem: Problem) -> Solution:
        effort = self._effort if self._polish else attrs.evolve(self._effort, solver=False)
        solution = place_gang(problem, effort, search=self._search)
        self._seconds += solution.seconds
        self._work += solution.work
        return solution

    def _place_by_counts(
        self,
        window: AdmissionBatch,
        pools: PooledBatch,
        answer: PoolSearchResult,
        admitted: Sequence[int],
    ) -> Places | None:
        """Seats by the solver's counts; then each gang moves to the best place left for it."""
        if answer.outcome not in (SearchOutcome.OPTIMAL, SearchOutcome.FEASIBLE):
            return None
        seats = assign_members(window, pools, answer.counts, answer.homes, answer.admitted)
        if seats is None or admission_errors(self._window, admitted, seats):
            return None
        places = dict(zip(admitted, seats, strict=True))
        return self._improve_places(places) if self._polish else places

    def _improve_places(self, places: Places) -> Places:
        window = self._window
        free = window.free.copy()
        for number, counts in places.items():
            free -= amounts_used_by(window.contenders[number].problem, counts)
        for number in sorted(places, key=lambda number: (-self._gang_size(number), number)):
            own = window.contenders[number].problem
            free += amounts_used_by(own, places[number])
            problem = place_on_free_amounts(own, free)
            solution = self._solve_problem(problem)
            if solution.counts.size and objective_values(
                problem, solution.counts
            ) < objective_values(problem, places[number]):
                places[number] = solution.counts
            free -= amounts_used_by(own, places[number])
        return places

    def _batch_of(self, admitted: Sequence[int]) -> AdmissionBatch:
        """The batch of these candidates alone, all of which must start."""
        chosen = tuple(
            attrs.evolve(self._window.contenders[number], must=True) for number in admitted
        )
        return attrs.evolve(self._window, contenders=chosen, quotas=())

    def _split_exactly(
        self, pools: PooledBatch, admitted: Sequence[int], *, homes: Mapping[int, int]
    ) -> PoolSearchResult | None:
        """How many go where, if all of these start; in these homes if any are given."""
        every = tuple(range(len(admitted)))
        return self._search_pools(
            AdmissionJob(
                pools=pools,
                weights=(1,) * len(every),
                must=every,
                effort=self._effort,
                homes=homes,
            )
        )

    def _gang_size(self, number: int) -> int:
        roles = self._window.contenders[number].problem.roles
        return sum(role.most * (role.gpus or 1) for role in roles)


def _renumber_homes(pools: PooledBatch, answer: PoolSearchResult) -> dict[int, int]:
    """Homes by the numbers that lumps have when only admitted gangs are placed."""
    chosen = set(answer.admitted)
    lumps = [number for number, lump in enumerate(pools.lumps) if lump.contender in chosen]
    return {new: answer.homes[old] for new, old in enumerate(lumps) if old in answer.homes}


def _verified_admission(
    window: AdmissionBatch, places: Places | None, *, bound: int, method: str
) -> Admission:
    """The answer as it is when it was counted again."""
    if places is None:
        return Admission(outcome=SearchOutcome.UNKNOWN, bound=bound, method=method)
    admitted = tuple(sorted(places))
    counts = tuple(places[number] for number in admitted)
    wrong = admission_errors(window, admitted, counts)
    if wrong:
        return Admission(
            outcome=SearchOutcome.UNKNOWN,
            bound=bound,
            method=method,
            faults=(f"{method}: {wrong}",),
        )
    weight = window.total_weight(admitted)
    return Admission(
        outcome=SearchOutcome.OPTIMAL if weight >= bound else SearchOutcome.FEASIBLE,
        admitted=admitted,
        places=counts,
        weight=weight,
        bound=max(bound, weight),
        method=method,
    )
