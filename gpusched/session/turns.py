"""Whose turn it is: queues in the order of their keys, and in each its gangs.

After every turn only the queue that was served gets a new key. Where policies are silent,
queues take turns, and gangs go by age.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from sortedcontainers import SortedKeyList

from gpusched.cache.gangs import Gang
from gpusched.session.hooks import comparable
from gpusched.session.session import Session


def turns(session: Session, gangs: Iterable[Gang]) -> Iterator[Gang]:
    """Yield each gang once; keys of queues are asked again as shares change.

    A gang or queue whose key cannot be computed sits this session out.
    """
    lines: dict[str, list[Gang]] = {}
    for gang in gangs:
        lines.setdefault(gang.queue, []).append(gang)
    ordered: SortedKeyList[tuple[Any, str]] = SortedKeyList(key=lambda entry: entry[0])
    waiting: dict[str, list[Gang]] = {}
    for queue in sorted(lines):
        line = _in_order(session, lines[queue])
        key = _queue_key(session, queue, 0)
        if line and key is not None:
            waiting[queue] = line[::-1]
            ordered.add((key, queue))
    served: dict[str, int] = {}
    while ordered:
        _, queue = ordered.pop(0)
        yield waiting[queue].pop()
        served[queue] = served.get(queue, 0) + 1
        key = _queue_key(session, queue, served[queue])
        if waiting[queue] and key is not None:
            ordered.add((key, queue))


def _in_order(session: Session, gangs: list[Gang]) -> list[Gang]:
    keyed = []
    for gang in gangs:
        key = comparable(session.hooks.gang_orders, gang)
        if key is not None:
            keyed.append(((key, int(gang.created * 1e6), gang.key), gang))
    keyed.sort(key=lambda each: each[0])
    return [gang for _, gang in keyed]


def _queue_key(session: Session, name: str, served: int) -> tuple[Any, ...] | None:
    node = session.snapshot.queues.get(name)
    if node is None:
        return (1, name)
    key = comparable(session.hooks.queue_orders, node)
    return None if key is None else (0, key, served, int(node.queue.created), name)
