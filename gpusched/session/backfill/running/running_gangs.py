"""Gangs that run, with what each leaves and when: kept between sessions, changed where gangs changed.

A cluster runs many more gangs than start or end between two sessions. What a gang leaves depends on
itself, on its nodes and on what walltime hooks declare; as long as those stay, it is not worked out again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Final

import attrs
import numpy as np

from gpusched.api.meta.identity import GangKey
from gpusched.api.queue.queue import Queue, same_spec
from gpusched.arrays.columns import Ints, NodeColumns
from gpusched.base.classes import frozen
from gpusched.cache.gangs.counting.placed_gangs import changed_keys
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.queues.tree import QueueTree
from gpusched.session.backfill.running.release_order import FOREVER, Release, ReleaseOrder
from gpusched.session.state.nodes.gpu_types import NodeGpuTypes
from gpusched.session.state.session import Session

_NO_ROWS: Final[Ints] = np.zeros(0, dtype=np.int64)
_PACKED_ANEW_FROM: Final = 8
"""Where an eighth of all gangs have arrays of their own, all rows are put into one."""


@frozen(slots=True, eq=False)
class KnownRelease:
    """A gang that runs.

    Attributes:
        room: what all its members leave, at the end that is known; FOREVER for none, and for one that is not believed any more.
        length_s: for how long it runs.
    """

    gang: Gang
    room: Release
    length_s: int


class _PackedRows:
    """Rows of many gangs in one array, of which each gang's release shows a part: so they are changed in one go.

    Args:
        known: by key.
    """

    def __init__(self, known: Mapping[GangKey, KnownRelease]) -> None:
        self._keys = list(known)
        counts = np.array([len(each.room.rows) for each in known.values()], dtype=np.int64)
        self._ends = np.cumsum(counts)
        self._rows = np.concatenate([_NO_ROWS, *(each.room.rows for each in known.values())])

    def parts(self) -> Iterable[Ints]:
        """The rows of each gang."""
        at = 0
        for end in self._ends.tolist():
            yield self._rows[at:end]
            at = end

    def move(self, moved: Ints) -> Iterable[GangKey]:
        """Change all rows in place; gangs of which a node is gone, also of earlier moves.

        Args:
            moved: by each old row the new one, -1 for a node that is gone; at last -1.
        """
        self._rows[:] = moved[self._rows]
        gone = np.searchsorted(self._ends, np.flatnonzero(self._rows < 0), side="right")
        return (self._keys[place] for place in gone.tolist())


RunsKey = tuple[str, int]
"""A queue, and how many pods a Job runs at a time."""


class RunningGangs:
    """What is known of gangs that run, for one session after another under one policy."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._placed: Mapping[GangKey, Gang] = {}
        self._nodes: NodeColumns | None = None
        self._width = 0
        self._types: NodeGpuTypes | None = None
        self._queues: dict[str, _Place] = {}
        self._runs: dict[RunsKey, tuple[int, ...]] = {}
        self._by_runs: dict[RunsKey, set[GangKey]] = {}
        self.known: dict[GangKey, KnownRelease] = {}
        self._given_up_at = 0
        """When an end was not believed any more for the last time, whole seconds since the epoch."""
        self._by_queue: dict[str, dict[GangKey, KnownRelease]] = {}
        self._priorities: dict[str, Counter[int]] = {}
        """How many gangs of each queue have each priority."""
        self.order = ReleaseOrder(())
        """Releases of all gangs that are known, of known end."""
        self._packed = _PackedRows({})
        self._loose: set[GangKey] = set()
        """Gangs that are known, with rows of their own."""
        self._in_part: set[GangKey] = set()
        """Gangs that are known, with members on nodes that nobody knew."""
        self.others: set[GangKey] = set()
        """Gangs with a place that each session has to look at itself."""

    def of_queue(self, queue: str) -> Iterable[KnownRelease]:
        """Gangs of a queue that are known, in any order."""
        return self._by_queue.get(queue, {}).values()

    def runs_below(self, queue: str, priority: int) -> bool:
        """Whether a gang of a queue that is known has a lower priority."""
        return any(each < priority for each in self._priorities.get(queue, ()))

    def give_up(self, rooms: Sequence[Release], now: int) -> None:
        """Ends of gangs that are late are not believed any more, whatever comes, as long as the gangs stay as they are.

        Args:
            rooms: of ``order``.
            now: whole seconds since the epoch.
        """
        for room in rooms:
            known = self.known[room.gang]
            left = attrs.evolve(known, room=attrs.evolve(room, time=FOREVER))
            self.known[room.gang] = self._by_queue[known.gang.queue][room.gang] = left
            self._given_up_at = now
        self.order = self.order.with_changes(rooms, ())

    def refresh(
        self,
        session: Session,
        width: int,
        look: Callable[[Gang], KnownRelease | None],
        length_of: Callable[[Gang], int | None],
    ) -> None:
        """Look again at gangs that changed since the last session, and at all where what they rest on did.

        Args:
            session: of this moment.
            width: columns of amounts.
            look: what is to be known of a gang; None for one that each session has to look at itself.
            length_of: seconds that a gang runs; None where that cannot be told.
        """
        snapshot = session.snapshot
        if snapshot.placed_gangs is self._placed and not self._placed:
            self.order = ReleaseOrder(())  # arrays of the last one may have other columns
            return
        if snapshot.unobserved_now < self._given_up_at:
            self._forget()
        stale = self._follow_nodes(snapshot.nodes, width, session.gpu_types)
        stale |= self._follow_queues(snapshot.queues)
        placed = snapshot.placed_gangs
        changed = changed_keys(self._placed, placed) | stale
        lengths = {
            key: length_of(placed[key])
            for key in sorted(self._with_other_runs(session) - changed)
            if key in self.known
        }
        changed |= {key for key, length in lengths.items() if length != self.known[key].length_s}
        self._placed = placed
        there = (key for key in changed if key in self.known or key in self.others)
        gone = [known for key in there if (known := self._drop(key)) is not None]
        more = []
        for key in sorted(changed):
            gang = placed.get(key)
            failed = lengths.get(key, 0) is None
            known = None if gang is None or failed else look(gang)
            if known is not None:
                self._keep(session, key, known)
                more.append(known)
            elif gang is not None:
                self.others.add(key)
        self.order = self.order.with_changes(
            [each.room for each in gone if each.room.ends], [e.room for e in more if e.room.ends]
        )
        self.order.arrays(width)

    def _follow_nodes(self, nodes: NodeColumns, width: int, types: NodeGpuTypes) -> set[GangKey]:
        """Give what is known the rows that nodes have now; gangs to be looked at again, as nodes of theirs came or went.

        All is forgotten where amounts have other columns, or nodes that stay have GPUs of another type.
        """
        old, old_types = self._nodes, self._types
        stay = old is not None and old.columns == nodes.columns and self._width == width
        moved = None
        if stay and old is not None and old.epoch != nodes.epoch:
            moved = np.array([nodes.row.get(name, -1) for name in old.row], dtype=np.int64)
            stay = old_types is not None and _same_types(old_types, types, moved)
        elif stay:
            stay = old_types is types
        if not stay:
            self._forget()
        self._nodes, self._width, self._types = nodes, width, types
        if not stay or old is None or moved is None:
            return set()
        stale = self.others | self._in_part
        if (moved != np.arange(len(moved))).any():
            stale |= self._move_rows(moved)
        return stale

    def _move_rows(self, moved: Ints) -> set[GangKey]:
        """Give all that is known other rows; gangs of which a node is gone.

        Args:
            moved: by each old row the new one, -1 for a node that is gone.
        """
        if len(self._loose) * _PACKED_ANEW_FROM > len(self.known):
            self._pack_rows()
        moved = np.append(moved, -1)
        gone = {
            key for key in self._packed.move(moved) if key in self.known and key not in self._loose
        }
        for key in self._loose:
            rows = self.known[key].room.rows
            rows[:] = moved[rows]
            if (rows < 0).any():
                gone.add(key)
        self.order = self.order.with_rows(moved)
        return gone

    def _pack_rows(self) -> None:
        self._packed, self._loose = _PackedRows(self.known), set()
        rooms = dict[int, Release]()
        for (key, known), rows in zip(list(self.known.items()), self._packed.parts(), strict=True):
            room, gang = known.room, known.gang
            there = rooms[id(room)] = Release(
                room.time, rows, room.amounts, room.gang, room.path, room.requests
            )
            self.known[key] = self._by_queue[gang.queue][key] = KnownRelease(
                gang, there, known.length_s
            )
        self.order = self.order.with_releases(rooms)

    def _follow_queues(self, tree: QueueTree) -> set[GangKey]:
        """Gangs to be looked at again, as their queue or one above it is not what it was."""
        before = self._queues
        self._queues = {name: (node.queue, node.path) for name, node in tree.queues.items()}
        other = {
            name
            for name in before.keys() | self._queues.keys()
            if not _same_place(before.get(name), self._queues.get(name))
        }
        if not other:
            return set()
        found = set(self.others)
        for queue, gangs in self._by_queue.items():
            paths = (known[1] for known in (before.get(queue), self._queues.get(queue)) if known)
            if not other.isdisjoint(chain((queue,), *paths)):
                found.update(gangs)
        return found

    def _with_other_runs(self, session: Session) -> set[GangKey]:
        """Gangs whose length may have been learned from runs that are others now."""
        now, found = session.snapshot.job_runtimes, set[GangKey]()
        for key, keys in self._by_runs.items():
            runs = now.get(key, ())
            if runs != self._runs[key]:
                self._runs[key] = runs
                found |= keys
        return found

    def _keep(self, session: Session, key: GangKey, known: KnownRelease) -> None:
        gang = known.gang
        self.known[key] = known
        self._loose.add(key)
        if len(known.room.rows) != len(gang.placed):
            self._in_part.add(key)
        self._by_queue.setdefault(gang.queue, {})[key] = known
        priorities = self._priorities.get(gang.queue)
        if priorities is None:
            priorities = self._priorities[gang.queue] = Counter()
        priorities[gang.priority] += 1
        if gang.job is not None:
            runs = (gang.queue, gang.job.parallelism)
            self._by_runs.setdefault(runs, set()).add(key)
            self._runs[runs] = session.snapshot.job_runtimes.get(runs, ())

    def _drop(self, key: GangKey) -> KnownRelease | None:
        for keys in (self.others, self._loose, self._in_part):
            keys.discard(key)
        known = self.known.pop(key, None)
        if known is not None:
            gang = known.gang
            del self._by_queue[gang.queue][key]
            self._priorities[gang.queue] -= Counter([gang.priority])
            if gang.job is not None:
                self._by_runs[gang.queue, gang.job.parallelism].discard(key)
        return known


_Place = tuple[Queue, tuple[str, ...]]
"""A queue, and its path up to the root."""


def _same_place(one: _Place | None, other: _Place | None) -> bool:
    """Whether a queue has the same spec and path; None where it is not there."""
    if one is None or other is None:
        return one is other
    return one[1] == other[1] and (one[0] is other[0] or same_spec(one[0], other[0]))


def _same_types(old: NodeGpuTypes, new: NodeGpuTypes, moved: Ints) -> bool:
    """Whether nodes that stay have GPUs of the type that they had: by each old row the new one, -1 for a node that is gone."""
    there = moved >= 0
    return old.names == new.names and bool((old.of_row[there] == new.of_row[moved[there]]).all())
