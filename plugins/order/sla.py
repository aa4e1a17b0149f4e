"""No gang waits for ever: past its queue's ``maxWait`` it is next, and room is reserved for it."""

from __future__ import annotations

from typing import ClassVar

import attrs

from gpusched.plugin import Gang, Hooks, View

_NS = 10**9


@attrs.frozen
class Sla:
    """Gangs that waited longer than ``maxWait`` go first in their queue, the earliest deadline first.

    The limit is the queue's own, or that of the nearest queue above that has one. Gangs that
    run already ask for members they lost or for more; they do not wait.
    """

    name: ClassVar[str] = "sla"
    api: ClassVar[int] = 1

    def open(self, hooks: Hooks, view: View) -> None:
        """See the class. Where no queue has a limit there is nothing to ask."""
        if not any(node.queue.max_wait_ns for node in view.queues()):
            return
        limits: dict[str, int] = {}

        def deadline(gang: Gang) -> int:
            limit = limits.get(gang.queue)
            if limit is None:
                limit = limits[gang.queue] = _max_wait_ns(gang.queue, view)
            return int(gang.waits_since) + limit // _NS if limit and not gang.placed else 0

        def order(gang: Gang) -> tuple[int, int]:
            due = deadline(gang)
            return (0, due) if due and due <= view.now else (1, 0)

        hooks.gang_order(order)
        hooks.waits_too_long(lambda gang: 0 < deadline(gang) <= view.now)


def _max_wait_ns(queue: str, view: View) -> int:
    leaf = view.queue(queue)
    for name in leaf.path if leaf else ():
        node = view.queue(name)
        if node is not None and node.queue.max_wait_ns:
            return node.queue.max_wait_ns
    return 0
