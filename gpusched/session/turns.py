"""Whose turn it is: down the tree of queues by their keys, and in each leaf its gangs.

Queues are compared with their siblings only: among the children of ``root`` first, then among
those of the one that won. A queue stands there with the gang that would be served from it.
After every turn only the queues on the path that was served get new keys. Where policies are
silent, siblings take turns, and gangs go by age.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from sortedcontainers import SortedKeyList

from gpusched.cache.gangs import Gang
from gpusched.cache.queues import QueueNode
from gpusched.objects.meta import GangKey
from gpusched.session.keys import comparable
from gpusched.session.session import Session


class _Branch:
    """A queue with gangs below it: its own line, or its children in the order of their keys."""

    def __init__(self, name: str, node: QueueNode | None) -> None:
        self.name = name
        self.node = node
        self.line: list[Gang] = []
        """Those that came first, until they are sorted."""
        self.queued: SortedKeyList[tuple[Any, Gang]] = SortedKeyList(key=lambda each: each[0])
        """Gangs in the order of their turns."""
        self.below: dict[str, _Branch] = {}
        self.served = 0
        self._lent = False
        self._ordered: SortedKeyList[tuple[Any, _Branch]] = SortedKeyList(key=lambda each: each[0])

    def sort(self, session: Session) -> None:
        """Put everything below in order."""
        self.queued.update(_in_order(session, self.line))
        for _, child in sorted(self.below.items()):
            child.sort(session)
            self._enter(session, child)

    def _enter(self, session: Session, child: _Branch) -> None:
        gang = child.peek()
        key = child.key(session, gang) if gang is not None else None
        if key is not None:
            self._ordered.add((key, child))

    def peek(self) -> Gang | None:
        """The gang that would be served next."""
        if self.queued:
            gang: Gang = self.queued[0][1]
            return gang
        return self._ordered[0][1].peek() if self._ordered else None

    def take(self) -> Gang:
        """Serve one. ``put_back`` must follow before anything else is asked."""
        self.served += 1
        self._lent = not self.queued
        if self.queued:
            gang: Gang = self.queued.pop(0)[1]
            return gang
        best: _Branch = self._ordered[0][1]
        return best.take()

    def put_back(self, session: Session) -> None:
        """Give the path that was served its new keys."""
        if not self._lent:
            return
        _, child = self._ordered.pop(0)
        child.put_back(session)
        self._enter(session, child)

    def key(self, session: Session, gang: Gang) -> tuple[Any, ...] | None:
        """Among its siblings; None when it sits out."""
        if self.node is None:
            return (1, self.name)
        key = self._asked(session, self.node, gang)
        if key is None:
            return None
        return (0, key, self.served, int(self.node.queue.created), self.name)

    def _asked(self, session: Session, node: QueueNode, gang: Gang) -> Any:
        """What policies say; asked again only when accounts have moved since."""
        version = session.accounts.state()
        known = session.turn_keys.get((self.name, gang.key))
        if known is None or known[0] != version:
            known = (version, comparable(session.hooks.queue_orders, node, gang))
            session.turn_keys[self.name, gang.key] = known
        return known[1]


def turns(
    session: Session, gangs: Iterable[Gang], *, again: Callable[[Gang], bool] | None = None
) -> Iterator[Gang]:
    """Yield each gang once; keys of queues are asked again as shares change.

    A gang or queue whose key cannot be computed sits this session out.

    Args:
        session: whose policies order.
        gangs: that wait for a turn.
        again: asked after each turn; a gang for which it is true gets another, after those of
            equal right that had fewer.
    """
    root = _Branch("", None)
    leaves: dict[str, _Branch] = {}
    for gang in gangs:
        leaf = leaves.get(gang.queue)
        if leaf is None:
            leaf = leaves[gang.queue] = _leaf(session, root, gang.queue)
        leaf.line.append(gang)
    root.sort(session)
    had: Counter[GangKey] = Counter()
    while root.peek() is not None:
        gang = root.take()
        yield gang
        if again is not None and again(gang):
            had[gang.key] += 1
            leaves[gang.queue].queued.update(_in_order(session, [gang], turn=had[gang.key]))
        root.put_back(session)


def _leaf(session: Session, root: _Branch, name: str) -> _Branch:
    queues = session.snapshot.queues
    node = queues.get(name)
    # What is wrong with its place in the tree says nothing about where its turn is.
    path = node.path if node is not None and not node.trouble else (name,)
    here = root
    for each in reversed(path):
        if each not in here.below:
            here.below[each] = _Branch(each, queues.get(each))
        here = here.below[each]
    return here


def _in_order(session: Session, gangs: list[Gang], *, turn: int = 0) -> list[tuple[Any, Gang]]:
    keyed = []
    for gang in gangs:
        key = _gang_key(session, gang)
        if key is not None:
            keyed.append(((key, turn, int(gang.created * 1e6), gang.key), gang))
    return keyed


def _gang_key(session: Session, gang: Gang) -> Any:
    """What policies say of a gang; asked again only when accounts have moved since."""
    version = session.accounts.state()
    known = session.turn_keys.get(("", gang.key))
    if known is None or known[0] != version:
        known = (version, comparable(session.hooks.gang_orders, gang))
        session.turn_keys["", gang.key] = known
    return known[1]
