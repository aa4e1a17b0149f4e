"""Reservations ahead: nodes that are kept in windows of time for some, or for nobody while they are maintained.

Times are whole seconds since the epoch. A window includes its beginning and not its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date, datetime, timedelta
from typing import Final, Literal

from gpusched.api.meta.identity import UID, ResourceVersion
from gpusched.api.meta.resources import NOTHING, Resources
from gpusched.base.classes import frozen
from gpusched.base.time_zones import UTC_NAME, find_time_zone

MAINTENANCE: Final = "Maintenance"
RESERVED_PURPOSE: Final = "Reserved"
WEEKDAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
"""Names of weekdays, numbered from 0 as in ``datetime``."""
_DAY_S: Final = 86_400
_WEEK_S: Final = 7 * _DAY_S


@frozen(slots=True)
class ReservationWindow:
    """One window of a reservation, from its beginning until its end."""

    begins: int
    ends: int

    def is_active_at(self, time: float) -> bool:
        """Whether the window has begun and has not ended at that moment."""
        return self.begins <= time < self.ends


@frozen(slots=True, kw_only=True)
class AdvanceReservation:
    """A Reservation of the API: which nodes are kept, when, and who may use them then.

    Attributes:
        purpose: ``Reserved`` for those it names, ``Maintenance`` for nobody.
        queues: whose gangs may use the nodes; those of queues below them may, too. Sorted.
        namespaces: whose gangs may use the nodes, sorted.
        node_names: of the nodes, sorted; empty where labels or an amount choose them.
        node_selector: labels that its nodes have, pairs sorted by label.
        node_count: so many of the nodes with these labels; 0 for all of them.
        resources: as many of these nodes as offer so much together; nothing for all of them.
        first: the first window; with weekdays, the one that begins at ``from``, whose time of day the
            others have, and which itself counts on these days only.
        every_s: seconds from the beginning of one window to that of the next; 0 for one window, or
            where weekdays say when the next one begins.
        weekdays: on which windows begin, numbers in ``WEEKDAYS``, ascending; empty for any.
        time_zone: whose weekdays and times of day count for them, by its IANA name.
        until: no window begins later than this; 0 for no last one.
        evicts: whether gangs that may not use the nodes are evicted when a window begins.
        move_before_s: seconds before a window in which gangs are moved to other nodes.
        chosen: nodes that were chosen before, as its status says, sorted.
    """

    name: str
    uid: UID
    resource_version: ResourceVersion
    generation: int = 0
    purpose: Literal["Reserved", "Maintenance"] = "Reserved"
    queues: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    node_names: tuple[str, ...] = ()
    node_selector: tuple[tuple[str, str], ...] = ()
    node_count: int = 0
    resources: Resources = NOTHING
    first: ReservationWindow
    every_s: int = 0
    weekdays: tuple[int, ...] = ()
    time_zone: str = UTC_NAME
    until: int = 0
    evicts: bool = True
    move_before_s: int = 0
    chosen: tuple[str, ...] = ()
    status: bytes = b"{}"

    @property
    def chooses(self) -> bool:
        """Whether it keeps some of the nodes that it could, which are chosen."""
        return bool(self.node_count or self.resources)

    def may_keep(self, node: str, labels: Mapping[str, str]) -> bool:
        """Whether a node is one of those that it names, or could choose by its labels."""
        if self.node_names:
            return node in self.node_names
        return all(labels.get(key) == value for key, value in self.node_selector)

    def current_window(self, now: float) -> ReservationWindow | None:
        """The window that is active, or else the next one; None when the last has ended."""
        return next(self.windows_from(now), None)

    @property
    def recurs(self) -> bool:
        """Whether further windows follow the first one."""
        return bool(self.every_s or self.weekdays)

    @property
    def last_end(self) -> int:
        """When its last window ends; of one that recurs for ever, when its first does."""
        if not self.until or not self.recurs:
            return self.first.ends
        if self.weekdays:
            *_, last = (self.first, *self.windows_from(self.until - _WEEK_S))
            return last.ends
        return self.first.ends + (self.until - self.first.begins) // self.every_s * self.every_s

    def windows_from(self, now: float) -> Iterator[ReservationWindow]:
        """Windows that end after a moment, in their order; without end where they recur for ever."""
        if self.weekdays:
            yield from self._windows_on_weekdays(now)
            return
        number = 0
        if now >= self.first.ends:
            if not self.every_s:
                return
            number = int(now - self.first.ends) // self.every_s + 1
        while True:
            shift = number * self.every_s
            window = ReservationWindow(self.first.begins + shift, self.first.ends + shift)
            if self.until and window.begins > self.until:
                return
            yield window
            if not self.every_s:
                return
            number += 1

    def _windows_on_weekdays(self, now: float) -> Iterator[ReservationWindow]:
        """The same, where windows begin at the time of day of the first one, on some weekdays.

        As calendars do (RFC 5545): a time of day that a day has twice is its first one, and one
        that it lacks, since clocks were put forward, is as long after midnight as on other days.
        """
        zone, length = find_time_zone(self.time_zone), self.first.ends - self.first.begins
        origin = datetime.fromtimestamp(self.first.begins, zone)
        time_of_day = origin.time().replace(fold=0)
        earliest = max(float(self.first.begins), now - length - _DAY_S)
        day = max(origin.date(), datetime.fromtimestamp(earliest, zone).date())
        while True:
            begins = self.first.begins
            if day != origin.date():
                begins = int(datetime.combine(day, time_of_day, zone).timestamp())
            if self.until and begins > self.until:
                return
            if day.weekday() in self.weekdays and begins + length > now:
                yield ReservationWindow(begins, begins + length)
            if day == date.max:
                return
            day += timedelta(days=1)
