"""Whether a gang that is evicted would have a third gang evicted once it is made again.

Two gangs would lose work for one claim. So before a claim is kept, its victims are asked on the
state after it, all together and in their turn: whether a gang that ends finds room as a waiting one
without anybody's leaving, and if not, whether an action of this session would evict others for it;
and of members that are lost above a minimum, whether others would give members for their growth. A
victim for which that is so stays where it is, and the claim is made with others or not at all.

And who claims is asked as well: where a gang that waits would have it, and could have nobody else, evicted as
soon as it has its places, those two and a third could hand on the same room for ever (what one queue may take from another depends on
who asks). So its claim is not made.

The bounds: no more than ``VICTIMS_ASKED_MAX`` gangs of one claim are asked, those that end first,
the first of ``CLASSES_ASKED_MAX`` classes of gangs that wait is asked whether it would take over, and no more than ``TRIALS_MAX`` searches are made in one session. What stays for a claimant stays with all
of its class until the next claim.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, ExitStack
from functools import cached_property
from itertools import islice
from typing import Final

import attrs

from gpusched.api.meta.identity import UID, GangKey
from gpusched.api.meta.resources import NOTHING, Resources, total
from gpusched.base.classes import frozen
from gpusched.cache.gangs.equivalence import Omit, PlacementKey, placement_key
from gpusched.cache.gangs.gang import Gang
from gpusched.session.allocate.gang_placement import place_ignoring_reservations
from gpusched.session.allocate.queue_order import in_queue_order
from gpusched.session.framework.plugin import Capability
from gpusched.session.framework.proposal import allowed_claimants
from gpusched.session.framework.verdict import first_refusal
from gpusched.session.preempt.claims.claimants import ClaimRules, claim_rules, preemption_claimants
from gpusched.session.preempt.claims.growing_gangs import growing_claimant, growth_rules
from gpusched.session.preempt.claims.session_starts import LowestPriorities, gang_with_starts
from gpusched.session.preempt.victim_selection import VictimRules
from gpusched.session.preempt.victims import RunningGang, Victims
from gpusched.session.state.decided.remade_gangs import remade_gang
from gpusched.session.state.equivalence import GangCache
from gpusched.session.state.session import Session
from gpusched.session.state.statement import Assignment, EvictOperation, Statement

VICTIMS_ASKED_MAX: Final = 8
"""Gangs of one claim that are asked; those of lost work first would be no better than any."""
CLASSES_ASKED_MAX: Final = 64
"""Classes of gangs that wait, of which the first is asked whether it would take over a claimant's places."""
ALIKE_MAX: Final = 64
"""Gangs of one queue that are compared with a victim that stays: more than it costs to choose others once are not."""
TRIALS_MAX: Final = 64
"""Searches for victims of victims in one session: each costs about as much as a claim."""

ClaimTrial = Callable[[VictimRules, Victims, Gang], bool]
"""Whether others would be evicted for a gang under these rules, of these victims."""


class _RemadeKeys:
    """What decides where gangs that run would be placed once they are made again as a whole, kept from session to session."""

    def __init__(self) -> None:
        self._keys: GangCache[PlacementKey] = GangCache()

    def key_of(self, gang: Gang) -> PlacementKey:
        """All but the length of one of them."""
        known = self._keys.get(gang)
        if known is None:
            remade = remade_gang(gang, gang.placed)
            known = placement_key(remade, without=Omit.LENGTH)
            self._keys.set(gang, known)
        return known

    def keep_only(self, gangs: Mapping[GangKey, Gang]) -> None:
        """Forget all other gangs, to bound memory."""
        self._keys.keep_only(gangs.values(), len(gangs))


