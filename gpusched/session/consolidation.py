"""Whom to move so that one gang after another fits: nobody ends for good, and little work is lost.

A gang that waits for room alone gets it from gangs that all fit elsewhere at once. They are chosen
by what they lose, by a model or one at a time without a solver; then everybody is placed on what
will be, under every rule that an ordinary placement obeys, or nothing happens at all. The places
of those who move are recorded before the first of them leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from gpusched import limits
from gpusched.cache.gangs import Gang
from gpusched.errors import SolverFault
from gpusched.placement.cpsat_victims import Answer, VictimModel
from gpusched.placement.problem import Outcome
from gpusched.session.areas import Area, areas_of
from gpusched.session.claims import lost_gpu_seconds
from gpusched.session.consolidation_model import Movable, least_cost, model_for
from gpusched.session.moved import as_waiting
from gpusched.session.placing import place_minimum
from gpusched.session.promises import MoveDraft
from gpusched.session.proposal import CONSOLIDATE
from gpusched.session.reasons import Reason, cut, members, nodes, short
from gpusched.session.reservations_kept import place_clear
from gpusched.session.searches import Record
from gpusched.session.session import Session
from gpusched.session.statement import Statement
from gpusched.session.turns import turns
from gpusched.session.verdict import Verdict, first_refusal
from gpusched.session.victims import Running, Victims

_A_SECOND = 1024
"""Lost work decides, then how many pods are moved."""
_MODELS_MAX = 24
"""Models of one session: each takes some 30 ms to build and to solve at 400 nodes."""
_WAITS = (
    Reason.INSUFFICIENT_RESOURCES,
    Reason.TOPOLOGY_UNSATISFIABLE,
    Reason.WAITING_FOR_TOPOLOGY,
    Reason.NO_FEASIBLE_NODE,
)
Admission = Callable[[Session, Gang], Verdict]


class Consolidation:
    """See the module. Everything happens inside ``session.looking_later()``.

    Args:
        session: in which is moved.
        victims: of the session.
        admission: whether a gang may be in its queue at all.
    """

    def __init__(self, session: Session, victims: Victims, admission: Admission) -> None:
        self._session = session
        self._victims = victims
        self._admission = admission
        self._budget = session.effort.budget_s
        self._models = 0
        self._bounds = session.hooks.moving
        self._recent = {key for key, _ in session.snapshot.moves}

    def serve_all(self, gangs: Sequence[Gang]) -> None:
        """Move gangs for those that wait, in their turn."""
        waiting = [gang for gang in gangs if self._waits_for_room(gang)]
        for number, gang in enumerate(turns(self._session, waiting)):
            if number >= limits.MOVE_CLAIMANTS_MAX or not self._bounds.gangs_max:
                return
            if not first_refusal(self._session.hooks.quota_checks, gang).refuses:
                self._serve(gang)

    def _waits_for_room(self, gang: Gang) -> bool:
        ask = self._session.asks.get(gang.key)
        waits = ask is not None and ask.reason in _WAITS
        return waits and not gang.placed and not gang.shares

    def _serve(self, gang: Gang) -> None:
        """Choose, prove, and carry out what costs least."""
        cost_max = self._cost_max(gang)
        movables = list(self._movables(gang, cost_max))
        chosen = self._cheapest(gang, movables, cost_max) if movables else None
        if chosen is None:
            return
        statement, places = self._placed(gang, chosen)
        if statement is None:
            return
        self._claim(gang, chosen, statement, places)

    # -- who could be moved --------------------------------------------------------------------
    def _cost_max(self, gang: Gang) -> int:
        """As much work as the gang does in the time that policies allow, and a pod's part."""
        work = sum(max(1, task.pod_class.gpus) * len(task.pods) for task in gang.tasks)
        return (work * self._bounds.lost_s + 1) * _A_SECOND - 1

    def _movables(self, claimant: Gang, cost_max: int) -> Iterator[Movable]:
        for queue in sorted(self._victims.queues):
            if queue != claimant.queue and self._above_its_share(claimant):
                continue
            node = self._session.snapshot.queues.get(queue)
            if node is None or node.queue.ordering == "StrictFifo":
                continue  # behind a head that is blocked it might not come back
            for gang in self._victims.of_queue(queue):
                movable = self._movable(claimant, gang, cost_max)
                if movable is not None:
                    yield movable

    def _movable(self, claimant: Gang, gang: Gang, cost_max: int) -> Movable | None:
        session = self._session
        running = self._victims.running(gang)
        if running is None or not self._is_whole(gang) or not running.may_end:
            return None
        cost = self._cost(gang, running)
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
        return Movable(gang, running.seats, cost)

    def _cost(self, gang: Gang, running: Running) -> int:
        now = self._session.snapshot.now
        lost = sum(
            lost_gpu_seconds(gang, seat.member.pod.scheduled, now)
            * max(1, seat.member.pod.pod_class.gpus)
            for seat in running.seats
        )
        pods = min(len(running.seats), _A_SECOND // (2 * limits.MOVES_MAX))
        return lost * _A_SECOND + pods

    def _is_whole(self, gang: Gang) -> bool:
        """Whether it runs complete, somebody makes its pods again, and its move can be recorded."""
        session = self._session
        own_group = gang.pod_group is not None and not gang.pod_group.source
        own_job = gang.pod_group is None and gang.job is not None and gang.key.kind == "Job"
        at = float(int(session.snapshot.now))
        return (
            (own_group or own_job)
            and gang.key not in self._recent
            and gang.key not in session.promises
            and gang.key not in session.stops
            and not (gang.tasks or gang.gated or gang.leaving)
            and gang.ready >= gang.min_member
            and all(
                each.confirmed
                and each.pod.pod_class.share is None  # what a share frees no model says
                and each.pod.owner is not None
                and each.pod.created < at
                and each.pod.uid not in session.evicted
                and session.seat(each.pod.pod_class).ask.share is None
                for each in gang.placed
            )
        )

    def _above_its_share(self, claimant: Gang) -> bool:
        """Whether its queue would hold more than it is due: then others' gangs are left alone."""
        session = self._session
        if not session.hooks.fair_shares:
            return False
        asked = session.view.minimum(claimant)
        gpus = {task.pod_class.gpu for task in claimant.tasks if task.pod_class.gpu}
        names = sorted(gpus) or [name for name, amount in asked.items if amount]
        due = session.view.fair_share(claimant.queue)
        held = session.view.allocated(claimant.queue)
        return any(held.get(name) + asked.get(name) > due.get(name) for name in names)

    # -- choosing --------------------------------------------------------------------------------
    def _cheapest(
        self, gang: Gang, movables: Sequence[Movable], cost_max: int
    ) -> list[Movable] | None:
        if not self._session.effort.solver:
            return self._single(gang, movables)
        areas, refusal = areas_of(self._session, gang)
        if refusal is not None:
            return None
        best: list[Movable] | None = None
        for bound, _, area, near in self._in_order(gang, areas, movables):
            if bound > cost_max:
                break
            forbidden: list[frozenset[int]] = []
            for _ in range(limits.MOVE_TRIES_MAX):
                if self._budget <= 0 or self._models >= _MODELS_MAX:
                    return best
                model = model_for(
                    self._session, gang, area, near, cost_max=cost_max, forbidden=forbidden
                )
                picked = self._solved(model) if model is not None else None
                if not picked:
                    break
                chosen = [near[number] for number in picked]
                if len(chosen) <= self._bounds.gangs_max and self._holds(gang, chosen):
                    best, cost_max = chosen, sum(each.cost for each in chosen) - 1
                    break
                forbidden.append(frozenset(picked))
        return best

    def _in_order(
        self, gang: Gang, areas: Sequence[Area], movables: Sequence[Movable]
    ) -> list[tuple[int, int, Area, list[Movable]]]:
        """Areas into which moves could let the gang, by what these cost at least."""
        found = []
        for number, area in enumerate(areas):
            near = [
                each
                for each in movables
                if area.rows is None or any(area.rows[seat.row] for seat in each.seats)
            ]
            bound = least_cost(self._session, gang, area, near) if near else None
            if bound is not None:
                found.append((bound, number, area, near))
        found.sort(key=lambda each: each[:2])
        return found

    def _single(self, gang: Gang, movables: Sequence[Movable]) -> list[Movable] | None:
        """The cheapest gang that does alone."""
        ordered = sorted(movables, key=lambda each: (each.cost, each.gang.key))
        for each in ordered[: limits.MOVE_TRIES_MAX]:
            if self._holds(gang, [each]):
                return [each]
        return None

    def _solved(self, model: VictimModel) -> tuple[int, ...]:
        session = self._session
        self._models += 1
        try:
            answer = session.search(model)
        except SolverFault as fault:
            answer = None
            session.hooks.faults.append(str(fault))
        if not isinstance(answer, Answer):
            session.searches.append(Record(outcome=Outcome.INVALID, method="moves"))
            return ()
        self._budget -= answer.spent
        session.searches.append(
            Record(
                outcome=answer.outcome, seconds=answer.seconds, work=answer.spent, method="moves"
            )
        )
        return answer.picked

    # -- proving ---------------------------------------------------------------------------------
    def _holds(self, gang: Gang, chosen: Sequence[Movable]) -> bool:
        statement, places = self._placed(gang, chosen)
        if statement is None:
            return False
        for _, other in reversed(places):
            other.discard()
        statement.discard()
        return True

    def _placed(
        self, gang: Gang, chosen: Sequence[Movable]
    ) -> tuple[Statement | None, list[tuple[Movable, Statement]]]:
        """Everybody's places on what will be, or none at all."""
        session = self._session
        statement = session.statement()
        for each in chosen:
            for seat in each.seats:
                session.evict(statement, each.gang, seat.member)
        places: list[tuple[Movable, Statement]] = []
        held = place_clear(session, gang, statement) is None and bool(statement.places)
        for each in sorted(chosen, key=lambda one: (-len(one.seats), one.gang.key)):
            if not held:
                break
            other = session.statement()
            held = place_minimum(session, as_waiting(each.gang), other) is None
            held = held and len(other.places) == len(each.seats)
            places.append((each, other))
        if held:
            return statement, places
        for _, other in reversed(places):
            other.discard()
        statement.discard()
        return None, []

    # -- carrying out ----------------------------------------------------------------------------
    def _claim(
        self,
        gang: Gang,
        chosen: Sequence[Movable],
        statement: Statement,
        places: Sequence[tuple[Movable, Statement]],
    ) -> None:
        session = self._session
        evictions = statement.evictions
        moves = []
        for each, other in places:
            found = session.moved[each.gang.key] = other.keep()
            for place in found:
                session.accounts.promise(session.path(each.gang), place.pod.pod_class.requests)
            moves.append(MoveDraft(each.gang, found))
        lost = sum(each.cost // _A_SECOND for each in chosen)
        session.claim(
            gang,
            statement,
            action=CONSOLIDATE,
            reason=Reason.PREEMPTED,
            sentence=_told_mover(gang, len(evictions), lost),
            moves=tuple(moves),
        )
        self._victims.claimed(evictions)
        self._recent |= {each.gang.key for each in chosen}
        session.refuse(gang, Reason.PREEMPTION_IN_PROGRESS, _told(session, gang, chosen))


def _told(session: Session, gang: Gang, chosen: Sequence[Movable]) -> str:
    places = session.promises[gang.key]
    rows = {place.row for place in places}
    pods = sum(len(each.seats) for each in chosen)
    whose = "1 gang" if len(chosen) == 1 else f"{len(chosen)} gangs"
    return cut(
        f"room for {members(len(places))} is being freed on {nodes(len(rows))} by moving "
        f"{members(pods)} of {whose} to other nodes and is held for it"
    )


def _told_mover(gang: Gang, pods: int, lost: int) -> str:
    name = short(f"{gang.key.namespace}/{gang.key.name}")
    return cut(
        f"moved for {name}, which needs room for {members(gang.at_once)}: {members(pods)} move, "
        f"{lost} GPU-seconds of work are done again; room elsewhere is held for "
        f"{limits.MOVED_HOLD_S:g} s"
    )
