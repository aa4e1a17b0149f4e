"""Members placed one by one, each on the node that policies like best: no search, no proof.

For lone pods, for gangs that policies do not want compact, and for members with rules about other
pods, each other included, which no table of counts can tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from gpusched.api.pod.pod import Pod
from gpusched.arrays.columns import Bools
from gpusched.base.classes import define, frozen
from gpusched.base.limits import (
    POD_RULES_DOMAINS_MAX,
    POD_RULES_SESSION_STEPS_MAX,
    POD_RULES_STEPS_MAX,
    WORK_STEP,
)
from gpusched.cache.gangs.gang import Gang, PodSet
from gpusched.placement.model.class_fit import ClassFit
from gpusched.session.allocate.node_sets import (
    ALL_NODES,
    LevelConstraint,
    NodeSet,
    Unschedulable,
    candidate_node_sets,
)
from gpusched.session.allocate.refusals.unschedulable import explain_no_domain, explain_shortage
from gpusched.session.allocate.start_members import choose_start_members, in_pod_order
from gpusched.session.allocate.sub_groups import place_sub_groups
from gpusched.session.framework.reasons import Reason, truncate_message
from gpusched.session.state.session import Session
from gpusched.session.state.statement import Statement


@frozen(slots=True)
class UnplacedPod:
    """The pod that found no place in the first pass, and how many of its pod set had found one."""

    pod_set: PodSet
    pod: Pod
    placed: int


@frozen(slots=True)
class _SearchedPod:
    pod_set: PodSet
    pod: Pod


def has_inter_pod_rules(session: Session, pod_sets: Sequence[tuple[PodSet, int]]) -> bool:
    """Whether any of these members has a rule about other pods, or is meant by one of others."""
    return any(
        session.pod_info(pod).gate is not None
        for pod_set, _ in pod_sets
        if session.class_infos.may_have_pod_rules(pod_set.pod_class)
        for pod in pod_set.pods
    )


@define
class _InterPodSteps:
    """Places that searches for gangs with rules between pods may still try in one session."""

    left: int = POD_RULES_SESSION_STEPS_MAX


class InterPodSearch:
    """Tries to place some members of a gang together.

    Args:
        session: whose nodes are searched.
        pod_sets: members by pod set, and how many of each.
        statement: takes the places.
        rows: where they may go, shape (nodes,); None for anywhere.
    """

    def __init__(
        self,
        session: Session,
        pod_sets: Sequence[tuple[PodSet, int]],
        statement: Statement,
        rows: Bools | None,
    ) -> None:
        self._session = session
        self._statement = statement
        self._rows = rows
        self._start = statement.checkpoint()
        self._steps = POD_RULES_STEPS_MAX
        self._members = [
            _SearchedPod(pod_set, pod)
            for pod_set, count in pod_sets
            for pod in in_pod_order(pod_set.pods, session.hooks.pod_orders)[:count]
        ]

    def place_in_one_pass(self) -> UnplacedPod | None:
        """One pass; leaves its places, also when a pod finds none.

        Returns:
            The pod that finds no place; None when all have one.
        """
        left = self._one_pass(self._members, self._rows, emptiest=False)
        if not left:
            return None
        member = left[0]
        waiting = sum(1 for each in left if each.pod_set is member.pod_set)
        count = sum(1 for each in self._members if each.pod_set is member.pod_set)
        return UnplacedPod(member.pod_set, member.pod, count - waiting)

    def search_other_ways(self) -> bool:
        """All other ways, from a clean start; leaves the places of the first that works."""
        self._go_back_to(self._start)
        if self._one_pass_is_exact() or self._has_hopeless_pod():
            return False
        budget = self._session.cycle_state.get_or_make(_InterPodSteps, _InterPodSteps)
        self._steps = granted = min(POD_RULES_STEPS_MAX, budget.left)
        found = self._search_ways()
        budget.left -= granted - max(0, self._steps)
        return found

    def _search_ways(self) -> bool:
        for members, rows, emptiest in self._placement_ways():
            if self._steps <= 0:
                return False
            if not self._one_pass(members, rows, emptiest=emptiest):
                return True
            self._go_back_to(self._start)
        return self._place_members_from(0)

    def _one_pass_is_exact(self) -> bool:
        """Whether one pass said all: equal members whose rules leave nothing to the order."""
        infos = [self._session.pod_info(member.pod) for member in self._members]
        return all(info is infos[0] and info.gate is not None and info.gate.exact for info in infos)

    def _has_hopeless_pod(self) -> bool:
        """Whether a pod has no place even alone, without its rules about other pods."""
        need: dict[str, int] = {}
        for member in self._members:
            digest = member.pod.pod_class.digest
            need[digest] = need.get(digest, 0) + 1
        for member in self._members:
            count = need.pop(member.pod.pod_class.digest, 0)
            class_fit = self._session.class_info(member.pod.pod_class).class_fit
            if count and class_fit.count_fitting(self._rows, most=count) < count:
                return True
        return False

    def _placement_ways(self) -> Iterator[tuple[list[_SearchedPod], Bools | None, bool]]:
        keys = sorted(
            {
                term.topology_key
                for each in self._members
                for term in each.pod.pod_class.pod_affinity
            }
        )
        for key in keys:
            for rows in self._domain_rows(key):
                yield self._members, rows, False
        yield self._members, self._rows, True
        yield self._members[::-1], self._rows, False
        yield self._members[::-1], self._rows, True

    def _domain_rows(self, key: str) -> Iterator[Bools]:
        """Rows of each domain, that with most room for the first member first."""
        domains = self._session.pod_counts.domain_numbers(key)
        class_fit = self._session.class_info(self._members[0].pod.pod_class).class_fit
        most = len(self._members)
        found: list[tuple[int, int, Bools]] = []
        for number in range(int(domains.max(initial=-1)) + 1):
            rows = domains == number
            if self._rows is not None:
                rows &= self._rows
            if rows.any():
                found.append((-class_fit.count_fitting(rows, most=most), number, rows))
        found.sort(key=lambda each: each[:2])
        return iter([rows for _, _, rows in found[:POD_RULES_DOMAINS_MAX]])

    # -- one pass ----------------------------------------------------------------------------
    def _one_pass(
        self, members: Sequence[_SearchedPod], rows: Bools | None, *, emptiest: bool
    ) -> list[_SearchedPod]:
        """Pods that find no place, after rounds that go on while each places another pod."""
        left = list(members)
        while left:
            rest = [each for each in left if not self._place_member(each, rows, emptiest=emptiest)]
            if len(rest) == len(left):
                return rest
            left = rest
        return left

    def _place_member(self, member: _SearchedPod, rows: Bools | None, *, emptiest: bool) -> bool:
        self._session.work_budget.spend_units(WORK_STEP)
        while True:
            info = self._session.pod_info(member.pod)
            row = _emptiest_row(info.class_fit, rows) if emptiest else info.class_fit.best_row(rows)
            if row < 0:
                return False
            self._steps -= 1
            if self._statement.try_assign(member.pod, row, info.request):
                return True

    # -- backtracking ------------------------------------------------------------------------
    def _place_members_from(self, number: int) -> bool:
        """Place the members from this one on, going back where one is stuck."""
        if number == len(self._members):
            return True
        member = self._members[number]
        info = self._session.pod_info(member.pod)
        for row in info.class_fit.by_rank(self._rows):
            if self._steps <= 0:
                return False
            self._steps -= 1
            self._session.work_budget.spend_units(WORK_STEP)
            mark = self._statement.checkpoint()
            if not self._statement.try_assign(member.pod, row, info.request):
                continue
            if self._place_members_from(number + 1):
                return True
            self._go_back_to(mark)
        return False

    def _go_back_to(self, mark: int) -> None:
        self._statement.rollback(mark)


def _emptiest_row(class_fit: ClassFit, rows: Bools | None) -> int:
    fits = class_fit.fits if rows is None else np.where(rows, class_fit.fits, 0)
    if not fits.size or not fits.any():
        return -1
    return int(fits.argmax())


def has_one_pod(gang: Gang) -> bool:
    """Whether a gang is one pod that wishes for no other node than it could have alone."""
    if len(gang.pod_sets) != 1 or gang.members_at_start != 1 or gang.placed:
        return False
    pod_set, wish = gang.pod_sets[0], gang.topology
    if len(pod_set.pods) != 1 or pod_set.sub_group or gang.sub_groups or gang.min_roles:
        return False
    return not (wish.required or wish.preferred)


def is_plain_pod(session: Session, gang: Gang) -> bool:
    """Whether a gang is one pod that may go to any node and wishes for nothing: nothing else is to be looked at."""
    if not has_one_pod(gang) or gang.pod_sets[0].pod_class.claims:
        return False
    return session.cluster_map.spared_rows(
        gang
    ) is None and not session.class_infos.may_have_pod_rules(gang.pod_sets[0].pod_class)


def place_plain_pod(session: Session, gang: Gang, statement: Statement) -> Unschedulable | None:
    """As ``place_pod_by_pod`` for a gang of which ``is_plain_pod`` is true."""
    return _place_all(session, [(gang.pod_sets[0], 1)], statement, ALL_NODES)


def place_pod_by_pod(
    session: Session, gang: Gang, statement: Statement, confines: LevelConstraint
) -> Unschedulable | None:
    """Give places to as many members as the gang must start with, or to none.

    Areas are tried in order; inside one, the largest members first and, where classes differ
    and any members would do, the smallest first. For members of one class without rules about
    other pods the answer is exact: they fit if and only if the sum over nodes of what fits each
    says so.
    """
    areas, refusal = candidate_node_sets(session, gang)
    if refusal is not None:
        return refusal
    if gang.sub_groups:
        return _place_parts(session, gang, statement, areas)
    last: Unschedulable | None = None
    for largest_first in (True, False) if len(gang.pod_sets) > 1 else (True,):
        pod_sets, too_few = choose_start_members(gang, largest_first=largest_first)
        if too_few:
            return Unschedulable(Reason.NOT_ENOUGH_MEMBERS, too_few)
        for area in _node_sets_that_fit(session, pod_sets, areas):
            failed = _place_all(session, pod_sets, statement, area)
            if failed is None:
                return None
            last = failed if largest_first or last is None else last
    if areas and not areas[-1].where:
        assert last is not None, "the whole cluster is always tried"
        return last
    return explain_no_domain(session, gang, confines)


def _place_parts(
    session: Session, gang: Gang, statement: Statement, areas: Sequence[NodeSet]
) -> Unschedulable | None:
    rows = [area.rows for area in areas]
    stuck = place_sub_groups(session, gang, statement, areas=rows, place_all=place_within_rows)
    if stuck is None:
        return None
    bound = any(part.topology.required for part in gang.sub_groups) or gang.topology.required
    reason = Reason.TOPOLOGY_UNSATISFIABLE if bound else Reason.INSUFFICIENT_RESOURCES
    return Unschedulable(reason, truncate_message(stuck))


def place_within_rows(
    session: Session, chosen: list[tuple[PodSet, int]], statement: Statement, rows: Bools | None
) -> bool:
    """Place so many of each pod set on these rows (None: anywhere), or nothing."""
    return _place_all(session, chosen, statement, NodeSet(rows, "")) is None


def _place_all(
    session: Session, pod_sets: Sequence[tuple[PodSet, int]], statement: Statement, area: NodeSet
) -> Unschedulable | None:
    if has_inter_pod_rules(session, pod_sets):
        return _place_by_inter_pod_search(session, pod_sets, statement, area)
    start = statement.checkpoint()
    for pod_set, count in pod_sets:
        info = session.class_info(pod_set.pod_class)
        pods = in_pod_order(pod_set.pods, session.hooks.pod_orders)[:count]
        for number, pod in enumerate(pods):
            if number:
                info.class_fit.refresh()
            row = info.class_fit.best_row(area.rows)
            while row >= 0 and not statement.try_assign(pod, row, info.request):
                info.class_fit.refresh()
                row = info.class_fit.best_row(area.rows)
            if row < 0:
                statement.rollback(start)
                return explain_shortage(session, pod_set, count, area, pod=pod)
    return None


def _place_by_inter_pod_search(
    session: Session, pod_sets: Sequence[tuple[PodSet, int]], statement: Statement, area: NodeSet
) -> Unschedulable | None:
    start = statement.checkpoint()
    search = InterPodSearch(session, pod_sets, statement, area.rows)
    stuck = search.place_in_one_pass()
    if stuck is None:
        return None
    # Told as things stand with the others placed: their rules are part of the reason.
    count = next(count for pod_set, count in pod_sets if pod_set is stuck.pod_set)
    members = [pod for pod_set, _ in pod_sets for pod in pod_set.pods]
    with session.view.told_of(members):
        refusal = explain_shortage(
            session, stuck.pod_set, count, area, pod=stuck.pod, placed=stuck.placed
        )
    if search.search_other_ways():
        return None
    statement.rollback(start)
    return refusal


def _node_sets_that_fit(
    session: Session, pod_sets: Sequence[tuple[PodSet, int]], areas: Sequence[NodeSet]
) -> list[NodeSet]:
    """Areas in which each class fits on its own, tightest first inside one level."""
    kept: list[tuple[int, int, NodeSet]] = []
    rank = 0
    where = None
    for area in areas:
        if area.where != where:
            rank, where = rank + 1, area.where
        if not area.where:
            kept.append((rank, 0, area))
            continue
        spare = 0
        for pod_set, count in pod_sets:
            fit = session.class_info(pod_set.pod_class).class_fit.count_fitting(
                area.rows, most=count
            )
            if fit < count:
                break
            spare += session.class_info(pod_set.pod_class).class_fit.count_fitting(
                area.rows, most=2**20
            )
        else:
            kept.append((rank, spare, area))
    kept.sort(key=lambda each: each[:2])
    return [area for _, _, area in kept]
