"""Jobs, by the PodGroup that their pods name, and how long those took that are finished.

Nothing is remembered beyond the API: when a Job is deleted, its run is forgotten, and a daemon
that starts anew learns the same from the same list.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping

import attrs

from gpusched.api.gang.eviction_record import NO_EVICTIONS, later_evictions
from gpusched.api.gang.turn_record import later_turn
from gpusched.api.jobs.job import Job
from gpusched.api.meta.identity import ObjectKey, Rejected
from gpusched.api.queue.queue import DEFAULT_QUEUE
from gpusched.api.serializer.seal import Seal
from gpusched.cache.store import MovableStore

Kind = tuple[str, int]
"""Queue, and how many pods ran at a time."""


class JobStore(MovableStore[Job]):
    """Jobs, the lengths of those that completed, and those that name a PodGroup."""

    def __init__(self) -> None:
        super().__init__()
        self._runs: dict[Kind, list[int]] = {}
        self._changed: set[Kind] = set()
        self._shown: dict[Kind, tuple[int, ...]] = {}
        self._by_group: dict[ObjectKey, set[ObjectKey]] = {}
        self.doubted: dict[ObjectKey, Job] = {}
        """Jobs as they were read, where not all records on them are believed: a standby believes none."""

    def believe(self, key: ObjectKey, item: Job, seal: Seal) -> Job:
        """The Job as it counts, which is to be put; what was read is kept where that is less."""
        believed = believed_job(item, self.items.get(key), seal)
        if believed is item:
            self.doubted.pop(key, None)
        else:
            self.doubted[key] = item
        return believed

    def put(self, key: ObjectKey, item: Job | Rejected) -> None:
        """A Job appeared or changed."""
        self._forget(key)
        super().put(key, item)
        if not isinstance(item, Job):
            self.doubted.pop(key, None)
            return
        if item.ran_s:
            insort(self._runs.setdefault(_kind(item), []), item.ran_s)
            self._changed.add(_kind(item))
        if item.group:
            self._by_group.setdefault(ObjectKey(item.namespace, item.group), set()).add(key)

    def drop(self, key: ObjectKey) -> None:
        """A Job is gone."""
        self._forget(key)
        self.doubted.pop(key, None)
        super().drop(key)

    def job_runtimes(self) -> Mapping[Kind, tuple[int, ...]]:
        """Seconds of each run, ascending; the mapping handed out does not change."""
        if self._changed:
            new = {kind: tuple(self._runs.get(kind, ())) for kind in sorted(self._changed)}
            self._changed.clear()
            self._shown = {kind: runs for kind, runs in {**self._shown, **new}.items() if runs}
        return self._shown

    def of_group(self, group: ObjectKey) -> list[Job]:
        """Jobs whose pods name this PodGroup, sorted by key."""
        return [self.items[key] for key in sorted(self._by_group.get(group, ()))]

    def _forget(self, key: ObjectKey) -> None:
        known = self.items.get(key)
        if known is None:
            return
        if known.group:
            group = ObjectKey(known.namespace, known.group)
            self._by_group[group].discard(key)
            if not self._by_group[group]:
                del self._by_group[group]
        if not known.ran_s:
            return
        kind = _kind(known)
        runs = self._runs[kind]
        del runs[bisect_left(runs, known.ran_s)]
        if not runs:
            del self._runs[kind]
        self._changed.add(kind)


def _kind(job: Job) -> Kind:
    return (job.queue or DEFAULT_QUEUE, job.parallelism)


def believed_job(item: Job, known: Job | Rejected | None, seal: Seal) -> Job:
    """The Job without records that are not ours, and with the last turn and evictions of which we know.

    A tenant can take such annotations away; a start that nobody sealed is none.
    """
    if item.admitted and not seal.fits_start(item):
        item = attrs.evolve(item, admitted=0.0)
    turn, evictions = item.turn, item.evictions
    if turn is not None and not seal.fits_turn(item.uid, turn):
        turn = None
    if evictions.past and not seal.fits_evictions(item.uid, evictions):
        evictions = NO_EVICTIONS
    if isinstance(known, Job) and known.uid == item.uid:
        turn = later_turn(known.turn, turn)
        evictions = later_evictions(known.evictions, evictions)
    if turn is item.turn and evictions is item.evictions:
        return item
    return attrs.evolve(item, turn=turn, evictions=evictions)
