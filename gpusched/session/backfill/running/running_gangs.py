"""Gangs that run, with what each leaves and when: kept between sessions, changed where gangs changed.

A cluster runs many more gangs than start or end between two sessions. What a gang leaves depends on
itself, on its nodes and on what walltime hooks declare; as long as those stay, it is not worked out again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs

from gpusched.api.meta.identity import GangKey
from gpusched.api.queue.queue import Queue, same_spec
from gpusched.base.classes import frozen
from gpusched.cache.gangs.counting.placed_gangs import changed_keys
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.queues.tree import QueueTree
from gpusched.session.backfill.running.release_order import FOREVER, Release, ReleaseOrder
from gpusched.session.state.session import Session


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


RunsKey = tuple[str, int]
"""A queue, and how many pods a Job runs at a time."""


class RunningGangs:
    """What is known of gangs that run, for one session after another under one policy."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._placed: Mapping[GangKey, Gang] = {}
        self._nodes: tuple[Any, ...] = ()
        self._queues: dict[str, tuple[Queue, tuple[str, ...]]] = {}
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
        nodes = (snapshot.nodes.epoch, width, session.gpu_types)
        back = snapshot.unobserved_now < self._given_up_at
        if back or not self._same_nodes(nodes) or not self._same_queues(snapshot.queues):
            self._forget()
            self._nodes = nodes
            self._queues = {
                name: (node.queue, node.path) for name, node in snapshot.queues.queues.items()
            }
        placed = snapshot.placed_gangs
        changed = changed_keys(self._placed, placed)
        lengths = {
            key: length_of(placed[key])
            for key in sorted(self._with_other_runs(session) - changed)
            if key in self.known
        }
        changed |= {key for key, length in lengths.items() if length != self.known[key].length_s}
        self._placed = placed
        gone = [known for key in changed if (known := self._drop(key)) is not None]
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

    def _same_nodes(self, nodes: tuple[Any, ...]) -> bool:
        return (
            bool(self._nodes)
            and nodes[:2] == self._nodes[:2]
            and nodes[2] is self._nodes[2]
        )  # fmt: skip

    def _same_queues(self, tree: QueueTree) -> bool:
        if len(tree.queues) != len(self._queues):
            return False
        for name, node in tree.queues.items():
            known = self._queues.get(name)
            if known is None or known[1] != node.path:
                return False
            if known[0] is not node.queue:
                if not same_spec(known[0], node.queue):
                    return False
                self._queues[name] = (node.queue, node.path)
        return True

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
        self._by_queue.setdefault(gang.queue, {})[key] = known
        self._priorities.setdefault(gang.queue, Counter())[gang.priority] += 1
        if gang.job is not None:
            runs = (gang.queue, gang.job.parallelism)
            self._by_runs.setdefault(runs, set()).add(key)
            self._runs[runs] = session.snapshot.job_runtimes.get(runs, ())

    def _drop(self, key: GangKey) -> KnownRelease | None:
        self.others.discard(key)
        known = self.known.pop(key, None)
        if known is not None:
            gang = known.gang
            del self._by_queue[gang.queue][key]
            self._priorities[gang.queue] -= Counter([gang.priority])
            if gang.job is not None:
                self._by_runs[gang.queue, gang.job.parallelism].discard(key)
        return known
