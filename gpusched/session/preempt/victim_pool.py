"""Victims for one class of claimants: bundles in a field of ints, and the way back to members.

Kept for all claims of its class in a session. Between two claims it takes in what happened on
the bench and who left, so that a claim costs what it touches and not what there is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from gpusched.api.meta.identity import UID, GangKey
from gpusched.api.meta.resources import Resources, total
from gpusched.api.pod.pod import PodClass
from gpusched.arrays.columns import Bools, RequestVector
from gpusched.cache.gangs.gang import Gang, Placed
from gpusched.cache.nodes.gpu_share_room import requests_beside_share
from gpusched.placement.victims.greedy_choice import VictimSearchState
from gpusched.placement.victims.lower_bound import (
    VictimLowerBound,
    claimants_that_fit_at_most,
    victim_lower_bound,
)
from gpusched.placement.victims.model import EvictablePod, VictimBundle, VictimChoice, VictimRank
from gpusched.session.framework.node_pools import NodePoolAccounts
from gpusched.session.framework.proposal import Chunk
from gpusched.session.framework.sort_keys import joined_sort_key
from gpusched.session.framework.verdict import first_refusal
from gpusched.session.preempt.victims import (
    COST_OF_BROKEN_GANG,
    CandidateVictim,
    RunningGang,
    Victims,
    complete_sub_groups,
)
from gpusched.session.state.session import Session

_RANK_SPARE, _RANK_WHOLE_GANG = 0, 1


@attrs.frozen(slots=True, eq=False)
class VictimGroup:
    """Part of a choice: members of one gang that leave together."""

    gang: Gang
    seats: tuple[CandidateVictim, ...]


class VictimPool:
    """See the module.

    Args:
        session: looked at as it will be.
        victims: of this session.
        claimant: one of the class; policies are asked about it.
        ask: of one claimant; of claimants of several classes, whatever they ask for together.
        action: ``preempt`` or ``reclaim``.
        rows: where they may run, shape (nodes,).
        gangs: who may be a victim; policies agreed already.
    """

    def __init__(
        self,
        session: Session,
        victims: Victims,
        claimant: Gang,
        ask: RequestVector,
        *,
        action: str,
        rows: Bools,
        gangs: Iterable[Gang],
    ) -> None:
        self._session = session
        self._victims = victims
        self._claimant = claimant
        self._action = action
        self._request = ask
        self._parts: list[RunningGang] = []
        self._seats: list[CandidateVictim] = []
        self._gangs: list[Gang] = []
        self._number: dict[UID, int] = {}
        self._groups: dict[GangKey, int] = {}
        self._limits: list[int] = list(victims.left)
        self._frees: dict[str, tuple[int, ...]] = {}
        self._of_queue: dict[str, list[int]] = {}
        self._sources: dict[Any, int] = {}
        self._first: dict[int, Gang] = {}
        members: list[EvictablePod] = []
        bundles: list[tuple[tuple[Any, ...], VictimBundle]] = []
        for gang in gangs:
            running, source = victims.running(gang), self._source_number(gang)
            if running is not None and source is not None:
                self._enter(running, source, members, bundles)
        free = session.node_usage.free(slice(None), self._request.columns)
        allowed = np.flatnonzero(rows).tolist()
        order = {index: rank for rank, index in enumerate(_bundles_in_order(bundles))}
        self._field = VictimSearchState(
            self._request.amounts.tolist(),
            {row: free[row].tolist() for row in allowed},
            members,
            [attrs.evolve(bundle, order=order[index]) for index, (_, bundle) in enumerate(bundles)],
            limits=self._limits,
            source_key=self.source_key,
        )
        self.size = len(bundles)
        self._seen_log = len(victims.log)
        self._seen_rows = len(session.node_usage.touched_rows)

    # -- building ----------------------------------------------------------------------------
    def _enter(
        self, running: RunningGang, source: int, members: list[EvictablePod], bundles: list[Any]
    ) -> None:
        gang = running.gang
        group = self._groups[gang.key] = len(self._groups)
        roles = {role: self._limit(count) for role, count in sorted(running.spare_roles.items())}
        parts = {name: self._limit(count) for name, count in sorted(running.spare_parts.items())}
        total = self._limit(running.surplus)
        first = len(members)
        for seat in running.seats:
            self._number[seat.member.pod.uid] = len(members)
            self._seats.append(seat)
            self._gangs.append(gang)
            frees = self._amounts_freed_by(seat.member.pod.pod_class)
            members.append(EvictablePod(seat.row, frees, seat.cost, seat.budgets))
        tie = (-gang.created, tuple(-ord(letter) for letter in gang.key.name))
        self._first.setdefault(source, gang)
        made = VictimBundle((), 0, group, source=source, rank=(gang.priority, _RANK_SPARE))
        for place, seat in enumerate(running.seats if running.surplus else ()):
            pod = seat.member.pod
            draws = (total, *_limit_of(roles, pod.role), *_limit_of(parts, pod.sub_group))
            self._part(running)
            bundle = attrs.evolve(made, members=(first + place,), draws=draws)
            bundles.append(((*tie, place), bundle))
        if running.surplus and running.spare_sub_groups:
            self._enter_sub_groups(running, made, (total, roles), bundles, tie=tie)
        if self._may_end(running):
            self._part(running)
            every = tuple(range(first, len(members)))
            extra = COST_OF_BROKEN_GANG if gang.min_member > 1 else 0
            rank = (gang.priority, _RANK_WHOLE_GANG)
            bundles.append(((*tie, -1), attrs.evolve(made, members=every, extra=extra, rank=rank)))

    def _enter_sub_groups(
        self,
        running: RunningGang,
        made: VictimBundle,
        limits: tuple[int, dict[str, int]],
        bundles: list[Any],
        *,
        tie: tuple[Any, ...],
    ) -> None:
        """Sub-groups that may leave as a whole, because enough others are complete."""
        total, roles = limits
        whole = self._limit(running.spare_sub_groups)
        for place, seats in enumerate(complete_sub_groups(running, list(running.seats))):
            if len(seats) == 1 and running.spare_parts[seats[0].member.pod.sub_group]:
                continue
            draws = [whole, *(total for _ in seats)]
            draws += [limit for s in seats for limit in _limit_of(roles, s.member.pod.role)]
            members = tuple(sorted(self._number[seat.member.pod.uid] for seat in seats))
            self._part(running)
            bundle = attrs.evolve(made, members=members, draws=tuple(draws))
            bundles.append(((*tie, len(running.seats) + place), bundle))

    def _part(self, running: RunningGang) -> None:
        self._of_queue.setdefault(running.gang.queue, []).append(len(self._parts))
        self._parts.append(running)

    def _may_end(self, running: RunningGang) -> bool:
        if not running.may_end or running.every_member_is_spare:
            return False
        checks = self._session.hooks.stop_filters
        return not first_refusal(checks, self._claimant, running.gang, self._action).refuses

    def _limit(self, count: int) -> int:
        self._limits.append(count)
        return len(self._limits) - 1

    def _amounts_freed_by(self, pod_class: PodClass) -> tuple[int, ...]:
        known = self._frees.get(pod_class.digest)
        if known is None:
            names = {column: name for name, column in self._session.snapshot.nodes.columns.items()}
            amounts = requests_beside_share(pod_class)  # a share alone need not free its GPU
            known = tuple(amounts.get(names[c]) for c in self._request.columns.tolist())
            self._frees[pod_class.digest] = known
        return known

    def _source_number(self, gang: Gang) -> int | None:
        """The source of a gang's bundles: gangs of one queue with one key stand together.

        None for a gang whose key cannot be computed: it is no victim.
        """
        orders = self._session.hooks.victim_orders
        key = joined_sort_key(orders, self._claimant, gang, self._action) if orders else ()
        if key is None:
            return None
        return self._sources.setdefault((gang.queue if orders else "", key), len(self._sources))

    def source_key(self, source: int) -> Any:
        """Where a source stands now: the key of the gang that was entered first."""
        orders = self._session.hooks.victim_orders
        if not orders:
            return ()
        return joined_sort_key(orders, self._claimant, self._first[source], self._action) or ()

    # -- use ---------------------------------------------------------------------------------
    @property
    def field(self) -> VictimSearchState:
        """The ints, up to date since the last ``refresh``."""
        return self._field

    def refresh(self) -> None:
        """Take in what happened since the last claim."""
        gone = [
            self._number[uid] for uid in self._victims.log[self._seen_log :] if uid in self._number
        ]
        self._seen_log = len(self._victims.log)
        self._field.remove_evicted(gone)
        for number, left in enumerate(self._victims.left):
            self._field.left[number] = left
        touched = self._session.node_usage.touched_rows
        rows = sorted(set(touched[self._seen_rows :]))
        self._seen_rows = len(touched)
        for row in rows:
            free = self._session.node_usage.free_on(row, self._request.columns)
            self._field.set_free(row, free.tolist())

    def floor(self, need: int) -> VictimLowerBound | None:
        """What any choice costs at least; None when there is none, and the field knows its reach."""
        bound = victim_lower_bound(self._field, need)
        if bound is None:
            self._field.reach = claimants_that_fit_at_most(self._field)
        return bound

    def weighed(self, parts: Iterable[VictimGroup]) -> tuple[VictimRank, int] | None:
        """Lane and cost of a choice that was found elsewhere; None for one of others' bundles."""
        of: dict[GangKey, list[int]] = {}
        for part in parts:
            numbers = [self._number.get(seat.member.pod.uid, -1) for seat in part.seats]
            of.setdefault(part.gang.key, []).extend(numbers)
        ranks: list[VictimRank] = []
        cost = 0
        for key, numbers in of.items():
            group = self._groups.get(key)
            if group is None or min(numbers) < 0:
                return None
            found = self._bundles_for(group, sorted(numbers))
            if not found:
                return None
            ranks += [self._field.rank_of(number) for number in found]
            cost += sum(self._field.cost_of(number) for number in found)
        return max(ranks, default=()), cost  # nobody leaves: below every rank, for nothing

    def _bundles_for(self, group: int, numbers: list[int]) -> list[int]:
        """Bundles whose members these are: one that has all, else as many as it takes."""
        bundles = self._field.bundles
        of = sorted(self._field.bundles_of(group), key=lambda n: -len(bundles[n].members))
        found: list[int] = []
        left = set(numbers)
        for number in of:
            if left and left.issuperset(bundles[number].members):
                left.difference_update(bundles[number].members)
                found.append(number)
        return [] if left else found

    def choose(self, need: int) -> VictimChoice | None:
        """As ``Field.choose``; who was taken counts as gone while the next is sought."""
        statement = self._session.statement()

        def taken(members: Sequence[int]) -> None:
            for m in members:
                seat = self._seats[m]
                self._session.evict(statement, self._gangs[m], seat.member)

        choice = self._field.choose(need, taken)
        statement.discard()
        return choice

    def leaving(self, choice: VictimChoice) -> list[VictimGroup]:
        """Who that is, in the order in which they would go."""
        picks = sorted(choice.picks, key=lambda p: (self._field.rank_of(p.bundle), p.bundle))
        return [
            VictimGroup(
                self._parts[pick.bundle].gang,
                tuple(self._seats[m] for m in pick.members),
            )
            for pick in picks
        ]

    def exclude(self, gang: Gang) -> None:
        """A policy refuses this victim after all."""
        self._field.drop(self._field.bundles_of(self._groups[gang.key]))

    def exclude_queue(self, queue: str, keep: Collection[GangKey]) -> None:
        """Nothing may be taken from a queue but what these gangs lose."""
        numbers = self._of_queue.get(queue, ())
        self._field.drop(n for n in numbers if self._parts[n].gang.key not in keep)


