"""Running gangs that could be evicted, what that would cost, and which rules of the API limit it.

Mechanism, not policy: what a gang needs to go on, what a disruption budget still allows, and
what work would be lost. Whether a gang *may* be a victim is asked of the policies elsewhere.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import attrs

from gpusched.api.meta.identity import UID, GangKey
from gpusched.api.meta.units import DEVICE
from gpusched.api.pod.pod import PodPhase
from gpusched.api.policy.kinds import DisruptionBudget
from gpusched.base.classes import frozen
from gpusched.cache.gangs.gang import Gang, Placed
from gpusched.session.allocate.gang_repair import is_broken
from gpusched.session.allocate.sub_groups import complete_pod_groups
from gpusched.session.preempt.claims.session_starts import (
    PlacedGangs,
    StartingGang,
    as_started,
    nominated_places,
    note_priority,
    session_placed_gangs,
    started_gangs,
    started_places,
)
from gpusched.session.preempt.claims.victim_kinds import QueueKinds
from gpusched.session.preempt.preemption_plans import lost_gpu_seconds
from gpusched.session.state.session import Session
from gpusched.session.state.statement import EvictOperation, WithdrawOperation

COST_OF_GPU_SECOND = 2**20
COST_OF_GPU = 2**9
COST_OF_GANG = 16
COST_OF_POD = 1
"""Costs add up to one int: lost work decides, then how many GPUs are freed, which is by how much too
many, then how many gangs lose anybody, then how many pods leave."""


class CandidateVictim(NamedTuple):
    """A member that could be evicted.

    Attributes:
        row: of its node.
        cost: of its leaving.
        budgets: numbers of the disruption budgets that count it.
    """

    member: Placed
    row: int
    cost: int
    budgets: tuple[int, ...]


@frozen(slots=True, kw_only=True, eq=False)
class RunningGang:
    """A gang and what it could lose.

    Attributes:
        seats: members that may leave, in the order in which they would: the least missed first.
        surplus: how many may leave while the gang goes on; all of one that is broken, see there.
        spare_roles: the same by role, for roles that have a minimum.
        spare_parts: the same by sub-group; an incomplete one that is not needed may lose all.
        spare_sub_groups: how many complete sub-groups may leave as a whole, by the one they are in.
        may_leave: complete sub-groups of which every member could leave: by name the one that each
            is in, and the sub-groups of pods in it.
        may_end: whether every member could leave, so that it can be stopped as a whole.
        broken: whether it ran, lost members and may lose more of them one by one.
    """

    gang: Gang
    seats: tuple[CandidateVictim, ...]
    surplus: int
    spare_roles: dict[str, int]
    spare_parts: dict[str, int] = attrs.Factory(dict)
    spare_sub_groups: dict[str, int] = attrs.Factory(dict)
    may_leave: dict[str, tuple[str, frozenset[str]]] = attrs.Factory(dict)
    may_end: bool
    broken: bool = False

    @property
    def every_member_is_spare(self) -> bool:
        """Whether every member may leave for itself, so that nothing is left to end."""
        bound = self.spare_roles or self.spare_parts
        return self.surplus >= len(self.seats) and not bound

    @cached_property
    def name_order(self) -> tuple[int, ...]:
        """Compares gangs by name, the last one first."""
        return name_order(self.gang)

    @cached_property
    def single_steps(self) -> int:
        """How many members leave one by one before the gang ends, and its rest with it at once.

        What claims before this one took counts no more, and a member that its role or sub-group
        needs is of the rest.
        """
        if self.broken:
            return 0
        if not (self.spare_roles or self.spare_parts):
            return self.surplus
        return sum(len(part) for part in SpareMembers(self).in_eviction_order())


def name_order(gang: Gang) -> tuple[int, ...]:
    """Compares gangs by name, the last one first."""
    return tuple([-ord(letter) for letter in gang.key.name])


class Victims:
    """Members that could leave, for one session. Those claimed already are taken off.

    Args:
        session: whose snapshot is looked at.
        nominated: whether gangs count as running where they are nominated: only to suppose what
            would be evicted once they are there.
        only_starts: whether only gangs that were given places in this session are looked at.
        only: the one gang that is looked at, as it is where it is supposed to be; None for all.
    """

    def __init__(
        self,
        session: Session,
        *,
        nominated: bool = False,
        only_starts: bool = False,
        only: Gang | None = None,
    ) -> None:
        self._session = session
        self._only_spare = False
        self.only_starts = only_starts
        """Whether only gangs that were given places in this session are looked at."""
        self._queues: dict[str, list[Gang]] = {}
        """Gangs by key, of queues that were asked for."""
        self._placed = PlacedGangs()
        self._starting: dict[str, dict[GangKey, StartingGang]] = {}
        self._lowest: dict[str, int] = {}
        self._nominated: Collection[GangKey] = ()
        if only is not None:
            self._queues[only.queue] = [only]
            self._lowest[only.queue] = only.priority
            self._nominated = (only.key,)
        else:
            self._find_gangs(nominated=nominated)
        self._budgets = DisruptionBudgets(session.snapshot.budgets)
        self.left = self._budgets.left
        """What each disruption budget allows still, by its number."""
        self.log: list[UID] = []
        """Members that claims of this session made leave, in order."""
        self._gone: set[UID] = set()
        self._running: dict[GangKey, RunningGang | None] = {}
        if self.left:
            for draft in (*session.nominations.plans.values(), *session.nominations.stops.values()):
                for each in draft.evictions:
                    self._budgets.count_eviction(each)

    def _find_gangs(self, *, nominated: bool) -> None:
        """Find gangs that run and may lose members, those included that this session starts.

        What this session gave counts, also where it is not taken back: a gang that was made whole
        again must not lose a member as if it were broken still.
        """
        session = self._session
        if not self.only_starts:
            placed = session_placed_gangs(session)
            self._placed, self._lowest = placed, dict(placed.lowest)
        starts = session.hooks.stable.starts
        found = [
            each
            for each in started_places(session)
            if starts or self._placed.includes_gang(each.gang)
        ]
        later = nominated_places(session) if nominated else []
        self._nominated = {each.gang.key for each in later}
        for each in (*found, *later):
            self._starting.setdefault(each.gang.queue, {})[each.gang.key] = each
            note_priority(self._lowest, each.gang)

    @property
    def queues(self) -> Iterable[str]:
        """Queues in which a preemptible gang runs."""
        return self._lowest

    def lowest(self, queue: str) -> int | None:
        """The lowest priority of a preemptible gang that runs in a queue."""
        return self._lowest.get(queue)

    def of_queue(self, queue: str) -> Iterator[Gang]:
        """Preemptible gangs that run in a queue, by key."""
        known = self._queues.get(queue)
        if known is None:
            gangs = self._placed.of_queue(queue)
            starting = {
                key: as_started(self._session, each)
                for key, each in self._starting.get(queue, {}).items()
            }
            if starting:
                gangs = dict(sorted({**gangs, **starting}.items()))
            known = self._queues[queue] = list(gangs.values())
        return iter(known)

    def first_of_queue(self, queue: str) -> Gang | None:
        """The first of these gangs; None for none."""
        if queue in self._queues or self._starting.get(queue):
            return next(self.of_queue(queue), None)
        return next(iter(self._placed.of_queue(queue).values()), None)

    def kinds_of_queue(self, queue: str) -> QueueKinds:
        """The same gangs as ``of_queue``, those that are one pod and alike together."""
        if self._starting.get(queue) or not self._placed.of_queue(queue):
            return QueueKinds.unlike(self.of_queue(queue))
        return self._placed.kinds_of_queue(queue)

    def ran_before(self, gang: Gang) -> bool:
        """Whether a gang is as it was before the session, and all of it is known: it gets no places in this one."""
        known = self._placed.of_queue(gang.queue).get(gang.key)
        return known is gang and gang.key not in self._starting.get(gang.queue, ())

    def only_spare_members(self) -> Victims:
        """The same victims, of which each gang goes on: what is claimed of either is off both."""
        spare = copy.copy(self)
        spare._only_spare = True  # noqa: SLF001 - it is one of its own kind
        return spare

    def any_start_has_spare_members(self) -> bool:
        """Whether a gang that was given places in this session could lose a member and go on."""
        spare = self.only_spare_members()
        started = started_gangs(self._session).values()
        return any(spare.running(gang) is not None for gang in started)

    def running(self, gang: Gang) -> RunningGang | None:
        """What the gang could lose; None when nothing. Valid until a member of it is claimed."""
        if gang.key not in self._running:
            self._running[gang.key] = self._examine_gang(gang)
        running = self._running[gang.key]
        only_spare = self._only_spare or not gang.terms.preemptible
        return _spare_part(running) if running is not None and only_spare else running

    def claimed(
        self, evictions: Iterable[EvictOperation], withdrawn: Iterable[WithdrawOperation] = ()
    ) -> None:
        """These leave by a claim that was kept."""
        for op in withdrawn:
            self.log.append(op.assignment.pod.uid)
            self._gone.add(op.assignment.pod.uid)
            self._running.pop(op.gang.key, None)
        for each in evictions:
            self.log.append(each.member.pod.uid)
            self._gone.add(each.member.pod.uid)
            self._budgets.count_eviction(each)
            self._running.pop(each.gang.key, None)

    def has_left(self, uid: UID) -> bool:
        """Whether a claim of this session made a pod leave."""
        return uid in self._gone

    def _examine_gang(self, gang: Gang) -> RunningGang | None:
        if gang.running_kind is not None:
            return self._examine_pod(gang, gang.placed[0])
        session = self._session
        gone, evicted = self._gone, session.nominations.evicted
        staying = [
            each for each in gang.placed if each.pod.uid not in gone and each.pod.uid not in evicted
        ]
        seats = []
        for member in staying:
            row = session.snapshot.nodes.row.get(member.node, -1)
            budgets = self._budgets.numbers_of(member)
            if row < 0 or not self._may_go(gang, member) or len(budgets) > 1:
                continue  # the API evicts no pod that two budgets count
            seats.append(CandidateVictim(member, row, self._member_cost(gang, member), budgets))
        if not seats:
            return None
        seats.sort(key=_eviction_order)
        if gang.min_roles or gang.sub_groups or gang.parent_groups or gang.min_sub_groups:
            return _running_with_parts(gang, staying, seats)
        have = len(staying) + gang.succeeded_counted
        broken = have < gang.min_member and _loses_one_by_one(gang)
        surplus = 0 if gang.terms.disruption == "Group" else max(0, have - gang.min_member)
        return RunningGang(
            gang=gang,
            seats=tuple(seats),
            surplus=len(seats) if broken else surplus,
            spare_roles={},
            may_end=len(seats) == len(staying),
            broken=broken,
        )

    def seats_of_pods(self, gangs: Sequence[Gang]) -> list[CandidateVictim | None]:
        """What each gang of one pod that runs would lose; None for those that have left or may not go."""
        return [self._seat_of_pod(gang, gang.placed[0]) for gang in gangs]

    def _examine_pod(self, gang: Gang, member: Placed) -> RunningGang | None:
        """A gang of one pod, which runs: as any other, in one go, as there are thousands."""
        seat = self._seat_of_pod(gang, member)
        if seat is None:
            return None
        return RunningGang(gang=gang, seats=(seat,), surplus=0, spare_roles={}, may_end=True)

    def _seat_of_pod(self, gang: Gang, member: Placed) -> CandidateVictim | None:
        session, uid = self._session, member.pod.uid
        row = session.snapshot.nodes.row.get(member.node, -1)
        if row < 0 or uid in self._gone or uid in session.nominations.evicted:
            return None
        budgets = self._budgets.numbers_of(member) if self.left else ()
        if len(budgets) > 1:
            return None
        return CandidateVictim(member, row, self._member_cost(gang, member), budgets)

    def _may_go(self, gang: Gang, member: Placed) -> bool:
        """Whether a member's place is known to the API, or is one that may be taken back."""
        if member.confirmed:
            return True
        if self._session.placements.assigned_to(gang, member.pod.uid) is not None:
            return self._session.hooks.stable.starts
        return gang.key in self._nominated and not member.pod.node

    def _member_cost(self, gang: Gang, member: Placed) -> int:
        # A second at least: of those who have just started, the smaller one is missed less.
        lost = max(1, lost_gpu_seconds(gang, member.pod.scheduled, self._session.snapshot.now))
        thousandths = member.pod.pod_class.gpu_thousandths
        pools = self._session.queue_accounts.pools
        row = self._session.snapshot.nodes.row.get(member.node, -1)
        if pools is not None and row >= 0:
            thousandths = thousandths * pools.gpu_weight(row) // DEVICE
        return (lost * COST_OF_GPU_SECOND + COST_OF_GPU) * thousandths // DEVICE + COST_OF_POD


