"""Members above a gang's minimum by the search that placed the minimum: as many as fit, compactly.

A gang that started in this session, whose places nobody has been told yet, is placed again as a
whole; one that runs grows around its members. Quotas and reservations hold as for single pods.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import nullcontext
from typing import Final

import attrs

from gpusched.api.meta.identity import GangKey
from gpusched.api.meta.resources import NOTHING
from gpusched.api.pod.pod import Pod
from gpusched.base import limits
from gpusched.base.classes import frozen
from gpusched.cache.gangs.gang import Gang, PodSet
from gpusched.placement.model.problem import Problem, Solution
from gpusched.session.allocate.gang_placement import (
    is_placed_as_a_whole,
    scoped_proof,
    solve_most,
    whole_bounds,
)
from gpusched.session.allocate.member_rules.device_values import (
    held_as_members,
    matches_devices,
    place_on_best_value,
)
from gpusched.session.allocate.node_sets import Unschedulable, level_constraint_now
from gpusched.session.allocate.placement_problem import NodeBounds, apply_solution, build_problem
from gpusched.session.allocate.start_members import in_pod_order
from gpusched.session.framework.reasons import Reason
from gpusched.session.framework.verdict import first_refusal
from gpusched.session.gpu_types.choice import place_on_best_types
from gpusched.session.gpu_types.options import (
    GpuTypeRefusal,
    chooses_gpu_types,
    on_types_of_members,
)
from gpusched.session.state.session import Session
from gpusched.session.state.statement import Assignment, Statement

TOGETHER_MAX: Final = 16
"""Growing gangs that make way for each other at a time, where there is not room for all of all."""
ARRANGE_WORK_MAX: Final = 60_000
"""Units of work beyond those of the session: once places are told they cannot be better ones."""


@frozen(eq=False)
class _Extras:
    """Members of one gang that may get places now.

    Attributes:
        gang: with exactly these members, and the pod sets that have any.
        more: how many of them have none yet.
        every: whether no member that waits is left out.
    """

    gang: Gang
    more: int
    every: bool


def place_extras(session: Session, gang: Gang) -> None:
    """Give a gang the most compact places for as many members as fit and its quota allows."""
    made = _find_rearrangement(session, gang)
    if made is None or not _any_room(session, gang, made.before):
        return
    made.free_own_places()
    if made.find_places(more=True):
        made.keep_found_places()
    else:
        made.restore_own_places()


def place_all_extras(session: Session, gangs: Sequence[Gang]) -> bool:
    """Give each of several gangs places for all its members, in turn.

    Returns:
        Whether there was room and quota for all; otherwise nothing has changed.
    """
    if len(gangs) * limits.WORK_CLASS * 2 > ARRANGE_WORK_MAX:
        return False
    made = [each for gang in gangs if (each := _find_rearrangement(session, gang)) is not None]
    return len(made) == len(gangs) and _settle_all(made, more=True)


def arrange_together(
    session: Session, gangs: Sequence[Gang], *, sure: Collection[GangKey] = ()
) -> None:
    """Give gangs that started or grew in one session, each as many places as it has, compact ones in turn.

    All of them make way first, so that each gets the best that is left when those before it have
    theirs. Where one finds no room for as many any more, all stay and nothing is proven. Of very
    many so many make way together, and what was proven of those before does not outlast that.

    Args:
        session: in which they have their places.
        gangs: in the order of their turns.
        sure: keys of those whose proofs hold if all stay where they are.
    """
    most = session.work_budget.spent + ARRANGE_WORK_MAX
    for start in range(0, len(gangs), TOGETHER_MAX):
        if session.work_budget.spent > most:
            return
        together = gangs[start : start + TOGETHER_MAX]
        made = [
            each
            for gang in together
            if (each := _find_rearrangement(session, gang)) is not None and each.before
        ]
        if not made:
            continue
        moved = _settle_all(made, more=False)
        for gang in gangs[:start] if moved else together:
            if moved or gang.key not in sure:
                session.placements.drop_proof(gang)


def _settle_all(made: Sequence[_Rearrangement], *, more: bool) -> bool:
    """Let gangs make way, and settle them in turn; where one cannot, all are where they were."""
    for each in made:
        each.free_own_places()
    settled: list[_Rearrangement] = []
    for each in made:
        if not each.find_places(more=more, every=more):
            break
        settled.append(each)
    if len(settled) == len(made):
        for each in settled:
            each.keep_found_places()
        return True
    for each in reversed(settled):
        each.free_found_places()
    for each in reversed(made):
        each.restore_own_places()
    return False


def _find_rearrangement(session: Session, gang: Gang) -> _Rearrangement | None:
    """The gang with the places that may change; None where it is not placed by the search."""
    if session.queue_accounts.pools is not None:
        return None  # what pools of queues hold depends on where pods are
    whole = session.placements.variant(gang).gang
    if not is_placed_as_a_whole(session, whole):
        return None
    stays = session.placements.from_nomination(gang)
    if stays and whole.sub_groups:
        return None
    before = () if stays else tuple(session.placements.assigned(gang))
    return _Rearrangement(session, gang, before)


def _any_room(session: Session, gang: Gang, before: Sequence[Assignment]) -> bool:
    """Whether one more might fit: where sizes differ, perhaps when the others are elsewhere."""
    whole = session.placements.variant(gang).gang
    if before and len(whole.pod_sets) > 1:
        return True
    return any(
        session.class_info(pod_set.pod_class).class_fit.fits.any() for pod_set in whole.pod_sets
    )


def _collect_extras(
    session: Session, gang: Gang, before: Sequence[Assignment], *, more: bool
) -> _Extras:
    """Members with places that may change, and those that the quota allows on top."""
    whole = session.placements.variant(gang).gang
    kept = {place.pod.uid for place in before}
    placed = kept | {place.pod.uid for place in session.placements.assigned(gang)}
    pod_sets: list[PodSet] = []
    charged: list[PodSet] = []
    added, every = 0, True
    for pod_set in whole.pod_sets:
        ordered = in_pod_order(pod_set.pods, session.hooks.pod_orders)
        waiting = [pod for pod in ordered if pod.uid not in placed]
        asked = waiting[: max(0, session.placements.binds_left - added)] if more else []
        allowed = _allowed_by_quota(session, gang, charged, pod_set, asked)
        if allowed:
            charged.append(attrs.evolve(pod_set, pods=tuple(waiting[:allowed])))
            added += allowed
        every = every and allowed == len(waiting)
        new = {pod.uid for pod in waiting[:allowed]}
        chosen = tuple(pod for pod in ordered if pod.uid in kept or pod.uid in new)
        if chosen:
            pod_sets.append(attrs.evolve(pod_set, pods=chosen))
    return _Extras(attrs.evolve(whole, pod_sets=tuple(pod_sets)), added, every)


def _allowed_by_quota(
    session: Session, gang: Gang, charged: Sequence[PodSet], pod_set: PodSet, waiting: Sequence[Pod]
) -> int:
    """How many of these pods, beside those that are to be charged, quotas allow."""

    def fits(count: int) -> bool:
        pod_sets = (*charged, attrs.evolve(pod_set, pods=tuple(waiting[:count])))
        asked = NOTHING
        for each in pod_sets:
            asked = asked.plus(each.pod_class.charged, times=len(each.pods))
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
    """A gang that gives up the places of this session, until it has better ones or its own again.

    Args:
        session: in which it was given them.
        gang: as the session has it.
        before: the places that may change.
    """

    def __init__(self, session: Session, gang: Gang, before: Sequence[Assignment]) -> None:
        self._session = session
        self.gang = gang
        self.before = tuple(before)
        had = {place.pod.uid for place in before}
        assigned = session.placements.assigned(gang)
        self._stay = tuple(each for each in assigned if each.pod.uid not in had)
        self._proof = session.placements.proof(gang)
        self._cleared = session.statement()
        self._statement: Statement | None = None

    def free_own_places(self) -> None:
        """Free its places; ``restore_own_places``, or ``find_places`` and ``keep_found_places``, must follow."""
        for place in reversed(self.before):
            self._cleared.unassign(place)
        if self.before:
            self._session.placements.replace(self.gang, self._stay, proof="")

    def restore_own_places(self) -> None:
        """Give it its own places again."""
        self._cleared.discard()
        if self.before:
            places = (*self._stay, *self.before)
            self._session.placements.replace(self.gang, places, proof=self._proof)

    def find_places(self, *, more: bool, every: bool = False) -> bool:
        """Find places for all that had some; whether it has them now.

        Args:
            more: whether further members get places, within quota and as far as there is room.
            every: whether it is to be all of them or none.
        """
        session = self._session
        self._extras = extras = _collect_extras(session, self.gang, self.before, more=more)
        if not extras.gang.pending or (every and not extras.every) or (more and not extras.more):
            return False
        reservations = session.reservations
        statement = session.statement()
        with (
            session.on_open_nodes(self.gang),
            nullcontext()
            if reservations is None
            else reservations.exclude_reserved_room(self.gang),
        ):
            found = self._find_places(statement)
        if every and len(statement.assignments) < extras.gang.pending:
            found = False
        if found and reservations is not None:
            found = reservations.find_conflict(self.gang, statement) is None
        if not found:
            statement.discard()
            return False
        self._statement = statement
        places = statement.assignments
        session.placements.replace(self.gang, (*self._stay, *places), proof=statement.proof)
        session.placements.charge_replaced(self.gang, self.before, places)
        return True

    def free_found_places(self) -> None:
        """Free what it found again; ``restore_own_places`` must follow."""
        assert self._statement is not None, "it has settled"
        places = self._statement.assignments
        self._session.placements.charge_replaced(self.gang, places, self.before)
        self._session.placements.replace(self.gang, self._stay, proof="")
        self._statement.discard()

    def keep_found_places(self) -> None:
        """Keep what it found."""
        assert self._statement is not None, "it has settled"
        self._cleared.commit()
        self._statement.commit()

    def _find_places(self, statement: Statement) -> bool:
        """Place the members with devices that have in common what the gang asks for."""
        session, gang = self._session, self._extras.gang
        if not matches_devices(gang):
            return self._find_on_types(statement)
        if gang.placed or self._stay:
            with held_as_members(session, gang):
                return self._find_on_types(statement)

        def place() -> Unschedulable | None:
            if self._find_on_types(statement):
                return None
            return Unschedulable(Reason.INSUFFICIENT_RESOURCES, "")

        return place_on_best_value(session, gang, statement, place) is None

    def _find_on_types(self, statement: Statement) -> bool:
        """Place the members on the types of GPUs that are best for them all; on those of running ones."""
        session, gang = self._session, self._extras.gang
        if not chooses_gpu_types(session, gang):
            return self._place_members(statement)
        if gang.placed or self._stay:
            with on_types_of_members(session, gang):
                return self._place_members(statement)

        def place() -> GpuTypeRefusal | None:
            if self._place_members(statement):
                return None
            return GpuTypeRefusal(Reason.INSUFFICIENT_RESOURCES, "")

        return place_on_best_types(session, gang, statement, place) is None

    def _place_members(self, statement: Statement) -> bool:
        """Place as many members as fit, not fewer than have places, or none."""
        session, extras = self._session, self._extras
        confines = level_constraint_now(session, extras.gang)
        if isinstance(confines, Unschedulable):
            return False
        bounds = whole_bounds(session, extras.gang, confines)
        if bounds is None:
            return False
        problem = self._build_problem(bounds)
        solution = solve_most(session, problem, extras.more)
        count = int(solution.counts.sum())
        if not count or count < len(self.before):
            return False
        mark = statement.checkpoint()
        if not apply_solution(session, extras.gang, statement, problem, solution, bounds=bounds):
            statement.rollback(mark)
            return False
        statement.proof, statement.terms = self._proof_of(bounds, solution), solution.terms
        return True

    def _build_problem(self, bounds: NodeBounds) -> Problem:
        """As many members as have places already; what a gang lacks is in them."""
        problem = build_problem(self._session, self._extras.gang, bounds)
        if self.before:
            return attrs.evolve(problem, members=len(self.before))
        return attrs.evolve(problem, members=0, minima=(), parts_least=0)

    def _proof_of(self, bounds: NodeBounds, solution: Solution) -> str:
        whole = self._session.placements.variant(self.gang).gang
        count = int(solution.counts.sum())
        if bounds.rules is not None and bounds.rules.rises and count < self._extras.gang.pending:
            return ""  # more may fit when domains have filled up evenly
        if self._stay:
            return ""  # those that were promised their places are bound with these
        return scoped_proof(self._session, whole, solution)
