"""Whose turn it is: down the tree of queues by their keys, and in each leaf its gangs.

Queues are compared with their siblings only: among the children of ``root`` first, then among
those of the one that won. A queue stands there with the gang that would be served from it.
After every turn only the queues on the path that was served get new keys. Where policies are
silent, siblings take turns, and gangs go by how long they have waited since their last turn.
"""

from __future__ import annotations

from bisect import insort_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import Any, Final

from gpusched.api.meta.identity import GangKey
from gpusched.cache.gangs.expected_pods import is_started_job
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.queues.tree import QueueNode
from gpusched.session.allocate.gang_repair import is_broken
from gpusched.session.state.order.waiting_turns import TurnFirst, WaitingTurn
from gpusched.session.state.session import Session

_SORT_KEY: Final = itemgetter(0)


class _QueueBranch:
    """A queue with gangs below it: its own line, or its children in the order of their keys."""

    def __init__(self, name: str, node: QueueNode | None) -> None:
        self.name = name
        self.node = node
        self.line: list[Gang] = []
        """Those that came first, until they are sorted."""
        self.queued: list[tuple[Any, Gang]] = []
        """Gangs in the order of their turns; those before ``_next`` had theirs."""
        self.below: dict[str, _QueueBranch] = {}
        self.served = 0
        self._next = 0
        self.ordered: list[tuple[Any, _QueueBranch]] = []
        """Queues below in which somebody waits, behind their keys."""

    def sort_children(self, session: Session) -> None:
        """Put everything below in order."""
        self.queued = sorted(_keyed_gangs(session, self.line), key=_SORT_KEY)
        for _, child in sorted(self.below.items()):
            child.sort_children(session)
            self._push_child(session, child)

    def requeue_gang(self, session: Session, gang: Gang, *, turn: int) -> None:
        """Let a gang of this queue have one more turn."""
        for entry in _keyed_gangs(session, [gang], turn=turn):
            insort_right(self.queued, entry, lo=self._next, key=_SORT_KEY)

    def _push_child(self, session: Session, child: _QueueBranch) -> None:
        while (gang := child.next_gang()) is not None:
            key = child.sort_key(session, gang)
            if key is not None:
                insort_right(self.ordered, (key, child), key=_SORT_KEY)
                return
            child.leave_out_next(session)

    def leave_out_next(self, session: Session) -> None:
        """Leave out the gang that would be served next: this queue has no turn with it."""
        if self._next < len(self.queued):
            self._next += 1
            return
        _, child = self.ordered.pop(0)
        child.leave_out_next(session)
        self._push_child(session, child)

    def next_gang(self) -> Gang | None:
        """The gang that would be served next."""
        if self._next < len(self.queued):
            return self.queued[self._next][1]
        return self.ordered[0][1].next_gang() if self.ordered else None

    def path_served(self) -> list[_QueueBranch]:
        """This queue and those below it, down to the one of which a gang is served next; none where nobody is left."""
        path, here = [self], self
        while here.own_next is None:
            if not here.ordered:
                return []
            here = here.ordered[0][1]
            path.append(here)
        return path

    def take_gang(self) -> Gang:
        """Serve the next gang of this queue's own."""
        self._next += 1
        return self.last_served[1]

    @property
    def last_served(self) -> tuple[Any, Gang]:
        """The gang of this queue's own that was served last, behind its sort key."""
        return self.queued[self._next - 1]

    @property
    def has_own(self) -> bool:
        """Whether a gang of this queue's own waits for its turn."""
        return self._next < len(self.queued)

    @property
    def own_next(self) -> Gang | None:
        """The gang of this queue's own that would be served next."""
        return self.queued[self._next][1] if self._next < len(self.queued) else None

    def take_alike(self, alike: Callable[[Gang], bool], most: int) -> list[tuple[Any, Gang]]:
        """Serve the next gangs of this queue's own, behind their sort keys, as long as they are alike."""
        first = last = self._next
        end = min(len(self.queued), first + most)
        while last < end and alike(self.queued[last][1]):
            last += 1
        self._next = last
        return self.queued[first:last]

    def update_first_child(self, session: Session) -> None:
        """Give the queue below that was served its new key."""
        _, child = self.ordered.pop(0)
        self._push_child(session, child)

    def sort_key(self, session: Session, gang: Gang) -> tuple[Any, ...] | None:
        """Among its siblings; None when it has no turn with this gang."""
        if self.node is None:
            return (1, self.name)
        key = session.order_keys.queue_key(self.node, gang)
        if key is None:
            return None
        return (0, key, self.served, int(self.node.queue.created), self.name)