class ChainCheck:
    """See the module. Used while the session is pipelining, one for each session.

    Args:
        session: in which is evicted.
        trial: asks for whom others would leave; it keeps nothing.
    """

    def __init__(self, session: Session, trial: ClaimTrial) -> None:
        self._session = session
        self._trial = trial
        self._trials = 0
        self._stay: set[Hashable] = set()
        """Classes of a claimant and of a victim that stays, from one claim to the next."""
        self._stay_at = 0
        self._lowest = LowestPriorities(session)
        self._waiting: list[Gang] | None = None
        """The first waiting gang of each class that may claim; None until they are asked for."""

    def victim_that_evicts(self, claimant: Gang, statement: Statement) -> Gang | None:
        """A victim that would have a third gang evicted; None when none was found.

        Args:
            claimant: for which room is made.
            statement: with its evictions and its places, not committed yet.
        """
        session = self._session
        remade = remade_victims(statement.evictions, session.nominations.evicted)
        if not remade:
            return None
        if self._stay_at != len(session.nominations.plans):
            self._stay_at = len(session.nominations.plans)
            self._stay.clear()
        self._lowest.refresh()
        ends = [each for each in remade if each.ends]
        asked = [*ends, *(each for each in remade if not each.ends)][:VICTIMS_ASKED_MAX]
        by_key = {each.victim.key: each for each in asked}
        with ExitStack() as supposed:
            supposed.enter_context(self._charge_places(claimant, statement.assignments))
            if not any(map(self._may_evict, self._unlike(asked))):
                return None  # whoever comes first: none is given a place before another is asked
            for gang in self._in_turn([each.gang for each in asked]):
                each = by_key[gang.key]
                if not self._may_evict(each):
                    continue
                alike = (placement_key(claimant), placement_key(gang, without=Omit.LENGTH))
                if alike in self._stay:
                    return each.victim
                found = self._finds_room(gang, supposed) if each.ends else ()
                if found is None:
                    evicts = self._would_evict(gang, statement)
                    if evicts:
                        self._stay.add(alike)
                else:
                    grows = gang_with_starts(session, gang, found)
                    variants = self._grown_variants(grows, each.lost, claimant)
                    evicts = self._evicts_to_grow(variants, statement, supposed)
                if evicts:
                    return each.victim
        return None

    def _unlike(self, remade: Sequence[RemadeGang]) -> list[RemadeGang]:
        """Of gangs that are one pod and alike the first, where policies about claims tell them not apart."""
        hooks = self._session.hooks
        if not hooks.all_monotone or hooks.guard.compares_lists:
            return list(remade)
        found: dict[Hashable, RemadeGang] = {}
        for each in remade:
            found.setdefault(each.victim.running_kind or each.victim.key, each)
        return list(found.values())

    def _may_evict(self, each: RemadeGang) -> bool:
        """Whether others may be evicted for a gang that ends, or members for the growth of one that goes on."""
        if not each.ends:
            return True
        self._session.on_gang(each.gang.key)
        return any(rule.allow(each.gang) for rule in claim_rules(self._session, self._lowest))

    def may_claim_again(self, gang: Gang) -> bool:
        """Whether others may be evicted for a gang once it has left as a whole and was made again."""
        self._lowest.refresh()
        remade = remade_gang(gang, gang.placed)
        return any(rule.allow(remade) for rule in claim_rules(self._session, self._lowest))

    def gangs_that_stay(self, claimant: Gang, queue: Sequence[RunningGang]) -> list[Gang]:
        """Gangs that are as a victim that stays since the last claim, so that no claim with them would be kept.

        Args:
            claimant: for which room is made.
            queue: gangs of the victim's queue, of which the first ``ALIKE_MAX`` are compared that
                leave as a whole or not at all.
        """
        key, keys = placement_key(claimant), self._remade_keys
        whole = (each.gang for each in queue if each.may_end and not each.surplus)
        return [gang for gang in islice(whole, ALIKE_MAX) if (key, keys.key_of(gang)) in self._stay]

    @property
    def _remade_keys(self) -> _RemadeKeys:
        cache = self._session.cache.kept.get_or_make(_RemadeKeys, _RemadeKeys)
        cache.keep_only(self._session.snapshot.placed_gangs)
        return cache

    def gang_that_takes_over(self, claimant: Gang, statement: Statement) -> Gang | None:
        """A gang that waits and would have a claimant evicted once it is there; None when none was found.

        Args:
            claimant: for which room is made.
            statement: with its evictions and its places, not committed yet.
        """
        if not claimant.terms.preemptible:
            return None
        session = self._session
        waiting = [
            gang
            for gang in self._waiting_gangs()
            if gang.key != claimant.key and not session.nominations.has_nomination(gang)
        ]
        if not waiting:
            return None
        there = gang_with_starts(session, claimant, statement.assignments)
        victims = Victims(session, only=there)
        rules = claim_rules(session, victims)
        with ExitStack() as supposed:
            supposed.enter_context(self._charge_places(claimant, statement.assignments))
            may_take = self._who_may_take(rules, waiting, there)
            for number, gang in enumerate(waiting):
                taking = [each for each, some in may_take if gang.key in some and each.allow(gang)]
                if not taking:
                    continue
                if self._finds_room(gang, supposed) is not None:  # others are asked beside it
                    may_take = self._who_may_take(rules, waiting[number + 1 :], there)
                    continue
                for each in taking:
                    if self._trials >= TRIALS_MAX:
                        return None
                    self._trials += 1
                    if self._trial(each.victims, victims, gang) and not self._would_evict(
                        gang, statement
                    ):
                        return gang  # it has no other victims
        return None

    def _in_turn(self, gangs: Sequence[Gang]) -> Iterator[Gang]:
        """Gangs in their turn; most claims end one gang, which nobody comes before."""
        if len(gangs) > 1:
            return in_queue_order(self._session, gangs)
        for gang in gangs:
            self._session.on_gang(gang.key)
        return iter(gangs)

    def _who_may_take(
        self, rules: Sequence[ClaimRules], gangs: Sequence[Gang], victim: Gang
    ) -> list[tuple[ClaimRules, set[GangKey]]]:
        """By rules, which gangs may have a victim evicted, as far as policies about the pair tell it without a sentence."""
        filters, found = self._session.hooks.victim_filters, []
        for each in rules:
            some = [gang for gang in gangs if each.victims.may_be_victim(gang, victim)]
            allowed = allowed_claimants(filters, some, victim, each.victims.action)
            found.append((each, {gang.key for gang in allowed}))
        return found

    def _waiting_gangs(self) -> list[Gang]:
        if self._waiting is None:
            session = self._session
            first: dict[Hashable, Gang] = {}
            waiting = preemption_claimants(session)
            kind_of = session.cache.equivalence.class_of  # of any namespace
            classes = {
                gang.key: (kind_of(gang) or placement_key(gang), gang.key.namespace)
                for gang in waiting
            }
            most = min(CLASSES_ASKED_MAX, len(set(classes.values())))
            for gang in in_queue_order(session, waiting) if waiting else ():
                first.setdefault(classes[gang.key], gang)
                if len(first) >= most:
                    break
            self._waiting = list(first.values())
        return self._waiting

    def _evicts_to_grow(
        self, variants: Iterable[Gang], statement: Statement, supposed: ExitStack
    ) -> bool:
        """Whether members that a gang has lost would have others evicted, after a statement."""
        session = self._session
        if not session.hooks.growth_checks or Capability.RECLAIM not in session.capabilities:
            return False
        for growing in variants:
            if self._trials >= TRIALS_MAX or self._finds_room(growing, supposed) is not None:
                return False
            left = Victims(session, nominated=True)
            left.claimed(statement.evictions, statement.withdrawn)
            self._trials += 1
            if self._trial(growth_rules(left), left, growing):
                return True
        return False

    def _grown_variants(
        self, gang: Gang, lost_members: AbstractSet[UID], claimant: Gang
    ) -> Iterator[Gang]:
        """The gang with the members that it has lost and may ask for: all of a class, then fewer."""
        session = self._session
        checks = session.hooks.growth_checks
        minima: Resources | None = None
        for pod_set in gang.pod_sets:
            lost = tuple(pod for pod in pod_set.pods if pod.uid in lost_members)
            asked, count = attrs.evolve(pod_set, pods=lost), len(lost)
            while count:
                growing = growing_claimant(gang, [(asked, count)])
                count //= 2
                if first_refusal(checks, growing, NOTHING).refuses:
                    continue
                if minima is None:
                    minima = self._waiting_minima(gang.queue, claimant)
                if not first_refusal(checks, growing, minima).refuses:
                    yield growing

    def _waiting_minima(self, queue: str, claimant: Gang) -> Resources:
        """What other gangs of a queue request that wait for their minimum and may claim it."""
        session = self._session
        return total(
            session.view.minimum(gang)
            for gang in preemption_claimants(session, lambda gang: gang.queue == queue)
            if gang.key != claimant.key
            and not first_refusal(session.hooks.reclaim_checks, gang).refuses
        )

    def _would_evict(self, gang: Gang, statement: Statement) -> bool:
        """Whether others would be evicted for a gang that finds no room, after a statement."""
        session = self._session
        left = Victims(session, nominated=True)
        left.claimed(statement.evictions, statement.withdrawn)
        for rules in claim_rules(session, left):
            if self._trials >= TRIALS_MAX:
                return False
            if rules.allow(gang):
                self._trials += 1
                if self._trial(rules.victims, left, gang):
                    return True
        return False

    def _finds_room(self, gang: Gang, supposed: ExitStack) -> tuple[Assignment, ...] | None:
        """Places that a gang which waits finds as things are, within its quotas; None for none.

        They are not there for those that are asked after it.
        """
        session = self._session
        if first_refusal(session.hooks.quota_checks, gang).refuses:
            return None
        statement = session.statement()
        supposed.callback(statement.discard)
        if place_ignoring_reservations(session, gang, statement) or not statement.assignments:
            return None
        supposed.enter_context(self._charge_places(gang, statement.assignments))
        return tuple(statement.assignments)

    def _charge_places(
        self, gang: Gang, places: Sequence[Assignment]
    ) -> AbstractContextManager[None]:
        """Inside, the gang's queues are charged with these places."""
        path = self._session.queue_path(gang)
        amounts = {id(each): each for each in (place.pod.pod_class.charged for place in places)}
        times = Counter(id(place.pod.pod_class.charged) for place in places)
        moves = [(path, amounts[number], count) for number, count in times.items()]
        return self._session.queue_accounts.assume_moves(moves)


