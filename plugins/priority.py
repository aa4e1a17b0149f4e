"""Higher priority first, but in line where a queue says so; who waited too long goes before all."""

from __future__ import annotations

from typing import ClassVar

import attrs

from gpusched.plugin import Gang, Hooks, Key, View

IN_LINE = ("Fifo", "StrictFifo")
"""Orderings in which the time of arrival alone counts."""


@attrs.frozen(kw_only=True)
class PriorityArgs:
    """What besides gangs is ordered by priority.

    Attributes:
        queues: queues too, before their shares are looked at. False leaves them to ``fairshare``,
            which looks at their priority after the question who is within its share.
    """

    queues: bool = False


@attrs.frozen
class Priority:
    """Orders the gangs of a queue: past the queue's ``maxWait``, earliest first; then by priority.

    In queues with the ordering ``Fifo`` or ``StrictFifo`` priority does not count.
    """

    name: ClassVar[str] = "priority"
    api: ClassVar[int] = 1
    args: PriorityArgs = PriorityArgs()

    def open(self, hooks: Hooks, view: View) -> None:
        """See the class."""

        def key(gang: Gang) -> Key:
            node = view.queue(gang.queue)
            if node is None:
                return (1, 0, -gang.priority)
            priority = 0 if node.queue.ordering in IN_LINE else -gang.priority
            deadline = _deadline(gang, view, node.path)
            if deadline is None or gang.placed:
                return (1, 0, priority)
            return (0, deadline, priority)

        if self.args.queues:
            hooks.queue_order(lambda node: (-node.queue.priority,))
        hooks.gang_order(key)


def _deadline(gang: Gang, view: View, path: tuple[str, ...]) -> int | None:
    """When it had waited for too long, microseconds since the epoch; None for not yet."""
    for name in path:
        node = view.queue(name)
        limit = node.queue.max_wait_ns if node is not None else 0
        if limit:
            due = int(gang.created * 1e6) + limit // 1000
            return due if due <= int(view.now * 1e6) else None
    return None
