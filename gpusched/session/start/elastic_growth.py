"""Members above a gang's minimum by the search that placed the minimum: as many as fit, compactly.

A gang that started in this session, whose places nobody has been told yet, is placed again as a
whole; one that runs grows around its members. Quotas and reservations hold as for single pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import attrs
import numpy as np

from gpusched.api.meta.resources import NOTHING
from gpusched.api.pod.pod import Pod
from gpusched.arrays.columns import Ints
from gpusched.cache.gangs.gang import Gang, PodSet
from gpusched.placement.model.problem import Problem, Solution
from gpusched.placement.model.verify import objective_names, objective_values, solution_errors
from gpusched.session.allocate.gang_placement import (
    is_placed_as_a_whole,
    scoped_proof,
    solve_most,
    whole_bounds,
)
from gpusched.session.allocate.node_sets import Unschedulable, level_constraint_now
from gpusched.session.allocate.placement_problem import NodeBounds, apply_solution, build_problem
from gpusched.session.allocate.start_members import in_pod_order
from gpusched.session.framework.verdict import first_refusal
from gpusched.session.state.session import Session
from gpusched.session.state.statement import Assignment, Statement


@attrs.frozen(eq=False)
class _Extras:
    """Members of one gang that may get places now, by pod set.

    Attributes:
        gang: with exactly these members, and the pod sets that have any.
        given: how many members of each of its pod sets have places that may still change.
    """

    gang: Gang
    given: tuple[int, ...]

    @property
    def more(self) -> int:
        """Members beyond those that have places already."""
        return self.gang.pending - sum(self.given)


def place_extras(session: Session, gang: Gang, *, more: bool = True) -> bool:
    """Give a gang the most compact places for as many members as may have some.

    Args:
        session: in which it started or grows.
        gang: that has its minimum.
        more: whether further members get places, within its queue's quota; otherwise those that
            got some in this session are arranged anew.

    Returns:
        Whether any place of the gang is another one than before.
    """
    if session.queue_accounts.pools is not None:
        return False  # what pools of queues hold depends on where pods are
    whole = session.placements.variant(gang).gang
    stays = session.placements.from_nomination(gang)
    if stays and (not more or whole.sub_groups):
        return False
    before = () if stays else tuple(session.placements.assigned(gang))
    extras = _extras(session, gang, whole, before, more=more)
    if not is_placed_as_a_whole(session, whole) or not extras.gang.pending:
        return False
    if more and not (extras.more and _any_room(session, extras.gang, before)):
        return False
    return _Rearrangement(session, gang, extras, before).run()


def _any_room(session: Session, gang: Gang, before: Sequence[Assignment]) -> bool:
    """Whether one more might fit: where sizes differ, perhaps when the others are elsewhere."""
    if before and len(gang.pod_sets) > 1:
        return True
    return any(
        session.class_info(pod_set.pod_class).class_fit.fits.any() for pod_set in gang.pod_sets
    )


def _extras(
    session: Session, gang: Gang, whole: Gang, before: Sequence[Assignment], *, more: bool
) -> _Extras:
    """Members with places that may change, and those that the quota allows on top."""
    placed = Counter(place.pod.uid for place in session.placements.assigned(gang))
    kept = {place.pod.uid for place in before}
    pod_sets: list[PodSet] = []
    given: list[int] = []
    charged: list[PodSet] = []
    left = session.placements.binds_left
    for pod_set in whole.pod_sets:
        ordered = in_pod_order(pod_set.pods, session.hooks.pod_orders)
        waiting = [pod for pod in ordered if not placed[pod.uid]]
        allowed = _allowed(session, gang, charged, pod_set, waiting[: max(0, left)]) if more else 0
        if allowed:
            charged.append(attrs.evolve(pod_set, pods=tuple(waiting[:allowed])))
            left -= allowed
        new = {pod.uid for pod in waiting[:allowed]}
        chosen = tuple(pod for pod in ordered if pod.uid in kept or pod.uid in new)
        if chosen:
            pod_sets.append(attrs.evolve(pod_set, pods=chosen))
            given.append(len(chosen) - len(new))
    return _Extras(attrs.evolve(whole, pod_sets=tuple(pod_sets)), tuple(given))


def _allowed(
    session: Session, gang: Gang, charged: Sequence[PodSet], pod_set: PodSet, waiting: Sequence[Pod]
) -> int:
    """How many of these pods, beside those that are to be charged, quotas allow."""

    def fits(count: int) -> bool:
        pod_sets = (*charged, attrs.evolve(pod_set, pods=tuple(waiting[:count])))
        asked = NOTHING
        for each in pod_sets:
            asked = asked.plus(each.pod_class.requests, times=len(each.pods))
        alone = attrs.evolve(
            gang, min_member=sum(len(each.pods) for each in pod_sets), min_roles=(), ready_roles=(),
            placed=(), succeeded_counted=0, sub_groups=(), pod_sets=pod_sets, pending_requests=asked,
        )  # fmt: skip
        return not first_refusal(session.hooks.quota_checks, alone).refuses

    low, high = 0, len(waiting)
    if not high or fits(high):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


class _Rearrangement:
    """A gang without the places of this session, until it has better ones or its own again."""

    def __init__(
        self, session: Session, gang: Gang, extras: _Extras, before: Sequence[Assignment]
    ) -> None:
        self._session = session
        self._gang = gang
        self._extras = extras
        self._before = tuple(before)
        self._proof = session.placements.proof(gang)

    def run(self) -> bool:
        """Whether the gang has other places now; otherwise all is as it was."""
        session, gang = self._session, self._gang
        cleared = session.statement()
        for place in reversed(self._before):
            cleared.unassign(place)
        if self._before:
            session.placements.replace(gang, (), proof="")
        if self._place_anew(cleared):
            return True
        cleared.discard()
        if self._before:
            session.placements.replace(gang, self._before, proof=self._proof)
        return False

    def _place_anew(self, cleared: Statement) -> bool:
        session, gang, extras = self._session, self._gang, self._extras
        confines = level_constraint_now(session, extras.gang)
        if isinstance(confines, Unschedulable):
            return False
        bounds = whole_bounds(session, extras.gang, confines)
        if bounds is None:
            return False
        problem = self._problem(bounds)
        solution = solve_most(session, problem, extras.more)
        count = int(solution.counts.sum())
        proof = self._proof_of(bounds, solution)
        if not count or count < len(self._before):
            return False
        if count == len(self._before) and not self._improves(problem, solution):
            self._proof = proof
            return False
        statement = session.statement()
        placed = apply_solution(session, extras.gang, statement, problem, solution, bounds)
        if not placed or self._breaks_reservation(statement):
            statement.discard()
            return False
        if self._before:
            cleared.commit()
            places = statement.commit()
            session.placements.regrow(gang, self._before, places, proof=proof)
            return True
        cleared.discard()
        statement.proof = proof
        session.placements.commit(gang, statement)
        return True

    def _problem(self, bounds: NodeBounds) -> Problem:
        """As many members as have places already; what a gang lacks is in them."""
        problem = build_problem(self._session, self._extras.gang, bounds)
        if self._before:
            return attrs.evolve(problem, members=len(self._before))
        return attrs.evolve(problem, members=0, minima=(), parts_least=0)

    def _proof_of(self, bounds: NodeBounds, solution: Solution) -> str:
        gang, session = self._gang, self._session
        whole = session.placements.variant(gang).gang
        count = int(solution.counts.sum())
        if bounds.rules is not None and bounds.rules.rises and count < self._extras.gang.pending:
            return ""  # more may fit when domains have filled up evenly
        if session.placements.from_nomination(gang):
            return ""  # those that were promised their places are bound with these
        return scoped_proof(whole, solution, beside=len(gang.placed))

    def _improves(self, problem: Problem, solution: Solution) -> bool:
        """Whether the answer is better than the places of before, up to the number of nodes."""
        task_of = {
            pod.uid: number
            for number, pod_set in enumerate(self._extras.gang.pod_sets)
            for pod in pod_set.pods
        }
        counts: Ints = np.zeros_like(solution.counts)
        for place in self._before:
            counts[task_of[place.pod.uid], place.row] += 1
        if solution_errors(problem, counts):
            return True
        until = objective_names(problem).index("nodes") + 1
        found = objective_values(problem, solution.counts)[:until]
        return found < objective_values(problem, counts)[:until]

    def _breaks_reservation(self, statement: Statement) -> bool:
        reservations = self._session.reservations
        return reservations is not None and (
            reservations.conflict(self._gang, statement) is not None
        )
