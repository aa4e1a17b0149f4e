"""How long Jobs took that are finished and still to be seen: what is learned about the next ones.

Nothing is remembered beyond the API: when a Job is deleted, its run is forgotten, and a daemon
that starts anew learns the same from the same list.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping

from gpusched.api.jobs.job import Job
from gpusched.api.meta.identity import ObjectKey, Rejected
from gpusched.api.queue.queue import DEFAULT_QUEUE
from gpusched.cache.store import KindStore

Kind = tuple[str, int]
"""Queue, and how many pods ran at a time."""


class JobStore(KindStore[Job]):
    """Jobs, and the lengths of those that completed."""

    def __init__(self) -> None:
        super().__init__()
        self._runs: dict[Kind, list[int]] = {}
        self._changed: set[Kind] = set()
        self._shown: dict[Kind, tuple[int, ...]] = {}

    def put(self, key: ObjectKey, item: Job | Rejected) -> None:
        """A Job appeared or changed."""
        self._forget(key)
        super().put(key, item)
        if isinstance(item, Job) and item.ran_s:
            insort(self._runs.setdefault(_kind(item), []), item.ran_s)
            self._changed.add(_kind(item))

    def drop(self, key: ObjectKey) -> None:
        """A Job is gone."""
        self._forget(key)
        super().drop(key)

    def runs(self) -> Mapping[Kind, tuple[int, ...]]:
        """Seconds of each run, ascending; the mapping handed out does not change."""
        if self._changed:
            new = {kind: tuple(self._runs.get(kind, ())) for kind in sorted(self._changed)}
            self._changed.clear()
            self._shown = {kind: runs for kind, runs in {**self._shown, **new}.items() if runs}
        return self._shown

    def _forget(self, key: ObjectKey) -> None:
        known = self.items.get(key)
        if known is None or not known.ran_s:
            return
        kind = _kind(known)
        runs = self._runs[kind]
        del runs[bisect_left(runs, known.ran_s)]
        if not runs:
            del self._runs[kind]
        self._changed.add(kind)


def _kind(job: Job) -> Kind:
    return (job.queue or DEFAULT_QUEUE, job.parallelism)
