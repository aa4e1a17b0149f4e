"""Which victims would make room for a class of claimants, for the least cost over all areas.

What was worked out for a class is kept. Queues are taken in in the order in which policies would
take from them, and only as many as are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import Any, Final

import attrs
import numpy as np

from gpusched.api.meta.identity import GangKey
from gpusched.arrays.columns import Bools, RequestVector, how_many_fit
from gpusched.base import limits
from gpusched.base.classes import frozen
from gpusched.base.errors import SolverFault
from gpusched.cache.gangs.gang import Gang
from gpusched.placement.model.problem import SearchOutcome
from gpusched.placement.victims.lower_bound import VictimLowerBound
from gpusched.placement.victims.model import VictimChoice
from gpusched.placement.victims.search import VictimSearchResult, find_cheaper_victims
from gpusched.session.allocate.node_sets import NodeSet
from gpusched.session.framework.proposal import allowed_victims, victim_sort_keys
from gpusched.session.preempt.claims.victim_kinds import KindLine, VictimsInLines
from gpusched.session.preempt.pools.allowed_blocks import (
    NONE_EXCLUDED,
    BlockSearch,
    ExcludedVictims,
)
from gpusched.session.preempt.pools.free_rows import session_free_rows
from gpusched.session.preempt.pools.line_choice import victim_lines
from gpusched.session.preempt.pools.loss_accounts import AmountsAbove, LossAccounts
from gpusched.session.preempt.pools.pod_blocks import (
    PodBlock,
    PodBlocks,
    StandingBlocks,
    standing_blocks,
)
from gpusched.session.preempt.pools.pool_stage import FoundVictims, PoolStage
from gpusched.session.preempt.victim_pool import VictimGroup, VictimPool, VictimTable
from gpusched.session.preempt.victims import Victims
from gpusched.session.state.nodes.devices.device_columns import DeviceColumns, device_columns
from gpusched.session.state.search_records import SearchRecord
from gpusched.session.state.session import Session

_GANGS_AT_FIRST = 2_000
"""Gangs among which is chosen; more queues are taken in, fourfold, where these do not do."""
_GANGS_WHERE_ANY_DO: Final = 128
"""The same where it is only asked whether there are victims."""
ClaimantClass = Hashable
"""The key under which claimants share victims, see ``Preemption``."""


@frozen(slots=True, eq=False)
class VictimRules:
    """Which gangs may be victims, before policies are asked.

    Attributes:
        action: ``preempt`` or ``reclaim``.
        queues: those from which may be taken for a claimant.
        may_be_victim: whether the second may leave for the first.
        only_spare: whether victims lose members above their minimum alone.
        by_kind: whether ``may_be_victim`` says the same of all victims of one ``RunningKind``.
    """

    action: str
    queues: Callable[[Gang], Iterable[str]]
    may_be_victim: Callable[[Gang, Gang], bool]
    only_spare: bool = False
    by_kind: bool = False


class VictimSelector:
    """See the module. Used while the session is looked at as it will be.

    Args:
        session: in which is evicted.
        victims: of the session.
        rules: of the action.
        any_will_do: whether it is only asked if there are victims: no cheaper ones are searched.
    """

    def __init__(
        self,
        session: Session,
        victims: Victims,
        rules: VictimRules,
        *,
        any_will_do: bool = False,
    ) -> None:
        self._any_will_do = any_will_do
        self._quick = any_will_do
        self._session = session
        self._victims = victims
        self._rules = rules
        self._stages: dict[tuple[ClaimantClass, int], PoolStage] = {}
        self._excluded: dict[ClaimantClass, ExcludedVictims] = {}
        self._accounts: dict[ClaimantClass, LossAccounts] = {}
        self._found: dict[tuple[ClaimantClass, int], FoundVictims] = {}
        """Victims of the claim that is looked at, for all its areas."""
        self._above = AmountsAbove(session)
        self._blocks = PodBlocks(victims)
        self._budget = session.placement.time_budget_s
        self.work = 0
        """Steps taken, in units of a few microseconds; bounded by the caller."""

    def choose_victims(
        self,
        claimant: Gang,
        kind: ClaimantClass,
        need: int,
        areas: Sequence[NodeSet],
        *,
        freely: bool = False,
        quick: bool = False,
    ) -> list[VictimGroup] | None:
        """The cheapest victims over all areas; None when no area can be made to hold the gang.

        Areas whose bound by counting is not below the best known are not searched; of equals
        the first wins, as areas come in the order in which the gang wishes for them.

        Args:
            claimant: one of its class.
            kind: the class.
            need: members that must fit.
            areas: where.
            freely: limits on losses are not asked for anew: they are known to be in nobody's way.
            quick: the first that are found will do: it is not searched for cheaper ones.
        """
        self._found.clear()
        self._quick = quick or self._any_will_do
        # Nothing moves while areas are compared: policies are asked once for all of them.
        if kind not in self._accounts:
            self.loss_accounts(claimant, kind)  # asks as it is made
        elif not freely:
            self._accounts[kind].renew_limits(claimant)
        if len(areas) == 1:
            return self._choose_in_one_node_set(claimant, kind, need, areas[0])
        bounds: list[tuple[VictimLowerBound, int]] = []
        for number, area in enumerate(areas):
            bound = self._lower_bound(claimant, kind, need, number=number, area=area)
            if bound is not None:
                bounds.append((bound, number))
        bounds.sort(key=lambda each: (each[0].rank, each[0].cost, each[1]))
        best: tuple[VictimChoice, int] | None = None
        found: list[tuple[VictimChoice, int]] = []
        for bound, number in bounds:
            if best is not None and not self._is_promising(kind, bound, number, best):
                continue
            choice = self._in_area(claimant, kind, need, number=number, area=areas[number])
            if choice is not None:
                found.append((choice, number))
                best = min(found, key=_choice_cost)
            pool = self._stages[kind, number].pool
            better = self._solve_for_cheaper(pool, need, None if best is None else best[0])
            if better is not None:
                found.append((better, number))
                best = min(found, key=_choice_cost)
        if best is None:
            return None
        return self._stages[kind, best[1]].pool.victim_groups(best[0])

    def _choose_in_one_node_set(
        self, claimant: Gang, kind: ClaimantClass, need: int, area: NodeSet
    ) -> list[VictimGroup] | None:
        """The cheapest victims where there is one area: a bound is needed where none are found."""
        stage = self._stages.get((kind, 0))
        if stage is None:
            stage = self._add_queues(claimant, kind, number=0, area=area, alone=True)
        if stage.is_in_vain(need):
            return None
        chosen = self._choose_in_lines(claimant, kind, need, area)
        if chosen is not None:
            return chosen
        stage = self._stages[kind, 0]
        stage.reached = None
        stage.pool.refresh()
        choice = self._in_area(claimant, kind, need, number=0, area=area)
        pool = self._stages[kind, 0].pool
        bound = None
        if choice is None and (bound := pool.lower_bound(need)) is None:
            return None
        best = self._solve_for_cheaper(pool, need, choice, bound, alone=True) or choice
        return None if best is None else pool.victim_groups(best)

    def _choose_in_lines(
        self, claimant: Gang, kind: ClaimantClass, need: int, area: NodeSet
    ) -> list[VictimGroup] | None:
        """The cheapest victims where lines tell them; None where they do not, or there are none."""
        stage = self._stages[kind, 0]
        columns = self._session.class_info(claimant.pod_sets[0].pod_class).request.columns
        limits = self._accounts[kind].limits_looked_up()
        while stage.lines is not None and stage.room is not None:
            missing = need - stage.room()
            if missing <= 0:
                return None
            free = session_free_rows(self._session).in_columns(columns).amounts
            choice = stage.lines.choose(missing, limits, free)
            if choice is None or (stage.every and not choice.pods):
                return None
            if choice.pods:
                if self._searches_for_cheaper and not stage.lines.costs_least(choice):
                    return None
                stage.reached = need
                return [VictimGroup(pod.gang, (pod.seat,)) for pod in choice.pods]
            stage = self._add_queues(claimant, kind, number=0, area=area, alone=True)
        return None

    @property
    def _searches_for_cheaper(self) -> bool:
        """Whether a cheaper choice is searched for where one may exist."""
        return self._session.placement.solver == "cpsat" and self._budget > 0 and not self._quick

    def loses_freely(self, claimant: Gang, kind: ClaimantClass) -> bool:
        """Whether limits on losses, as accounts stand, are in the way of no choice in the one area there is."""
        pool = self.only_pool(kind)
        if pool is None:
            return False
        return pool.loses_freely(self.loss_accounts(claimant, kind).limits_now(claimant))

    def only_pool(self, kind: ClaimantClass) -> VictimPool | None:
        """All victims of a class, where there is one area for it; None where there are several, or only some victims are known."""
        stages = self._stages_of(kind)
        return stages[0].pool if len(stages) == 1 and stages[0].every else None

    def _is_promising(
        self,
        kind: ClaimantClass,
        bound: VictimLowerBound,
        number: int,
        best: tuple[VictimChoice, int],
    ) -> bool:
        """Whether an area may hold something better than the best known, or as good and wished for."""
        if not self._stages[kind, number].pool.fixed:
            return True  # whose turn it is changes with every step: bounds do not know it
        choice, where = best
        return (bound.rank, bound.cost, number) < (choice.rank, choice.cost, where)

    def best_reach(self, kind: ClaimantClass) -> int:
        """How many claimants would have fitted at most when nothing was found; -1: no victims."""
        stages = self._stages_of(kind)
        return max((each.reach for each in stages if each.size), default=-1)

    def allowed_victims(self, claimant: Gang, kind: ClaimantClass) -> list[Gang]:
        """Every gang of which some part may be evicted for the claimant."""
        return self._allowed_of_queues(claimant, kind, self._queues_in_order(claimant))[0]

    def allowed_in_lines(self, claimant: Gang, kind: ClaimantClass) -> VictimsInLines:
        """The same gangs, those that are alike together where policies and rules tell no difference."""
        queues = self._queues_in_order(claimant)
        if not self._asks_by_kind(kind):
            return VictimsInLines.one_by_one(self._allowed_of_queues(claimant, kind, queues)[0])
        lines: list[tuple[int, KindLine]] = []
        others: list[tuple[tuple[int, GangKey], Gang]] = []
        for number, queue in enumerate(queues):
            some, rest = self._kinds_of_queue(claimant, queue)
            lines += [(number, line) for line in some]
            others += [((number, gang.key), gang) for gang in rest]
        asked = [*(gang for _, gang in others), *(line.speaker for _, line in lines)]
        allowed = self._allowed_ids(claimant, asked)
        return VictimsInLines(
            [each for each in lines if id(each[1].speaker) in allowed],
            [each for each in others if id(each[1]) in allowed],
        )

    def allows_any_victim(self, claimant: Gang, kind: ClaimantClass) -> bool:
        """Whether some gang may lose anything to the claimant."""
        by_kind = self._asks_by_kind(kind)
        for queue in self._queues_in_order(claimant):
            if by_kind:
                lines, others = self._kinds_of_queue(claimant, queue)
                asked = [*others, *(line.speaker for line in lines)]
            else:
                asked = self._of_queue(claimant, kind, queue)
            if self._allowed_ids(claimant, asked):
                return True
        return False

    def _allowed_ids(self, claimant: Gang, asked: Sequence[Gang]) -> set[int]:
        filters = self._session.hooks.victim_filters
        return set(map(id, allowed_victims(filters, claimant, asked, self._rules.action)))

    def _asks_by_kind(self, kind: ClaimantClass) -> bool:
        """Whether all that orders and refuses victims of a class of claimants is the same for those of one kind."""
        hooks = self._session.hooks
        return (
            self._rules.by_kind
            and kind not in self._excluded
            and hooks.victim_orders_fixed
            and all(each.alike for each in hooks.victim_filters)
            and all(each.alike for each in (*hooks.victim_orders, *hooks.victim_preferences))
        )

    def _kinds_of_queue(self, claimant: Gang, queue: str) -> tuple[list[KindLine], list[Gang]]:
        """As ``_of_queue``, those that are one pod and alike together."""
        may_be_victim = self._rules.may_be_victim
        kinds = self._victims.kinds_of_queue(queue)
        self.work += len(kinds)
        return (
            [line for line in kinds.lines.values() if may_be_victim(claimant, line.speaker)],
            [
                gang
                for gang in kinds.others.values()
                if gang.key != claimant.key and may_be_victim(claimant, gang)
            ],
        )

    def exclude_gangs(self, kind: ClaimantClass, gangs: Sequence[Gang]) -> None:
        """These are no victims after all."""
        self._excluded.setdefault(kind, ExcludedVictims()).gangs.update(gang.key for gang in gangs)
        for stage in self._stages_of(kind):
            stage.exclude_gangs(gangs)

    def cap_queue(self, kind: ClaimantClass, allowed: Sequence[VictimGroup], gang: Gang) -> None:
        """A queue gives no more than what was allowed before this victim was refused.

        Args:
            kind: of the claimants.
            allowed: parts of the choice before the victim.
            gang: the victim.
        """
        before = {part.gang.key for part in allowed if part.gang.queue == gang.queue}
        kept = self._excluded.setdefault(kind, ExcludedVictims()).kept
        keep = kept[gang.queue] = kept.get(gang.queue, before) & before - {gang.key}
        for stage in self._stages_of(kind):
            stage.exclude_queue(gang.queue, keep)

    def lift_loss_limits(self, kind: ClaimantClass) -> None:
        """Queues are not held to what one choice of victims may take from them any more."""
        excluded = self._excluded.get(kind)
        if excluded is not None:
            excluded.kept.clear()

    def _stages_of(self, kind: ClaimantClass) -> list[PoolStage]:
        return [each for (of, _), each in self._stages.items() if of == kind]

    # -- pools -------------------------------------------------------------------------------
    def _lower_bound(
        self, claimant: Gang, kind: ClaimantClass, need: int, *, number: int, area: NodeSet
    ) -> VictimLowerBound | None:
        """What victims in an area cost at least, of as many queues as it takes."""
        stage = self._stages.get((kind, number))
        if stage is None:
            stage = self._add_queues(claimant, kind, number=number, area=area)
        while True:
            stage.pool.refresh()
            bound = stage.pool.lower_bound(need)
            if bound is not None or stage.every:
                return bound
            stage = self._add_queues(claimant, kind, number=number, area=area)

    def _in_area(
        self, claimant: Gang, kind: ClaimantClass, need: int, *, number: int, area: NodeSet
    ) -> VictimChoice | None:
        stage = self._stages[kind, number]
        while True:
            choice = stage.pool.choose_victims(need)
            if choice is not None or stage.every:
                return choice
            stage = self._add_queues(claimant, kind, number=number, area=area)
            stage.pool.refresh()

    def _add_queues(
        self,
        claimant: Gang,
        kind: ClaimantClass,
        *,
        number: int,
        area: NodeSet,
        alone: bool = False,
    ) -> PoolStage:
        """Victims of the first queues, or of more than before; ``alone`` where there is one area."""
        known = self._stages.get((kind, number))
        first = _GANGS_WHERE_ANY_DO if self._any_will_do else _GANGS_AT_FIRST
        most = first if known is None else known.gangs * 4
        stage = self._pool_stage(claimant, kind, area, most, alone=alone)
        self._stages[kind, number] = stage
        return stage

    def _pool_stage(
        self, claimant: Gang, kind: ClaimantClass, area: NodeSet, most: int, *, alone: bool
    ) -> PoolStage:
        session, victims = self._session, self._victims
        seat = session.class_info(claimant.pod_sets[0].pod_class)
        allowed, ask, usage = seat.class_fit.allowed, seat.request, session.node_usage
        rows = allowed if area.rows is None else allowed & area.rows
        devices = self.device_columns(claimant, rows)
        found = self._found.get((kind, most))
        if found is None:
            found = self._find_victims(claimant, kind, most, ask, devices)
            if not devices.requests:  # else each area has devices of its own
                self._found[kind, most] = found
        self.work += found.work + 2 * found.size + len(rows) // 8
        accounts, since, lines = self.loss_accounts(claimant, kind), len(victims.log), None
        if alone and found.standing is not None:
            lines = victim_lines(
                found.standing, accounts, ask, columns=session.snapshot.nodes.columns,
                rows=rows, has_left=victims.has_left,
            )  # fmt: skip

        def room() -> int:
            free = usage.free_amounts(np.flatnonzero(rows), ask.columns)
            return int(how_many_fit(free, ask.amounts).sum())

        def make_pool() -> VictimPool:
            return VictimPool(
                session, victims, found.table, ask, devices=devices, rows=rows, accounts=accounts,
                since=since,
            )  # fmt: skip

        counted = None if devices.requests else room
        return PoolStage(make_pool, found.size, counted, most, found.every, lines)

    def _find_victims(
        self,
        claimant: Gang,
        kind: ClaimantClass,
        most: int,
        request: RequestVector,
        devices: DeviceColumns,
    ) -> FoundVictims:
        """Victims of so many gangs of the first queues."""
        before, action, hooks = self.work, self._rules.action, self._session.hooks
        ordered = self._queues_in_order(claimant)
        gangs: Sequence[Gang] = ()
        standing: StandingBlocks | None = None
        found = self._blocks_of_queues(claimant, kind, ordered, most=most)
        if found is None:
            gangs, taken_in = self._allowed_of_queues(claimant, kind, ordered, most=most)
        else:
            blocks, taken_in = found
            if blocks and not devices.requests:
                standing = standing_blocks(hooks, blocks, claimant, action)
            if standing is None:
                gangs = [gang for block in blocks for gang in block.gangs]
        make_table = partial(
            VictimTable, self._session, self._victims, claimant, request, devices=devices,
            action=action, gangs=gangs, standing=standing,
            accounts=self.loss_accounts(claimant, kind),
        )  # fmt: skip
        work, self.work = self.work - before, before
        return FoundVictims(make_table, taken_in >= len(ordered), work, standing)

    def device_columns(self, claimant: Gang, rows: Bools) -> DeviceColumns:
        """Columns for devices that pods of a claimant's first class claim on some rows."""
        return device_columns(self._session, [claimant.pod_sets[0].pod_class], rows)

    def loss_accounts(self, claimant: Gang, kind: ClaimantClass) -> LossAccounts:
        """What queues may lose to a class of claimants; kept, and asked for again with each claim."""
        known = self._accounts.get(kind)
        if known is None:
            action, queues = self._rules.action, self._rules.queues(claimant)
            known = LossAccounts(self._session, claimant, action, queues, self._above)
            self._accounts[kind] = known
        return known

    def settle_limits(self, kind: ClaimantClass) -> None:
        """Limits of a class hold as they are now, whatever moves before they are renewed."""
        if kind in self._accounts:
            self._accounts[kind].settle_limits()

    def _queues_in_order(self, claimant: Gang) -> list[str]:
        """Queues with victims, in the order in which they are taken from."""
        hooks = self._session.hooks
        orders = (*hooks.victim_orders, *hooks.victim_preferences)
        queues, firsts = [], []
        for queue in self._rules.queues(claimant):
            first = self._victims.first_of_queue(queue)
            if first is not None:
                queues.append(queue)
                firsts.append(first)
        keys = victim_sort_keys(orders, claimant, firsts, self._rules.action)
        return [queue for _, queue in sorted(zip([key or () for key in keys], queues, strict=True))]

    def _allowed_of_queues(
        self,
        claimant: Gang,
        kind: ClaimantClass,
        ordered: Sequence[str],
        *,
        most: int | None = None,
    ) -> tuple[list[Gang], int]:
        """Victims of the first queues until there are so many, and how many queues that takes.

        Policies are asked about as many queues at once as are needed even if they allow all.
        """
        filters = self._session.hooks.victim_filters
        gangs: list[Gang] = []
        taken_in = 0
        while taken_in < len(ordered) and (most is None or len(gangs) < most):
            asked: list[Gang] = []
            while taken_in < len(ordered) and (most is None or len(gangs) + len(asked) < most):
                asked += self._of_queue(claimant, kind, ordered[taken_in])
                taken_in += 1
            gangs += allowed_victims(filters, claimant, asked, self._rules.action)
        return gangs, taken_in

    def _blocks_of_queues(
        self, claimant: Gang, kind: ClaimantClass, ordered: Sequence[str], *, most: int
    ) -> tuple[list[PodBlock], int] | None:
        """The same queue by queue; None where some are no pods alone, or policies tell those of a queue apart."""
        hooks, rules = self._session.hooks, self._rules
        orders = (*hooks.victim_orders, *hooks.victim_preferences)
        alike = all(each.alike for each in hooks.victim_filters) and all(
            each.alike for each in orders
        )
        if rules.only_spare or not alike:
            return None
        search = BlockSearch(
            self._blocks,
            hooks,
            rules.may_be_victim,
            lambda queue: list(self._victims.of_queue(queue)),
            self._victims.kinds_of_queue if rules.by_kind else None,
        )
        excluded = self._excluded.get(kind, NONE_EXCLUDED)
        found = search.find(claimant, rules.action, ordered, excluded, most=most)
        if found is None:
            return None
        self.work += found.work
        return found.blocks, found.taken_in

    def _of_queue(self, claimant: Gang, kind: ClaimantClass, queue: str) -> list[Gang]:
        """Gangs of a queue that may be victims, before policies are asked."""
        may_be_victim = self._rules.may_be_victim
        gangs = list(self._victims.of_queue(queue))
        self.work += len(gangs)
        asked = [
            gang for gang in gangs if gang.key != claimant.key and may_be_victim(claimant, gang)
        ]
        excluded = self._excluded.get(kind)
        return asked if excluded is None else excluded.without(asked, queue)

    # -- the solver --------------------------------------------------------------------------
    def _solve_for_cheaper(
        self,
        pool: VictimPool,
        need: int,
        best: VictimChoice | None,
        bound: VictimLowerBound | None = None,
        *,
        alone: bool = False,
    ) -> VictimChoice | None:
        """A cheaper choice in this area, where one may exist and there is time to look; ``bound`` where it is known."""
        settings = self._session.placement
        if settings.solver != "cpsat" or self._budget <= 0:
            return None
        if best is not None and self._quick:
            return None
        if not pool.fixed:
            return None  # whose turn it is to lose comes before what is lost
        if best is not None and (
            not best.picks
            or (len(best.picks) == 1 and best.cost <= pool.search_state.cheapest_cost())
        ):
            return None
        if best is not None and pool.search_state.costs_least(best, need):
            return None
        budget_s = self._budget if alone else min(self._budget, limits.VICTIM_MODEL_S)
        try:
            answer = find_cheaper_victims(
                pool.search_state,
                need,
                best,
                attrs.evolve(self._session.effort, budget_s=budget_s),
                search=self._session.search,
                bound=bound,
            )
        except SolverFault as fault:
            self._session.hooks.faults.append(str(fault))
            self._session.record_search(
                SearchRecord(outcome=SearchOutcome.INVALID, method="victims")
            )
            return None
        self._budget -= answer.spent
        record_victim_search(self._session, answer)
        return answer.choice


def _choice_cost(each: tuple[VictimChoice, int]) -> tuple[Any, ...]:
    choice, number = each
    return choice.rank, choice.cost, number


def record_victim_search(session: Session, answer: VictimSearchResult) -> None:
    """Enter what a solver was asked for among the session's searches."""
    if answer.seconds:
        session.record_search(
            SearchRecord(
                outcome=answer.outcome, seconds=answer.seconds, work=answer.spent, method="victims"
            )
        )
