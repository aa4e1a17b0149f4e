"""Windows of all Reservations in one session: who may use their nodes, and which are closed to a gang.

A gang that may not use the nodes of a window starts on them only where it has ended when the window
begins, or can be evicted by then. All of this follows from the snapshot alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Final

import attrs
import numpy as np

from gpusched.api.meta.identity import GangKey, format_time
from gpusched.api.policy.reservation import (
    MAINTENANCE,
    AdvanceReservation,
    ReservationWindow,
)
from gpusched.arrays.columns import Bools
from gpusched.base.classes import frozen
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.snapshot import Snapshot
from gpusched.session.framework.hooks import Hooks
from gpusched.session.state.nodes.windows.chosen_nodes import ChosenNodes, choose_nodes
from gpusched.session.state.nodes.windows.evictability import evictable_from

NO_END: Final = 2**62
"""When a gang ends of which that is not known."""


@frozen(slots=True, eq=False)
class NodeWindow:
    """The current or next window of a Reservation, with the nodes that it keeps.

    Attributes:
        error: why the nodes are not what it asks for; empty where they are.
    """

    reservation: AdvanceReservation
    window: ReservationWindow
    rows: Bools
    error: str = ""

    def is_being_emptied(self, now: float) -> bool:
        """Whether the window is near enough for gangs to be moved off its nodes, or has begun."""
        return now >= self.window.begins - self.reservation.move_before_s

    def words(self, now: float) -> str:
        """What is wrong with its nodes, as words after a number of nodes."""
        name = self.reservation.name
        why = " for maintenance" if self.reservation.purpose == MAINTENANCE else ""
        if self.window.is_active_at(now):
            return f"are kept by Reservation {name}{why} until {format_time(self.window.ends)}"
        return f"are kept by Reservation {name}{why} from {format_time(self.window.begins)} on"


@frozen(slots=True)
class ClosedNodes:
    """Nodes that Reservations close to some gangs; equal where the same windows do.

    Attributes:
        numbers: of the windows, ascending.
        masks: rows of each, bool, shape (nodes,), with the words for them.
    """

    numbers: tuple[int, ...]
    masks: tuple[tuple[str, Bools], ...] = attrs.field(eq=False)

    @property
    def rows(self) -> Bools:
        """All rows that are closed, bool, shape (nodes,)."""
        closed: Bools = np.logical_or.reduce([mask for _, mask in self.masks])
        return closed


class ReservedWindows:
    """Windows of one session; see the module.

    Args:
        snapshot: of this moment.
        walltime_s: seconds that a gang runs; 0 where that is not known.
        queue_path: names of a gang's queue and those above it.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        walltime_s: Callable[[Gang], int],
        queue_path: Callable[[Gang], tuple[str, ...]],
    ) -> None:
        self._snapshot = snapshot
        self._walltime_s = walltime_s
        self._queue_path = queue_path
        self._known: dict[tuple[GangKey, bool, int], ClosedNodes | None] = {}
        self._held: dict[ReservationWindow, dict[int, int]] = {}

    @cached_property
    def _now(self) -> int:
        """Whole seconds since the epoch; asked by those alone who have windows, or are told of them."""
        return int(self._snapshot.now)

    @cached_property
    def windows(self) -> tuple[NodeWindow, ...]:
        """The current or next window of each Reservation that has one, by name."""
        current = [
            (each, window)
            for each in self._snapshot.reservations
            if (window := each.current_window(self._snapshot.now)) is not None
        ]
        made: dict[str, NodeWindow] = {}
        # Those that leave a choice choose last, and by name.
        current.sort(key=lambda pair: (_has_choice(pair[0]), pair[0].name))
        for reservation, window in current:
            taken = np.zeros(len(self._snapshot.nodes), dtype=np.bool_)
            for other in made.values():
                if other.window.begins < window.ends and window.begins < other.window.ends:
                    taken |= other.rows
            found: ChosenNodes = choose_nodes(
                reservation, window, self._snapshot.nodes, taken=taken, load=self._held_gpus
            )
            made[reservation.name] = NodeWindow(reservation, window, found.rows, found.error)
        return tuple(each for _, each in sorted(made.items()))

    # -- gangs -----------------------------------------------------------------------------
    def may_use(self, gang: Gang, reservation: AdvanceReservation) -> bool:
        """Whether the gang may use the nodes in the windows of a Reservation."""
        return gang.key.namespace in reservation.namespaces or not set(
            reservation.queues
        ).isdisjoint(self._queue_path(gang))

    def end_of(self, gang: Gang) -> int:
        """When a gang ends that runs, or would start now; NO_END where that is not known."""
        length = self._walltime_s(gang)
        end = self._start_of(gang) + length
        return end if length and end > self._now else NO_END

    def is_gone_by(self, gang: Gang, reservation: AdvanceReservation, begins: int) -> bool:
        """Whether a gang that runs or starts now has ended by then, or can be evicted."""
        if self.end_of(gang) <= begins:
            return True
        return reservation.evicts and self.is_evictable_at(gang, begins)

    def is_evictable_at(self, gang: Gang, time: float) -> bool:
        """Whether a gang that runs or starts now may be evicted whole at that moment."""
        ready = evictable_from(self._snapshot, gang, began=self._start_of(gang))
        return ready is not None and ready <= time

    def _start_of(self, gang: Gang) -> int:
        """When the gang started; now for one that has not."""
        return int(gang.started_at) or self._now

    def closed_to(self, gang: Gang, *, speed: int = 0) -> ClosedNodes | None:
        """Nodes on which a gang may not start now, or grow; None for none.

        Args:
            gang: that is looked for places.
            speed: of the gang on the GPUs that it would get; lengths depend on it.
        """
        if not self._snapshot.reservations:
            return None
        key = (gang.key, bool(gang.placed), speed)
        if key not in self._known:
            self._known[key] = self._find_closed(gang)
        return self._known[key]

    def _find_closed(self, gang: Gang) -> ClosedNodes | None:
        numbers = tuple(
            number
            for number, each in enumerate(self.windows)
            if self._is_closed(gang, each) and each.rows.any()
        )
        if not numbers:
            return None
        now = self._snapshot.now
        return ClosedNodes(
            numbers,
            tuple((self.windows[each].words(now), self.windows[each].rows) for each in numbers),
        )

    def _is_closed(self, gang: Gang, each: NodeWindow) -> bool:
        if self.may_use(gang, each.reservation):
            return False
        begins = each.window.begins
        if each.is_being_emptied(self._now):  # nothing takes the place of what is moved off
            return begins <= self._now or self.end_of(gang) > begins
        return not self.is_gone_by(gang, each.reservation, begins)

    def class_key(self, gang: Gang) -> tuple[int, ...]:
        """What of its windows tells a gang from others that are equal to it otherwise."""
        closed = self.closed_to(gang)
        return () if closed is None else closed.numbers

    def binding(self, gang: Gang) -> Sequence[NodeWindow]:
        """Windows whose nodes the gang may not use, and for which it will not be evicted."""
        if not self._snapshot.reservations:
            return ()
        return [
            each
            for each in self.windows
            if each.rows.any()
            and not self.may_use(gang, each.reservation)
            and (
                each.is_being_emptied(self._now)
                or not (each.reservation.evicts and self.is_evictable_at(gang, NO_END))
            )
        ]

    # -- nodes -----------------------------------------------------------------------------
    def gangs_in_the_way(self, each: NodeWindow) -> Iterator[Gang]:
        """Gangs on its nodes that may not use them, by key."""
        there = {
            gang.key: gang
            for row in np.flatnonzero(each.rows).tolist()
            for gang in self._gangs_by_row.get(row, ())
        }
        for _, gang in sorted(there.items()):
            if not self.may_use(gang, each.reservation):
                yield gang

    @cached_property
    def _gangs_by_row(self) -> dict[int, list[Gang]]:
        """Gangs with members on a row, each once a row, of all rows that a window keeps."""
        kept = np.zeros(len(self._snapshot.nodes), dtype=np.bool_)
        for each in self.windows:
            kept |= each.rows
        row_of = self._snapshot.nodes.row
        found: dict[int, list[Gang]] = {}
        for gang in self._snapshot.placed_gangs.values():
            for name in {member.node for member in gang.placed}:
                row = row_of.get(name, -1)
                if row >= 0 and kept[row]:
                    found.setdefault(row, []).append(gang)
        return found

    def _held_gpus(self, window: ReservationWindow, row: int) -> int:
        """GPUs on a row of gangs that will neither have ended nor be evictable, in thousandths."""
        held = self._held.get(window)
        if held is None:
            held = self._held[window] = {}
            nodes = self._snapshot.nodes
            for gang in self._snapshot.placed_gangs.values():
                if self.end_of(gang) <= window.begins or self.is_evictable_at(gang, window.begins):
                    continue
                for member in gang.placed:
                    number = nodes.row.get(member.node, -1)
                    if number >= 0:
                        mine = max(1, member.pod.pod_class.gpu_thousandths)
                        held[number] = held.get(number, 0) + mine
        return held.get(row, 0)


def shortest_walltime_s(hooks: Hooks, gang: Gang) -> int:
    """Seconds that the gang runs, the shortest that policies say; 0 where none says any."""
    return min([seconds for hook in hooks.walltimes if (seconds := hook(gang)) > 0], default=0)


def _has_choice(reservation: AdvanceReservation) -> bool:
    return bool(reservation.node_count or reservation.resources.items)
