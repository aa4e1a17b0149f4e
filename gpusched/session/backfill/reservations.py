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

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import numpy as np

from gpusched.api.meta.identity import GangKey
from gpusched.api.meta.resources import Resources, total
from gpusched.arrays.columns import Bools, Ints
from gpusched.base.limits import RESERVATION_WORK_MAX
from gpusched.cache.gangs.gang import Gang
from gpusched.session.backfill.availability_profile import (
    FOREVER,
    AvailabilityProfile,
    Release,
    Reservation,
)
from gpusched.session.backfill.earliest_start import (
    EarlierResult,
    SearchBudget,
    StartCache,
    StartSearch,
    has_published_start,
    quota_allows_with,
)
from gpusched.session.backfill.overdue import nearest_rows
from gpusched.session.backfill.releases import PreemptibleReleases, ReleaseForecast
from gpusched.session.backfill.reserved_gangs import ReservationPools, ReservedGang, StrictFifoHead
from gpusched.session.backfill.walltimes import Walltimes
from gpusched.session.state.session import Session
from gpusched.session.state.statement import Assignment, Statement

_NOTHING_HELD: Final = -(2**61)
"""Added to what is held it is still far below zero: nothing is held back."""
_LAST_IN_ORDER: Final = 2**62


class Reservations:
    """Of one session; see the module.

    Args:
        session: that is being decided.
        per_pool: most holders whose usable nodes overlap.
    """

    def __init__(self, session: Session, *, per_pool: int) -> None:
        self.session = session
        self.window_s = int(session.snapshot.limits.reservation_window_s)
        """Seconds from now within which starts are promised."""
        self.lengths = Walltimes(session)
        self.waiting: list[Gang] = []
        """Blocked gangs in the order of their turns."""
        self.holders: list[ReservedGang] = []
        self._pools = ReservationPools(
            session.cache.equivalence, per_pool, session.snapshot.limits.reservations
        )
        self._strict: list[StrictFifoHead] = []
        self._turns: dict[GangKey, int] = {}
        self._held_up: set[GangKey] = set()
        self._giving = PreemptibleReleases(session)
        self._work = SearchBudget(RESERVATION_WORK_MAX)
        self._settled = False
        """Whether preemption has had its say: nobody is waited for any more who might give way."""
        self._reset()

    def _reset(self) -> None:
        self._books = ReleaseForecast(self.session, self.lengths)
        self._found = StartCache(self.session.cache.equivalence)
        self._pools.changed()
        self._profile: AvailabilityProfile | None = None
        self._running: dict[str, list[tuple[Release, Gang]]] | None = None
        self.holders = []
        self._strict = []

    @property
    def profile(self) -> AvailabilityProfile:
        """Room over time, made when it is first needed."""
        if self._profile is None:
            self._profile = self._books.profile()
        return self._profile

    @property
    def looked_at(self) -> int:
        """Moments so far."""
        return RESERVATION_WORK_MAX - self._work.left

    @property
    def holds(self) -> list[Reservation]:
        """Of all holders, in turn."""
        return [holder.hold for holder in self.holders]

    def seek(
        self, gang: Gang, holds: Sequence[Reservation], *, until: int, work: SearchBudget
    ) -> Reservation | None:
        """The earliest start that is known for a gang beside some holds; nothing is kept for it."""
        seeker, before = self._search_and_earlier_result(gang, work)
        if not before.start and not seeker.lacks_room_or_quota_now(holds, until=until):
            return None
        return seeker.earliest(holds, until=until, before=before)

    def _search_and_earlier_result(
        self, gang: Gang, work: SearchBudget
    ) -> tuple[StartSearch, EarlierResult]:
        """A seeker, and what was found for gangs like it: if a start, they were blocked as it is."""
        length = self.lengths.seconds_of(gang)
        state = (self.profile.version, self.session.accounts.version, id(work))
        before = self._found.get_or_make(gang, length=length, state=state)
        if before.seeker is not None:
            return before.seeker.like(gang), before
        seeker = StartSearch(self.session, gang, self.profile, length=length, work=work)
        if not seeker.simple:
            return seeker, EarlierResult()
        before.seeker = seeker
        return seeker, before

    def reserved_gang_of(self, gang: Gang) -> ReservedGang | None:
        """Its reservation."""
        return next((each for each in self.holders if each.gang.key == gang.key), None)

    # -- what happens in the session -----------------------------------------------------------
    def blocked(self, gang: Gang, *, passed: bool) -> ReservedGang | None:
        """A gang whose turn it was did not start; what it holds from now on.

        Args:
            gang: that keeps its place in the order.
            passed: whether only a reservation of another kept it from starting.
        """
        if gang.key in self._turns:
            return self.reserved_gang_of(gang)
        self._turns[gang.key] = len(self.waiting)
        self.waiting.append(gang)
        if passed:
            self._held_up.add(gang.key)
        return self._consider(gang)

    @property
    def may_reserve(self) -> bool:
        """Whether anything is known for which room might be reserved."""
        queues = self.session.snapshot.queues.queues.values()
        return bool(
            self.profile.releases
            or self.session.hooks.overdue
            or any(node.queue.ordering == "StrictFifo" for node in queues)
        )

    def reserve_ahead(self, gangs: Iterable[Gang]) -> None:
        """Reserve room for those of some gangs that lack room or quota now.

        Args:
            gangs: in queue order; none of them has been tried.
        """
        for gang in gangs:
            if self._work.left <= 0:
                return
            if self._pools.closed(gang):
                continue
            search, _ = self._search_and_earlier_result(gang, self._work)
            if search.lacks_room_or_quota_now(self.holds):
                self.blocked(gang, passed=not search.lacks_room_or_quota_now(()))

    def started(self, gang: Gang, places: Sequence[Assignment]) -> None:
        """A gang, or a part of one, was given or promised places."""
        if self._profile is None or not places:
            return
        self._drop(gang.key)
        self._charge(gang, places, sign=1)

    def unassigned(self, gang: Gang, places: Sequence[Assignment]) -> None:
        """Places given to a gang that never waited are given up: the reverse of ``started``."""
        if self._profile is not None:
            self._charge(gang, places, sign=-1)

    def _charge(self, gang: Gang, places: Sequence[Assignment], *, sign: int) -> None:
        end = self.lengths.end_if_started_now(gang)
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
        if self._settled or not (
            due or self.session.nominations.plans or self.session.nominations.stops
        ):
            return False
        self._settled = True
        self._reset()
        for gang in self.waiting:
            if not self.session.placements.assigned(gang) and not self.session.nominations.has(
                gang
            ):
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
    def _consider(self, gang: Gang) -> ReservedGang | None:
        if self._pools.closed(gang):
            return None
        # Who is held up by the head itself is not the head of another pool.
        in_line = (node := self.session.queue_of(gang)) and node.queue.ordering == "StrictFifo"
        strict = in_line and gang.key not in self._held_up
        usable = self._pools.usable(gang)
        if usable is not None and not strict and not self._may_reserve_more(usable):
            if not in_line:
                self._pools.close(gang)
            return None
        overdue = any(hook(gang) for hook in self.session.hooks.overdue)
        known = bool(self.profile.releases)
        if not known and not strict and not overdue:
            return None
        seeker, before = self._search_and_earlier_result(gang, self._work)
        usable = self._pools.learn(gang, lambda: seeker.usable)
        holder = None
        if self._may_reserve_more(usable):
            holder = self._find(gang, seeker, before, overdue=overdue)
        if holder is not None:
            self._enter(holder)
        elif strict:
            self._strict.append(StrictFifoHead(gang, self._turns[gang.key], seeker.feasible_rows))
        return holder

    def _find(
        self, gang: Gang, seeker: StartSearch, before: EarlierResult, *, overdue: bool
    ) -> ReservedGang | None:
        holds, until = self.holds, self.lengths.now + self.window_s
        if not before.start and not seeker.lacks_room_or_quota_now(holds, until=until):
            return None
        hold = self._reservation_with_evictions(gang, holds, until=until)
        due = hold is not None and hold.start == self.lengths.now
        hold = hold or seeker.earliest(holds, until=until, before=before)
        if hold is None and overdue:
            hold = self._nearest(gang, seeker)
        return self._make_reserved_gang(gang, hold, seeker.usable, due=due) if hold else None

    def _reservation_with_evictions(
        self, gang: Gang, holds: Sequence[Reservation], *, until: int
    ) -> Reservation | None:
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
        softer = self._start_search(gang, self.profile.with_release_times(given))
        if softer.lacks_room_or_quota_now(holds):
            return softer.earliest(holds, until=until)
        known = bool(self.profile.releases) or has_published_start(gang)
        return None if self._settled or not known else softer.start_at_once(holds)

    def _nearest(self, gang: Gang, seeker: StartSearch) -> Reservation | None:
        profile = self.profile
        free = profile.free_at(profile.now, profile.table(self.holds))
        chosen = seeker.first_choice(
            lambda parts, areas: nearest_rows(
                free, free + self._books.amounts_held_by_gangs(), parts, areas
            )
        )
        if chosen is None:
            return None
        rows, amounts = chosen
        path, requests = self.session.path(gang), self.session.view.minimum(gang)
        return Reservation(gang.key, profile.now, FOREVER, rows, amounts, path, requests)

    def _make_reserved_gang(
        self, gang: Gang, hold: Reservation, usable: Bools, *, due: bool
    ) -> ReservedGang:
        rows = hold.rows
        beside = self.profile.table([*self.holds, hold])
        slack = self.profile.free_at(hold.start, beside)[rows]
        basis = None
        if hold.start > self.lengths.now:
            ends = (other.gang for other in self.holds if other.end == hold.start)
            basis = self.profile.ends_at(hold.start) or next(ends, None)
        return ReservedGang(
            gang, self._turns[gang.key], hold, slack, hold.amounts > 0, usable, basis, due
        )

    def _enter(self, entered: ReservedGang) -> None:
        for holder in self.holders:
            if entered.hold.active(holder.hold.start):
                holder.change(entered.hold.rows, entered.hold.amounts, sign=-1)
        self.holders.append(entered)
        self._pools.changed()

    def _may_reserve_more(self, usable: Bools) -> bool:
        return self._work.left > 0 and self._pools.room(usable, self.holders)

    def _start_search(self, gang: Gang, profile: AvailabilityProfile) -> StartSearch:
        return StartSearch(
            self.session, gang, profile, length=self.lengths.seconds_of(gang), work=self._work
        )

    # -- who may pass ----------------------------------------------------------------------------
    def conflict(self, gang: Gang, statement: Statement) -> ReservedGang | StrictFifoHead | None:
        """Whose reservation a statement would break, None when nobody's.

        Args:
            gang: that is to start now.
            statement: with the places given or promised to it, and with who leaves for it.
        """
        if not self.holders and not self._strict:
            return None
        places = statement.places
        taken = self._books.sum_by_row((place.row, place.request.rough) for place in places)
        asked = total(place.pod.pod_class.requests for place in places)
        for holder in self._binding(gang):
            left = self._amounts_left_by_evictions(statement, holder.hold.start)
            for row, amounts in taken.items():
                number = holder.index.get(row)
                if number is None:
                    continue
                slack = holder.slack[number] + left[row] if row in left else holder.slack[number]
                if ((amounts > slack) & holder.asked[number] & (amounts > 0)).any():
                    return holder
            if not self._leaves_quota(holder, gang, asked):
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
            left = (
                self._amounts_left_by_evictions(statement, holder.hold.start) if statement else {}
            )
            for row, number in holder.index.items():
                held = allocatable[row] - holder.slack[number] - bench.holdings_on_row(row)
                if row in left:
                    held = held - left[row]
                held = np.where(holder.asked[number], held, _NOTHING_HELD)
                known = back.get(row)
                back[row] = held if known is None else np.maximum(known, held)
        for strict in self._before(gang):
            for row in np.flatnonzero(strict.usable).tolist():
                back[row] = allocatable[row]
        bench.count_as_used(back)
        try:
            yield
        finally:
            bench.count_as_used({})

    @contextmanager
    def own_reservation(self, gang: Gang) -> Iterator[bool]:
        """Inside, a gang that is due finds the room of its reservation and no other.

        So it does not take, by scores, what the next holder's reservation counts on. Yields
        whether it has any: it was told a time, and fits where the fixed order puts it.
        """
        known = bool(self.profile.releases) if has_published_start(gang) else False
        hold = self._start_search(gang, self.profile).start_at_once(()) if known else None
        if hold is None:
            yield False
            return
        bench = self.session.bench
        allocatable = self.profile.allocatable
        kept = dict(zip(hold.rows.tolist(), hold.amounts, strict=True))
        bench.count_as_used(
            {
                row: allocatable[row] - kept.get(row, 0) - bench.holdings_on_row(row)
                for row in range(len(allocatable))
            }
        )
        try:
            yield True
        finally:
            bench.count_as_used({})

    def _binding(self, gang: Gang) -> Iterator[ReservedGang]:
        """Holders that the gang must let be when it starts now."""
        if not self.holders:
            return
        turn = self._turns.get(gang.key, _LAST_IN_ORDER)
        end = self.lengths.end_if_started_now(gang)
        for holder in self.holders:
            if holder.turn >= turn or holder.hold.start >= end or holder.gang.key == gang.key:
                continue
            ready = self._giving.preemptible_from(gang, holder.gang, began=self.lengths.now)
            if ready is None or ready > holder.hold.start or holder.due:
                yield holder

    def _before(self, gang: Gang) -> Iterator[StrictFifoHead]:
        turn = self._turns.get(gang.key, _LAST_IN_ORDER)
        for strict in self._strict:
            if strict.gang.queue == gang.queue and strict.turn < turn:
                yield strict

    def _amounts_left_by_evictions(self, statement: Statement, start: int) -> dict[int, Ints]:
        """By row what those leave who are evicted by it and would still run at that time."""
        return self._books.amounts_left_by(
            each for each in statement.evictions if self.lengths.end_of_running(each.gang) > start
        )

    def _leaves_quota(self, holder: ReservedGang, gang: Gang, asked: Resources) -> bool:
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
        if quota_allows_with(self.session, holder.gang, moves):
            return True
        moves += [
            (each.path, each.requests, -1)
            for each in self.profile.releases
            if each.time <= start and not mine.isdisjoint(each.path)
        ]
        return quota_allows_with(self.session, holder.gang, moves)


def session_reservations(session: Session) -> Reservations | None:
    """The reservations of a session, None where no action of it reserves room."""
    reservations = session.reservations
    assert reservations is None or isinstance(reservations, Reservations)
    return reservations
