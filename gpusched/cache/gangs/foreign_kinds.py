"""What is known of other projects' kinds: where they are, whose object counts, their owners."""

from __future__ import annotations

from collections.abc import Callable

from gpusched.api.foreign.kinds import SOURCES, ServedForeignKind
from gpusched.api.foreign.workload import ForeignWorkload
from gpusched.api.gang.pod_group import PodGroup
from gpusched.api.meta.identity import ObjectKey, Rejected
from gpusched.api.queue.queue import Queue
from gpusched.cache.gangs.gang_index import GangIndex
from gpusched.cache.store import LayeredStore


class ForeignKinds:
    """See the module.

    Args:
        families: the gangs that depend on workloads.
        groups: told of the PodGroup that counts for a key, or that there is none.
        queues: the same of queues.
        changed: called when gangs may have changed.
    """

    def __init__(
        self,
        families: GangIndex,
        *,
        groups: tuple[
            Callable[[ObjectKey, PodGroup | Rejected], None], Callable[[ObjectKey], None]
        ],
        queues: tuple[Callable[[ObjectKey, Queue | Rejected], None], Callable[[ObjectKey], None]],
        changed: Callable[[], None],
    ) -> None:
        self._families = families
        self._changed = changed
        self.groups = LayeredStore(SOURCES, put=groups[0], drop=groups[1])
        self.queues = LayeredStore(SOURCES, put=queues[0], drop=queues[1])
        self.served: dict[tuple[str, str], ServedForeignKind] = {}
        """Where groups and queues are, by kind and source."""

    def put_workload(self, kind: str, key: ObjectKey, item: ForeignWorkload | Rejected) -> None:
        """A controller's object appeared or changed; most changes are of its status alone."""
        shelf = self._families.workloads[kind]
        same = not isinstance(item, Rejected) and shelf.items.get(key) == item
        shelf.put(key, item)
        if not same:
            self._families.mark_workload_changed(kind, key)
            self._changed()

    def drop_workload(self, kind: str, key: ObjectKey) -> None:
        """A controller's object is gone."""
        self._families.workloads[kind].drop(key)
        self._families.mark_workload_changed(kind, key)
        self._changed()

    def set_read(self, kinds: frozenset[str]) -> None:
        """These kinds of workloads are read from now on, and no others."""
        changed = self._families.read ^ kinds
        if changed:
            self._families.read = kinds
            self._families.mark_kinds_changed(changed)
            self._changed()
