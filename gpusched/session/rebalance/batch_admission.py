"""Joint starts: a gang that finds no room gets it where gangs that start beside it can make way.

Nothing here changes the queue order: gangs take turns as ever, and one that was given a start
keeps it. Only where they sit is decided again, for those of this session whose places nobody has
been told yet. Tries are counted, and what failed is remembered for all gangs alike.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final

import attrs
import numpy as np

from gpusched.api.gang.pod_group import TopologyRequest
from gpusched.api.meta.identity import GangKey
from gpusched.arrays.columns import Ints, how_many_fit
from gpusched.base.classes import frozen
from gpusched.base.errors import InvariantBroken
from gpusched.base.limits import BATCH_GANGS_MAX, BATCH_MODEL_S, BATCH_TRIES_MAX, BATCH_WORK_S
from gpusched.cache.gangs.equivalence import Omit, placement_key
from gpusched.cache.gangs.gang import Gang
from gpusched.placement.admission.admit import admit_batch
from gpusched.placement.admission.model import AdmissionBatch, amounts_used_by
from gpusched.placement.model.problem import Role, SearchOutcome
from gpusched.session.allocate.gang_placement import place_ignoring_reservations
from gpusched.session.allocate.node_sets import Unschedulable
from gpusched.session.allocate.pod_by_pod import has_inter_pod_rules
from gpusched.session.backfill.reservations import session_reservations
from gpusched.session.framework.reasons import Reason
from gpusched.session.framework.verdict import first_refusal
from gpusched.session.rebalance.batch_candidates import (
    BatchResources,
    add_places,
    as_movable,
    batch_resources,
    make_candidate,
    types_in_batch,
    with_start_members,
)
from gpusched.session.rebalance.room import all_but, holding_back
from gpusched.session.state.search_records import SearchRecord
from gpusched.session.state.session import Session
from gpusched.session.state.statement import Assignment, Statement

_RANK_NEVER: Final = 2**61


def choose_movable_gangs(
    session: Session, gang: Gang, movable: Sequence[Gang]
) -> tuple[list[Gang], bool]:
    """Gangs whose moving could make room, in the order of their starts; whether these are all.

    Those in the domains that lack the least come first, and the last to start first among
    equals; then those elsewhere, who may have to make way for the first. None when the gang
    would not fit if all of them were gone.

    Args:
        session: in which they have their places.
        gang: with exactly the members that would start, and the level they need.
        movable: gangs that started in this session and may move, in the order of their starts.
    """
    ranks = _domain_ranks(session, gang, movable)
    if ranks is None:
        return [], True
    order: dict[GangKey, tuple[int, int]] = {}
    for number, each in enumerate(movable):
        rows = [place.row for place in session.placements.assigned(each)]
        order[each.key] = (int(ranks[rows].min(initial=_RANK_NEVER)), -number)
    chosen: set[GangKey] = set()
    asked = 0
    for each in sorted(movable, key=lambda each: order[each.key]):
        if len(chosen) == BATCH_GANGS_MAX:
            break
        asked += 1
        if as_movable(session, each) is not None:
            chosen.add(each.key)
    return [each for each in movable if each.key in chosen], asked == len(movable)


def _domain_ranks(session: Session, gang: Gang, movable: Sequence[Gang]) -> Ints | None:
    """By row, the rank of its domain: the less room it lacks, the smaller.

    None when no domain has room for the gang, whichever gangs move.
    """
    places = [place for each in movable for place in session.placements.assigned(each)]
    then = make_candidate(session, gang, batch_resources(session, [gang], places)).problem
    rows = len(session.node_usage.nodes)
    domain: Ints = np.zeros(rows, dtype=np.int64)
    real = 1
    if then.required >= 0:
        level = then.levels[then.required]
        domain, real = level.domain, level.real
    able = np.ones(real, dtype=np.bool_)
    usable = np.zeros(rows, dtype=np.bool_)
    for after in then.roles:
        able &= _fits_by_domain(after, domain, real) >= after.most
        usable |= after.fits > 0
    if not able.any():
        return None
    lacks: Ints = np.zeros(real, dtype=np.int64)
    for before in make_candidate(session, gang, batch_resources(session, [gang], ())).problem.roles:
        lacks += np.maximum(0, before.most - _fits_by_domain(before, domain, real))
    rank: Ints = np.full(real, _RANK_NEVER, dtype=np.int64)
    ordered = [each for each in np.argsort(lacks, kind="stable").tolist() if able[each]]
    rank[ordered] = np.arange(len(ordered))
    inside = usable & (domain < real)
    ranks: Ints = np.full(rows, _RANK_NEVER, dtype=np.int64)
    ranks[inside] = rank[domain[inside]]
    return ranks


def _fits_by_domain(role: Role, domain: Ints, real: int) -> Ints:
    inside = domain < real
    sums: Ints = np.zeros(real, dtype=np.int64)
    np.add.at(sums, domain[inside], role.fits[inside])
    return sums


class Reassignment:
    """Gangs without their places, until they have others or their own again.

    Args:
        session: in which they were given places, all of which are free once this is made.
        gangs: that started in this session, and had neither places nor promises before.
    """

    def __init__(self, session: Session, gangs: Sequence[Gang]) -> None:
        self._session = session
        self._cleared = session.statement()
        self._before: dict[GangKey, tuple[Assignment, ...]] = {}
        self._settled: list[tuple[Gang, Statement]] = []
        self._gangs = tuple(gangs)
        # What was proven of the places they had says nothing of others.
        self._proofs = {gang.key: session.placements.proof(gang) for gang in gangs}
        for gang in gangs:
            places = tuple(session.placements.assigned(gang))
            self._before[gang.key] = places
            for place in reversed(places):
                self._cleared.unassign(place)
            session.placements.replace(gang, (), proof="")

    def assign_places(self, gang: Gang, statement: Statement) -> bool:
        """Give a gang the places of a statement; False, and nothing done, for other members."""
        before = sorted(place.pod.uid for place in self._before[gang.key])
        places = statement.assignments
        if sorted(place.pod.uid for place in places) != before:
            return False
        self._settled.append((gang, statement))
        self._session.placements.replace(gang, places, proof=statement.proof)
        return True

    def commit(self) -> None:
        """All have settled, and stay.

        Raises:
            InvariantBroken: a member has none.
        """
        if len(self._settled) != len(self._gangs):
            raise InvariantBroken("a gang that was to move has no places")
        self._cleared.commit()
        for _, statement in self._settled:
            statement.commit()

    def discard(self) -> None:
        """All members are where they were. Statements made since must be discarded already."""
        while self._settled:
            gang, statement = self._settled.pop()
            self._session.placements.replace(gang, (), proof="")
            statement.discard()
        self._cleared.discard()
        for gang in self._gangs:
            before, proof = self._before[gang.key], self._proofs[gang.key]
            self._session.placements.replace(gang, before, proof=proof)


_REASONS_WITHOUT_ROOM: Final = (
    Reason.INSUFFICIENT_RESOURCES,
    Reason.TOPOLOGY_UNSATISFIABLE,
    Reason.WAITING_FOR_TOPOLOGY,
)


@frozen(eq=False)
class _BatchAssignment:
    """Assignments of all members of a batch.

    Attributes:
        gangs: movers in the order of their starts, the newcomer last.
        rooms: by gang, what each row is to give it, shape (resources,).
        moved: movers whose places are others than now.
        types: by gang, the types of GPUs that it is held to; None for any.
    """

    gangs: tuple[Gang, ...]
    rooms: Mapping[GangKey, Mapping[int, Ints]]
    moved: tuple[Gang, ...]
    types: Mapping[GangKey, tuple[int, ...] | None]


class BatchAdmission:
    """Of one session, for the action that places gangs.

    Args:
        session: in which gangs start.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._movable: list[Gang] = []
        self._stuck: dict[Hashable, tuple[int, int] | None] = {}
        """State in which gangs with a key found no way; None where that is proven for good."""
        self._tries = BATCH_TRIES_MAX
        self._work = BATCH_WORK_S
        # What pools of queues hold depends on where pods sit: nobody moves where that counts.
        self._on = session.effort.solver and session.queue_accounts.pools is None

    def note_started(self, gang: Gang, *, promised: bool) -> None:
        """A gang was given its minimum; one that was promised its room stays there."""
        has_places = bool(self._session.placements.assigned(gang))  # else its minimum is done
        if self._on and not promised and has_places and self._may_move(gang):
            self._movable.append(gang)

    def note_movable(self, gang: Gang) -> None:
        """A gang that may move was given its minimum."""
        if self._on:
            self._movable.append(gang)

    def start(self, gang: Gang, refusal: Unschedulable) -> bool:
        """Try to start a gang that was refused in its turn; whether it got its places.

        No other gang gains or loses a start. Without success nothing has changed.
        """
        if not self._on or refusal.reason not in _REASONS_WITHOUT_ROOM or not self._movable:
            return False
        session = self._session
        if session.nominations.has_nomination(gang) or not self._may_move(gang):
            return False
        if not session.gang_selection.room.may_suffice(gang):
            return False  # nor did it before those started that may move
        key = self._class_key(gang)
        state = (session.queue_accounts.version, len(self._movable))
        if key in self._stuck and self._stuck[key] in (None, state):
            return False
        if self._tries <= 0 or self._work <= 0:
            return False
        chosen = with_start_members(session, gang)
        if chosen is None or first_refusal(session.hooks.quota_checks, chosen).refuses:
            return False
        seats, proven, everybody = None, True, True
        if self._may_fit_together(chosen):
            room = (
                nullcontext()
                if session.reservations is None
                else session.reservations.exclude_reserved_room(gang)
            )
            with room:
                who, everybody = choose_movable_gangs(session, chosen, self._movable)
                seats, proven = self._solve_batch(chosen, who) if who else (None, True)
        if seats is not None and self._apply_assignment(gang, chosen, seats):
            return True
        state = (session.queue_accounts.version, len(self._movable))
        self._stuck[key] = None if proven and everybody and self._free_room_only_shrinks else state
        return False

    def _may_fit_together(self, gang: Gang) -> bool:
        """Whether amounts suffice for each kind of its members, were no movable gang there and nothing reserved."""
        session = self._session
        usage = session.node_usage
        left: Ints = np.zeros_like(usage.used)
        add_places(
            left, (place for each in self._movable for place in session.placements.assigned(each))
        )
        for pod_set in gang.pod_sets:
            request, most = session.class_info(pod_set.pod_class).request, len(pod_set.pods)
            free = usage.free_amounts(slice(None), request.columns) + left[:, request.columns]
            if int(np.minimum(how_many_fit(free, request.amounts), most).sum()) < most:
                return False
        return True

    @property
    def _free_room_only_shrinks(self) -> bool:
        """Whether nothing that is kept for others can become free again in this session."""
        reservations = session_reservations(self._session)
        held = reservations is not None and reservations.reserved_gangs
        return not self._session.nominations and not held

    def _may_move(self, gang: Gang) -> bool:
        """Whether nothing but its own pods and its topology says where it may be."""
        plain = not (
            gang.placed or gang.expected_count or gang.suspended or gang.requests_gpu_share
        )
        pod_sets = [(pod_set, len(pod_set.pods)) for pod_set in gang.pod_sets]
        return (
            plain
            and not any(
                each.pod_class.unsupported or each.pod_class.claims for each in gang.pod_sets
            )
            and not has_inter_pod_rules(self._session, pod_sets)
        )

    def _class_key(self, gang: Gang) -> Hashable:
        """The key of gangs that find room or none alike, with the level that each needs now."""
        wish = gang.topology
        holds_out = self._session.snapshot.now - gang.created < wish.max_wait_ns / 1e9
        now = TopologyRequest(wish.required, wish.preferred if holds_out else "")
        key = placement_key(attrs.evolve(gang, topology=now), without=Omit.NAMESPACE)
        return (key, self._session.windows.class_key(gang))

    # -- where everybody would sit ---------------------------------------------------------------
    def _solve_batch(
        self, gang: Gang, movable: Sequence[Gang]
    ) -> tuple[_BatchAssignment | None, bool]:
        """Seats for all, or none and whether that is proven."""
        session = self._session
        self._tries -= 1
        firm = [each for each in (as_movable(session, one) for one in movable) if each is not None]
        gangs = (*firm, gang)
        places = [place for each in firm for place in session.placements.assigned(each)]
        ground = batch_resources(session, gangs, places)
        window = AdmissionBatch(
            free=ground.free,
            contenders=tuple(make_candidate(session, each, ground) for each in gangs),
        )
        effort = attrs.evolve(session.effort, budget_s=min(BATCH_MODEL_S, self._work))
        answer = admit_batch(window, effort, search=session.search, polish=False)
        self._work -= answer.work
        if answer.rounds:
            session.record_search(
                SearchRecord(
                    outcome=answer.outcome,
                    seconds=answer.seconds,
                    work=answer.work,
                    method="window",
                    faults=answer.faults,
                )
            )
        if len(answer.admitted) < len(gangs):
            return None, answer.outcome is SearchOutcome.INFEASIBLE
        rooms: dict[GangKey, Mapping[int, Ints]] = {}
        moved = []
        for each, one, counts in zip(gangs, window.contenders, answer.places, strict=True):
            rooms[each.key] = _amounts_by_row(session, ground, amounts_used_by(one.problem, counts))
            if (
                each is not gang
                and counts.tolist() != _counts_by_task_and_row(session, each).tolist()
            ):
                moved.append(each)
        types = {each.key: types_in_batch(session, each, ground) for each in gangs}
        return _BatchAssignment(gangs, rooms, tuple(moved), types), False

    # -- carrying it out -------------------------------------------------------------------------
    def _apply_assignment(self, gang: Gang, chosen: Gang, seats: _BatchAssignment) -> bool:
        """Move the chosen gangs and start the gang, or leave everything as it was."""
        session = self._session
        moves = Reassignment(session, seats.moved)
        left = dict(seats.rooms)
        for each in seats.gangs:
            if each not in seats.moved:
                del left[each.key]
        left[chosen.key] = seats.rooms[chosen.key]
        for each in seats.moved:
            own = left.pop(each.key)
            with self._held_to(seats.types[each.key]):
                statement = self._place_beside(each, own, [*left.values()])
            if statement is None:
                moves.discard()
                return False
            if not moves.assign_places(each, statement):
                statement.discard()
                moves.discard()
                return False
        with self._held_to(seats.types[chosen.key]):
            statement = self._place_beside(chosen, left[chosen.key], ())
        if statement is None:
            moves.discard()
            return False
        moves.commit()
        session.placements.commit(gang, statement)
        return True

    def _held_to(self, types: tuple[int, ...] | None) -> AbstractContextManager[None]:
        return nullcontext() if types is None else self._session.confined_to_gpu_types(types)

    def _place_beside(
        self, gang: Gang, own: Mapping[int, Ints], others: Sequence[Mapping[int, Ints]]
    ) -> Statement | None:
        """Places as good as any beside the rooms of others; at worst those that are its own."""
        for back in (self._amounts_beside(others), all_but(self._session, own)):
            statement = self._session.statement()
            with holding_back(self._session, back):
                refusal = place_ignoring_reservations(self._session, gang, statement)
            if refusal is None and not self._breaks_reservation(gang, statement):
                if back:
                    statement.proof = ""  # it is the best beside rooms that were kept for others
                return statement
            statement.discard()
        return None

    def _breaks_reservation(self, gang: Gang, statement: Statement) -> bool:
        reservations = self._session.reservations
        return reservations is not None and reservations.find_conflict(gang, statement) is not None

    def _amounts_beside(self, others: Sequence[Mapping[int, Ints]]) -> dict[int, Ints]:
        back: dict[int, Ints] = {}
        for room in others:
            for row, amounts in room.items():
                known = back.get(row)
                back[row] = amounts if known is None else known + amounts
        return back


def _amounts_by_row(session: Session, ground: BatchResources, used: Ints) -> dict[int, Ints]:
    """What each row gives, by all resources of nodes."""
    rooms: dict[int, Ints] = {}
    for row in np.flatnonzero(used.any(axis=1)).tolist():
        amounts: Ints = np.zeros(len(session.node_usage.nodes.columns), dtype=np.int64)
        amounts[ground.columns] = used[row]
        rooms[row] = amounts
    return rooms


def _counts_by_task_and_row(session: Session, gang: Gang) -> Ints:
    """Where the gang's members are now, as the solver counts: by pod set and node."""
    task_of = {
        pod.uid: number for number, pod_set in enumerate(gang.pod_sets) for pod in pod_set.pods
    }
    counts: Ints = np.zeros((len(gang.pod_sets), len(session.node_usage.nodes)), dtype=np.int64)
    for place in session.placements.assigned(gang):
        counts[task_of[place.pod.uid], place.row] += 1
    return counts