@frozen(eq=False)
class RemadeGang:
    """A gang that loses members, as it waits when they were made again.

    Attributes:
        victim: the gang as it is before.
        lost: members that wait in place of those that leave.
    """

    victim: Gang
    lost: AbstractSet[UID]

    @cached_property
    def gang(self) -> Gang:
        """The gang as it is then: of many only some are looked at."""
        return remade_gang(
            self.victim, [each for each in self.victim.placed if each.pod.uid in self.lost]
        )

    @property
    def ends(self) -> bool:
        """Whether it does not go on without the members that it loses."""
        if self.victim.running_kind is not None:
            return True  # its only pod leaves
        return bool(self.gang.missing_members or not self.gang.placed)


def remade_victims(
    evictions: Sequence[EvictOperation], gone: AbstractSet[UID] = frozenset()
) -> list[RemadeGang]:
    """Gangs that lose members, each as it waits when these were made again.

    Args:
        evictions: of one claim.
        gone: members that leave by claims before it; with them a gang may end that goes on else.
    """
    leaving: dict[GangKey, list[EvictOperation]] = {}
    for each in evictions:
        leaving.setdefault(each.gang.key, []).append(each)
    found = []
    for _, operations in sorted(leaving.items()):
        gang = operations[0].gang
        native = gang.pod_group is not None and gang.pod_group.native is not None
        if native and all(each.member.pod.owner is None for each in operations):
            continue  # no controller makes pods of a native group again that have none
        leaves = {each.member.pod.uid for each in operations}
        leaves |= {each.pod.uid for each in gang.placed if each.pod.uid in gone}
        found.append(RemadeGang(gang, leaves))
    return found
