"""What there is to divide between queues and what they ask for, as the session found it.

Worked out once, when first asked for: shares that moved with every placement would be chased.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from gpusched.arrays.columns import exact_sums
from gpusched.cache.gangs import Gang
from gpusched.cache.queues import QueueNode
from gpusched.cache.snapshot import Snapshot
from gpusched.objects.resources import NOTHING, Resources, total
from gpusched.session.node_pools import Pools


class Demand:
    """See the module.

    Args:
        snapshot: of the session.
        pools: in which queues limit something; what is held and asked for there is counted
            beside the rest, by dimension.
    """

    def __init__(self, snapshot: Snapshot, pools: Pools | None = None) -> None:
        self._snapshot = snapshot
        self._pools = pools

    @cached_property
    def total(self) -> Resources:
        """Allocatable of ready, uncordoned nodes less what others' pods hold on them.

        Our own pods' use counts in: it is what is divided.
        """
        nodes = self._snapshot.nodes
        usable = np.array(
            [not node.not_ready and not node.unschedulable for node in nodes.nodes], dtype=np.bool_
        )
        offered = exact_sums(nodes.allocatable[usable])
        others = exact_sums(nodes.foreign[usable])
        return Resources.of(
            {
                name: max(0, offered[column] - others[column])
                for name, column in nodes.columns.items()
            }
        )

    @cached_property
    def requested(self) -> dict[str, Resources]:
        """Held, without those who leave, and waited for, by queue with all below it.

        A gang that cannot start whatever is free (its queue is frozen or stopped, takes no
        gangs, or does not exist) asks for nothing.
        """
        parts: dict[str, list[Resources]] = {}
        open_paths: dict[str, tuple[str, ...]] = {}
        for gang in self._snapshot.gangs:
            if not gang.tasks or gang.trouble[0]:
                continue
            path = open_paths.get(gang.queue)
            if path is None:
                path = open_paths[gang.queue] = self._open_path(gang)
            asked = gang.asked
            if self._pools is not None:
                asked = asked.plus(self._pools.asked_by(gang))
            for name in path:
                parts.setdefault(name, []).append(asked)
        return {
            name: self._staying(name, node).plus(total(parts.get(name, ())))
            for name, node in self._snapshot.queues.queues.items()
        }

    @cached_property
    def fixed(self) -> dict[str, Resources]:
        """The part of what is held, without those who leave, that nobody may take back."""
        sums: dict[str, Resources] = {}
        for gang in self._snapshot.active.values():
            if gang.terms.preemptible or not gang.held:
                continue
            node = self._snapshot.queues.get(gang.queue)
            kept = self.held(gang)
            for name in node.path if node else ():
                sums[name] = sums.get(name, NOTHING).plus(kept)
        return sums

    def held(self, gang: Gang) -> Resources:
        """What a gang holds, without its members being deleted."""
        kept = less(gang.held, gang.leaving_held)
        return kept if self._pools is None else kept.plus(self._pools.held_by(gang))

    def _staying(self, name: str, node: QueueNode) -> Resources:
        kept = less(node.allocated, node.leaving)
        if self._pools is None:
            return kept
        held = self._pools.held.get(name, NOTHING)
        return kept.plus(less(held, self._pools.leaving.get(name, NOTHING)))

    def _open_path(self, gang: Gang) -> tuple[str, ...]:
        queues = self._snapshot.queues
        node = queues.get(gang.queue)
        if node is None or node.trouble or not node.leaf:
            return ()
        if any(queues.queues[name].queue.stop_policy != "None" for name in node.path):
            return ()
        return node.path


def less(amounts: Resources, taken: Resources) -> Resources:
    """Amounts without what was taken of them, never below zero."""
    if not taken.items:
        return amounts
    gone = dict(taken.items)
    return Resources(tuple((n, max(0, amount - gone.get(n, 0))) for n, amount in amounts.items))
