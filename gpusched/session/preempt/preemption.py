"""Room for one gang after another: victims, a placement proven on what will be, then nominations.

Used by the actions that evict. A claimant gets places for its whole minimum on the state after
the evictions, under every rule that an ordinary placement obeys, or nothing happens at all.
Claimants of one class share what was worked out: where one found nothing, no other tries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from itertools import zip_longest
from math import inf
from typing import Any

from gpusched.api.meta.identity import UID, GangKey
from gpusched.base import limits
from gpusched.cache.gangs.equivalence import placement_key
from gpusched.cache.gangs.gang import Gang
from gpusched.session.allocate.member_rules.device_values import hold_options, matches_devices
from gpusched.session.allocate.node_sets import NodeSet, candidate_node_sets
from gpusched.session.allocate.queue_order import in_queue_order
from gpusched.session.backfill.reservation_guard import lacks_only_reserved_room, place_minimum
from gpusched.session.framework.proposal import PREEMPT, RECLAIM, allowed_victims
from gpusched.session.framework.reasons import Reason, truncate_message
from gpusched.session.framework.verdict import Verdict, first_refusal
from gpusched.session.gpu_types.options import types_to_start_on
from gpusched.session.preempt.claims.claim_runs import ENDS_SEARCH, REFUSALS, ClaimResult, ClaimRuns
from gpusched.session.preempt.claims.claimant_class import (
    amounts_suffice,
    claimant_class,
    claimant_classes,
    eligible_claimant,
    eligible_claimants,
    sizes_compared,
)
from gpusched.session.preempt.claims.claimants import claim_rules
from gpusched.session.preempt.claims.giving_order import refused_victim
from gpusched.session.preempt.claims.late_claims import CLASSES_MAX, late_claims
from gpusched.session.preempt.claims.session_starts import started_gangs, withdraw_starts
from gpusched.session.preempt.claims.stability import ChainCheck
from gpusched.session.preempt.claims.supposed_victims import SupposedVictims, supposed_victims
from gpusched.session.preempt.eviction_trials import EvictionTrials
from gpusched.session.preempt.preemption_messages import (
    has_pod_rules,
    preemption_failed_message,
    preemption_in_progress_message,
    told_reach,
)
from gpusched.session.preempt.role_victims import RoleVictimSearch
from gpusched.session.preempt.victim_pool import VictimGroup, rank_of_loss
from gpusched.session.preempt.victim_selection import ClaimantClass, VictimRules, VictimSelector
from gpusched.session.preempt.victims import Victims
from gpusched.session.state.session import Session
from gpusched.session.state.statement import EvictOperation, Statement, WithdrawOperation

_MODEL_TRIES_MAX = 4
"""Choices of the model that policies, or places in full detail, may refuse."""
_TRIES_MAX = 8
"""Choices for one claimant that policies may refuse before it waits for another session."""
_STARTS_LOOKED_AT = 16
"""Starts of one queue for which policies are asked whether one may leave; of more, one may."""

EvictionMessage = Callable[[Gang, Sequence[EvictOperation]], str]
"""The message for victims, given the claimant and the evictions for it."""


_Choice = Sequence[VictimGroup]
_Search = Callable[[], _Choice | None] | None


class Preemption:
    """See the module. Everything happens inside ``session.looking_later()``.

    Args:
        session: in which is evicted.
        rules: which gangs may be victims, before policies are asked.
        reason: that victims are told.
        message: that victims are told.
        supposing: victims of which none is evicted: it is only asked for whom some would be.
        known: who would leave for others, to be asked about before a search; None to search always.
        late: victims that lose members only with a start of this session that is taken back.
    """

    def __init__(
        self,
        session: Session,
        rules: VictimRules,
        *,
        reason: Reason,
        message: EvictionMessage,
        supposing: Victims | None = None,
        known: SupposedVictims | None = None,
        late: Victims | None = None,
    ) -> None:
        self._supposing = supposing is not None
        self._known = known
        self._would_withdraw: tuple[WithdrawOperation, ...] = ()
        """Places of this session that the claim supposed last would take back."""
        self._late = late is not None
        self._session = session
        self._rules = rules
        self._reason = reason
        self._message = message
        self._victims = supposing or late or session_victims(session)
        if rules.only_spare:
            self._victims = self._victims.only_spare_members()
        self._chains = partial(_chain_check, session)  # no method: tables go when this does
        self._chooser = VictimSelector(session, self._victims, rules, any_will_do=self._supposing)
        self._roles = RoleVictimSearch(
            session, self._victims, action=rules.action, budget_s=session.effort.budget_s
        )
        self._runs = ClaimRuns(
            session, self._victims, rules.action, chooser=self._chooser, chains=self._chains,
            known=supposing is None and late is None,
        )  # fmt: skip
        self._hopeless: dict[Hashable, tuple[int, int]] = {}
        """What was needed when nothing helped, and how many would have fitted; by the class of
        claimants, or with their length where only a trial or a claim told."""
        self._placed_on_trial = False
        """Whether the search that runs placed members, which reservations may have forbidden."""
        self._evicted = 0
        self._limits = session.snapshot.limits
        self._serving: ClaimantClass = None
        """The class of the claimant that is served, whatever types of GPUs it is tried on."""
        self._chains_for: GangKey | None = None
        """A claimant that has waited so long that its victims may have others evicted in turn."""
        self._starts: dict[str, list[Gang]] = {}
        """Gangs that this session starts, by queue; only for late claims."""
        for start in started_gangs(session).values() if late is not None else ():
            self._starts.setdefault(start.queue, []).append(start)
        self._late_classes: set[ClaimantClass] = set()
        """Classes of late claimants that were asked."""
        self._unstable: dict[ClaimantClass, Gang] = {}
        """A victim that stays for each class of claimants, as it would have others evicted."""
        self._takers: dict[ClaimantClass, Gang] = {}
        """A gang that would have claimants of a class evicted once they are there."""

    @property
    def full(self) -> bool:
        """Whether this session evicts no more, or looks no further."""
        return (
            self._evicted >= self._limits.evictions_per_session
            or self._chooser.work >= self._limits.victim_work
        )

    def serve_all(
        self, gangs: Sequence[Gang], checks: Sequence[Callable[[Gang], Verdict]] = ()
    ) -> None:
        """Make room for gangs in their turn, as far as there are victims.

        Args:
            gangs: that may have others evicted for them.
            checks: must allow a gang first. What they refuse to one of a class, they would refuse
                to others that need as much: no claim of a session makes another's claim better.
        """
        claimants = eligible_claimants(self._session, gangs)
        kinds = claimant_classes(self._session, claimants)
        asking = [gang for gang in gangs if gang.key in kinds]
        left: dict[ClaimantClass, Counter[int]] = {}
        for gang in asking:
            left.setdefault(kinds[gang.key], Counter())[gang.members_at_start] += 1
        count = len(asking)
        for gang in in_queue_order(self._session, asking):
            kind, need = kinds[gang.key], gang.members_at_start
            if self.full or not count:
                return
            if need not in left[kind]:
                continue  # as much was refused to one of its class
            left[kind][need] -= 1
            count -= 1
            if not self._session.has_budget_for(gang):
                continue
            least, claimant = 0, claimants[gang.key]
            if not self._runs.may_claim(gang, claimant, kind, checks):
                least = need
            elif not self._late:
                self._serve(gang, claimant, kind)
                continue
            elif self._serve_late(gang, claimant, kind):
                continue
            for refused in [size for size in left[kind] if size >= least]:
                count -= left[kind].pop(refused)

    def _serve_late(self, gang: Gang, claimant: Gang, kind: ClaimantClass) -> bool:
        """Make a claim if it takes back starts of this session; whether one was made."""
        if not self._asks_late(claimant, kind):
            return False
        self._late_classes.add(kind)
        before = len(self._session.nominations.plans)
        self._serve(gang, claimant, kind)
        return len(self._session.nominations.plans) > before

    def _asks_late(self, claimant: Gang, kind: ClaimantClass) -> bool:
        """Whether starts may leave for a claimant, and it was not asked on these facts yet."""
        if kind not in self._late_classes and len(self._late_classes) >= CLASSES_MAX:
            return False
        known = late_claims(self._session)
        if known.is_known(self._late_key(kind), claimant.members_at_start):
            return False
        rules, hooks = self._rules, self._session.hooks
        asked: list[Gang] = []
        for queue in rules.queues(claimant):
            starts = self._starts.get(queue, ())
            if len(starts) > _STARTS_LOOKED_AT:
                return True
            asked += [start for start in starts if rules.may_be_victim(claimant, start)]
        allowed = allowed_victims(hooks.victim_filters, claimant, asked, rules.action)
        return any(self._victims.running(start) is not None for start in allowed)

    def _serve(self, gang: Gang, claimant: Gang, kind: ClaimantClass) -> bool:
        """Make room for a gang if there are victims for it; whether a promise was made."""
        need = claimant.members_at_start
        known = self._hopeless.get(kind)
        if known is None and self._hopeless:  # thousands of equal claimants ask
            without = sizes_compared(claimant)
            known = self._hopeless.get((kind, placement_key(claimant, without=without)))
        self._session.work_budget.spend_units(limits.WORK_GANG)
        self._serving = kind
        if known is None or need < known[0]:
            before = self._chooser.work
            self._placed_on_trial = False
            reach = self._try_on_types(gang, claimant, kind, need)
            looked_at = self._chooser.work - before
            self._session.work_budget.spend_units(
                limits.WORK_CLASS + limits.WORK_VICTIM * looked_at
            )
            if reach is None:
                return True
            known = (need, reach)
            if self._placed_on_trial:
                without = sizes_compared(claimant)
                self._hopeless[kind, placement_key(claimant, without=without)] = known
            else:
                self._hopeless[kind] = known
                late_claims(self._session).note_refusal(self._late_key(kind), need)
        unstable = self._unstable.get(kind)
        if (
            unstable is not None
            and self._session.snapshot.is_past(self._may_chain_from(gang))
            and not self._is_left_to_reclaim(gang)
        ):
            self._chains_for = gang.key  # in pools of its own: there the victim is not excluded
            reach = self._try_on_types(gang, claimant, ("chains", kind), need)
            self._chains_for = None
            if reach is None:
                return True
        if not self._late:  # it was told before
            self._explain_failure(gang, need, known[1], unstable, self._takers.get(kind))
        return False

    def _late_key(self, kind: ClaimantClass) -> Hashable:
        return (self._rules.action, self._rules.only_spare, kind)

    def _may_chain_from(self, gang: Gang) -> float:
        """From when a gang that waits may have victims that evict others, seconds since the epoch."""
        wait_s = self._session.hooks.stable.chain_wait_s
        return inf if wait_s is None else gang.waits_since + wait_s

    def _is_left_to_reclaim(self, gang: Gang) -> bool:
        """Whether ``reclaim``, which comes after ``preempt``, finds the gang other victims."""
        return self._rules.action == PREEMPT and any(
            rules.victims.action == RECLAIM
            and rules.allow(gang)
            and _would_claim(self._session, rules.victims, self._victims, gang)
            for rules in claim_rules(self._session, self._victims)
        )

    def _try_on_types(
        self, gang: Gang, claimant: Gang, kind: ClaimantClass, need: int
    ) -> int | None:
        """As ``_try_preemption``, on each set of GPU types and for each value of devices with which the gang could start."""
        with self._session.on_open_nodes(gang):
            return self._try_for_values(gang, claimant, kind, need)

    def _try_for_values(
        self, gang: Gang, claimant: Gang, kind: ClaimantClass, need: int
    ) -> int | None:
        if not matches_devices(claimant):
            return self._try_on_gpu_types(gang, claimant, kind, need)
        most = -1
        for hold in hold_options(self._session, claimant, later=True).holds:
            with self._session.devices.claims.held_to(hold):
                reach = self._try_on_gpu_types(gang, claimant, (kind, hold), need)
            if reach is None:
                return None
            most = max(most, reach)
        return most

    def _try_on_gpu_types(
        self, gang: Gang, claimant: Gang, kind: ClaimantClass, need: int
    ) -> int | None:
        most = -1
        for types in types_to_start_on(self._session, claimant):
            if not types:
                return self._try_preemption(gang, claimant, kind, need)
            with self._session.confined_to_gpu_types(types):
                reach = self._try_preemption(gang, claimant, (kind, types), need)
            if reach is None:
                return None
            most = max(most, reach)
        return most

    def _try_preemption(
        self, gang: Gang, claimant: Gang, kind: ClaimantClass, need: int
    ) -> int | None:
        """None when room was made; else how many would have fitted, -1 when that says nothing."""
        if self._known is not None:
            for chosen in self._known.for_claimant(claimant, self._victims, self._rules):
                if self._claim_victims(gang, claimant, kind, chosen) in ENDS_SEARCH:
                    return None
        swap = self._runs.choose_swap(gang, claimant, kind)
        if swap is None:
            return self._try_choices(gang, claimant, kind, need)
        if self._claim_victims(gang, claimant, kind, swap, swap=True) in ENDS_SEARCH:
            return None
        return self._try_choices(gang, claimant, kind, need, tried=1)

    def _try_choices(
        self, gang: Gang, claimant: Gang, kind: ClaimantClass, need: int, *, tried: int = 0
    ) -> int | None:
        """The same for victims that are searched for, after so many choices without a place."""
        session = self._session
        wheres, refusal = candidate_node_sets(session, claimant)
        if refusal is not None:
            return -1
        quota = first_refusal(session.hooks.quota_checks, claimant)
        by_trial = quota.refuses or not amounts_suffice(session, self._chooser, claimant)
        if by_trial and self._serve_by_model(gang, claimant, kind, wheres):
            return None
        if not by_trial and lacks_only_reserved_room(session, gang, claimant):
            return None if self._claim_victims(gang, claimant, kind, ()) in ENDS_SEARCH else -1
        refused, by_trial = False, by_trial or tried > 0
        quick = False  # from a victim that stays on: which choice is cheapest matters where one may be made
        for _ in range(tried, _TRIES_MAX):
            search = partial(self._runs.choose_victims, claimant, kind, need, wheres)
            if by_trial:
                chosen = self._victims_by_trial(claimant, kind)
            else:
                chosen = search(quick=quick)
                if chosen is None and (refused or session.snapshot.nodes.shared):
                    # The cheapest may not go together; those in the order of policies may. And
                    # only a trial sees that shares leave a GPU together.
                    by_trial = True
                    self._chooser.lift_loss_limits(kind)
                    chosen = self._victims_by_trial(claimant, kind)
                elif chosen is not None:
                    chosen = self._or_shares(claimant, kind, chosen)
            if chosen is None:
                break
            result = self._claim_choice(
                gang, claimant, kind, chosen, search if quick and not by_trial else None
            )
            if result in ENDS_SEARCH:
                return None
            quick = quick or result is ClaimResult.UNSTABLE
            refused = refused or result in REFUSALS
            if result is ClaimResult.NO_PLACE:
                if by_trial:
                    break
                by_trial = True
        return self._chooser.best_reach(kind)

    def _serve_by_model(
        self, gang: Gang, claimant: Gang, kind: ClaimantClass, wheres: Sequence[NodeSet]
    ) -> bool:
        """Evict the cheapest that a model finds, where models say all that counts for the gang."""
        accounts = self._chooser.loss_accounts(claimant, kind)
        if claimant.requests_gpu_share or has_pod_rules(self._session, claimant):
            return False
        accounts.renew_limits(claimant)
        gangs = self._chooser.allowed_victims(claimant, kind) if accounts.known else []
        refused: list[frozenset[UID]] = []
        while gangs and len(refused) < _MODEL_TRIES_MAX:
            chosen = self._roles.find_cheapest(
                claimant, gangs, wheres, accounts=accounts, refused=refused
            )
            if chosen is None:
                return False
            chosen = self._or_shares(claimant, kind, chosen)
            if self._claim_victims(gang, claimant, kind, chosen) in ENDS_SEARCH:
                return True
            refused.append(frozenset(seat.member.pod.uid for part in chosen for seat in part.seats))
            gangs = self._chooser.allowed_victims(claimant, kind)
        self._chooser.lift_loss_limits(kind)
        return False

    def _or_shares(
        self, claimant: Gang, kind: ClaimantClass, chosen: list[VictimGroup]
    ) -> list[VictimGroup]:
        """Victims that a model chose, or others that lose less, some of which hold shares of GPUs.

        Models do not see that shares leave a GPU together.
        """
        if not self._session.snapshot.nodes.shared or not any(
            member.pod.pod_class.share is not None
            for gang in self._chooser.allowed_victims(claimant, kind)
            for member in gang.placed
        ):
            return chosen
        found = self._victims_by_trial(claimant, kind)

        def rank(victims: Sequence[VictimGroup]) -> tuple[Any, ...]:
            return rank_of_loss(self._session, claimant, victims, self._rules.action)

        return found if found is not None and rank(found) < rank(chosen) else chosen

    def _victims_by_trial(self, claimant: Gang, kind: ClaimantClass) -> list[VictimGroup] | None:
        chooser, action = self._chooser, self._rules.action
        if not chooser.allows_any_victim(claimant, kind):
            return None
        self._placed_on_trial = True
        chooser.settle_limits(kind)
        prover = EvictionTrials(
            self._session, self._victims, claimant, action=action,
            accounts=lambda: chooser.loss_accounts(claimant, kind),
        )  # fmt: skip
        found: list[VictimGroup] | None = []
        if not prover.finds_room():
            found = prover.find_fewest_victims(chooser.allowed_in_lines(claimant, kind))
        chooser.work += prover.work
        return found

    # -- claiming ----------------------------------------------------------------------------
    def _claim_choice(
        self, gang: Gang, claimant: Gang, kind: ClaimantClass, chosen: _Choice, search: _Search
    ) -> ClaimResult:
        """Make a claim of victims, or where one could be made of the cheapest, if these are still to be searched for."""
        if search is None:
            return self._claim_victims(gang, claimant, kind, chosen)
        result = self._claim_victims(gang, claimant, kind, chosen, looks=True)
        if result in REFUSALS:
            return result
        return self._claim_victims(gang, claimant, kind, search() or chosen)

    def _claim_victims(
        self,
        gang: Gang,
        claimant: Gang,
        kind: ClaimantClass,
        chosen: _Choice,
        *,
        swap: bool = False,
        looks: bool = False,
    ) -> ClaimResult:
        """Make a claim if policies agree and there is a place: with ``swap`` that of its victim; ``looks`` only asks."""
        session = self._session
        self._placed_on_trial = True
        joined = self._runs.joins(claimant, kind, chosen)
        if not joined and not self._policies_agree(claimant, kind, chosen):
            return ClaimResult.REFUSED
        statement = session.statement()
        for part in chosen:
            for seat in part.seats:
                session.evict(statement, part.gang, seat.member)
        checks = () if joined else (*session.hooks.quota_checks, *session.hooks.reserve_checks)
        refused = first_refusal(checks, claimant).refuses
        if swap:
            left = statement.evictions[0]
            statement.assign(claimant.pod_sets[0].pods[0], left.row, left.request)
        elif refused or place_minimum(session, claimant, statement) or not statement.assignments:
            statement.discard()
            return ClaimResult.NO_PLACE
        if self._supposing:
            self._would_withdraw = statement.withdrawn
            statement.discard()
            if self._known is not None:
                self._known.note(self._victims, chosen)
            return ClaimResult.CLAIMED
        if self._late and not statement.withdrawn:
            statement.discard()
            return ClaimResult.LEFT
        stable = session.hooks.stable.chains
        unstable = None if joined else self._unstable_victim(claimant, statement)
        if unstable is not None:
            statement.discard()
            self._exclude_unstable(claimant, kind, unstable)
            self._unstable[self._serving] = unstable
            return ClaimResult.UNSTABLE
        taker = self._chains().gang_that_takes_over(claimant, statement) if stable else None
        if taker is not None:
            statement.discard()
            self._takers[self._serving] = taker
            return ClaimResult.NO_PLACE
        if looks:
            statement.discard()
            return ClaimResult.STANDS
        self._keep_claim(gang, statement)
        return ClaimResult.CLAIMED

    def _keep_claim(self, gang: Gang, statement: Statement) -> None:
        """Nominate what a statement gives a gang, and tell who has to know."""
        session = self._session
        evictions, withdrawn = statement.evictions, statement.withdrawn
        session.nominations.nominate(
            gang,
            statement,
            action=self._rules.action,
            reason=self._reason,
            message=truncate_message(self._message(gang, evictions)),
        )
        self._victims.claimed(evictions, withdrawn)
        withdraw_starts(session, gang, withdrawn)
        self._evicted += len(evictions)
        if not withdrawn:
            self._runs.note_claim(evictions, session.nominations.nominated_places(gang))
        session.outcomes.refuse(
            gang,
            Reason.PREEMPTION_IN_PROGRESS,
            preemption_in_progress_message(session, gang, evictions),
        )

    def would_claim(self, gang: Gang) -> bool:
        """Whether others would be evicted for a gang; nothing is kept."""
        claimant = eligible_claimant(gang)
        if claimant is None:
            return False
        need = claimant.members_at_start
        return (
            self._try_on_types(gang, claimant, claimant_class(self._session, claimant), need)
            is None
        )

    def takes_back_starts(self, gang: Gang) -> bool:
        """Take back starts of this session that would be evicted for a gang; whether there were any."""
        if not self.would_claim(gang) or not self._would_withdraw:
            return False
        statement = self._session.statement()
        for each in self._would_withdraw:
            statement.withdraw(each.gang, each.assignment, path=self._session.queue_path(each.gang))
        withdrawn = statement.withdrawn
        statement.commit()
        self._victims.claimed((), withdrawn)
        withdraw_starts(self._session, gang, withdrawn)
        return True

    def _unstable_victim(self, claimant: Gang, statement: Statement) -> Gang | None:
        """A victim that would have a third gang evicted in turn, where that is to be avoided."""
        if not self._session.hooks.stable.chains or self._chains_for is not None:
            return None
        return self._chains().victim_that_evicts(claimant, statement)

    def _exclude_unstable(self, claimant: Gang, kind: ClaimantClass, unstable: Gang) -> None:
        """Choose neither the victim again nor those of its queue that would be refused as it was."""
        victims = self._victims
        queue = [victims.running(gang) for gang in victims.of_queue(unstable.queue)]
        alike = self._chains().gangs_that_stay(claimant, [each for each in queue if each])
        others = [gang for gang in alike if gang.key != unstable.key]
        self._chooser.exclude_gangs(kind, [unstable, *others])

    def _policies_agree(self, claimant: Gang, kind: ClaimantClass, chosen: _Choice) -> bool:
        """Whether policies let all of them go; a refused victim is not chosen again."""
        hooks, action = self._session.hooks, self._rules.action
        gangs = [part.gang for part in chosen]
        allowed = allowed_victims(hooks.victim_filters, claimant, gangs, action)
        if len(allowed) < len(gangs):
            refused = next(gang for gang, other in zip_longest(gangs, allowed) if gang is not other)
            self._chooser.exclude_gangs(kind, [refused])
            return False
        objection = refused_victim(self._session, claimant, self._victims, chosen, action)
        if objection is not None:
            self._chooser.cap_queue(kind, *objection)
        return objection is None

    # -- telling -----------------------------------------------------------------------------
    def _explain_failure(
        self, gang: Gang, need: int, reach: int, unstable: Gang | None, taker: Gang | None
    ) -> None:
        """Add to its message why no gang is evicted for it."""
        ask = self._session.outcomes.refusal(gang)
        if unstable is None and taker is None:
            reach = told_reach(self._session, gang, need, reach)
        if reach < 0 or ask is None or (self._rules.only_spare and need > 1):
            return  # members above a minimum ask for fewer next
        message = preemption_failed_message(
            self._rules, need=need, reach=reach, unstable=unstable, taker=taker,
            chains_from=self._may_chain_from(gang) if unstable is not None else inf,
        )  # fmt: skip
        self._session.outcomes.extend_refusal(gang, message)


def _would_claim(session: Session, rules: VictimRules, victims: Victims, gang: Gang) -> bool:
    """Whether some of these victims would be evicted for a gang; nobody is told of it."""
    return Preemption(
        session, rules, reason=Reason.PREEMPTED, message=lambda _gang, _evictions: "",
        supposing=victims, known=supposed_victims(session),
    ).would_claim(gang)  # fmt: skip


def _chain_check(session: Session) -> ChainCheck:
    check = partial(ChainCheck, session, partial(_would_claim, session))
    return session.cycle_state.get_or_make(ChainCheck, check)


def session_victims(session: Session) -> Victims:
    """The victims of the session: one list for all its actions."""
    return session.cycle_state.get_or_make(Victims, lambda: Victims(session))
