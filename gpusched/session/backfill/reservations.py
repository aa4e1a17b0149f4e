"""Reservations for gangs that are blocked now and can start at a known time.

A gang that does not fit gets a reservation when something that is known to end will leave enough
room: nodes and amounts from that time on, which bind every gang behind it in queue order. A gang
may start before one with a reservation when it ends in time or leaves the reserved room whole.
Reservations are worked out anew in every session, from the snapshot alone; ``pack_first_rows``
says why they come to the same as long as none is broken.

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
from gpusched.base.limits import COLUMN_MAX, RESERVATION_WORK_MAX
from gpusched.cache.gangs.gang import Gang
from gpusched.session.backfill.availability_profile import AvailabilityProfile, Reservation
from gpusched.session.backfill.earliest_start import (
    EarlierResult,
    SearchBudget,
    StartCache,
    StartSearch,
    has_published_start,
)
from gpusched.session.backfill.overdue import nearest_rows
from gpusched.session.backfill.reserved_gangs import ReservationPools, ReservedGang, StrictFifoHead
from gpusched.session.backfill.running.quota_over_time import QueueLoad, quota_allows_beside
from gpusched.session.backfill.running.release_order import FOREVER, Release
from gpusched.session.backfill.running.releases import PreemptibleReleases, ReleaseForecast
from gpusched.session.backfill.walltimes import session_walltimes
from gpusched.session.backfill.window_reservations import WindowReservations
from gpusched.session.state.order.blocked_gangs import BlockedGangs
from gpusched.session.state.session import Session
from gpusched.session.state.statement import Assignment, Statement

_NOTHING_HELD: Final = -(2**61)
"""Added to what is held it is still far below zero: nothing is held back."""
_LAST_IN_ORDER: Final = 2**62


class Reservations:
    """Reservations of one session; see the module.

    Args:
        session: that is being decided.
        per_pool: most gangs with reservations whose usable nodes overlap.
    """

    def __init__(self, session: Session, *, per_pool: int) -> None:
        self.session = session
        self.window_s = int(session.snapshot.limits.reservation_window_s)
        """Seconds from now within which starts are reserved."""
        self.walltimes = session_walltimes(session)
        self.blocked = BlockedGangs()
        self.reserved_gangs: list[ReservedGang] = []
        self._spare: dict[tuple[int, ...], tuple[Ints, Ints]] = {}
        """Answers of ``spare_room`` by the ``id`` of those who have the room, while it is the same."""
        self._pools = ReservationPools(
            session.cache.equivalence, per_pool, session.snapshot.limits.reservations
        )
        self._strict: list[StrictFifoHead] = []
        self._preemptible = PreemptibleReleases(session)
        self._work = SearchBudget(RESERVATION_WORK_MAX)
        self._windows: WindowReservations | None = None
        self._settled = False
        """Whether preemption has decided: from then on no eviction is counted on."""
        self._reset()

    def _reset(self) -> None:
        self._known_forecast: ReleaseForecast | None = None
        self._start_cache = StartCache(self.session.cache.equivalence)
        self._forget_reserved_gangs()
        self._profile: AvailabilityProfile | None = None
        self._started: list[tuple[Gang, Sequence[Assignment]]] = []
        self._running: dict[str, list[tuple[Gang, Release]]] = {}
        self.reserved_gangs = []
        self._strict = []

    def _forget_reserved_gangs(self) -> None:
        """Forget what depends on who has reservations."""
        self._pools.forget_reserved_gangs()
        self._spare.clear()

    @property
    def _forecast(self) -> ReleaseForecast:
        if self._known_forecast is None:  # most sessions block no gang
            self._known_forecast = ReleaseForecast(self.session, self.walltimes)
        return self._known_forecast

    @property
    def profile(self) -> AvailabilityProfile:
        """Room over time, made when it is first needed."""
        if self._profile is None:
            self._profile = self._forecast.build_profile()
            self.walltimes.note_moments(self._profile.releases, self.window_s)
        started, self._started = self._started, []
        for gang, places in started:
            self._charge_places(gang, places, sign=1)
        return self._profile

    @property
    def looked_at(self) -> int:
        """Moments looked at so far in this session."""
        return RESERVATION_WORK_MAX - self._work.left

    @property
    def reservations(self) -> list[Reservation]:
        """Reservations of all gangs that have one, in queue order."""
        return [reserved.reservation for reserved in self.reserved_gangs]

    def find_start(
        self, gang: Gang, reservations: Sequence[Reservation], *, until: int, work: SearchBudget
    ) -> Reservation | None:
        """Find the earliest known start of a gang beside some reservations; nothing is reserved."""
        search, before = self._search_and_earlier_result(gang, work)
        if not before.start and not search.lacks_room_or_quota_now(reservations, until=until):
            return None
        return search.find_earliest_start(reservations, until=until, before=before)

    def _search_and_earlier_result(
        self, gang: Gang, work: SearchBudget
    ) -> tuple[StartSearch, EarlierResult]:
        """A search, and what was found for equal gangs: if a start, they were blocked as this one is."""
        length = self.walltimes.seconds_of(gang)
        if self.windows_binding(gang):
            return self._start_search(gang, self.profile, work), EarlierResult()
        state = (self.profile.version, self.session.queue_accounts.version, id(work))
        before = self._start_cache.get_or_make(gang, length=length, state=state)
        if before.search is not None:
            return before.search.for_equal_gang(gang), before
        search = self._start_search(gang, self.profile, work)
        if not search.simple:
            return search, EarlierResult()
        before.search = search
        return search, before

    @property
    def binds_any(self) -> bool:
        """Whether room is reserved for any gang, or one is first in a queue that lets nobody pass."""
        return bool(self.reserved_gangs or self._strict)

    def reserved_gang_of(self, gang: Gang) -> ReservedGang | None:
        """The gang with its reservation; None when it has none."""
        return next((each for each in self.reserved_gangs if each.gang.key == gang.key), None)

    # -- what happens in the session -----------------------------------------------------------
    def note_blocked(self, gang: Gang, *, passed: bool) -> ReservedGang | None:
        """Note that a gang did not start in its turn, and reserve room for it if its start is known.

        Args:
            gang: that keeps its place in queue order.
            passed: whether only a reservation of another kept it from starting.
        """
        if not self.blocked.note(gang, self.session.order_keys.serving, passed=passed):
            return self.reserved_gang_of(gang)
        return self._consider_gang(gang)

    def reserves_nothing_for(self, gang: Gang) -> bool:
        """Whether nothing is reserved for gangs equal to this one that are blocked next."""
        return self._pools.is_closed_for(gang)

    @property
    def may_reserve(self) -> bool:
        """Whether anything is known for which room might be reserved."""
        queues = self.session.snapshot.queues.queues.values()
        return bool(
            self.profile.releases
            or self.session.snapshot.reservations
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
            if self._pools.is_closed_for(gang):
                continue
            search, _ = self._search_and_earlier_result(gang, self._work)
            if search.lacks_room_or_quota_now(self.reservations):
                self.note_blocked(gang, passed=not search.lacks_room_or_quota_now(()))

    def note_started(self, gang: Gang, places: Sequence[Assignment]) -> None:
        """Note that a gang, or a part of one, was given or nominated for places."""
        if self._profile is None or not places:
            return
        self._drop_reservation(gang.key)
        if self.reserved_gangs:
            self._charge_places(gang, places, sign=1)
        else:  # who makes thousands of claims may never ask
            self._started.append((gang, places))

    def note_unassigned(self, gang: Gang, places: Sequence[Assignment]) -> None:
        """Note that places of a gang that never waited are free again: the reverse of ``note_started``."""
        if self._profile is not None:
            self._charge_places(gang, places, sign=-1)

    def _charge_places(self, gang: Gang, places: Sequence[Assignment], *, sign: int) -> None:
        end = self.walltimes.end_if_started_now(gang)
        room = self._forecast.release_of_placed(gang, places, end)
        (self.profile.start if sign > 0 else self.profile.forget)(room)
        self._spare.clear()
        for reserved in self.reserved_gangs:
            if reserved.reservation.start < end:
                reserved.change_spare_room(room.rows, room.amounts, sign=-sign)

    def recompute_if_evicted(self) -> bool:
        """Work out all reservations again when evictions have changed what they rest on.

        Returns:
            Whether they did, so that others may start.
        """
        placements, nominations = self.session.placements, self.session.nominations
        due = any(reserved.due for reserved in self.reserved_gangs)
        if self._settled or not (due or nominations.plans or nominations.stops):
            return False
        self._settled = True
        self._reset()
        for gang in self.blocked.waiting:
            if not placements.assigned(gang) and not nominations.has_nomination(gang):
                self._consider_gang(gang)
        return True

    def _drop_reservation(self, key: GangKey) -> None:
        gone = next((each for each in self.reserved_gangs if each.gang.key == key), None)
        if gone is None:
            return
        self.reserved_gangs.remove(gone)
        self._forget_reserved_gangs()
        for reserved in self.reserved_gangs:
            if gone.reservation.is_active_at(reserved.reservation.start):
                reserved.change_spare_room(gone.reservation.rows, gone.reservation.amounts, sign=1)

    # -- reserving ----------------------------------------------------------------------------
    def _consider_gang(self, gang: Gang) -> ReservedGang | None:
        if self._pools.is_closed_for(gang):
            return None
        # Who is held up by the head itself is not the head of another pool.
        in_line = (node := self.session.queue_of(gang)) and node.queue.ordering == "StrictFifo"
        strict = in_line and not self.blocked.is_passed(gang)
        usable = self._pools.known_usable_rows(gang)
        if usable is not None and not strict and not self._may_reserve_more(usable):
            if not in_line:
                self._pools.close(gang)
            return None
        overdue = any(hook(gang) for hook in self.session.hooks.overdue)
        known = bool(self.profile.releases or self.windows_binding(gang))
        if not known and not strict and not overdue:
            return None
        search, before = self._search_and_earlier_result(gang, self._work)
        usable = self._pools.learn_usable_rows(gang, lambda: search.usable)
        reserved = None
        if self._may_reserve_more(usable):
            reserved = self._find_reservation(gang, search, before, usable, overdue=overdue)
        if reserved is not None:
            self._enter_reservation(reserved)
        elif strict:
            self._strict.append(StrictFifoHead(gang, self._place_of(gang), search.feasible_rows))
            self._spare.clear()
        return reserved

    def _find_reservation(
        self,
        gang: Gang,
        search: StartSearch,
        before: EarlierResult,
        usable: Bools,
        *,
        overdue: bool,
    ) -> ReservedGang | None:
        reservations, until = self.reservations, self.walltimes.now + self.window_s
        if not before.start and not search.lacks_room_or_quota_now(reservations, until=until):
            return None
        reservation = self._reservation_with_evictions(gang, reservations, until=until)
        due = reservation is not None and reservation.start == self.walltimes.now
        reservation = reservation or search.find_earliest_start(
            reservations, until=until, before=before
        )
        if reservation is None and overdue:
            reservation = self._find_nearest(gang, search)
        return self._make_reserved_gang(gang, reservation, usable, due=due) if reservation else None

    def _reservation_with_evictions(
        self, gang: Gang, reservations: Sequence[Reservation], *, until: int
    ) -> Reservation | None:
        """A start that counts on evictions for the gang.

        Where only the victims are in the way the gang is due now: preemption decides about that in
        this session, and until it has, the room is reserved. Afterwards no eviction is counted on.
        """
        if not self._preemptible.possible or not self._forecast.runs_below(
            gang.queue, gang.priority
        ):
            return None
        running = self._running.get(gang.queue)
        if running is None:
            running = self._running[gang.queue] = self._forecast.running_in(gang.queue)
        given = self._preemptible.find_releases(gang, running)
        if not given:
            return None
        profile = self.profile.with_release_times(given)
        self.walltimes.note_moments(profile.releases, self.window_s)
        with_evictions = self._start_search(gang, profile)
        if with_evictions.lacks_room_or_quota_now(reservations):
            return with_evictions.find_earliest_start(reservations, until=until)
        known = bool(self.profile.releases) or has_published_start(gang)
        return None if self._settled or not known else with_evictions.start_at_once(reservations)

    def _find_nearest(self, gang: Gang, search: StartSearch) -> Reservation | None:
        profile = self.profile
        kept = (*self.windows_binding(gang), *self.reservations)
        free = profile.free_at(profile.now, profile.reservation_table(kept))
        chosen = search.first_choice(
            lambda parts, areas: nearest_rows(
                free, free + self._forecast.amounts_held_by_gangs(), parts, areas
            )
        )
        if chosen is None:
            return None
        rows, amounts = chosen
        path, requests = self.session.queue_path(gang), self.session.view.minimum(gang)
        self.walltimes.changes_at(profile.now + 1)
        return Reservation(gang.key, profile.now, FOREVER, rows, amounts, path, requests)

    def _make_reserved_gang(
        self, gang: Gang, reservation: Reservation, usable: Bools, *, due: bool
    ) -> ReservedGang:
        rows = reservation.rows
        table = self.profile.reservation_table([*self.reservations, reservation])
        slack = self.profile.free_at(reservation.start, table)[rows]
        basis = None
        if reservation.start > self.walltimes.now:
            ends = (other.gang for other in self.reservations if other.end == reservation.start)
            basis = self.profile.ends_at(reservation.start) or next(ends, None)
        return ReservedGang(
            gang,
            self._place_of(gang),
            reservation,
            slack,
            reservation.amounts > 0,
            usable,
            basis,
            due,
        )

    def _enter_reservation(self, entered: ReservedGang) -> None:
        for reserved in self.reserved_gangs:
            if entered.reservation.is_active_at(reserved.reservation.start):
                reserved.change_spare_room(
                    entered.reservation.rows, entered.reservation.amounts, sign=-1
                )
        self.reserved_gangs.append(entered)
        self._forget_reserved_gangs()

    def _may_reserve_more(self, usable: Bools) -> bool:
        return self._work.left > 0 and self._pools.has_room_for_one(usable, self.reserved_gangs)

    def windows_binding(self, gang: Gang) -> tuple[Reservation, ...]:
        """Windows of Reservations of the API in which the gang may not be on their nodes."""
        if not self.session.snapshot.reservations:
            return ()
        if self._windows is None:
            until = self.walltimes.now + self.window_s
            self._windows = WindowReservations(self.session, self.profile.allocatable, until)
        return self._windows.reservations_binding(gang, length=self.walltimes.seconds_of(gang))

    def _start_search(
        self, gang: Gang, profile: AvailabilityProfile, work: SearchBudget | None = None
    ) -> StartSearch:
        return StartSearch(
            self.session,
            gang,
            profile,
            length=self.walltimes.seconds_of(gang),
            work=self._work if work is None else work,
            windows=self.windows_binding(gang),
        )

    # -- respecting reservations ----------------------------------------------------------------
    def find_conflict(
        self, gang: Gang, statement: Statement
    ) -> ReservedGang | StrictFifoHead | None:
        """The reservation that a statement would break; None when it breaks none.

        Args:
            gang: that is to start now.
            statement: with places for the gang, and the evictions that free them.
        """
        if not self.binds_any:
            return None
        places = statement.assignments
        taken = self._forecast.sum_by_row(places)
        asked = total(place.pod.pod_class.charged for place in places)
        for reserved in self._binding_gangs(gang):
            left = self._amounts_left_by_evictions(statement, reserved.reservation.start)
            for row, amounts in taken.items():
                number = reserved.index.get(row)
                if number is None:
                    continue
                slack = (
                    reserved.slack[number] + left[row] if row in left else reserved.slack[number]
                )
                if ((amounts > slack) & reserved.requested_columns[number] & (amounts > 0)).any():
                    return reserved
            if not self._leaves_quota(reserved, gang, asked):
                return reserved
        return next(
            (each for each in self._strict_heads_before(gang) if each.usable[list(taken)].any()),
            None,
        )

    @contextmanager
    def exclude_reserved_room(
        self, gang: Gang, statement: Statement | None = None
    ) -> Iterator[None]:
        """Inside, the gang finds only room that breaks no reservation.

        Args:
            gang: that is to start, or to grow, now.
            statement: with the evictions that free its places.
        """
        if not self.reserved_gangs and not self._strict:
            yield
            return
        node_usage = self.session.node_usage
        allocatable = node_usage.nodes.allocatable
        width = allocatable.shape[1]  # of devices only the conflict tells
        back = np.full_like(allocatable, _NOTHING_HELD)
        kept = np.zeros(len(back), dtype=bool)
        for reserved in self._binding_gangs(gang):
            rows = reserved.reservation.rows
            held = allocatable[rows] - reserved.slack[:, :width] - node_usage.holdings_on(rows)
            if statement:
                left = self._amounts_left_by_evictions(statement, reserved.reservation.start)
                for row in reserved.index.keys() & left:
                    held[reserved.index[row]] -= left[row][:width]
            held[~reserved.requested_columns[:, :width]] = _NOTHING_HELD
            back[rows] = np.maximum(back[rows], held)
            kept[rows] = True
        for strict in self._strict_heads_before(gang):
            back[strict.usable] = allocatable[strict.usable]
            kept |= strict.usable
        node_usage.count_as_used(dict(zip(np.flatnonzero(kept).tolist(), back[kept], strict=True)))
        try:
            yield
        finally:
            node_usage.count_as_used({})

    def spare_room(self, gang: Gang) -> tuple[Ints, Ints]:
        """What a gang may take at most where room is reserved for those before it.

        Args:
            gang: that is to start now; nobody leaves for it.

        Returns:
            Rows, of which some may be told more than once, and amounts on each; int64, shapes (rows,) and (rows, resources).
        """
        binding = self.gangs_binding(gang)
        who = tuple(map(id, binding))
        if who not in self._spare:
            width = self.session.snapshot.nodes.allocatable.shape[1]
            rows, room = [np.zeros(0, dtype=np.int64)], [np.zeros((0, width), dtype=np.int64)]
            for each in binding:
                if isinstance(each, ReservedGang):
                    rows.append(each.reservation.rows)
                    held = each.requested_columns[:, :width]
                    room.append(np.where(held, each.slack[:, :width], COLUMN_MAX))
                else:
                    rows.append(np.flatnonzero(each.usable))
                    room.append(np.zeros((len(rows[-1]), width), dtype=np.int64))
            self._spare[who] = (np.concatenate(rows), np.concatenate(room))
        return self._spare[who]

    @contextmanager
    def own_reservation(self, gang: Gang) -> Iterator[bool]:
        """Inside, a gang that is due finds the room of its reservation and no other.

        So it does not take, by scores, what the next reservation counts on. The value is whether it
        has one: a start was published for it, and it fits where the fixed order puts it.
        """
        reservation = None
        if has_published_start(gang):
            reservation = self._start_search(gang, self.profile).start_at_once(())
        if reservation is None:
            yield False
            return
        node_usage = self.session.node_usage
        allocatable = node_usage.nodes.allocatable
        reserved = reservation.amounts[:, : allocatable.shape[1]]
        back = allocatable - node_usage.holdings_on(slice(None))
        back[reservation.rows] -= reserved
        node_usage.count_as_used(dict(enumerate(back)))
        try:
            yield True
        finally:
            node_usage.count_as_used({})

    def gangs_binding(self, gang: Gang) -> list[ReservedGang | StrictFifoHead]:
        """Those for whom room is held that the gang must leave them when it starts now, each kind in queue order."""
        return [*self._binding_gangs(gang), *self._strict_heads_before(gang)]

    def _binding_gangs(self, gang: Gang) -> Iterator[ReservedGang]:
        """Gangs whose reservations bind the gang when it starts now."""
        if not self.reserved_gangs:
            return
        turn = self._place_of(gang)
        now = self.walltimes.now
        for reserved in self.reserved_gangs:
            start = reserved.reservation.start
            if (
                reserved.position >= turn
                or not self.walltimes.would_run_at(gang, start)
                or reserved.gang.key == gang.key
                or self._is_in_its_own_window(gang, reserved)
            ):
                continue
            ready = self._preemptible.preemptible_from(gang, reserved.gang, began=now)
            if ready is None or ready > start or reserved.due:
                yield reserved
            else:
                self.walltimes.changes_at(now + start - ready + 1)

    def _place_of(self, gang: Gang) -> int:
        place = self.blocked.place_of(gang)
        return _LAST_IN_ORDER if place is None else place

    def _is_in_its_own_window(self, gang: Gang, reserved: ReservedGang) -> bool:
        """Whether a Reservation keeps reserved nodes now for the gang, and not for the reserved one.

        What waits for the end of the window does not keep those out for whom it is.
        """
        windows, rows = self.session.windows, reserved.reservation.rows
        return any(
            each.window.is_active_at(self.session.snapshot.now)
            and bool(each.rows[rows].any())
            and windows.may_use(gang, each.reservation)
            for each in windows.binding(reserved.gang)
        )

    def _strict_heads_before(self, gang: Gang) -> Iterator[StrictFifoHead]:
        turn = self._place_of(gang)
        for strict in self._strict:
            if strict.gang.queue == gang.queue and strict.position < turn:
                yield strict

    def _amounts_left_by_evictions(self, statement: Statement, start: int) -> dict[int, Ints]:
        """Amounts by row of victims of the statement that would still run at that time."""
        return self._forecast.amounts_left_by(
            each for each in statement.evictions if self.walltimes.end_of_running(each.gang) > start
        )

    def _leaves_quota(self, reserved: ReservedGang, gang: Gang, asked: Resources) -> bool:
        """Whether the quota of the reserved gang suffices at its start although the gang runs then."""
        mine = set(self.session.queue_path(reserved.gang))
        path = self.session.queue_path(gang)
        if mine.isdisjoint(path) or not self.session.hooks.quota_checks:
            return True
        start = reserved.reservation.start
        held = [
            (reservation.path, reservation.requests)
            for reservation in self.reservations
            if reservation.is_active_at(start)
            and reservation.gang != reserved.gang.key
            and not mine.isdisjoint(reservation.path)
        ]
        started = QueueLoad([(path, asked), *held])
        if quota_allows_beside(self.session, reserved.gang, started):
            return True
        ended = QueueLoad(
            (each.path, each.requests)
            for each in self.profile.releases
            if each.time <= start and not mine.isdisjoint(each.path)
        )
        return quota_allows_beside(self.session, reserved.gang, started, ended)


def session_reservations(session: Session) -> Reservations | None:
    """The reservations of a session, None where no action of it reserves room."""
    reservations = session.reservations
    assert reservations is None or isinstance(reservations, Reservations)
    return reservations
