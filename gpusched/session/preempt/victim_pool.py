"""Victims for one class of claimants: bundles in a field of ints, and the way back to members.

Kept for all claims of its class in a session. Between two claims it takes in what happened on
node usage and evictions, so that a claim costs what it touches and not what there is.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from gpusched.api.meta.identity import UID, GangKey
from gpusched.api.pod.pod import PodClass
from gpusched.arrays.columns import Bools, RequestVector
from gpusched.base.classes import frozen
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.nodes.gpu_share_room import requests_beside_share
from gpusched.placement.victims.greedy_choice import VictimSearchState
from gpusched.placement.victims.loss_limits import (
    NO_LOSS,
    BundleLoss,
    LossLimits,
    limits_hold,
)
from gpusched.placement.victims.lower_bound import (
    VictimLowerBound,
    claimants_that_fit_at_most,
    victim_lower_bound,
)
from gpusched.placement.victims.model import (
    BundleIndex,
    EvictablePod,
    VictimBundle,
    VictimChoice,
    VictimRank,
)
from gpusched.placement.victims.pod_index import PodIndex, PodKind, VictimColumns
from gpusched.session.framework.proposal import allowed_victims, victim_sort_keys
from gpusched.session.framework.sort_keys import joined_sort_key
from gpusched.session.preempt.pools.free_rows import session_free_rows
from gpusched.session.preempt.pools.loss_accounts import LossAccounts
from gpusched.session.preempt.pools.pod_blocks import StandingBlocks
from gpusched.session.preempt.victims import (
    COST_OF_GANG,
    CandidateVictim,
    RunningGang,
    Victims,
    complete_sub_groups,
)
from gpusched.session.state.nodes.devices.device_columns import DeviceColumns
from gpusched.session.state.session import Session

_RANK_SPARE, _RANK_WHOLE_GANG = 0, 1


@frozen(slots=True, eq=False)
class VictimGroup:
    """Part of a choice: members of one gang that leave together."""

    gang: Gang
    seats: tuple[CandidateVictim, ...]


def rank_of_loss(
    session: Session, claimant: Gang, chosen: Sequence[VictimGroup], action: str
) -> tuple[Any, ...]:
    """What a choice of victims loses, the smallest being the best: highest lane, work, GPUs, gangs, pods."""
    orders = session.hooks.victim_orders
    lanes = [
        (
            joined_sort_key(orders, claimant, part.gang, action) or (),
            part.gang.priority,
            len(part.seats) >= len(part.gang.placed),
        )
        for part in chosen
    ]
    seats = [seat for part in chosen for seat in part.seats]
    gangs = len({part.gang.key for part in chosen})
    freed = sum(seat.member.pod.pod_class.gpu_thousandths for seat in seats)
    lost = sum(seat.cost for seat in seats) + gangs * COST_OF_GANG
    return (max(lanes, default=((), 0, False)), lost, freed, gangs, len(seats))


class _BundleDraft(NamedTuple):
    """A bundle before its place among equals is known: what ``VictimBundle`` has, without the order."""

    members: tuple[int, ...]
    group: int
    extra: int
    draws: tuple[int, ...]
    source: int
    rank: VictimRank
    loss: BundleLoss = NO_LOSS
    part: bool = False


_Draft = tuple[
    tuple[int, ...], int, int, tuple[int, ...], int, VictimRank, BundleLoss, bool
]  # as above
_Alike = tuple[tuple[int, ...], tuple[int, ...], VictimRank, BundleLoss, list[int]]


class VictimTable:
    """Members and bundles of possible victims, wherever the claimants may run: shared by areas.

    Args:
        session: looked at as it will be.
        victims: of this session.
        claimant: one of the class; policies are asked about it.
        ask: of one claimant; of claimants of several classes, whatever they ask for together.
        action: ``preempt`` or ``reclaim``.
        gangs: who may be a victim; policies agreed already.
        standing: the same by queue, where each of them is a pod alone.
        accounts: of the queues of all possible victims.
        devices: that claimants claim, where the table is used.
    """

    def __init__(
        self,
        session: Session,
        victims: Victims,
        claimant: Gang,
        ask: RequestVector,
        *,
        devices: DeviceColumns,
        action: str,
        gangs: Iterable[Gang],
        accounts: LossAccounts,
        standing: StandingBlocks | None = None,
    ) -> None:
        self._session = session
        self._claimant = claimant
        self._action = action
        self._accounts = accounts
        self._columns = ask.columns.tolist()
        self._devices = devices
        self.parts: list[Gang] = []
        """The gang of each bundle."""
        self.seats: list[CandidateVictim] = []
        self.gangs: list[Gang] = []
        """The gang of each member."""
        self.number: dict[UID, int] = {}
        self._groups: dict[GangKey, int] = {}
        self.limits: list[int] = list(victims.left)
        self.of_queue: dict[str, list[int]] = {}
        self.members: list[EvictablePod] = []
        self._first: dict[int, Gang] = {}
        self._frees: dict[str, tuple[int, ...]] = {}
        self._of_columns: dict[tuple[int, ...], BundleIndex] = {}
        self._drafts: list[_Draft] = []
        self._ties: list[tuple[Any, ...]] = []
        self._without_devices = not devices.requests
        self._all_alone = True
        self._alike: dict[Hashable, _Alike] = {}
        """What a pod that is a gang alone frees, takes and loses, its rank, and bundles of its queue; by kind."""
        if standing is not None:
            self.index: BundleIndex = self._enter_blocks(standing)
            return
        self._enter_gangs(victims, list(gangs))
        ranked = sorted(range(len(self._ties)), key=self._ties.__getitem__)
        order = [0] * len(ranked)
        for rank, index in enumerate(ranked):
            order[index] = rank
        self.index = BundleIndex(
            self.members,
            [
                VictimBundle(draft[0], order[index], *draft[1:])
                for index, draft in enumerate(self._drafts)
            ],
        )

    @property
    def of_one_kind(self) -> bool:
        """Whether all bundles are single pods that free, take and lose the same."""
        return len(self._alike) == 1 and self.index.only_pods and self._all_alone

    @property
    def groups(self) -> Mapping[GangKey, int]:
        """Numbers of gangs that have bundles, by key."""
        if not self._groups:  # few tables of pods are asked
            self._groups = {gang.key: number for number, gang in enumerate(self.gangs)}
        return self._groups

    # -- gangs -------------------------------------------------------------------------------
    def _enter_gangs(self, victims: Victims, gangs: Sequence[Gang]) -> None:
        hooks, about = self._session.hooks, (self._claimant, gangs, self._action)
        keys = victim_sort_keys(hooks.victim_orders, *about)
        preferences = victim_sort_keys(hooks.victim_preferences, *about)
        sources: dict[Any, int] = {}
        found: list[tuple[RunningGang, int, tuple[Any, ...]]] = []
        for gang, key, preference in zip(gangs, keys, preferences, strict=True):
            running = victims.running(gang)
            if key is None:  # nobody knows where it stands: it is no victim
                continue
            # Gangs of one queue with one key stand together.
            stands = ("" if hooks.victim_orders_fixed else gang.queue, key)
            source = sources.setdefault(stands, len(sources))
            if running is not None and preference is not None:
                found.append((running, source, preference))
        asked = [
            running.gang
            for running, _, _ in found
            if running.may_end and not running.every_member_is_spare
        ]
        stopped = allowed_victims(hooks.stop_filters, self._claimant, asked, self._action)
        ends = {gang.key for gang in stopped}
        ranks = {key: rank for rank, key in enumerate(sorted({each for _, _, each in found}))}
        for running, source, preference in found:
            self._first.setdefault(source, running.gang)
            tie = (ranks[preference], -running.gang.created, running.name_order)
            self._enter_bundles(running, source, tie=tie, ends=running.gang.key in ends)

    def _enter_blocks(self, standing: StandingBlocks) -> BundleIndex:
        """As ``_enter_gangs``, queue by queue."""
        orders = standing.orders()
        self._first = dict(standing.firsts)
        columns = VictimColumns([], [], [], [], [])
        of_kind: list[PodKind] = []
        for block, source in zip(standing.blocks, standing.sources, strict=True):
            those = block.columns
            if not those.gangs:
                continue
            numbers = range(len(self.members), len(self.members) + len(those.gangs))
            alike = {kind: self._find_alike(block.firsts[kind]) for kind in block.kinds}
            self.members += block.pods({kind: each[:2] for kind, each in alike.items()})
            self.parts += those.gangs
            self.seats += those.seats
            self.gangs += those.gangs
            self.number.update(zip(those.uids, numbers, strict=True))
            alike[block.kinds[0]][4].extend(numbers)
            of = {kind: len(of_kind) + place for place, kind in enumerate(block.kinds)}
            of_kind += [PodKind(source, *alike[kind][2:4]) for kind in block.kinds]
            columns.rows.extend(those.rows)
            columns.costs.extend(those.costs)
            columns.draws.extend(those.draws)
            columns.orders.extend(orders[block.queue])
            columns.kinds.extend([of[kind] for kind in those.kinds])
        return PodIndex(self.members, columns, of_kind, COST_OF_GANG)

    def source_key(self, source: int) -> Any:
        """Where a source stands now: the key of the gang that was entered first."""
        orders = self._session.hooks.victim_orders
        if not orders:
            return ()
        return joined_sort_key(orders, self._claimant, self._first[source], self._action) or ()

    def index_for_columns(self, columns: tuple[int, ...]) -> BundleIndex:
        """The same members and bundles for claimants that ask for some of the columns alone."""
        known = self._of_columns.get(columns)
        if known is None:
            members = [
                EvictablePod(
                    each.row, tuple([each.frees[c] for c in columns]), each.cost, each.draws
                )
                for each in self.members
            ]
            known = self._of_columns[columns] = BundleIndex(members, self.index.bundles)
        return known

    # -- bundles -----------------------------------------------------------------------------
    def _enter_bundles(
        self, running: RunningGang, source: int, *, tie: tuple[Any, ...], ends: bool
    ) -> None:
        if ends and len(running.seats) == 1 and not running.surplus and self._without_devices:
            self._enter_alone(running, source, tie)
            return
        self._all_alone = False
        gang = running.gang
        group = self._groups[gang.key] = len(self._groups)
        first = len(self.members)
        for seat in running.seats:
            self._enter_member(gang, seat)
        if running.surplus:
            made = _BundleDraft((), group, 0, (), source, (gang.priority, _RANK_SPARE), part=True)
            self._enter_spare_members(running, made, first, tie=tie)
        if ends:
            members = self.members[first:]
            self._enter_bundle(
                running,
                _BundleDraft(
                    tuple(range(first, first + len(members))),
                    group,
                    COST_OF_GANG,
                    (),
                    source,
                    (gang.priority, _RANK_WHOLE_GANG),
                    loss=self._accounts.bundle_loss(gang, self._bundle_steps(running, members)),
                ),
                (*tie, -1),
            )

    def _enter_alone(self, running: RunningGang, source: int, tie: tuple[Any, ...]) -> None:
        """A gang of one pod, of which there may be thousands: as ``_enter_bundles``, in one go."""
        gang, seat = running.gang, running.seats[0]
        pod, number, group = seat.member.pod, len(self.members), len(self._groups)
        self._groups[gang.key] = group
        frees, taken, rank, loss, of_queue = self._find_alike(gang)
        self.number[pod.uid] = number
        self.seats.append(seat)
        self.gangs.append(gang)
        self.members.append(EvictablePod(seat.row, frees, seat.cost, seat.budgets, taken))
        of_queue.append(len(self.parts))
        self.parts.append(running.gang)
        self._drafts.append(((number,), group, COST_OF_GANG, (), source, rank, loss, False))
        self._ties.append((*tie, -1))

    def _find_alike(self, gang: Gang) -> _Alike:
        """What is the same for all gangs of one pod that are equal to this one."""
        pod_class = gang.placed[0].pod.pod_class
        about = gang.running_kind or (gang.queue, gang.priority, pod_class.digest)
        known = self._alike.get(about)
        if known is None:
            taken = self._accounts.taken_with(pod_class)
            known = self._alike[about] = (
                self._amounts_freed_by(pod_class),
                taken,
                (gang.priority, _RANK_WHOLE_GANG),
                self._accounts.pod_loss(gang, taken),
                self.of_queue.setdefault(gang.queue, []),
            )
        return known

    def _enter_member(self, gang: Gang, seat: CandidateVictim) -> None:
        pod = seat.member.pod
        self.number[pod.uid] = len(self.members)
        self.seats.append(seat)
        self.gangs.append(gang)
        frees = (*self._amounts_freed_by(pod.pod_class), *self._devices.freed_by(pod, seat.row))
        taken = self._accounts.taken_with(seat.member.pod.pod_class)
        self.members.append(EvictablePod(seat.row, frees, seat.cost, seat.budgets, taken))

    def _enter_bundle(
        self, running: RunningGang, draft: _BundleDraft, tie: tuple[Any, ...]
    ) -> None:
        self.of_queue.setdefault(running.gang.queue, []).append(len(self.parts))
        self.parts.append(running.gang)
        self._drafts.append(draft)
        self._ties.append(tie)

    def _enter_spare_members(
        self, running: RunningGang, made: _BundleDraft, first: int, *, tie: tuple[Any, ...]
    ) -> None:
        """Members above the minimum one by one, and sub-groups for which others stand in."""
        roles = {
            role: self._limit_bundles(count) for role, count in sorted(running.spare_roles.items())
        }
        parts = {
            name: self._limit_bundles(count) for name, count in sorted(running.spare_parts.items())
        }
        total = self._limit_bundles(running.surplus)
        for place, seat in enumerate(running.seats):
            pod = seat.member.pod
            draws = (total, *_limit_of(roles, pod.role), *_limit_of(parts, pod.sub_group))
            loss = self._accounts.bundle_loss(running.gang, [[self.members[first + place].taken]])
            bundle = made._replace(members=(first + place,), draws=draws, loss=loss)
            self._enter_bundle(running, bundle, (*tie, place))
        if any(running.spare_sub_groups.values()):
            self._enter_sub_groups(running, made, (total, roles), tie=tie)

    @staticmethod
    def _bundle_steps(
        running: RunningGang, members: Sequence[EvictablePod]
    ) -> list[list[tuple[int, ...]]]:
        """Amounts of the steps in which a gang ends: spare members one by one, then the rest."""
        if len(members) == 1:
            return [[members[0].taken]]
        spare = min(len(members) - 1, running.single_steps)
        steps = [[each.taken] for each in members[:spare]]
        return [*steps, [each.taken for each in members[spare:]]]

    def _enter_sub_groups(
        self,
        running: RunningGang,
        made: _BundleDraft,
        limits: tuple[int, dict[str, int]],
        *,
        tie: tuple[Any, ...],
    ) -> None:
        """Sub-groups that may leave as a whole, because enough others are complete."""
        total, roles = limits
        wholes = {
            parent: self._limit_bundles(count)
            for parent, count in sorted(running.spare_sub_groups.items())
        }
        for place, (parent, seats) in enumerate(complete_sub_groups(running, list(running.seats))):
            if len(seats) == 1 and running.spare_parts[seats[0].member.pod.sub_group]:
                continue
            draws = [wholes[parent], *(total for _ in seats)]
            draws += [limit for s in seats for limit in _limit_of(roles, s.member.pod.role)]
            members = tuple(sorted(self.number[seat.member.pod.uid] for seat in seats))
            steps = [[self._accounts.taken_with(seat.member.pod.pod_class)] for seat in seats]
            loss = self._accounts.bundle_loss(running.gang, steps)
            bundle = made._replace(members=members, draws=tuple(draws), loss=loss)
            self._enter_bundle(running, bundle, (*tie, len(running.seats) + place))

    def _limit_bundles(self, count: int) -> int:
        self.limits.append(count)
        return len(self.limits) - 1

    def _amounts_freed_by(self, pod_class: PodClass) -> tuple[int, ...]:
        known = self._frees.get(pod_class.digest)
        if known is None:
            names = {column: name for name, column in self._session.snapshot.nodes.columns.items()}
            amounts = requests_beside_share(pod_class)  # a share alone need not free its GPU
            known = tuple(amounts.get(names[column]) for column in self._columns)
            self._frees[pod_class.digest] = known
        return known


class VictimPool:
    """See the module.

    Args:
        session: looked at as it will be.
        victims: of this session.
        table: of those that may leave.
        ask: of one claimant; of claimants of several classes, whatever they ask for together.
        rows: where they may run, shape (nodes,).
        accounts: of the queues of all possible victims.
        devices: that claimants claim.
        since: how many had left when the victims were found; None for now.
    """

    def __init__(
        self,
        session: Session,
        victims: Victims,
        table: VictimTable,
        ask: RequestVector,
        *,
        devices: DeviceColumns,
        rows: Bools,
        accounts: LossAccounts,
        since: int | None = None,
    ) -> None:
        self._session = session
        self._victims = victims
        self._table = table
        self._accounts = accounts
        self._request = ask
        self._devices = devices
        self._free_rows = session_free_rows(session)
        shared, here = self._free_rows.in_columns(ask.columns), np.flatnonzero(rows)
        free: dict[int, list[int]] = {row: shared.amounts[row] for row in here.tolist()}
        if devices.requests:
            free = {row: [*each, *devices.free_devices(row)] for row, each in free.items()}
        self._field = VictimSearchState(
            [*ask.amounts.tolist(), *devices.largest_amounts],
            free,
            table.index.members,
            table.index.bundles,
            limits=table.limits,
            source_key=table.source_key,
            index=table.index,
        )
        self._field.part_cost = COST_OF_GANG
        self._field.set_loss_limits(accounts.limits)
        self.size = len(table.parts)
        self._seen_log = len(victims.log) if since is None else since
        self._seen_rows, self._seen_changes = shared.seen, len(shared.changed)

    # -- use ---------------------------------------------------------------------------------
    @property
    def search_state(self) -> VictimSearchState:
        """The ints, up to date since the last ``refresh``."""
        return self._field

    @property
    def fixed(self) -> bool:
        """Whether keys of sources stay while victims leave, so that what is lost can be made least."""
        return self._field.sources < 2 or self._session.hooks.victim_orders_fixed

    def loses_freely(self, limits: LossLimits) -> bool:
        """Whether limits let each choice take what it likes of a node: all are of one kind, and so many may go."""
        if not self._table.of_one_kind:
            return False
        loss, most = self._table.index.bundles[0].loss, self._field.most_on_a_row
        return limits.empty or limits_hold(limits, [loss.of_gang(n) for n in range(most)])

    def refresh(self) -> None:
        """Take in what happened since the last claim; limits on losses are those of the accounts, renewed before."""
        self._field.set_loss_limits(self._accounts.limits)
        known, log = self._table.number, self._victims.log[self._seen_log :]
        gone = [known[uid] for uid in log if uid in known]
        self._seen_log = len(self._victims.log)
        self._field.remove_evicted(gone)
        self._field.left[: len(self._victims.left)] = self._victims.left
        touched, field = self._session.node_usage.touched_rows, self._field
        shared = self._free_rows.in_columns(self._request.columns)
        claims_devices = bool(self._devices.requests)
        if claims_devices or not field.only_plain_rows:
            some = set(touched[self._seen_rows :])
        else:  # a move of pods that have left is found to be impossible in its turn
            some = set(shared.changed[self._seen_changes :])
        self._seen_rows, self._seen_changes = len(touched), len(shared.changed)
        for row in sorted(field.free.keys() & some):
            free = shared.amounts[row]
            every = [*free, *self._devices.free_devices(row)] if claims_devices else free
            field.set_free(row, every)

    def lower_bound(self, need: int) -> VictimLowerBound | None:
        """What any choice costs at least; None when there is none, and the field knows its reach."""
        bound = victim_lower_bound(self._field, need)
        if bound is None:
            self._field.reach = claimants_that_fit_at_most(self._field)
        return bound

    def weigh_parts(self, parts: Iterable[VictimGroup]) -> tuple[VictimRank, int] | None:
        """Lane and cost of a choice that was found elsewhere; None for one of others' bundles."""
        of: dict[GangKey, list[int]] = {}
        for part in parts:
            numbers = [self._table.number.get(seat.member.pod.uid, -1) for seat in part.seats]
            of.setdefault(part.gang.key, []).extend(numbers)
        ranks: list[VictimRank] = []
        cost = 0
        for key, numbers in of.items():
            group = self._table.groups.get(key)
            if group is None or min(numbers) < 0:
                return None
            found = self._bundles_for(group, sorted(numbers))
            if not found:
                return None
            ranks += [self._field.rank_of(number) for number in found]
            cost += sum(self._field.cost_of(number) for number in found)
            cost += COST_OF_GANG * any(self._field.bundles[number].part for number in found)
        return max(ranks, default=()), cost  # nobody leaves: below every rank, for nothing

    def bundles_with(self, members: Collection[UID]) -> frozenset[int]:
        """Bundles that together make exactly these members leave; empty where none do."""
        of: dict[int, list[int]] = {}
        for uid in members:
            number = self._table.number.get(uid)
            if number is None:
                return frozenset()
            of.setdefault(self._table.groups[self._table.gangs[number].key], []).append(number)
        found: list[int] = []
        for group, numbers in sorted(of.items()):
            some = self._bundles_for(group, sorted(numbers))
            if not some:
                return frozenset()
            found += some
        return frozenset(found)

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

    def choose_victims(self, need: int) -> VictimChoice | None:
        """As ``VictimSearchState.choose_bundles``; a victim that was taken counts as gone while the next is sought."""
        statement = self._session.statement()

        def taken(members: Sequence[int]) -> None:
            for m in members:
                seat = self._table.seats[m]
                self._session.evict(statement, self._table.gangs[m], seat.member)

        choice = self._field.choose_bundles(need, taken)
        statement.discard()
        return choice

    def victim_groups(self, choice: VictimChoice) -> list[VictimGroup]:
        """Victims of these bundles, in the order in which they would go."""
        picks = sorted(choice.picks, key=lambda p: (self._field.rank_of(p.bundle), p.bundle))
        return [self.victim_group(pick.bundle, pick.members) for pick in picks]

    def victim_group(self, bundle: int, members: Sequence[int]) -> VictimGroup:
        """Victims of one bundle, those that leave with it."""
        seats = self._table.seats
        return VictimGroup(self._table.parts[bundle], tuple([seats[m] for m in members]))

    def exclude_gangs(self, gangs: Iterable[Gang]) -> None:
        """These are no victims after all; of those that the pool does not have nothing is known."""
        for gang in gangs:
            group = self._table.groups.get(gang.key)
            if group is not None:
                self._field.drop_bundles(self._field.bundles_of(group))

    def exclude_queue(self, queue: str, keep: Collection[GangKey]) -> None:
        """Nothing may be taken from a queue but what these gangs lose."""
        numbers = self._table.of_queue.get(queue, ())
        self._field.drop_bundles(n for n in numbers if self._table.parts[n].key not in keep)


def _limit_of(limits: Mapping[str, int], name: str) -> tuple[int, ...]:
    """The limit of a role or sub-group, if it has one."""
    return (limits[name],) if name in limits else ()