def _loses_one_by_one(gang: Gang) -> bool:
    """Whether a gang below its minimum may lose members one by one, as it does no work with those that it has.

    Not where its author ruled that out; nor while its first start is under way, which would have to begin anew for
    the room of one member: it loses all members that have a place, or none.
    """
    return gang.terms.disruption != "Group" and is_broken(gang)


def _running_with_parts(
    gang: Gang, staying: Sequence[Placed], seats: Sequence[CandidateVictim]
) -> RunningGang:
    """A gang with roles or sub-groups that have minima, of which these members could leave."""
    have = len(staying) + gang.succeeded_counted
    roles = Counter(each.pod.role for each in staying)
    done = Counter(dict(gang.ready_roles))
    done.subtract(Counter(each.pod.role for each in gang.placed))
    spare = {role: max(0, roles[role] + done[role] - least) for role, least in gang.min_roles}
    surplus = max(0, have - gang.min_member)
    parts = _members_by_sub_group(gang, staying)
    whole = gang.complete_groups(parts)
    complete = complete_pod_groups(gang, parts)
    incomplete = (
        have < gang.min_member
        or any(roles[role] + done[role] < least for role, least in gang.min_roles)
        or "" not in whole
    )
    broken = incomplete and _loses_one_by_one(gang)
    spare_parts = {
        part.name: parts[part.name] - (part.min_member if part.name in complete else 0)
        for part in gang.sub_groups
    }
    held = Counter(each.pod.sub_group for each in staying)
    held.subtract(Counter(seat.member.pod.sub_group for seat in seats))
    if broken:
        surplus, spare, spare_parts, complete = len(seats), {}, {}, set()
    elif incomplete or gang.terms.disruption == "Group":
        surplus = 0
    return RunningGang(
        gang=gang,
        seats=tuple(seats),
        surplus=surplus,
        spare_roles=spare,
        spare_parts=spare_parts,
        spare_sub_groups=_spare_sub_groups(gang, whole),
        may_leave={
            part.name: (part.parent, below)
            for part in (*gang.sub_groups, *gang.parent_groups)
            if complete
            and (below := gang.pod_groups_below[part.name])
            and part.name in whole
            and all(each.name in whole for each in gang.groups_around(part.name))
            and not any(held[name] for name in below)
        },
        may_end=len(seats) == len(staying),
        broken=broken,
    )


