"""The tree of queues. A bad queue freezes its own subtree and says why; the rest goes on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from gpusched.limits import QUEUE_DEPTH_MAX, TEXT_MAX
from gpusched.objects.group import DEFAULT_QUEUE, ROOT, Queue
from gpusched.objects.meta import UID, Rejected, ResourceVersion
from gpusched.objects.resources import NOTHING, Resources

BUILT_IN = Queue(
    name=DEFAULT_QUEUE, uid=UID(""), resource_version=ResourceVersion(""), generation=0, created=0.0
)
"""The queue of those who name none; an object of that name replaces it."""


@attrs.frozen(slots=True, eq=False)
class QueueNode:
    """A queue in its place.

    Attributes:
        path: names from the queue itself up to, and without, ``root``.
        trouble: why nothing may start in it, empty when all is well.
        allocated: requests of pods with a place, of the whole subtree.
        leaving: the part of it that belongs to pods being deleted.
    """

    queue: Queue
    path: tuple[str, ...]
    leaf: bool
    trouble: str
    allocated: Resources
    leaving: Resources = NOTHING


@attrs.frozen(slots=True, eq=False)
class QueueTree:
    """Every queue by name, sorted."""

    queues: Mapping[str, QueueNode]

    def get(self, name: str) -> QueueNode | None:
        """The queue of that name."""
        return self.queues.get(name)


def build_tree(
    queues: Iterable[Queue],
    allocated: Mapping[str, Resources],
    rejected: Iterable[Rejected] = (),
    *,
    leaving: Mapping[str, Resources] | None = None,
) -> QueueTree:
    """Put queues in their places.

    Args:
        queues: as the API shows them, in any order.
        allocated: held by gangs that name the queue, by name.
        rejected: queues that cannot be believed; they keep their names, and nothing starts.
        leaving: the part of ``allocated`` that belongs to pods being deleted.
    """
    known = {queue.name: queue for queue in queues if queue.name != ROOT}
    bad = {each.key.name: each for each in rejected if each.key.name != ROOT}
    for name, each in bad.items():
        known[name] = Queue(
            name=name,
            uid=each.uid,
            resource_version=each.resource_version,
            generation=each.generation,
            created=0.0,
        )
    known.setdefault(DEFAULT_QUEUE, BUILT_IN)
    parents = {queue.parent for queue in known.values()}
    sums: dict[str, Resources] = {}
    going: dict[str, Resources] = {}
    places: dict[str, tuple[tuple[str, ...], str]] = {}
    for name in sorted(known):
        path, trouble = _path(name, known)
        broken = next((bad[above] for above in path if above in bad), None)
        if broken is not None:
            why = f"{broken.field}: {broken.why}"
            trouble = f"queue {broken.key.name!r} cannot be used: {why}"[:TEXT_MAX]
        places[name] = (path, trouble)
        held = allocated.get(name, NOTHING)
        for above in path:
            sums[above] = sums.get(above, NOTHING).plus(held)
            if leaving and name in leaving:
                going[above] = going.get(above, NOTHING).plus(leaving[name])
    return QueueTree(
        {
            name: QueueNode(
                known[name],
                path,
                name not in parents,
                trouble,
                sums.get(name, NOTHING),
                going.get(name, NOTHING),
            )
            for name, (path, trouble) in places.items()
        }
    )


def _path(name: str, known: Mapping[str, Queue]) -> tuple[tuple[str, ...], str]:
    path: list[str] = []
    here = name
    while here != ROOT:
        if here in path:
            ring = " -> ".join([*path[path.index(here) :], here])
            return tuple(path), f"queues form a cycle: {ring}; change one spec.parent"
        if here not in known:
            return tuple(path), f"parent queue {here!r} of {path[-1]!r} does not exist; create it"
        path.append(here)
        if len(path) > QUEUE_DEPTH_MAX:
            return tuple(path), f"queue {name!r} is deeper than {QUEUE_DEPTH_MAX} levels"
        here = known[here].parent
    return tuple(path), _own_trouble(path, known)


def _own_trouble(path: list[str], known: Mapping[str, Queue]) -> str:
    for name in path:
        queue = known[name]
        for smaller, larger, words in (
            (queue.guarantee, queue.deserved, ("guarantee", "deserved")),
            (queue.guarantee, queue.capability, ("guarantee", "capability")),
            (queue.deserved, queue.capability, ("deserved", "capability")),
        ):
            for resource, amount in smaller.items:
                if resource in larger and amount > larger.get(resource):
                    return f"queue {name!r}: {words[0]} of {resource} is above {words[1]}"
    return ""