class _ServedQueue:
    """A queue of which gangs are served, and the queues above it.

    Args:
        session: in which they are.
        path: from the widest queue to this one.
    """

    def __init__(self, session: Session, path: list[_QueueBranch]) -> None:
        self._session = session
        self._path = path
        self._state = session.queue_accounts.state_key()
        following = path[-1].own_next
        assert following is not None, "a queue is served while it has a gang"
        self._keyed = following
        """The gang with which the queues have their keys; where they wait alone these are not renewed for each."""
        self._alone = all(len(above.ordered) == 1 for above in path[:-1])
        self._above: tuple[tuple[str, Any], ...] | None = None
        """Names and keys of the queues on the path, while they are those of ``_keyed``."""

    def take_gang(self) -> Gang:
        """Serve the next gang."""
        for branch in self._path:
            branch.served += 1
        return self._path[-1].take_gang()

    def turn_of(self, gang: Gang) -> WaitingTurn | None:
        """The turn of the gang that ``take_gang`` gave, until ``served_next``; None of another gang."""
        own, served = self._path[-1].last_served
        if served is not gang:
            return None
        first = None if gang.suspended else _first_turn(gang)  # of a Job that waits nobody ran
        return WaitingTurn(gang.key, first, self._keys_above(gang), own)

    def take_alike(
        self, gang: Gang, alike: Callable[[Gang], bool], most: int
    ) -> list[tuple[Gang, WaitingTurn]]:
        """Serve those directly behind the gang that ``take_gang`` gave, until ``served_next``; none where another queue may be next.

        Args:
            gang: that was served.
            alike: whether a gang is to be served; such have the key of their queue that ``gang`` has.
            most: gangs that are served.
        """
        keys, (_, served) = self._session.order_keys, self._path[-1].last_served
        if served is not gang or not self._alone:
            return []
        above = self._keys_above(gang)
        if not keys.queues_stay(gang, gang, self._state):
            return []
        taken = self._path[-1].take_alike(alike, most)
        for branch in self._path:
            branch.served += len(taken)
        return [
            (each, WaitingTurn(each.key, None if each.suspended else _first_turn(each), above, own))
            for own, each in taken
        ]

    def _keys_above(self, gang: Gang) -> tuple[tuple[str, Any], ...]:
        """Names of the queues on the path, and their keys with a gang of which it is the turn."""
        session, keyed = self._session, self._keyed
        if keyed is not gang and not session.order_keys.queues_stay(keyed, gang, self._state):
            self._keyed, self._state = gang, session.queue_accounts.state_key()
            for above in self._path[:-1]:
                _, child = above.ordered[0]
                above.ordered[0] = (child.sort_key(session, gang), child)
            self._above = None
        if self._above is None:
            first = [above.ordered[0] for above in self._path[:-1]]
            self._above = tuple(
                (child.name, key[1] if key and key[0] == 0 else None) for key, child in first
            )
        return self._above

    def served_next(self) -> _ServedQueue | None:
        """The queue that is served after the gang that ``take_gang`` gave; None when nobody is left.

        Where no other queue waits beside one on its path, no keys are asked for: nothing is to be compared.
        """
        here, session = self._path[-1], self._session
        if self._alone and here.has_own and session.order_keys.queues_are_alike:
            return self
        for above in reversed(self._path[:-1]):
            above.update_first_child(session)
        return _first_served(session, self._path[0])


def _first_served(session: Session, root: _QueueBranch) -> _ServedQueue | None:
    path = root.path_served()
    return _ServedQueue(session, path) if path else None


def in_queue_order(
    session: Session, gangs: Iterable[Gang], *, again: Callable[[Gang], bool] | None = None
) -> Iterator[Gang]:
    """Yield each gang once; keys of queues are asked again as shares change.

    A gang whose key cannot be computed, or with which its queue has no key, sits this session out.

    Args:
        session: whose policies order.
        gangs: that wait for a turn.
        again: asked after each turn; a gang for which it is true gets another, after those of
            equal right that had fewer.
    """
    root = _QueueBranch("", None)
    leaves: dict[str, _QueueBranch] = {}
    for gang in gangs:
        leaf = leaves.get(gang.queue)
        if leaf is None:
            leaf = leaves[gang.queue] = _leaf_branch(session, root, gang.queue)
        leaf.line.append(gang)
    root.sort_children(session)
    had: Counter[GangKey] = Counter()
    queue = _first_served(session, root)
    while queue is not None:
        gang = queue.take_gang()
        session.on_gang(gang.key)
        session.order_keys.serving = queue.turn_of
        session.order_keys.serve_alike = queue.take_alike
        yield gang
        if again is not None and again(gang):
            had[gang.key] += 1
            leaves[gang.queue].requeue_gang(session, gang, turn=had[gang.key])
        queue = queue.served_next()


def _first_turn(gang: Gang) -> TurnFirst | None:
    if is_broken(gang):
        return TurnFirst.REPAIR
    return TurnFirst.STARTED if is_started_job(gang) else None


def _leaf_branch(session: Session, root: _QueueBranch, name: str) -> _QueueBranch:
    queues = session.snapshot.queues
    node = queues.get(name)
    # What is wrong with its place in the tree says nothing about where its turn is.
    path = node.path if node is not None and not node.error else (name,)
    here = root
    for each in reversed(path):
        if each not in here.below:
            here.below[each] = _QueueBranch(each, queues.get(each))
        here = here.below[each]
    return here


def _keyed_gangs(session: Session, gangs: list[Gang], *, turn: int = 0) -> list[tuple[Any, Gang]]:
    keys = session.order_keys.gang_keys(gangs)
    return [
        (
            (
                key,
                turn,
                int((gang.created if gang.turn is None else gang.waits_since) * 1e6),
                gang.key,
            ),
            gang,
        )
        for key, gang in zip(keys, gangs, strict=True)
        if key is not None
    ]