def _spare_sub_groups(gang: Gang, complete: Collection[str]) -> dict[str, int]:
    """By sub-group that holds others (the gang has no name), complete ones above its minimum."""
    needed = {each.name: each.min_sub_groups for each in gang.parent_groups}
    needed[""] = gang.min_sub_groups
    return {
        name: max(0, sum(each.name in complete for each in inside) - needed[name])
        for name, inside in gang.sub_groups_in.items()
    }


def _spare_part(running: RunningGang) -> RunningGang | None:
    """What the gang could lose and go on; None for nothing, and for one that is broken already."""
    stays = 1 if running.may_end else 0  # where its minimum has succeeded, somebody goes on
    surplus = min(running.surplus, len(running.seats) - stays)
    if running.broken or surplus <= 0:
        return None
    return attrs.evolve(running, surplus=surplus, may_end=False)


def _members_by_sub_group(gang: Gang, staying: Iterable[Placed]) -> Counter[str]:
    """Members that count, by sub-group: those that stay and those that succeeded."""
    counts = Counter(dict(gang.ready_sub_groups))
    counts.subtract(Counter(each.pod.sub_group for each in gang.placed))
    counts.update(Counter(each.pod.sub_group for each in staying))
    return counts


def _eviction_order(seat: CandidateVictim) -> tuple[int, int, float, str]:
    """Lowest priority, highest rank, youngest."""
    pod = seat.member.pod
    return (pod.priority, -pod.rank, -pod.scheduled, pod.uid)


