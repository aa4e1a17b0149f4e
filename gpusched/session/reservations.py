"""Room kept for gangs that are blocked now and can start at a known time.

A gang that does not fit becomes a *holder* when something that is known to end makes room for
it: its hold, nodes and amounts from that time on, binds everything whose turn comes later. A
gang may pass a holder when it ends in time or leaves the hold whole. Holds are worked out anew
in every session, from the snapshot alone; ``reservations_profile.pack`` says why they come to
the same as long as nobody breaks them.

In a queue whose ordering is ``StrictFifo`` a blocked gang without a known start keeps the gangs
behind it off every node that it could use itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import numpy as np

from gpusched.arrays.columns import Bools, Ints
from gpusched.cache.gangs import Gang
from gpusched.limits import RESERVATION_WINDOW_S, RESERVATION_WORK_MAX
from gpusched.objects.meta import GangKey
from gpusched.objects.resources import Resources, total
from gpusched.session.reservations_books import Books
from gpusched.session.reservations_found import Before, Found, was_told
from gpusched.session.reservations_given import GivingWay
from gpusched.session.reservations_holders import Holder, Strict
from gpusched.session.reservations_lengths import Lengths
from gpusched.session.reservations_pools import HolderPools
from gpusched.session.reservations_profile import FOREVER, Hold, Profile, Release
from gpusched.session.reservations_search import Seeker, Work, allowed_beside
from gpusched.session.reservations_waiting import nearest_rows
from gpusched.session.session import Session
from gpusched.session.statement import Place, Statement

_NOTHING: Final = -(2**61)
"""Added to what is held it is still far below zero: nothing is held back."""
_LAST: Final = 2**62


class Reservations:
    """Of one session; see the module.

    Args:
        session: that is being decided.
        per_pool: most holders whose usable nodes overlap.
    """

    def __init__(self, session: Session, *, per_pool: int) -> None:
        self.session = session
        self.lengths = Lengths(session)
        self.waiting: list[Gang] = []
        """Blocked gangs in the order of their turns."""
        self.holders: list[Holder] = []
        self._pools = HolderPools(session.masks.kinds, per_pool)
        self._strict: list[Strict] = []
        self._turns: dict[GangKey, int] = {}
        self._held_up: set[GangKey] = set()
        self._giving = GivingWay(session)
        self._work = Work(RESERVATION_WORK_MAX)
        self._settled = False
        """Whether preemption has had its say: nobody is waited for any more who might give way."""
        self._start_over()

    def _start_over(self) -> None:
        self._books = Books(self.session, self.lengths)
        self._found = Found(self.session.masks.kinds)
        self._pools.changed()
        self._profile: Profile | None = None
        self._running: dict[str, list[tuple[Release, Gang]]] | None = None
        self.holders = []
        self._strict = []

    @property
    def profile(self) -> Profile:
        """Room over time, made when it is first needed."""
        if self._profile is None:
            self._profile = self._books.profile()
        return self._profile

    @property
    def looked_at(self) -> int:
        """Moments so far."""
        return RESERVATION_WORK_MAX - self._work.left

    @property
    def holds(self) -> list[Hold]:
        """Of all holders, in turn."""
        return [holder.hold for holder in self.holders]

    def seek(self, gang: Gang, holds: Sequence[Hold], *, until: int, work: Work) -> Hold | None:
        """The earliest start that is known for a gang beside some holds; nothing is kept for it."""
        seeker, before = self._sought(gang, work)
        if not before.start and not seeker.blocked_now(holds, until=until):
            return None
        return seeker.earliest(holds, until=until, before=before)

    def _sought(self, gang: Gang, work: Work) -> tuple[Seeker, Before]:
        """A seeker, and what was found for gangs like it: if a start, they were blocked as it is."""
        length = self.lengths.of(gang)
        state = (self.profile.version, self.session.accounts.version, id(work))
        before = self._found.of(gang, length=length, state=state)
        if before.seeker is not None:
            return before.seeker.like(gang), before
        seeker = Seeker(self.session, gang, self.profile, length=length, work=work)
        if not seeker.simple:
            return seeker, Before()
        before.seeker = seeker
        return seeker, before

    def holder_of(self, gang: Gang) -> Holder | None:
        """Its reservation."""
        return next((each for each in self.holders if each.gang.key == gang.key), None)

    # -- what happens in the session -----------------------------------------------------------
    def blocked(self, gang: Gang, *, passed: bool) -> Holder | None:
        """A gang whose turn it was did not start; what it holds from now on.

        Args:
            gang: that keeps its place in the order.
            passed: whether only a reservation of another kept it from starting.
        """
        if gang.key in self._turns:
            return self.holder_of(gang)
        self._turns[gang.key] = len(self.waiting)
        self.waiting.append(gang)
        if passed:
            self._held_up.add(gang.key)
        return self._consider(gang)

    def started(self, gang: Gang, places: Sequence[Place]) -> None:
        """A gang, or a part of one, was given or promised places."""
        if self._profile is None or not places:
            return
        self._drop(gang.key)
        self._charge(gang, places, sign=1)

    def taken_back(self, gang: Gang, places: Sequence[Place]) -> None:
        """Places given to a gang that never waited are given up: the reverse of ``started``."""
        if self._profile is not None:
            self._charge(gang, places, sign=-1)

    def _charge(self, gang: Gang, places: Sequence[Place], *, sign: int) -> None:
        end = self.lengths.end_of_new(gang)
        room = self._books.placed(gang, places, end)
        (self.profile.start if sign > 0 else self.profile.forget)(room)
        for holder in self.holders:
            if holder.hold.start < end:
                holder.change(room.rows, room.amounts, sign=-sign)

    def settle(self) -> bool:
        """Work out all holds again when evictions have changed what they rest on.

        Returns:
            Whether they did, so that others may start.
        """
        due = any(holder.due for holder in self.holders)
        if self._settled or not (due or self.session.claims or self.session.stops):
            return False
        self._settled = True
        self._start_over()
        for gang in self.waiting:
            if not self.session.kept(gang) and gang.key not in self.session.promises:
                self._consider(gang)
        return True

    def _drop(self, key: GangKey) -> None:
        gone = next((holder for holder in self.holders if holder.gang.key == key), None)
        if gone is None:
            return
        self.holders.remove(gone)
        self._pools.changed()
        for holder in self.holders:
            if gone.hold.active(holder.hold.start):
                holder.change(gone.hold.rows, gone.hold.amounts, sign=1)

    # -- who holds what ------------------------------------------------------------------------
    def _consider(self, gang: Gang) -> Holder | None:
        if self._pools.closed(gang):
            return None
        # Who is held up by the head itself is not the head of another pool.
        in_line = (node := self.session.queue_of(gang)) and node.queue.ordering == "StrictFifo"
        strict = in_line and gang.key not in self._held_up
        usable = self._pools.usable(gang)
        if usable is not None and not strict and not self._room_for_one_more(usable):
            if not in_line:
                self._pools.close(gang)
            return None
        overdue = any(hook(gang) for hook in self.session.hooks.overdue)
        known = bool(self.profile.releases)
        if not known and not strict and not overdue:
            return None
        seeker, before = self._sought(gang, self._work)
        usable = self._pools.learn(gang, lambda: seeker.usable)
        holder = None
        if self._room_for_one_more(usable):
            holder = self._find(gang, seeker, before, overdue=overdue)
        if holder is not None:
            self._enter(holder)
        elif strict:
            self._strict.append(Strict(gang, self._turns[gang.key], seeker.competed_for))
        return holder

    def _find(self, gang: Gang, seeker: Seeker, before: Before, *, overdue: bool) -> Holder | None:
        holds, until = self.holds, self.lengths.now + RESERVATION_WINDOW_S
        if not before.start and not seeker.blocked_now(holds, until=until):
            return None
        hold = self._with_evictions(gang, holds, until=until)
        due = hold is not None and hold.start == self.lengths.now
        hold = hold or seeker.earliest(holds, until=until, before=before)
        if hold is None and overdue:
            hold = self._nearest(gang, seeker)
        return self._holder(gang, hold, seeker.usable, due=due) if hold else None

    def _with_evictions(self, gang: Gang, holds: Sequence[Hold], *, until: int) -> Hold | None:
        """A start that counts on those who give way to the gang.

        Where they alone stand in its way it is due now: preemption decides about that in this
        session, and until it has, the room is kept. Where preemption had its say, nobody counts
        on it.
        """
        if self._running is None:
            self._running = self._books.by_queue()
        given = self._giving.releases(gang, self._running)
        if not given:
            return None
        softer = self._seeker(gang, self.profile.ending_earlier(given))
        if softer.blocked_now(holds):
            return softer.earliest(holds, until=until)
        known = bool(self.profile.releases) or was_told(gang)
        return None if self._settled or not known else softer.start_now(holds)

    def _nearest(self, gang: Gang, seeker: Seeker) -> Hold | None:
        profile = self.profile
        free = profile.free_at(profile.now, profile.table(self.holds))
        chosen = seeker.over_areas(
            lambda parts, areas: nearest_rows(
                free, free + self._books.held_by_gangs(), parts, areas
            )
        )
        if chosen is None:
            return None
        rows, amounts = chosen
        path, requests = self.session.path(gang), self.session.view.minimum(gang)
        return Hold(gang.key, profile.now, FOREVER, rows, amounts, path, requests)

    def _holder(self, gang: Gang, hold: Hold, usable: Bools, *, due: bool) -> Holder:
        rows = hold.rows
        beside = self.profile.table([*self.holds, hold])
        slack = self.profile.free_at(hold.start, beside)[rows]
        basis = None
        if hold.start > self.lengths.now:
            ends = (other.gang for other in self.holds if other.end == hold.start)
            basis = self.profile.ends_at(hold.start) or next(ends, None)
        return Holder(
            gang, self._turns[gang.key], hold, slack, hold.amounts > 0, usable, basis, due
        )

    def _enter(self, entered: Holder) -> None:
        for holder in self.holders:
            if entered.hold.active(holder.hold.start):
                holder.change(entered.hold.rows, entered.hold.amounts, sign=-1)
        self.holders.append(entered)
        self._pools.changed()

    def _room_for_one_more(self, usable: Bools) -> bool:
        return self._work.left > 0 and self._pools.room(usable, self.holders)

    def _seeker(self, gang: Gang, profile: Profile) -> Seeker:
        return Seeker(self.session, gang, profile, length=self.lengths.of(gang), work=self._work)

    # -- who may pass ----------------------------------------------------------------------------
    def conflict(self, gang: Gang, statement: Statement) -> Holder | Strict | None:
        """Whose reservation a statement would break, None when nobody's.

        Args:
            gang: that is to start now.
            statement: with the places given or promised to it, and with who leaves for it.
        """
        if not self.holders and not self._strict:
            return None
        places = statement.places
        taken = self._books.by_row((place.row, place.ask.rough) for place in places)
        asked = total(place.pod.pod_class.requests for place in places)
        for holder in self._binding(gang):
            left = self._left_by(statement, holder.hold.start)
            for row, amounts in taken.items():
                number = holder.index.get(row)
                if number is None:
                    continue
                slack = holder.slack[number] + left[row] if row in left else holder.slack[number]
                if ((amounts > slack) & holder.asked[number] & (amounts > 0)).any():
                    return holder
            if not self._quota_left(holder, gang, asked):
                return holder
        return next((each for each in self._before(gang) if each.usable[list(taken)].any()), None)

    @contextmanager
    def around(self, gang: Gang, statement: Statement | None = None) -> Iterator[None]:
        """Inside, the gang finds only room that breaks nobody's reservation.

        Args:
            gang: that is to start, or to grow, now.
            statement: with who leaves for it.
        """
        if not self.holders and not self._strict:
            yield
            return
        back: dict[int, Ints] = {}
        bench = self.session.bench
        allocatable = self.profile.allocatable
        for holder in self._binding(gang):
            left = self._left_by(statement, holder.hold.start) if statement else {}
            for row, number in holder.index.items():
                held = allocatable[row] - holder.slack[number] - bench.held_on(row)
                if row in left:
                    held = held - left[row]
                held = np.where(holder.asked[number], held, _NOTHING)
                known = back.get(row)
                back[row] = held if known is None else np.maximum(known, held)
        for strict in self._before(gang):
            for row in np.flatnonzero(strict.usable).tolist():
                back[row] = allocatable[row]
        bench.hold_back(back)
        try:
            yield
        finally:
            bench.hold_back({})

    @contextmanager
    def own_room(self, gang: Gang) -> Iterator[bool]:
        """Inside, a gang that is due finds the room of its reservation and no other.

        So it does not take, by scores, what the next holder's reservation counts on. Yields
        whether it has any: it was told a time, and fits where the fixed order puts it.
        """
        known = bool(self.profile.releases) if was_told(gang) else False
        hold = self._seeker(gang, self.profile).start_now(()) if known else None
        if hold is None:
            yield False
            return
        bench = self.session.bench
        allocatable = self.profile.allocatable
        kept = dict(zip(hold.rows.tolist(), hold.amounts, strict=True))
        bench.hold_back(
            {
                row: allocatable[row] - kept.get(row, 0) - bench.held_on(row)
                for row in range(len(allocatable))
            }
        )
        try:
            yield True
        finally:
            bench.hold_back({})

    def _binding(self, gang: Gang) -> Iterator[Holder]:
        """Holders that the gang must let be when it starts now."""
        if not self.holders:
            return
        turn = self._turns.get(gang.key, _LAST)
        end = self.lengths.end_of_new(gang)
        for holder in self.holders:
            if holder.turn >= turn or holder.hold.start >= end or holder.gang.key == gang.key:
                continue
            ready = self._giving.ready_by(gang, holder.gang, began=self.lengths.now)
            if ready is None or ready > holder.hold.start or holder.due:
                yield holder

    def _before(self, gang: Gang) -> Iterator[Strict]:
        turn = self._turns.get(gang.key, _LAST)
        for strict in self._strict:
            if strict.gang.queue == gang.queue and strict.turn < turn:
                yield strict

    def _left_by(self, statement: Statement, start: int) -> dict[int, Ints]:
        """By row what those leave who are evicted by it and would still run at that time."""
        return self._books.left_by(
            each for each in statement.evictions if self.lengths.end_of_running(each.gang) > start
        )

    def _quota_left(self, holder: Holder, gang: Gang, asked: Resources) -> bool:
        """Whether the holder's quota suffices at its time although the gang runs then."""
        mine = set(self.session.path(holder.gang))
        path = self.session.path(gang)
        if mine.isdisjoint(path) or not self.session.hooks.quota_checks:
            return True
        start = holder.hold.start
        moves = [(path, asked, 1)]
        moves += [
            (hold.path, hold.requests, 1)
            for hold in self.holds
            if hold.active(start)
            and hold.gang != holder.gang.key
            and not mine.isdisjoint(hold.path)
        ]
        if allowed_beside(self.session, holder.gang, moves):
            return True
        moves += [
            (each.path, each.requests, -1)
            for each in self.profile.releases
            if each.time <= start and not mine.isdisjoint(each.path)
        ]
        return allowed_beside(self.session, holder.gang, moves)
