"""What the names of node pools mean: the same nodes in every queue that uses one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpusched.api.queue.queue import Queue
from gpusched.base.limits import FOREIGN_TEXT_MAX

Labels = tuple[tuple[str, str], ...]
"""Pairs of label and value, sorted."""


def node_pool_labels(queues: Iterable[Queue]) -> dict[str, tuple[Labels, str]]:
    """Labels of each pool's nodes, and the queue that says so: the first that names it, by name."""
    defined: dict[str, tuple[Labels, str]] = {}
    for queue in sorted((each for each in queues if each.node_pools), key=lambda each: each.name):
        for pool in queue.node_pools:
            defined.setdefault(pool.name, (pool.node_selector, queue.name))
    return defined


def conflicting_pools_message(queue: Queue, defined: Mapping[str, tuple[Labels, str]]) -> str:
    """Which pools mean other nodes than the queue says, as a sentence; empty for none."""
    told = []
    for pool in queue.node_pools:
        labels, owner = defined[pool.name]
        if pool.node_selector != labels:
            told.append(
                f"node pool {pool.name[:FOREIGN_TEXT_MAX]!r} means nodes with {_labels_text(labels)}, as "
                f"queue {owner!r} says, and not those with {_labels_text(pool.node_selector)}"
            )
    return "; ".join(told)


def _labels_text(labels: Labels) -> str:
    named = [f"{key}={value}"[:FOREIGN_TEXT_MAX] for key, value in labels[:3]]
    return ", ".join(named) + (", ..." if len(labels) > len(named) else "") or "any labels"
