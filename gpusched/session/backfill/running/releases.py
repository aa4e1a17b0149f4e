"""What runs now as rows, amounts and ends: the part of a reservation that is bookkeeping."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from gpusched.api.devices.gpu_share import shared_resource
from gpusched.api.meta.identity import GangKey
from gpusched.api.meta.resources import Resources, total
from gpusched.api.meta.units import DEVICE
from gpusched.api.pod.pod import Pod, PodClass
from gpusched.arrays.columns import Ints, RequestVector, pod_class_vector
from gpusched.cache.gangs.gang import Gang, Placed
from gpusched.session.backfill.availability_profile import AvailabilityProfile
from gpusched.session.backfill.running.release_order import FOREVER, Release, ReleaseOrder
from gpusched.session.backfill.running.running_gangs import KnownRelease, RunningGangs
from gpusched.session.backfill.running.waiting_devices import WaitingDevices, waiting_devices
from gpusched.session.backfill.walltimes import Walltimes
from gpusched.session.framework.plugin import Capability
from gpusched.session.state.nodes.windows.evictability import evictable_from
from gpusched.session.state.session import Session
from gpusched.session.state.statement import Assignment, EvictOperation

_SERVICES: Final = frozenset({"DaemonSet", "ReplicaSet", "ReplicationController", "StatefulSet"})
"""Kinds of controllers that make a pod anew whenever one ends."""


def _serves(gang: Gang) -> bool:
    owners = (member.pod.owner for member in gang.placed)
    return any(owner is not None and owner.kind in _SERVICES for owner in owners)


class ReleaseForecast:
    """Forecast of the room that gangs release when they end.

    Args:
        session: whose nodes and gangs are meant.
        walltimes: how long gangs run.
    """

    def __init__(self, session: Session, walltimes: Walltimes) -> None:
        self._session = session
        self._walltimes = walltimes
        self._vectors: dict[str, Ints] = {}
        self._running = RunningGangs()
        if self._keeps:
            self._running = session.cache.kept.get_or_make(RunningGangs, RunningGangs)
        self._fresh = False

    @property
    def _devices(self) -> WaitingDevices:
        """Columns of devices, made when a gang is blocked: most sessions ask for none."""
        return waiting_devices(self._session)

    @property
    def _width(self) -> int:
        return self._devices.width

    def build_profile(self) -> AvailabilityProfile:
        """Room over time as the session has it now, with what it placed and nominated."""
        session = self._session
        order, again = self._known_order()
        placed = session.snapshot.placed_gangs
        late = order.ended_by(self._walltimes.now)
        releases, given_up = [], []
        for each in late:
            if each.gang not in again:
                room = self._release_of_late(each)
                releases += [room] if room is not None else []
                given_up += [each] if room is None else []
        self._running.give_up(given_up, self._walltimes.now)
        for gang in (placed[key] for key in sorted(again)):
            end = self._walltimes.end_of_running(gang)
            room = self.release_of_running(gang, end) if end < FOREVER else None
            if room is not None:
                releases.append(room)
        for gang, places in session.placements.by_gang_with_nominations():
            end = self._walltimes.end_if_started_now(gang)
            if end < FOREVER:
                releases.append(self.release_of_placed(gang, places, end))
        gone = {id(each): each for each in late}
        for key in again:
            known = self._running.known.get(key)
            if known is not None and known.room.ends:
                gone[id(known.room)] = known.room
        return AvailabilityProfile(
            self._devices.allocatable_amounts(session.snapshot.nodes.allocatable),
            self._devices.staying_amounts(session.node_usage.staying),
            now=self._walltimes.now,
            order=order.with_changes(list(gone.values()), releases),
        )

    def _release_of_late(self, known: Release) -> Release | None:
        """What a gang leaves that should have ended by now; None where no end of it is believed any more."""
        length_s = self._running.known[known.gang].length_s
        end = self._walltimes.end_of_late(known.gang, known.time, length_s)
        if end >= FOREVER:
            return None
        return Release(end, known.rows, known.amounts, known.gang, known.path, known.requests)

    # -- what is kept from the sessions before ---------------------------------------------------
    @property
    def _keeps(self) -> bool:
        """Whether what gangs leave depends on nothing but what ``RunningGangs`` looks at."""
        session = self._session
        return (
            session.hooks.walltimes_kept
            and session.queue_accounts.pools is None
            and self._width == self._devices.nodes_width
        )

    def _known_order(self) -> tuple[ReleaseOrder, set[GangKey]]:
        """Releases that are known, and gangs that are to be looked at in this session."""
        if not self._keeps:
            return ReleaseOrder(()), set(self._session.snapshot.placed_gangs)
        if not self._fresh:
            self._running.refresh(self._session, self._width, self._look_at, self._length_of)
            self._fresh = True
        return self._running.order, self._running.others | self._leaving

    def _length_of(self, gang: Gang) -> int | None:
        """Seconds that a gang runs; None where a policy fails about it."""
        faults = len(self._session.hooks.faults)
        length = self._walltimes.seconds_of(gang)
        return None if len(self._session.hooks.faults) > faults else length

    @property
    def _leaving(self) -> set[GangKey]:
        """Gangs with members that this session evicts."""
        placed = self._session.snapshot.placed_gangs
        return {key for key in self._session.nominations.evicted_gangs if key in placed}

    def _look_at(self, gang: Gang) -> KnownRelease | None:
        """What is to be known of a gang; None where it changes with time, or with its neighbours."""
        if gang.running_kind is not None:
            return self._look_at_pod(gang, gang.placed[0])
        faults, began = len(self._session.hooks.faults), self._walltimes.start_of_running(gang)
        if began is None or any(each.pod.pod_class.share for each in gang.placed):
            return None
        members, types = self._members(gang), self._session.gpu_types
        if gang.terms.gpu_types.speeds and not types.types_on([row for row, _ in members]):
            return None
        length = self._walltimes.seconds_of(gang)
        end = FOREVER if length >= FOREVER else int(began) + length
        room = self._release_of(gang, members, end)
        if room is None or len(self._session.hooks.faults) > faults:
            return None
        return KnownRelease(gang, room, length)

    def _look_at_pod(self, gang: Gang, member: Placed) -> KnownRelease | None:
        """The same of a gang of one pod, in one go, as thousands run."""
        session, pod_class = self._session, member.pod.pod_class
        faults, row = len(session.hooks.faults), session.snapshot.nodes.row.get(member.node)
        if row is None or pod_class.share is not None:
            return None
        if gang.terms.gpu_types.speeds and not session.gpu_types.types_on([row]):
            return None
        length = self._walltimes.seconds_of(gang)
        if len(session.hooks.faults) > faults:
            return None
        amounts = self._vectors.get(pod_class.digest)
        if amounts is None:
            amounts = self._amounts_of_pod(pod_class, row)
        room = Release(
            FOREVER if length >= FOREVER else int(member.pod.scheduled) + length,
            np.array([row], dtype=np.int64),
            amounts[np.newaxis],
            gang.key,
            session.queue_path(gang),
            pod_class.charged,
        )
        return KnownRelease(gang, room, length)

    # -- single gangs ----------------------------------------------------------------------------
    def release_of_running(self, gang: Gang, time: int) -> Release | None:
        """Release of a gang's members that stay, at a time; None when none stay."""
        evicted = self._session.nominations.evicted
        staying = [(row, pod) for row, pod in self._members(gang) if pod.uid not in evicted]
        return self._release_of(gang, staying, time)

    def _release_of(self, gang: Gang, members: list[tuple[int, Pod]], time: int) -> Release | None:
        if not members:
            return None
        amounts = np.array([self._amounts_of_pod(pod.pod_class, row) for row, pod in members])
        return Release(
            time,
            np.array([row for row, _ in members], dtype=np.int64),
            self._devices.freed_amounts(amounts, members),
            gang.key,
            self._session.queue_path(gang),
            self._charged_amounts([(row, pod.pod_class) for row, pod in members]),
        )

    def _members(self, gang: Gang) -> list[tuple[int, Pod]]:
        """Members with the rows of their nodes."""
        row_of = self._session.snapshot.nodes.row
        return [(row_of[each.node], each.pod) for each in gang.placed if each.node in row_of]

    def release_of_placed(self, gang: Gang, places: Sequence[Assignment], time: int) -> Release:
        """Release of places given in this session, at a time."""
        release = self._release_of(gang, [(place.row, place.pod) for place in places], time)
        assert release is not None, "somebody was given no place"
        return release

    def _charged_amounts(self, seats: Sequence[tuple[int, PodClass]]) -> Resources:
        """Amounts charged to queues for pods on these rows, in node pools too."""
        charged = total(pod_class.charged for _, pod_class in seats)
        pools = self._session.queue_accounts.pools
        if pools is None:
            return charged
        return charged.plus(total(pools.charge(pod_class, row) for row, pod_class in seats))

    def sum_by_row(self, places: Iterable[Assignment]) -> dict[int, Ints]:
        """Amounts of places summed by row, shape (resources,)."""
        found: dict[int, Ints] = {}
        for place in places:
            row = place.row
            ask = self._devices.request_vector(place.pod.pod_class, place.request.with_whole_gpus)
            amounts = found.get(row)
            if amounts is None:
                amounts = found[row] = np.zeros(self._width, dtype=np.int64)
            amounts[ask.columns] += ask.amounts
        return found

    def amounts_left_by(self, evictions: Iterable[EvictOperation]) -> dict[int, Ints]:
        """Amounts that evicted members leave, summed by row, int64 of shape (resources,)."""
        found: dict[int, Ints] = {}
        for each in evictions:
            amounts = found.get(each.row)
            if amounts is None:
                amounts = found[each.row] = np.zeros(self._width, dtype=np.int64)
            pod = each.member.pod
            left = self._amounts_of_pod(pod.pod_class, each.row)[np.newaxis]
            amounts += self._devices.freed_amounts(left, [(each.row, pod)])[0]
        return found

    def amounts_held_by_gangs(self) -> Ints:
        """Amounts that running gangs use and will leave, int64, shaped as ``allocatable``.

        Pods of services do not end by themselves: nobody is to wait for that.
        """
        held: Ints = np.zeros((len(self._session.snapshot.nodes), self._width), dtype=np.int64)
        _, again = self._known_order()
        for key, gang in self._session.snapshot.placed_gangs.items():
            room = None if _serves(gang) else self._room_of(key, gang, again)
            if room is not None:
                np.add.at(held, room.rows, room.amounts)
        return held

    def runs_below(self, queue: str, priority: int) -> bool:
        """Whether a gang of lower priority runs in a queue."""
        _, again = self._known_order()
        placed = self._session.snapshot.placed_gangs
        return self._running.runs_below(queue, priority) or any(
            gang.queue == queue and gang.priority < priority
            for gang in (placed[key] for key in again)
        )

    def running_in(self, queue: str) -> list[tuple[Gang, Release]]:
        """Gangs of a queue that run, with what they leave."""
        _, again = self._known_order()
        found = [
            (known.gang, known.room)
            for known in self._running.of_queue(queue)
            if known.gang.key not in again
        ]
        placed = self._session.snapshot.placed_gangs
        for gang in (placed[key] for key in sorted(again)):
            if gang.queue == queue:
                room = self.release_of_running(gang, FOREVER)
                if room is not None:
                    found.append((gang, room))
        return found

    def _room_of(self, key: GangKey, gang: Gang, again: set[GangKey]) -> Release | None:
        known = None if key in again else self._running.known.get(key)
        return self.release_of_running(gang, FOREVER) if known is None else known.room

    def _amounts_of_pod(self, pod_class: PodClass, row: int) -> Ints:
        """Amounts that a pod frees when it ends; of a shared GPU its own part, so never too much."""
        known = self._vectors.get(pod_class.digest)
        if known is None:
            ask = pod_class_vector(pod_class, self._session.snapshot.nodes.columns)
            known = self._vectors[pod_class.digest] = self._amounts_of_demand(ask)
        if pod_class.share is None:
            return known
        mine = known.copy()
        column = self._session.snapshot.nodes.columns.get(shared_resource())
        if column is not None:
            part = self._session.node_usage.parts_of(pod_class.share)[row]
            mine[column] = min(DEVICE, part)
        return mine

    def _amounts_of_demand(self, ask: RequestVector) -> Ints:
        vector: Ints = np.zeros(self._devices.nodes_width, dtype=np.int64)
        vector[ask.columns] = ask.amounts
        return vector


