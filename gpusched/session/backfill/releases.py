"""What runs now as rows, amounts and ends: the part of a reservation that is bookkeeping."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from gpusched.api.devices.gpu_share import shared_resource
from gpusched.api.meta.resources import Resources, total
from gpusched.api.meta.units import DEVICE
from gpusched.api.pod.pod import Pod, PodClass
from gpusched.arrays.columns import Ints, RequestVector, pod_class_vector
from gpusched.cache.gangs.gang import Gang
from gpusched.session.backfill.availability_profile import FOREVER, AvailabilityProfile, Release
from gpusched.session.backfill.waiting_devices import WaitingDevices, waiting_devices
from gpusched.session.backfill.walltimes import Walltimes
from gpusched.session.framework.plugin import Capability
from gpusched.session.state.nodes.windows.evictability import evictable_from
from gpusched.session.state.session import Session
from gpusched.session.state.session_cache import GangUsage
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
        node_usage = session.node_usage
        releases = [
            room
            for gang in session.snapshot.placed_gangs.values()
            if (end := self._walltimes.end_of_running(gang)) < FOREVER
            and (room := self.release_of_running(gang, end)) is not None
        ]
        for gang, places in session.placements.by_gang_with_nominations():
            end = self._walltimes.end_if_started_now(gang)
            if end < FOREVER:
                releases.append(self.release_of_placed(gang, places, end))
        return AvailabilityProfile(
            self._devices.allocatable_amounts(session.snapshot.nodes.allocatable),
            self._devices.staying_amounts(node_usage.staying),
            now=self._walltimes.now,
            releases=releases,
        )

    def release_of_running(self, gang: Gang, time: int) -> Release | None:
        """Release of a gang's members that stay, at a time; None when none stay."""
        room = (
            self._remaining_usage(gang) if self._is_cacheable(gang) else self._usage_of_room(gang)
        )
        if room is None:
            return None
        path = self._session.queue_path(gang)
        amounts = self._devices.freed_amounts(room.amounts, self._staying_members(gang))
        return Release(time, room.rows, amounts, gang.key, path, room.charged)

    def _is_cacheable(self, gang: Gang) -> bool:
        """Whether what it would leave depends on nothing else than its members' nodes."""
        session = self._session
        return session.queue_accounts.pools is None and not (
            session.nominations.evicted
            and any(each.pod.uid in session.nominations.evicted for each in gang.placed)
        )

    def _remaining_usage(self, gang: Gang) -> GangUsage | None:
        session = self._session
        if shared_resource() in gang.allocated:  # what a share leaves depends on others
            return self._usage_of_room(gang)
        return session.cache.gang_usage.get_or_make(
            gang, session.snapshot.nodes, lambda: self._usage_of_room(gang)
        )

    def _usage_of_room(self, gang: Gang) -> GangUsage | None:
        members = [(row, pod.pod_class) for row, pod in self._staying_members(gang)]
        if not members:
            return None
        return GangUsage(
            np.array([row for row, _ in members], dtype=np.int64),
            np.array([self._amounts_of_pod(each, row) for row, each in members]),
            self._charged_amounts(members),
        )

    def _staying_members(self, gang: Gang) -> list[tuple[int, Pod]]:
        """Members that stay, with the rows of their nodes."""
        row_of = self._session.snapshot.nodes.row
        evicted = self._session.nominations.evicted
        return [
            (row_of[member.node], member.pod)
            for member in gang.placed
            if member.node in row_of and member.pod.uid not in evicted
        ]

    def release_of_placed(self, gang: Gang, places: Sequence[Assignment], time: int) -> Release:
        """Release of places given in this session, at a time."""
        return Release(
            time,
            np.array([place.row for place in places], dtype=np.int64),
            self._devices.freed_amounts(
                np.array(
                    [self._amounts_of_pod(place.pod.pod_class, place.row) for place in places]
                ),
                [(place.row, place.pod) for place in places],
            ),
            gang.key,
            self._session.queue_path(gang),
            self._charged_amounts([(place.row, place.pod.pod_class) for place in places]),
        )

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
        for room in self._releases_of_running_gangs():
            np.add.at(held, room.rows, room.amounts)
        return held

    def by_queue(self) -> dict[str, list[tuple[Release, Gang]]]:
        """Running gangs by queue; the time of each release is when the gang began."""
        found: dict[str, list[tuple[Release, Gang]]] = {}
        for _, gang in sorted(self._session.snapshot.placed_gangs.items()):
            room = self.release_of_running(gang, int(gang.started_at) or self._walltimes.now)
            if room is not None:
                found.setdefault(gang.queue, []).append((room, gang))
        return found

    def _releases_of_running_gangs(self) -> Iterable[Release]:
        for gang in self._session.snapshot.placed_gangs.values():
            room = None if _serves(gang) else self.release_of_running(gang, FOREVER)
            if room is not None:
                yield room

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
        self._possible = Capability.PREEMPTION in session.capabilities

    def preemptible_from(self, gang: Gang, reserved: Gang, *, began: int) -> int | None:
        """Time from which the gang's room may go to the reserved gang; None for never.

        Args:
            gang: that runs, or would start.
            reserved: gang that has, or would get, the reservation.
            began: when the gang started or would start, whole seconds since the epoch.
        """
        if (
            not self._possible
            or gang.queue != reserved.queue
            or gang.priority >= reserved.priority
            or not all(pod.may_preempt for pod_set in reserved.pod_sets for pod in pod_set.pods)
        ):
            return None
        return evictable_from(self._session.snapshot, gang, began=began)

    def find_releases(
        self, reserved: Gang, known: dict[str, list[tuple[Release, Gang]]]
    ) -> list[Release]:
        """Releases of running gangs that preemption could evict for the reserved gang.

        Args:
            reserved: gang that has, or would get, the reservation.
            known: running gangs by queue, each with its room and the time when it started.
        """
        found = []
        for room, gang in known.get(reserved.queue, ()):
            ready = self.preemptible_from(gang, reserved, began=room.time)
            if ready is not None:
                found.append(
                    Release(ready, room.rows, room.amounts, gang.key, room.path, room.requests)
                )
        return found
