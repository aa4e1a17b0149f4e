"""What runs now as rows, amounts and ends: the part of a reservation that is bookkeeping."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from gpusched.arrays.columns import Demand, Ints, demand_of
from gpusched.cache.gangs import Gang
from gpusched.objects.pod import PodClass
from gpusched.objects.resources import Resources, total
from gpusched.objects.share import SHARED
from gpusched.objects.units import DEVICE
from gpusched.session.reservations_lengths import Lengths
from gpusched.session.reservations_profile import FOREVER, Profile, Release
from gpusched.session.rooms import Room
from gpusched.session.session import Session
from gpusched.session.statement import Evict, Place


class Books:
    """Turns gangs into releases.

    Args:
        session: whose nodes and gangs are meant.
        lengths: how long gangs run.
    """

    def __init__(self, session: Session, lengths: Lengths) -> None:
        self._session = session
        self._lengths = lengths
        self._width = session.snapshot.nodes.allocatable.shape[1]
        self._vectors: dict[str, Ints] = {}

    def profile(self) -> Profile:
        """Room over time as the session has it now, with what it started and promised."""
        session = self._session
        bench = session.bench
        releases = [
            room
            for gang in session.snapshot.active.values()
            if (end := self._lengths.end_of_running(gang)) < FOREVER
            and (room := self.running(gang, end)) is not None
        ]
        for gang, places in session.given_places():
            end = self._lengths.end_of_new(gang)
            if end < FOREVER:
                releases.append(self.placed(gang, places, end))
        return Profile(
            session.snapshot.nodes.allocatable,
            bench.staying,
            now=self._lengths.now,
            releases=releases,
        )

    def running(self, gang: Gang, time: int) -> Release | None:
        """The room of a gang's members that stay, free at a time; None when there is none."""
        room = self._kept(gang) if self._keeps(gang) else self._room(gang)
        if room is None:
            return None
        path = self._session.path(gang)
        return Release(time, room.rows, room.amounts, gang.key, path, room.charged)

    def _keeps(self, gang: Gang) -> bool:
        """Whether what it would leave depends on nothing else than its members' nodes."""
        session = self._session
        return session.accounts.pools is None and not (
            session.evicted and any(each.pod.uid in session.evicted for each in gang.placed)
        )

    def _kept(self, gang: Gang) -> Room | None:
        session = self._session
        if SHARED in gang.held:  # what a share leaves depends on others
            return self._room(gang)
        return session.masks.rooms.of(gang, session.snapshot.nodes, lambda: self._room(gang))

    def _room(self, gang: Gang) -> Room | None:
        row_of = self._session.snapshot.nodes.row
        evicted = self._session.evicted
        members = [
            (row_of[member.node], member.pod.pod_class)
            for member in gang.placed
            if member.node in row_of and member.pod.uid not in evicted
        ]
        if not members:
            return None
        return Room(
            np.array([row for row, _ in members], dtype=np.int64),
            np.array([self._vector(each, row) for row, each in members]),
            self._charged(members),
        )

    def placed(self, gang: Gang, places: Sequence[Place], time: int) -> Release:
        """The room of places given in this session, free at a time."""
        return Release(
            time,
            np.array([place.row for place in places], dtype=np.int64),
            np.array([self._vector(place.pod.pod_class, place.row) for place in places]),
            gang.key,
            self._session.path(gang),
            self._charged([(place.row, place.pod.pod_class) for place in places]),
        )

    def _charged(self, seats: Sequence[tuple[int, PodClass]]) -> Resources:
        """What queues are charged with for pods on these rows, in node pools too."""
        charged = total(pod_class.requests for _, pod_class in seats)
        pools = self._session.accounts.pools
        if pools is None:
            return charged
        return charged.plus(total(pools.charge(pod_class, row) for row, pod_class in seats))

    def by_row(self, parts: Iterable[tuple[int, Demand]]) -> dict[int, Ints]:
        """Amounts summed by row, shape (resources,)."""
        found: dict[int, Ints] = {}
        for row, ask in parts:
            amounts = found.get(row)
            if amounts is None:
                amounts = found[row] = np.zeros(self._width, dtype=np.int64)
            amounts[ask.columns] += ask.amounts
        return found

    def left_by(self, evictions: Iterable[Evict]) -> dict[int, Ints]:
        """What those who are evicted leave, summed by row, shape (resources,)."""
        found: dict[int, Ints] = {}
        for each in evictions:
            amounts = found.get(each.row)
            if amounts is None:
                amounts = found[each.row] = np.zeros(self._width, dtype=np.int64)
            amounts += self._vector(each.member.pod.pod_class, each.row)
        return found

    def held_by_gangs(self) -> Ints:
        """What gangs with a place hold on each row, which may end some day; as ``allocatable``."""
        held: Ints = np.zeros_like(self._session.snapshot.nodes.allocatable)
        for room in self._all_running():
            np.add.at(held, room.rows, room.amounts)
        return held

    def by_queue(self) -> dict[str, list[tuple[Release, Gang]]]:
        """Running gangs by queue; the time of each release is when the gang began."""
        found: dict[str, list[tuple[Release, Gang]]] = {}
        for _, gang in sorted(self._session.snapshot.active.items()):
            room = self.running(gang, int(gang.started) or self._lengths.now)
            if room is not None:
                found.setdefault(gang.queue, []).append((room, gang))
        return found

    def _all_running(self) -> Iterable[Release]:
        for gang in self._session.snapshot.active.values():
            room = self.running(gang, FOREVER)
            if room is not None:
                yield room

    def _vector(self, pod_class: PodClass, row: int) -> Ints:
        """What a pod that ends leaves free; of a shared GPU its own part, so never too much."""
        known = self._vectors.get(pod_class.digest)
        if known is None:
            ask = demand_of(pod_class, self._session.snapshot.nodes.columns)
            known = self._vectors[pod_class.digest] = self._of_ask(ask)
        if pod_class.share is None:
            return known
        mine = known.copy()
        column = self._session.snapshot.nodes.columns.get(SHARED)
        if column is not None:
            part = self._session.bench.parts_of(pod_class.share)[row]
            mine[column] = min(DEVICE, part)
        return mine

    def _of_ask(self, ask: Demand) -> Ints:
        vector: Ints = np.zeros(self._width, dtype=np.int64)
        vector[ask.columns] = ask.amounts
        return vector