class DisruptionBudgets:
    """Disruption budgets, shared by all claims of a session."""

    def __init__(self, budgets: Iterable[DisruptionBudget]) -> None:
        self.left: list[int] = []
        self._of_namespace: dict[str, list[tuple[int, DisruptionBudget]]] = {}
        for number, budget in enumerate(budgets):
            self.left.append(max(0, budget.disruptions_allowed))
            self._of_namespace.setdefault(budget.namespace, []).append((number, budget))

    def numbers_of(self, member: Placed) -> tuple[int, ...]:
        """Numbers of the budgets that count a member; none counts one that does not run yet."""
        pod = member.pod
        if pod.phase is PodPhase.PENDING:
            return ()
        return tuple(
            number
            for number, budget in self._of_namespace.get(pod.namespace, ())
            if budget.selector is not None and budget.selector.matches(pod.labels)
        )

    def count_eviction(self, each: EvictOperation) -> None:
        """Count one member's eviction in its budgets."""
        for number in self.numbers_of(each.member):
            self.left[number] = max(0, self.left[number] - 1)


class SpareMembers:
    """The spare part of a gang in pieces of which any number may leave, in any order.

    Args:
        running: the gang.
    """

    def __init__(self, running: RunningGang) -> None:
        self._running = running
        self._left = running.surplus
        self._roles = Counter(running.spare_roles)
        self._parts = Counter(running.spare_parts)

    def in_eviction_order(self) -> list[tuple[CandidateVictim, ...]]:
        """The pieces, each member in one at most: first members above all minima, one by one.

        Then what is left of sub-groups for which others stand in, the cheapest first.
        """
        singles: list[tuple[CandidateVictim, ...]] = []
        staying: list[CandidateVictim] = []
        for seat in self._running.seats:
            if self._left and self._take_member(seat):
                self._left -= 1
                singles.append((seat,))
            else:
                staying.append(seat)
        return singles + self._sub_groups(staying)

    def _take_member(self, seat: CandidateVictim) -> bool:
        """Take a member from its role and its sub-group, if both can spare it."""
        running, pod = self._running, seat.member.pod
        role_bound, part_bound = pod.role in running.spare_roles, pod.sub_group in self._known
        if role_bound and self._roles[pod.role] < 1:
            return False
        if part_bound and self._parts[pod.sub_group] < 1:
            return False
        self._roles[pod.role] -= role_bound
        self._parts[pod.sub_group] -= part_bound
        return True

    @property
    def _known(self) -> dict[str, int]:
        return self._running.spare_parts

    def _sub_groups(self, staying: list[CandidateVictim]) -> list[tuple[CandidateVictim, ...]]:
        found: list[tuple[CandidateVictim, ...]] = []
        left = dict(self._running.spare_sub_groups)
        gone: set[UID] = set()
        for parent, seats in complete_sub_groups(self._running, staying):
            roles = Counter(
                seat.member.pod.role
                for seat in seats
                if seat.member.pod.role in self._running.spare_roles
            )
            if left.get(parent, 0) < 1 or len(seats) > self._left:
                continue
            if any(seat.member.pod.uid in gone for seat in seats):
                continue  # in a sub-group that leaves already, or around one
            if any(self._roles[role] < count for role, count in roles.items()):
                continue
            self._roles -= roles
            self._left -= len(seats)
            left[parent] -= 1
            gone.update(seat.member.pod.uid for seat in seats)
            found.append(seats)
        return found


def complete_sub_groups(
    running: RunningGang, seats: list[CandidateVictim]
) -> list[tuple[str, tuple[CandidateVictim, ...]]]:
    """Of these members, those of each sub-group that may leave as a whole: cheapest first.

    Each comes with the name of the sub-group that it is in, and is one of those that can be spared
    there, or some of them are.
    """
    of: dict[str, list[CandidateVictim]] = {}
    for name, (parent, below) in running.may_leave.items():
        if running.spare_sub_groups.get(parent):
            inside = [seat for seat in seats if seat.member.pod.sub_group in below]
            if inside:
                of[name] = inside
    keyed = sorted((sum(seat.cost for seat in part), name) for name, part in of.items())
    keyed.sort(key=lambda each: (each[0], [-ord(letter) for letter in each[1]]))
    return [(running.may_leave[name][0], tuple(of[name])) for _, name in keyed]
