"""Decides a window of gangs: greedy orders first, then pools by the solver, made true at the end.

What the solver says of pools is a promise: everybody whom it admits is placed before it counts.
Where that fails the set is given up, for good when a model of single nodes proves that it cannot
be, and the next best is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs

from gpusched.arrays.columns import Ints
from gpusched.errors import SolverFault
from gpusched.placement.admission import (
    Admission,
    Contender,
    Window,
    remaining,
    used_by,
    wrong_with,
)
from gpusched.placement.admission_pools import Pools, pools_of
from gpusched.placement.admission_seats import seat
from gpusched.placement.cpsat_admission import AdmissionJob, Pooled
from gpusched.placement.greedy import greedy
from gpusched.placement.pipeline import place
from gpusched.placement.problem import (
    Effort,
    Outcome,
    Problem,
    Search,
    Solution,
    search_here,
)
from gpusched.placement.verify import objective, trouble

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


def admit(
    window: Window, effort: Effort, *, search: Search = search_here, polish: bool = True
) -> Admission:
    """Admit the contenders that are worth the most together, each with a place.

    Args:
        window: at least one contender.
        effort: for one search; several are done, see ``ROUNDS_MAX``.
        search: runs the solver, here or in another process.
        polish: whether each gets the best place that is left for it; else any place will do,
            as for who is placed again afterwards.

    Returns:
        An answer that was counted again. Without the solver: the best greedy order, never called
        more than FEASIBLE unless everybody is admitted.
    """
    best = best_in_order(window)
    everything = window.weight(range(len(window.contenders)))
    found = _answer(window, best, bound=everything, method="greedy")
    if found.outcome is Outcome.OPTIMAL or not effort.solver:
        return found
    return _Search(window, effort, search, best=best, polish=polish).run()


def best_in_order(window: Window) -> Places | None:
    """The best of three greedy orders; None when none admits those who must be.

    By weight, by weight for what is asked, and the largest first.
    """

    def size(each: Contender) -> int:
        problem = each.problem
        return sum(
            role.most * max(1, role.gpus or int(role.ask.max(initial=0))) for role in problem.roles
        )

    def order(key: Callable[[Contender], object]) -> list[int]:
        every = range(len(window.contenders))
        ordered: list[int] = sorted(every, key=lambda n: (key(window.contenders[n]), n))
        return ordered

    orders = [
        order(lambda each: (not each.must, -each.weight)),
        order(lambda each: (not each.must, -each.weight * 2**20 // size(each))),
        order(lambda each: (not each.must, -each.problem.required, -size(each))),
    ]
    if len(window.must) == len(window.contenders):
        orders = orders[2:]  # where all must start, weights decide nothing
    best: Places | None = None
    for each in orders:
        places = in_order(window, each)
        whole = all(number in places for number in window.must)
        if whole and (best is None or window.weight([*places]) > window.weight([*best])):
            best = places
    return best


def in_order(window: Window, order: Sequence[int]) -> Places:
    """Place one after another as well as greedy can; who finds no place is left out."""
    free = window.free.copy()
    places: Places = {}
    for number in order:
        if not window.allowed([*places, number]):
            continue
        problem = alone(window.contenders[number].problem, free)
        counts = greedy(problem)
        if counts is not None and not trouble(problem, counts):
            places[number] = counts
            free -= used_by(problem, counts)
    return places


def alone(problem: Problem, free: Ints) -> Problem:
    """The gang on what others leave. Slots are chosen when it is bound, so they do not count."""
    return attrs.evolve(remaining(problem, free), slots=None)


class _Search:
    """One window while it is being decided."""

    def __init__(
        self,
        window: Window,
        effort: Effort,
        search: Search,
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
        self._bound = window.weight(range(len(window.contenders)))
        self._guessed = False
        """Whether a set was given up without proof: bounds fall no more from then on."""
        self._rounds = 0
        self._seconds = self._work = 0.0
        self._faults: list[str] = []

    def run(self) -> Admission:
        """Propose and place, until nothing better is left or the budget is used."""
        pools = pools_of(self._window)
        refuted = False
        while self._rounds < ROUNDS_MAX and not self._spent:
            self._rounds += 1
            # Sums are quick and seldom wrong; where they are again and again, pools are not.
            answer = self._propose(pools, divided=self._rounds > SUMS_MAX)
            if answer is None or answer.outcome is Outcome.UNKNOWN:
                break
            if answer.outcome is Outcome.INFEASIBLE:
                refuted = not self._guessed
                break
            if not self._guessed:
                self._bound = min(self._bound, answer.bound)
            places = self._placed(pools, answer)
            if places is None:
                self._apart.append(answer.admitted)
                continue
            self._best = places
            if answer.outcome is Outcome.OPTIMAL:
                break
        if refuted:
            self._bound = max(0, self._worth)
        return self._end(refuted=refuted)

    @property
    def _spent(self) -> bool:
        return self._work >= WORK_MAX * self._effort.budget_s

    @property
    def _worth(self) -> int:
        return -1 if self._best is None else self._window.weight([*self._best])

    def _end(self, *, refuted: bool) -> Admission:
        found = _answer(self._window, self._best, bound=self._bound, method="pooled")
        outcome = found.outcome
        if self._best is None and refuted:
            outcome = Outcome.INFEASIBLE
        return attrs.evolve(
            found,
            outcome=outcome,
            rounds=self._rounds,
            seconds=self._seconds,
            work=self._work,
            faults=tuple(self._faults),
        )

    def _ask(self, job: AdmissionJob) -> Pooled | None:
        try:
            answer = self._search(job)
        except SolverFault as fault:
            self._faults.append(str(fault))
            return None
        if not isinstance(answer, Pooled):
            self._faults.append(f"the search answered with {type(answer).__name__}")
            return None
        self._seconds += answer.seconds
        self._work += answer.work
        return answer

    def _propose(self, pools: Pools, *, divided: bool) -> Pooled | None:
        """The set that is worth the most as far as pools can tell, of those not given up."""
        window = self._window
        return self._ask(
            AdmissionJob(
                pools=pools,
                weights=tuple(each.weight for each in window.contenders),
                must=window.must,
                quotas=window.quotas,
                apart=tuple(self._apart),
                above=self._worth,
                effort=self._effort,
                divided=divided,
            )
        )

    # -- making it true ----------------------------------------------------------------------
    def _placed(self, pools: Pools, answer: Pooled) -> Places | None:
        """Places for a set that pools seem to have room for; None gives the set up."""
        admitted = answer.admitted
        places = self._one_by_one(admitted) if self._polish else None
        if places is not None:
            return places
        if answer.counts.any():
            places = self._seated(self._window, pools, answer, admitted)
        only = self._only(admitted)
        homes = _renumbered(pools, answer)
        # Where the domains are those of the proposal, counts are found at once or not at all.
        for by_node, fixed in ((False, homes), (False, None), (True, homes), (True, None)):
            if places is not None:
                return places
            chosen = pools_of(only, by_node=by_node)
            if chosen.size > COUNTS_MAX or self._spent:
                break
            exact = self._exactly(chosen, admitted, homes=fixed or {})
            if exact is None:
                break
            if exact.outcome is Outcome.INFEASIBLE and not fixed:
                return None
            places = self._seated(only, chosen, exact, admitted)
        self._guessed = self._guessed or places is None
        return places

    def _one_by_one(self, admitted: Sequence[int]) -> Places | None:
        """The largest first, each as well as it can be; the best answer where it works."""
        window = self._window
        free = window.free.copy()
        places: Places = {}
        for number in sorted(admitted, key=lambda number: (-self._size(number), number)):
            problem = alone(window.contenders[number].problem, free)
            solution = self._place(problem)
            if not solution.counts.size:
                return None
            places[number] = solution.counts
            free -= used_by(problem, solution.counts)
        return places

    def _place(self, problem: Problem) -> Solution:
        effort = self._effort if self._polish else attrs.evolve(self._effort, solver=False)
        solution = place(problem, effort, search=self._search)
        self._seconds += solution.seconds
        self._work += solution.work
        return solution

    def _seated(
        self, window: Window, pools: Pools, answer: Pooled, admitted: Sequence[int]
    ) -> Places | None:
        """Seats by the solver's counts; then each gang moves to the best place left for it."""
        if answer.outcome not in (Outcome.OPTIMAL, Outcome.FEASIBLE):
            return None
        seats = seat(window, pools, answer.counts, answer.homes, answer.admitted)
        if seats is None or wrong_with(self._window, admitted, seats):
            return None
        places = dict(zip(admitted, seats, strict=True))
        return self._settled(places) if self._polish else places

    def _settled(self, places: Places) -> Places:
        window = self._window
        free = window.free.copy()
        for number, counts in places.items():
            free -= used_by(window.contenders[number].problem, counts)
        for number in sorted(places, key=lambda number: (-self._size(number), number)):
            own = window.contenders[number].problem
            free += used_by(own, places[number])
            problem = alone(own, free)
            solution = self._place(problem)
            if solution.counts.size and objective(problem, solution.counts) < objective(
                problem, places[number]
            ):
                places[number] = solution.counts
            free -= used_by(own, places[number])
        return places

    def _only(self, admitted: Sequence[int]) -> Window:
        """The window of these alone, who all must start."""
        chosen = tuple(
            attrs.evolve(self._window.contenders[number], must=True) for number in admitted
        )
        return attrs.evolve(self._window, contenders=chosen, quotas=())

    def _exactly(
        self, pools: Pools, admitted: Sequence[int], *, homes: Mapping[int, int]
    ) -> Pooled | None:
        """How many go where, if all of these start; in these homes if any are given."""
        every = tuple(range(len(admitted)))
        return self._ask(
            AdmissionJob(
                pools=pools,
                weights=(1,) * len(every),
                must=every,
                effort=self._effort,
                homes=homes,
            )
        )

    def _size(self, number: int) -> int:
        roles = self._window.contenders[number].problem.roles
        return sum(role.most * (role.gpus or 1) for role in roles)


def _renumbered(pools: Pools, answer: Pooled) -> dict[int, int]:
    """Homes by the numbers that lumps have where nobody but those admitted is."""
    chosen = set(answer.admitted)
    lumps = [number for number, lump in enumerate(pools.lumps) if lump.contender in chosen]
    return {new: answer.homes[old] for new, old in enumerate(lumps) if old in answer.homes}


def _answer(window: Window, places: Places | None, *, bound: int, method: str) -> Admission:
    """The answer as it is when it was counted again."""
    if places is None:
        return Admission(outcome=Outcome.UNKNOWN, bound=bound, method=method)
    admitted = tuple(sorted(places))
    counts = tuple(places[number] for number in admitted)
    wrong = wrong_with(window, admitted, counts)
    if wrong:
        return Admission(
            outcome=Outcome.UNKNOWN, bound=bound, method=method, faults=(f"{method}: {wrong}",)
        )
    weight = window.weight(admitted)
    return Admission(
        outcome=Outcome.OPTIMAL if weight >= bound else Outcome.FEASIBLE,
        admitted=admitted,
        places=counts,
        weight=weight,
        bound=max(bound, weight),
        method=method,
    )
