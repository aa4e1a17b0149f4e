"""Gangs to move so that one gang after another fits: none ends for good, and little work is lost.

A gang that waits for room alone gets it from gangs that all fit elsewhere at once. They are chosen
by what they lose, by a model or one at a time without a solver; then all of them are placed on what
will be, under every rule that an ordinary placement obeys, or nothing happens at all. The places
of moved gangs are recorded before the first of them leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import attrs

from gpusched.arrays.columns import Ints
from gpusched.base import limits
from gpusched.base.classes import frozen
from gpusched.base.errors import SolverFault
from gpusched.cache.gangs.gang import Gang
from gpusched.placement.model.problem import SearchOutcome
from gpusched.placement.victims.solver_model import VictimModel, VictimModelResult
from gpusched.session.allocate.gang_placement import place_ignoring_reservations
from gpusched.session.allocate.node_sets import NodeSet, candidate_node_sets
from gpusched.session.allocate.queue_order import in_queue_order
from gpusched.session.backfill.reservation_guard import place_minimum
from gpusched.session.framework.proposal import CONSOLIDATE
from gpusched.session.framework.reasons import (
    Reason,
    nodes_text,
    pods_text,
    shorten,
    truncate_message,
)
from gpusched.session.framework.verdict import Verdict, first_refusal
from gpusched.session.gpu_types.options import takes_gpus, types_to_start_on
from gpusched.session.preempt.preemption_plans import lost_gpu_seconds
from gpusched.session.preempt.victims import RunningGang, Victims
from gpusched.session.rebalance.consolidation_model import (
    MovableGang,
    PodKind,
    build_consolidation_model,
    cost_lower_bound,
)
from gpusched.session.rebalance.movable_gangs import is_complete_and_movable, may_start_again
from gpusched.session.rebalance.room import Room, all_but, holding_back
from gpusched.session.state.decided.moved_gangs import as_pending_gang
from gpusched.session.state.search_records import SearchRecord
from gpusched.session.state.session import Session
from gpusched.session.state.statement import Assignment, Statement

_COST_OF_GPU_SECOND = 1024
"""Lost work decides, then how many pods are moved."""
_MODELS_MAX = 24
"""Models of one session: each takes some 30 ms to build and to solve at 400 nodes."""
_EVERYWHERE_MAX = 64
"""So many gangs that could move are looked at wherever they are: one elsewhere may make room for
one that leaves the domain. Of more, those in the domain alone, as models grow with their number."""
_REASONS_WITHOUT_ROOM = (
    Reason.INSUFFICIENT_RESOURCES,
    Reason.TOPOLOGY_UNSATISFIABLE,
    Reason.WAITING_FOR_TOPOLOGY,
    Reason.NO_FEASIBLE_NODE,
)


@frozen(eq=False)
class _Moves:
    """Gangs that move together, and where everybody could be.

    Attributes:
        rooms: of the gang that waits, and by their kinds of pods that move, as the model found
            them; None where no model was asked.
    """

    gangs: tuple[MovableGang, ...]
    rooms: tuple[Room, dict[PodKind, Room]] | None = None


QueueAdmissionCheck = Callable[[Session, Gang], Verdict]


class Consolidation:
    """See the module. Everything happens inside ``session.looking_later()``.

    Args:
        session: in which is moved.
        victims: of the session.
        admission: whether a gang may be in its queue at all.
    """

    def __init__(self, session: Session, victims: Victims, admission: QueueAdmissionCheck) -> None:
        self._session = session
        self._victims = victims
        self._admission = admission
        self._budget = session.effort.budget_s
        self._models = 0
        self._bounds = session.hooks.moving
        self._recent = {key for key, _ in session.snapshot.move_records}

    def serve_all(self, gangs: Sequence[Gang]) -> None:
        """Move gangs for those that wait, in their turn."""
        waiting = [gang for gang in gangs if self._waits_for_room(gang)]
        for number, gang in enumerate(in_queue_order(self._session, waiting)):
            if number >= limits.MOVE_GANGS_MAX or not self._bounds.gangs_max:
                return
            if not first_refusal(self._session.hooks.quota_checks, gang).refuses:
                self._serve(gang)

    def _waits_for_room(self, gang: Gang) -> bool:
        ask = self._session.outcomes.refusal(gang)
        waits = ask is not None and ask.reason in _REASONS_WITHOUT_ROOM
        return waits and not gang.placed and not gang.requests_gpu_share

    def _serve(self, gang: Gang) -> None:
        """Choose, prove, and carry out what costs least."""
        cost_max = self._cost_max(gang)
        movables = list(self._movable_gangs(gang, cost_max))
        with self._session.on_open_nodes(gang):
            chosen = self._find_cheapest(gang, movables, cost_max) if movables else None
        if chosen is None:
            return
        statement, places = self._place_all(gang, chosen)
        if statement is None:
            return
        self._claim_moves(gang, chosen.gangs, statement, places)

    # -- who could be moved --------------------------------------------------------------------
    def _cost_max(self, gang: Gang) -> int:
        """As much work as the gang does in the time that policies allow, and a pod's part."""
        work = sum(max(1, pod_set.pod_class.gpus) * len(pod_set.pods) for pod_set in gang.pod_sets)
        return (work * self._bounds.lost_s + 1) * _COST_OF_GPU_SECOND - 1

    def _movable_gangs(self, claimant: Gang, cost_max: int) -> Iterator[MovableGang]:
        for queue in sorted(self._victims.queues):
            if queue != claimant.queue and self._would_exceed_fair_share(claimant):
                continue
            node = self._session.snapshot.queues.get(queue)
            if node is None or node.queue.ordering == "StrictFifo":
                continue  # behind a head that is blocked it might not come back
            for gang in self._victims.of_queue(queue):
                movable = self._as_movable(claimant, gang, cost_max)
                if movable is not None:
                    yield movable

    def _as_movable(self, claimant: Gang, gang: Gang, cost_max: int) -> MovableGang | None:
        session = self._session
        running = self._victims.running(gang)
        if (
            running is None
            or not is_complete_and_movable(session, gang, self._recent)
            or not running.may_end
        ):
            return None
        cost = self._move_cost(gang, running)
        if cost > cost_max:
            return None
        drawn = [number for seat in running.seats for number in seat.budgets]
        if any(drawn.count(n) > self._victims.left[n] for n in sorted(set(drawn))):
            return None
        hooks = session.hooks
        for checks in (hooks.victim_filters, hooks.stop_filters):
            if first_refusal(checks, claimant, gang, CONSOLIDATE).refuses:
                return None
        if self._admission(session, gang).refuses:
            return None
        return MovableGang(gang, running.seats, cost, self._allowed_types(gang))

    def _allowed_types(self, gang: Gang) -> tuple[int, ...]:
        """Types of GPUs to which its members may move; of one that must be of one type, any of these."""
        open_to = types_to_start_on(self._session, as_pending_gang(gang))
        return tuple(sorted({number for types in open_to for number in types}))

    def _move_cost(self, gang: Gang, running: RunningGang) -> int:
        now = self._session.snapshot.now
        lost = sum(
            lost_gpu_seconds(gang, seat.member.pod.scheduled, now)
            * max(1, seat.member.pod.pod_class.gpus)
            for seat in running.seats
        )
        pods = min(len(running.seats), _COST_OF_GPU_SECOND // (2 * limits.MOVES_MAX))
        return lost * _COST_OF_GPU_SECOND + pods

    def _would_exceed_fair_share(self, claimant: Gang) -> bool:
        """Whether its queue would hold more than it is due: then others' gangs are left alone."""
        session = self._session
        if not session.hooks.fair_shares:
            return False
        asked = session.view.minimum(claimant)
        gpus = {pod_set.pod_class.gpu for pod_set in claimant.pod_sets if pod_set.pod_class.gpu}
        names = sorted(gpus) or [name for name, amount in asked.items if amount]
        due = session.view.fair_share(claimant.queue)
        held = session.view.allocated(claimant.queue)
        return any(held.get(name) + asked.get(name) > due.get(name) for name in names)

    # -- choosing --------------------------------------------------------------------------------
    def _find_cheapest(
        self, gang: Gang, movables: Sequence[MovableGang], cost_max: int
    ) -> _Moves | None:
        if not self._session.effort.solver:
            return self._find_single(gang, movables)
        areas, refusal = candidate_node_sets(self._session, gang)
        if refusal is not None:
            return None
        areas = list(_areas_by_type(self._session, gang, areas))
        best: _Moves | None = None
        for bound, _, area, near in self._in_order(gang, areas, movables):
            if bound > cost_max:
                break
            forbidden: list[frozenset[int]] = []
            for _ in range(limits.MOVE_TRIES_MAX):
                if self._budget <= 0 or self._models >= _MODELS_MAX:
                    return best
                model = build_consolidation_model(
                    self._session, gang, area, near, cost_max=cost_max, forbidden=forbidden
                )
                answer = self._solve_model(model.ints) if model is not None else None
                if model is None or answer is None or not answer.picked:
                    break
                chosen = _Moves(
                    tuple(near[number] for number in answer.picked),
                    model.split_rooms(answer.counts),
                )
                few = len(chosen.gangs) <= self._bounds.gangs_max
                if few and self._holds(gang, chosen):
                    best, cost_max = chosen, sum(each.cost for each in chosen.gangs) - 1
                    break
                forbidden.append(frozenset(answer.picked))
        return best

    def _in_order(
        self, gang: Gang, areas: Sequence[NodeSet], movables: Sequence[MovableGang]
    ) -> list[tuple[int, int, NodeSet, list[MovableGang]]]:
        """Areas into which moves could let the gang, by what these cost at least."""
        found = []
        for number, area in enumerate(areas):
            near = [
                each
                for each in movables
                if area.rows is None or any(area.rows[seat.row] for seat in each.seats)
            ]
            bound = cost_lower_bound(self._session, gang, area, near) if near else None
            if bound is not None:
                few = len(movables) <= _EVERYWHERE_MAX
                found.append((bound, number, area, list(movables) if few else near))
        found.sort(key=lambda each: each[:2])
        return found

    def _find_single(self, gang: Gang, movables: Sequence[MovableGang]) -> _Moves | None:
        """The cheapest gang that does alone."""
        ordered = sorted(movables, key=lambda each: (each.cost, each.gang.key))
        for each in ordered[: limits.MOVE_TRIES_MAX]:
            moves = _Moves((each,))
            if self._holds(gang, moves):
                return moves
        return None

    def _solve_model(self, model: VictimModel) -> VictimModelResult | None:
        session = self._session
        self._models += 1
        try:
            answer = session.search(model)
        except SolverFault as fault:
            answer = None
            session.hooks.faults.append(str(fault))
        if not isinstance(answer, VictimModelResult):
            session.record_search(SearchRecord(outcome=SearchOutcome.INVALID, method="moves"))
            return None
        self._budget -= answer.spent
        session.record_search(
            SearchRecord(
                outcome=answer.outcome, seconds=answer.seconds, work=answer.spent, method="moves"
            )
        )
        return answer

    # -- proving ---------------------------------------------------------------------------------
    def _holds(self, gang: Gang, chosen: _Moves) -> bool:
        statement, places = self._place_all(gang, chosen)
        if statement is None:
            return False
        for _, other in reversed(places):
            other.discard()
        statement.discard()
        return True

    def _place_all(
        self, gang: Gang, chosen: _Moves
    ) -> tuple[Statement | None, list[tuple[MovableGang, Statement]]]:
        """Places of all gangs on what will be, or none at all.

        The best place of the gang that waits may be in the way of those that move: then everybody
        is placed where the model found room for all.
        """
        found = self._placed_in(gang, chosen, None)
        if found[0] is None and chosen.rooms is not None:
            found = self._placed_in(gang, chosen, chosen.rooms)
        return found

    def _placed_in(
        self, gang: Gang, chosen: _Moves, rooms: tuple[Room, dict[PodKind, Room]] | None
    ) -> tuple[Statement | None, list[tuple[MovableGang, Statement]]]:
        """Places of all gangs on what will be, anywhere or in these rooms; or none at all."""
        session = self._session
        own, left = (None, None) if rooms is None else (rooms[0], dict(rooms[1]))
        statement = session.statement()
        for each in chosen.gangs:
            for seat in each.seats:
                session.evict(statement, each.gang, seat.member)
        places: list[tuple[MovableGang, Statement]] = []
        held = self._place_gang(gang, statement, own) and bool(statement.assignments)
        for each in sorted(chosen.gangs, key=lambda one: (-len(one.seats), one.gang.key)):
            if not held:
                break
            other = session.statement()
            waiting = as_pending_gang(each.gang)
            held = (
                may_start_again(session, waiting)
                and self._place_gang(waiting, other, _room_of(each, left))
                and len(other.assignments) == len(each.seats)
            )
            places.append((each, other))
            if left is not None:
                _take_room(each, left, other.assignments)
        if held:
            return statement, places
        for _, other in reversed(places):
            other.discard()
        statement.discard()
        return None, []

    def _place_gang(self, gang: Gang, statement: Statement, room: Room | None) -> bool:
        """Place a gang anywhere, or in this room alone; whether it has places."""
        session = self._session
        if room is None:
            return place_minimum(session, gang, statement) is None
        with holding_back(session, all_but(session, room)):
            if place_ignoring_reservations(session, gang, statement) is not None:
                return False
        statement.proof = ""  # it is the best in the room that was left to it
        reservations = session.reservations
        return reservations is None or reservations.find_conflict(gang, statement) is None

    # -- carrying out ----------------------------------------------------------------------------
    def _claim_moves(
        self,
        gang: Gang,
        chosen: Sequence[MovableGang],
        statement: Statement,
        places: Sequence[tuple[MovableGang, Statement]],
    ) -> None:
        session = self._session
        evictions = statement.evictions
        moves = [session.nominations.nominate_for_move(each.gang, other) for each, other in places]
        lost = sum(each.cost // _COST_OF_GPU_SECOND for each in chosen)
        session.nominations.nominate(
            gang,
            statement,
            action=CONSOLIDATE,
            reason=Reason.PREEMPTED,
            message=_moved_gang_message(
                gang, len(evictions), lost, session.snapshot.limits.nomination_timeout_s
            ),
            moves=tuple(moves),
        )
        self._victims.claimed(evictions)
        self._recent |= {each.gang.key for each in chosen}
        session.outcomes.refuse(
            gang, Reason.PREEMPTION_IN_PROGRESS, _claimant_message(session, gang, chosen)
        )


def _areas_by_type(session: Session, gang: Gang, areas: Sequence[NodeSet]) -> Iterator[NodeSet]:
    """The areas, for each set of GPU types on which alone the gang could start."""
    every = all(takes_gpus(pod_set.pod_class) for pod_set in gang.pod_sets)
    for types in types_to_start_on(session, gang):
        for area in areas:
            if not types or not every:
                yield area
            else:
                rows = session.gpu_types.rows_of_types(types)
                yield attrs.evolve(area, rows=rows if area.rows is None else area.rows & rows)


def _room_of(moved: MovableGang, left: dict[PodKind, Room] | None) -> Room | None:
    """Room that is left for pods of the kinds of a gang; None for any."""
    if left is None:
        return None
    room: dict[int, Ints] = {}
    for kind in sorted({moved.pod_kind(seat.member.pod.pod_class) for seat in moved.seats}):
        for row, amounts in left[kind].items():
            room[row] = room[row] + amounts if row in room else amounts
    return room


def _take_room(moved: MovableGang, left: dict[PodKind, Room], places: Sequence[Assignment]) -> None:
    """Take places off the room of their kinds."""
    for place in places:
        kind = moved.pod_kind(place.pod.pod_class)
        room = dict(left[kind])
        if place.row in room:
            amounts = room[place.row].copy()
            amounts[place.request.columns] -= place.request.amounts
            room[place.row] = amounts
        left[kind] = room


def _claimant_message(session: Session, gang: Gang, chosen: Sequence[MovableGang]) -> str:
    places = session.nominations.nominated_places(gang)
    rows = {place.row for place in places}
    pods = sum(len(each.seats) for each in chosen)
    whose = "1 gang" if len(chosen) == 1 else f"{len(chosen)} gangs"
    return truncate_message(
        f"room for {pods_text(len(places))} is being freed on {nodes_text(len(rows))} by moving "
        f"{pods_text(pods)} of {whose} to other nodes and is held for it"
    )


def _moved_gang_message(gang: Gang, pods: int, lost: int, held_s: float) -> str:
    name = shorten(f"{gang.key.namespace}/{gang.key.name}")
    return truncate_message(
        f"moved for {name}, which needs room for {pods_text(gang.members_at_start)}: {pods_text(pods)} move, "
        f"{lost} GPU-seconds of work are done again; room elsewhere is held for "
        f"{held_s:g} s"
    )