def _limit_of(limits: Mapping[str, int], name: str) -> tuple[int, ...]:
    """The limit of a role or sub-group, if it has one."""
    return (limits[name],) if name in limits else ()


def _bundles_in_order(bundles: Sequence[Any]) -> list[int]:
    return sorted(range(len(bundles)), key=lambda index: (bundles[index][0], index))


def eviction_chunks(part: VictimGroup, pools: NodePoolAccounts | None = None) -> list[Chunk]:
    """The steps in which a part of a choice goes, the last in rank first.

    With ``pools``, what is taken there is told beside the rest, by dimension.
    """
    leaving = sorted(part.seats, key=lambda seat: _last_rank_first(seat.member))
    spare = min(len(leaving), _surplus_members(part.gang))
    steps = [leaving[number : number + 1] for number in range(spare)]
    if leaving[spare:]:
        steps.append(leaving[spare:])
    return [Chunk(part.gang, _requests_of(step, pools)) for step in steps]


def _requests_of(seats: Sequence[CandidateVictim], pools: NodePoolAccounts | None) -> Resources:
    taken = total(seat.member.pod.pod_class.requests for seat in seats)
    if pools is None:
        return taken
    return taken.plus(total(pools.charge(seat.member.pod.pod_class, seat.row) for seat in seats))


def _surplus_members(gang: Gang) -> int:
    """Members that the gang can lose and still run."""
    if gang.terms.disruption == "Group":
        return 0
    return max(0, gang.ready_members - gang.min_member)


def _last_rank_first(member: Placed) -> tuple[int, str]:
    return -member.pod.rank, member.pod.uid
