"""Higher priority first, but in line where a queue says so."""

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
            which looks at their priority only among queues within their shares.
    """

    queues: bool = False


@attrs.frozen
class Priority:
    """Orders the gangs of a queue by their priority.

    In queues with the ordering ``Fifo`` or ``StrictFifo`` priority does not count.
    """

    name: ClassVar[str] = "priority"
    api: ClassVar[int] = 1
    args: PriorityArgs = PriorityArgs()

    def open(self, hooks: Hooks, view: View) -> None:
        """Register the keys of gangs and, if asked for, of queues by priority."""

        def key(gang: Gang) -> Key:
            node = view.queue(gang.queue)
            in_line = node is not None and node.queue.ordering in IN_LINE
            return (0 if in_line else -gang.priority,)

        if self.args.queues:
            hooks.queue_order(lambda node: (-node.queue.priority,))
        hooks.gang_order(key, alike=True)
