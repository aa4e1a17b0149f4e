"""Joint starts: a gang that finds no room gets it where gangs that start beside it can make way.

Nothing here changes who starts before whom: gangs take turns as ever, and who was given a start
keeps it. Only where they sit is decided again, for those of this session whose places nobody has
been told yet. Tries are counted, and what failed is remembered for all gangs alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Final

import attrs
import numpy as np

from gpusched.arrays.columns import Ints
from gpusched.cache.gangs import Gang
from gpusched.limits import JOINT_MODEL_S, JOINT_TRIES_MAX, JOINT_WORK_S
from gpusched.objects.meta import GangKey
from gpusched.placement.admission import Window, used_by
from gpusched.placement.admitting import admit
from gpusched.placement.problem import Outcome
from gpusched.session.areas import Refusal
from gpusched.session.contenders import (
    Ground,
    contender,
    ground_of,
    mover,
    newcomer,
)
from gpusched.session.joint_choice import movers
from gpusched.session.moves import Moves
from gpusched.session.placing import place_minimum
from gpusched.session.reasons import Reason
from gpusched.session.related import is_related
from gpusched.session.searches import Record
from gpusched.session.session import Session
from gpusched.session.statement import Statement
from gpusched.session.verdict import first_refusal

_NO_ROOM: Final = (
    Reason.INSUFFICIENT_RESOURCES,
    Reason.TOPOLOGY_UNSATISFIABLE,
    Reason.WAITING_FOR_TOPOLOGY,
)
_ALL: Final = 2**61
"""Held back from everybody, far more than any node has and far from overflow."""


@attrs.frozen(eq=False)
class _Seats:
    """Where everybody of a window would sit.

    Attributes:
        gangs: movers in the order of their starts, the newcomer last.
        rooms: by gang, what each row is to give it, shape (resources,).
        moved: movers whose places are others than now.
    """

    gangs: tuple[Gang, ...]
    rooms: Mapping[GangKey, Mapping[int, Ints]]
    moved: tuple[Gang, ...]


class JointStarts:
    """Of one session, for the action that places gangs.

    Args:
        session: in which gangs start.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._movable: list[Gang] = []
        self._stuck: dict[tuple[object, ...], tuple[int, int] | None] = {}
        """Kinds of gangs that found no way: what stood then, None when it is proven for good."""
        self._tries = JOINT_TRIES_MAX
        self._work = JOINT_WORK_S
        # What pools of queues hold depends on where pods sit: nobody moves where that counts.
        self._on = session.effort.solver and session.accounts.pools is None

    def started(self, gang: Gang, *, promised: bool) -> None:
        """A gang was given its minimum; one that was promised its room stays there."""
        if self._on and not promised and self._free_to_move(gang):
            self._movable.append(gang)

    def start(self, gang: Gang, refusal: Refusal) -> bool:
        """Try to start a gang that was refused in its turn; whether it got its places.

        Nobody else gains or loses a start. Without success nothing has changed.
        """
        if not self._on or refusal.reason not in _NO_ROOM or not self._movable:
            return False
        session = self._session
        if gang.key in session.promises or not self._free_to_move(gang):
            return False
        kind = self._kind(gang)
        state = (session.accounts.version, len(self._movable))
        if kind in self._stuck and self._stuck[kind] in (None, state):
            return False
        if self._tries <= 0 or self._work <= 0:
            return False
        chosen = newcomer(session, gang)
        if chosen is None or first_refusal(session.hooks.quota_checks, chosen).refuses:
            return False
        room = nullcontext() if session.reservations is None else session.reservations.around(gang)
        with room:
            who, everybody = movers(session, chosen, self._movable)
            seats, proven = self._solved(chosen, who) if who else (None, True)
        if seats is not None and self._carried_out(gang, chosen, seats):
            return True
        state = (session.accounts.version, len(self._movable))
        self._stuck[kind] = None if proven and everybody and self._room_only_shrinks else state
        return False

    @property
    def _room_only_shrinks(self) -> bool:
        """Whether nothing that is kept for others can become free again in this session."""
        reservations = self._session.reservations
        held = reservations is not None and reservations.holders
        return not self._session.promises and not held

    def _free_to_move(self, gang: Gang) -> bool:
        """Whether nothing but its own pods and its topology says where it may be."""
        plain = not (gang.placed or gang.unborn or gang.suspended or gang.shares)
        tasks = [(task, len(task.pods)) for task in gang.tasks]
        return (
            plain
            and not any(task.pod_class.unsupported for task in gang.tasks)
            and not is_related(self._session, tasks)
        )

    def _kind(self, gang: Gang) -> tuple[object, ...]:
        """All that decides where it may go: gangs of a kind find room or none alike."""
        holds_out = self._session.snapshot.now - gang.created < gang.topology.max_wait_ns / 1e9
        return (
            gang.queue,
            gang.priority,
            gang.terms,
            gang.topology.required,
            gang.topology.preferred if holds_out else "",
            gang.at_once,
            gang.min_roles,
            gang.sub_groups,
            gang.min_sub_groups,
            tuple(
                (task.role, task.sub_group, task.pod_class.digest, len(task.pods))
                for task in gang.tasks
            ),
        )

    # -- where everybody would sit ---------------------------------------------------------------
    def _solved(self, gang: Gang, movable: Sequence[Gang]) -> tuple[_Seats | None, bool]:
        """Seats for all, or none and whether that is proven."""
        session = self._session
        self._tries -= 1
        firm = [each for each in (mover(session, one) for one in movable) if each is not None]
        gangs = (*firm, gang)
        places = [place for each in firm for place in session.kept(each)]
        ground = ground_of(session, gangs, places)
        window = Window(
            free=ground.free,
            contenders=tuple(contender(session, each, ground) for each in gangs),
        )
        effort = attrs.evolve(session.effort, budget_s=min(JOINT_MODEL_S, self._work))
        answer = admit(window, effort, search=session.search, polish=False)
        self._work -= answer.work
        if answer.rounds:
            session.searches.append(
                Record(
                    outcome=answer.outcome,
                    seconds=answer.seconds,
                    work=answer.work,
                    method="window",
                    faults=answer.faults,
                )
            )
        if len(answer.admitted) < len(gangs):
            return None, answer.outcome is Outcome.INFEASIBLE
        rooms: dict[GangKey, Mapping[int, Ints]] = {}
        moved = []
        for each, one, counts in zip(gangs, window.contenders, answer.places, strict=True):
            rooms[each.key] = _rooms(session, ground, used_by(one.problem, counts))
            if each is not gang and counts.tolist() != _counts(session, each).tolist():
                moved.append(each)
        return _Seats(gangs, rooms, tuple(moved)), False

    # -- carrying it out -------------------------------------------------------------------------
    def _carried_out(self, gang: Gang, chosen: Gang, seats: _Seats) -> bool:
        """Move everybody who moves and start the gang, or leave everything as it was."""
        session = self._session
        moves = Moves(session, seats.moved)
        left = dict(seats.rooms)
        for each in seats.gangs:
            if each not in seats.moved:
                del left[each.key]
        left[chosen.key] = seats.rooms[chosen.key]
        for each in seats.moved:
            own = left.pop(each.key)
            statement = self._placed(each, own, [*left.values()])
            if statement is None:
                moves.discard()
                return False
            if not moves.settle(each, statement):
                statement.discard()
                moves.discard()
                return False
        statement = self._placed(chosen, left[chosen.key], ())
        if statement is None:
            moves.discard()
            return False
        moves.keep()
        session.keep(gang, statement)
        return True

    def _placed(
        self, gang: Gang, own: Mapping[int, Ints], others: Sequence[Mapping[int, Ints]]
    ) -> Statement | None:
        """Places as good as any beside the rooms of others; at worst those that are its own."""
        for back in (self._beside(others), self._only(own)):
            statement = self._session.statement()
            self._session.bench.hold_back(back)
            try:
                refusal = place_minimum(self._session, gang, statement)
            finally:
                self._session.bench.hold_back({})
            if refusal is None and not self._breaks(gang, statement):
                if back:
                    statement.proof = ""  # it is the best beside rooms that were kept for others
                return statement
            statement.discard()
        return None

    def _breaks(self, gang: Gang, statement: Statement) -> bool:
        reservations = self._session.reservations
        return reservations is not None and reservations.conflict(gang, statement) is not None

    def _beside(self, others: Sequence[Mapping[int, Ints]]) -> dict[int, Ints]:
        back: dict[int, Ints] = {}
        for room in others:
            for row, amounts in room.items():
                known = back.get(row)
                back[row] = amounts if known is None else known + amounts
        return back

    def _only(self, own: Mapping[int, Ints]) -> dict[int, Ints]:
        bench = self._session.bench
        allocatable = bench.nodes.allocatable
        return {
            row: allocatable[row] - bench.held_on(row) - own[row]
            if row in own
            else np.full(allocatable.shape[1], _ALL, dtype=np.int64)
            for row in range(len(allocatable))
        }


def _rooms(session: Session, ground: Ground, used: Ints) -> dict[int, Ints]:
    """What each row gives, by all resources of nodes."""
    rooms: dict[int, Ints] = {}
    for row in np.flatnonzero(used.any(axis=1)).tolist():
        amounts: Ints = np.zeros(len(session.bench.nodes.columns), dtype=np.int64)
        amounts[ground.columns] = used[row]
        rooms[row] = amounts
    return rooms


def _counts(session: Session, gang: Gang) -> Ints:
    """Where the gang's members are now, as the solver counts: by task and node."""
    task_of = {pod.uid: number for number, task in enumerate(gang.tasks) for pod in task.pods}
    counts: Ints = np.zeros((len(gang.tasks), len(session.bench.nodes)), dtype=np.int64)
    for place in session.kept(gang):
        counts[task_of[place.pod.uid], place.row] += 1
    return counts
