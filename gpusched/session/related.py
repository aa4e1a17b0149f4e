"""Places for gangs whose members have rules about other pods, each other included.

One pass, members that find no place yet being tried again behind the others, settles most. Where
it fails, the same is tried inside single domains of the members' affinity, from the emptiest
nodes, and from the last member on; small gangs get a search with backtracking at the end. All of
it is counted in steps, so that the same gang on the same cluster ends the same way everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import numpy as np

from gpusched.arrays.columns import Bools
from gpusched.cache.gangs import Task
from gpusched.limits import RELATED_DOMAINS_MAX, RELATED_STEPS_MAX, WORK_STEP
from gpusched.objects.pod import Pod
from gpusched.placement.board import Board
from gpusched.session.pod_order import in_pod_order
from gpusched.session.session import Session
from gpusched.session.statement import Statement


@attrs.frozen(slots=True)
class Stuck:
    """Who found no place in the first pass, and how many of its task had found one."""

    task: Task
    pod: Pod
    placed: int


@attrs.frozen(slots=True)
class _Member:
    task: Task
    pod: Pod


def is_related(session: Session, tasks: Sequence[tuple[Task, int]]) -> bool:
    """Whether any of these members has a rule about other pods, or is meant by one of others."""
    return any(
        session.seat_of(pod).gate is not None
        for task, _ in tasks
        if session.seats.concern(task.pod_class)
        for pod in task.pods
    )


class RelatedSearch:
    """Tries to place some members of a gang together.

    Args:
        session: whose nodes are searched.
        tasks: members by task, and how many of each.
        statement: takes the places.
        rows: where they may go, shape (nodes,); None for anywhere.
    """

    def __init__(
        self,
        session: Session,
        tasks: Sequence[tuple[Task, int]],
        statement: Statement,
        rows: Bools | None,
    ) -> None:
        self._session = session
        self._statement = statement
        self._rows = rows
        self._start = statement.checkpoint()
        self._steps = RELATED_STEPS_MAX
        self._members = [
            _Member(task, pod)
            for task, count in tasks
            for pod in in_pod_order(task.pods, session.hooks.pod_orders)[:count]
        ]

    def first(self) -> Stuck | None:
        """One pass; leaves its places, also when somebody is stuck.

        Returns:
            Who is stuck; None when all have a place.
        """
        left = self._pass(self._members, self._rows, emptiest=False)
        if not left:
            return None
        member = left[0]
        waiting = sum(1 for each in left if each.task is member.task)
        count = sum(1 for each in self._members if each.task is member.task)
        return Stuck(member.task, member.pod, count - waiting)

    def others(self) -> bool:
        """All other ways, from a clean start; leaves the places of the first that works."""
        self._back(self._start)
        if self._told_all() or self._hopeless():
            return False
        self._steps = granted = min(RELATED_STEPS_MAX, self._session.related_steps)
        found = self._search()
        self._session.related_steps -= granted - max(0, self._steps)
        return found

    def _search(self) -> bool:
        for members, rows, emptiest in self._ways():
            if self._steps <= 0:
                return False
            if not self._pass(members, rows, emptiest=emptiest):
                return True
            self._back(self._start)
        return self._deep(0)

    def _told_all(self) -> bool:
        """Whether one pass said all: equal members whose rules leave nothing to the order."""
        seats = [self._session.seat_of(member.pod) for member in self._members]
        return all(seat is seats[0] and seat.gate is not None and seat.gate.exact for seat in seats)

    def _hopeless(self) -> bool:
        """Whether somebody has no place even on its own, his rules about others left aside."""
        need: dict[str, int] = {}
        for member in self._members:
            digest = member.pod.pod_class.digest
            need[digest] = need.get(digest, 0) + 1
        for member in self._members:
            count = need.pop(member.pod.pod_class.digest, 0)
            board = self._session.seat(member.pod.pod_class).board
            if count and board.total(self._rows, most=count) < count:
                return True
        return False

    def _ways(self) -> Iterator[tuple[list[_Member], Bools | None, bool]]:
        keys = sorted(
            {term.topology_key for each in self._members for term in each.pod.pod_class.near}
        )
        for key in keys:
            for rows in self._domains(key):
                yield self._members, rows, False
        yield self._members, self._rows, True
        yield self._members[::-1], self._rows, False
        yield self._members[::-1], self._rows, True

    def _domains(self, key: str) -> Iterator[Bools]:
        """Rows of each domain, that with most room for the first member first."""
        domains = self._session.neighbours.domains(key)
        board = self._session.seat(self._members[0].pod.pod_class).board
        most = len(self._members)
        found: list[tuple[int, int, Bools]] = []
        for number in range(int(domains.max(initial=-1)) + 1):
            rows = domains == number
            if self._rows is not None:
                rows &= self._rows
            if rows.any():
                found.append((-board.total(rows, most=most), number, rows))
        found.sort(key=lambda each: each[:2])
        return iter([rows for _, _, rows in found[:RELATED_DOMAINS_MAX]])

    # -- one pass ----------------------------------------------------------------------------
    def _pass(
        self, members: Sequence[_Member], rows: Bools | None, *, emptiest: bool
    ) -> list[_Member]:
        """Those who find no place, after as many rounds as somebody new finds one."""
        left = list(members)
        while left:
            rest = [each for each in left if not self._seat(each, rows, emptiest=emptiest)]
            if len(rest) == len(left):
                return rest
            left = rest
        return left

    def _seat(self, member: _Member, rows: Bools | None, *, emptiest: bool) -> bool:
        self._session.work.spend(WORK_STEP)
        seat = self._session.seat_of(member.pod)
        row = _emptiest(seat.board, rows) if emptiest else seat.board.best(rows)
        if row < 0:
            return False
        self._steps -= 1
        self._statement.place(member.pod, row, seat.ask)
        return True

    # -- backtracking ------------------------------------------------------------------------
    def _deep(self, number: int) -> bool:
        """Place the members from this one on, going back where one is stuck."""
        if number == len(self._members):
            return True
        member = self._members[number]
        seat = self._session.seat_of(member.pod)
        for row in seat.board.by_rank(self._rows):
            if self._steps <= 0:
                return False
            self._steps -= 1
            self._session.work.spend(WORK_STEP)
            mark = self._statement.checkpoint()
            self._statement.place(member.pod, row, seat.ask)
            if self._deep(number + 1):
                return True
            self._back(mark)
        return False

    def _back(self, mark: int) -> None:
        self._statement.rollback(mark)


def _emptiest(board: Board, rows: Bools | None) -> int:
    fits = board.fits if rows is None else np.where(rows, board.fits, 0)
    if not fits.size or not fits.any():
        return -1
    return int(fits.argmax())