class PreemptibleReleases:
    """Running gangs that preemption could evict for a gang with a reservation, and from when on.

    Only what preemption itself would grant counts: lower priority, preemptible, no disruption
    budget over its pods, and its protected time over. Room of other queues is reclaim's to give;
    what will be above its share by then is not known in advance.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self.possible = Capability.PREEMPTION in session.capabilities
        """Whether the session evicts for gangs of the same queue at all."""

    def preemptible_from(self, gang: Gang, reserved: Gang, *, began: int) -> int | None:
        """Time from which the gang's room may go to the reserved gang; None for never.

        Args:
            gang: that runs, or would start.
            reserved: gang that has, or would get, the reservation.
            began: when the gang started or would start, whole seconds since the epoch.
        """
        if (
            not self.possible
            or gang.queue != reserved.queue
            or gang.priority >= reserved.priority
            or not all(pod.may_preempt for pod_set in reserved.pod_sets for pod in pod_set.pods)
        ):
            return None
        return evictable_from(self._session.snapshot, gang, began=began)

    def find_releases(
        self, reserved: Gang, running: Sequence[tuple[Gang, Release]]
    ) -> list[Release]:
        """Releases of running gangs that preemption could evict for the reserved gang.

        Args:
            reserved: gang that has, or would get, the reservation.
            running: gangs of its queue that run, each with what it leaves.
        """
        found, snapshot = [], self._session.snapshot
        for gang, room in running:
            if gang.priority >= reserved.priority:
                continue
            began = int(gang.started_at) or int(snapshot.now)
            ready = self.preemptible_from(gang, reserved, began=began)
            if ready is not None:
                found.append(
                    Release(ready, room.rows, room.amounts, gang.key, room.path, room.requests)
                )
        return found
