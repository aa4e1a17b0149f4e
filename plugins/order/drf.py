"""Dominant shares: the smaller share of its most used resource goes first.

Between the gangs of a queue with the ordering ``FairShare``; between queues only where asked
for, because ``fairshare`` looks at dominant shares too, after what queues deserve.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import ClassVar

import attrs

from gpusched.plugin import (
    PODS,
    DependsOn,
    Gang,
    Hooks,
    Key,
    KeyMeaning,
    QueueNode,
    Resources,
    View,
)

SHARE_ONE = 10**9
"""Dominant share of a queue that holds all there is of a resource."""


@attrs.frozen(kw_only=True)
class DrfArgs:
    """``queues: true`` serves the queue with the smallest dominant share first, for its weight."""

    queues: bool = False


@attrs.frozen
class Drf:
    """Orders by dominant share of what the cluster has."""

    name: ClassVar[str] = "drf"
    api: ClassVar[int] = 1
    depends_on: ClassVar[DependsOn] = DependsOn.VIEW
    args: DrfArgs = DrfArgs()

    def open(self, hooks: Hooks, view: View) -> None:
        """Register the keys of gangs and, if asked for, of queues by dominant share."""

        @cache
        def total() -> dict[str, int]:
            return {name: amount for name, amount in view.total().items if name != PODS}

        def of_gang(gang: Gang) -> Key:
            node = view.queue(gang.queue)
            if node is None or node.queue.ordering != "FairShare":
                return (0,)
            return (dominant_share(gang.allocated, total()),)

        def of_queue(node: QueueNode, gang: Gang) -> Key:
            held = view.staying(node.queue.name).plus(view.minimum(gang))
            weight = node.queue.weight
            return (weight == 0, dominant_share(held, total()) // max(1, weight))

        def rests_on() -> tuple[object, ...]:
            fair = frozenset(
                each.queue.name for each in view.queues() if each.queue.ordering == "FairShare"
            )
            return (fair, tuple(total().items()))

        hooks.gang_order(of_gang, alike=True, rests_on=rests_on, of_members=False)
        if self.args.queues:
            hooks.queue_turn(of_queue, alike=True)

    def tell_gang_order(self, _gang: Gang, key: Key) -> tuple[KeyMeaning, ...]:
        """The dominant share of one that holds anything; of others it says nothing."""
        share = int(key[0])
        text = _percent_text(share)
        message = f"it holds {text} of what the cluster has of some resource" if share else ""
        return (KeyMeaning(text if share else "", message),)

    def tell_queue_order(self, queue: str, key: Key) -> tuple[KeyMeaning, ...]:
        """The dominant share of a queue for its weight."""
        text = _percent_text(int(key[1]))
        none = f"queue {queue} has weight 0" if key[0] else ""
        share = (
            f"queue {queue} would hold {text} of some resource with it, for each unit of its weight"
        )
        return KeyMeaning("", none), KeyMeaning(text, share)


def dominant_share(held: Resources, total: Mapping[str, int]) -> int:
    """The largest part of a resource that is held, in parts of ``SHARE_ONE``."""
    return max(
        (amount * SHARE_ONE // total[name] for name, amount in held.items if total.get(name)),
        default=0,
    )


def _percent_text(share: int) -> str:
    return f"{share * 100 / SHARE_ONE:.1f} %"
