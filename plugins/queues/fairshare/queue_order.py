"""Which queue is served next: queues within their share before queues over it."""

from __future__ import annotations

from gpusched_plugins.queues.fairshare.shares import Shares, most_saturated, saturation

from gpusched.plugin import (
    NOTHING,
    Gang,
    Key,
    KeyMeaning,
    QueueNode,
    Resources,
    View,
    format_quantity,
    format_time,
)


class QueueOrder:
    """Keys of queues among their siblings, each with the gang that it would be served with.

    In this order: holds no more than it is due; would stay within what it deserves; higher
    priority; is due anything at all; smaller share with the gang; smaller share without; is
    entitled to less; older; smaller UID. What stands behind the UID decides nothing: amounts of the
    resource of which its share is largest, for people.

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
        asked, names = self._requests_of(gang)
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
        largest, resource = most_saturated(entitled, after)
        first = (-queue.priority,) if self._priority_first else ()
        return (
            *first,
            over,
            not within,
            -queue.priority,
            not due,
            largest,
            saturation(entitled, held),
            entitled.get(names[0], 0) if names else 0,
            int(queue.created),
            queue.uid or queue.name,
            resource,
            held.get(resource, 0),
            after.get(resource, 0),
            entitled.get(resource, 0),
        )

    def _requests_of(self, gang: Gang) -> tuple[Resources, tuple[str, ...]]:
        """Requests of the gang, cached while the queues above it are asked for their keys."""
        if self._asked[0] is not gang:
            asked = self._view.minimum(gang)
            self._asked = (gang, asked, self._shares.deciding(asked))
        return self._asked[1], self._asked[2]


def tell_queue_key(queue: str, key: Key, *, priority_first: bool) -> tuple[KeyMeaning, ...]:
    """Meanings of the parts of a key that ``QueueOrder`` made.

    Args:
        queue: its name.
        key: as it was made.
        priority_first: as for ``QueueOrder``.
    """
    parts = key[1:] if priority_first else key
    above, beyond, priority, nothing_due, _, _, least, created, _ = parts[:9]
    value = -int(priority)
    rank = KeyMeaning(
        f"p{value}" if value else "",
        f"queue {queue} has priority {value}",
        only_if_decisive=not value,
    )
    holds, after, share = _tell_amounts(queue, parts[9:])
    due = format_quantity(int(least), resource=str(parts[9])) if parts[9] else f"{least} units"
    since = f"was created at {format_time(int(created))}" if created else "is always there"
    found = (
        KeyMeaning("over", f"queue {queue} holds more than it is due")
        if above
        else KeyMeaning("", f"queue {queue} holds no more than it is due"),
        KeyMeaning("", f"queue {queue} holds more than it deserves with it", only_if_decisive=True)
        if beyond
        else KeyMeaning("deserved", f"queue {queue} stays within what it deserves with it"),
        rank,
        KeyMeaning("", f"queue {queue} is due nothing of what it needs")
        if nothing_due
        else KeyMeaning("", f"queue {queue} is due some of what it needs", only_if_decisive=True),
        KeyMeaning(share, f"{holds}{after}"),
        KeyMeaning("", holds, only_if_decisive=True),
        KeyMeaning("", f"queue {queue} is due {due} of what it needs", only_if_decisive=True),
        KeyMeaning("", f"queue {queue} {since}", only_if_decisive=True),
        KeyMeaning("", f"queue {queue} stands among its equals by its UID", only_if_decisive=True),
    )
    return (rank, *found) if priority_first else found


def _tell_amounts(queue: str, amounts: Key) -> tuple[str, str, str]:
    """What it holds of what it is due, how much with the gang, and both of that in short."""
    resource = str(amounts[0])
    if not resource:
        return f"queue {queue} holds nothing that is divided", "", ""
    held, after, due = (format_quantity(int(each), resource=resource) for each in amounts[1:4])
    holds = f"queue {queue} holds {held} of its due {due} {resource}"
    return holds, f", {after} with it", f"{after}/{due}"
