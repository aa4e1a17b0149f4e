"""Which queue is served next: queues within their share before queues over it."""

from __future__ import annotations

from gpusched_plugins.queues.fairshare.shares import Shares, saturation

from gpusched.plugin import NOTHING, Gang, Key, QueueNode, Resources, View


class QueueOrder:
    """Keys of queues among their siblings, each with the gang that it would be served with.

    In this order: holds no more than it is due; would stay within what it deserves; higher
    priority; is due anything at all; smaller share with the gang; smaller share without; is
    entitled to less; older; smaller UID.

    Args:
        view, shares: of the session.
        priority_first: by priority before anything else, as Volcano orders.
    """

    def __init__(self, view: View, shares: Shares, *, priority_first: bool) -> None:
        self._view = view
        self._shares = shares
        self._priority_first = priority_first
        self._asked: tuple[Gang | None, Resources, tuple[str, ...]] = (None, NOTHING, ())

    def key(self, node: QueueNode, gang: Gang) -> Key:
        """Smaller is served first."""
        asked, names = self._of(gang)
        queue = node.queue
        held = dict(self._view.staying(queue.name).items)
        after = dict(held)
        for name, amount in asked.items:
            after[name] = after.get(name, 0) + amount
        entitled = self._shares.entitlement(queue.name)
        over = within = due = False
        if node.rooted:
            deserved = self._shares.stated(queue.name)
            over = any(held.get(each, 0) > entitled.get(each, 0) for each in names)
            within = all(after[each] <= deserved.get(each, 0) for each in names)
            due = all(entitled.get(each) for each in names)
        first = (-queue.priority,) if self._priority_first else ()
        return (
            *first,
            over,
            not within,
            -queue.priority,
            not due,
            saturation(entitled, after),
            saturation(entitled, held),
            entitled.get(names[0], 0) if names else 0,
            int(queue.created),
            queue.uid or queue.name,
        )

    def _of(self, gang: Gang) -> tuple[Resources, tuple[str, ...]]:
        """Requests of the gang, cached while the queues above it are asked for their keys."""
        if self._asked[0] is not gang:
            asked = self._view.minimum(gang)
            self._asked = (gang, asked, self._shares.deciding(asked))
        return self._asked[1], self._asked[2]
