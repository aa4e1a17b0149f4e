"""What every queue is due, level by level: children divide what their parent is due.

A resource of which some queue deserves an amount in a node pool is divided in that pool, too,
by itself: what a queue is due there says nothing about the resource as a whole, nor the other
way round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
from gpusched_plugins.queues.fairshare.division import USAGE_ONE, Stake, divide_fairly

from gpusched.plugin import (
    NOTHING,
    PODS,
    QueueNode,
    Resources,
    View,
    accelerator,
    pool_of,
    resource_of,
    unit_of,
)

ROOT = "root"
UNLIMITED = 2**53
"""A deserved amount from here on means all there is: no cluster has so much."""
SHARE_ONE = 10**9
"""The share of a queue that holds exactly what it is due."""
BYTES = ("memory", "ephemeral-storage", "hugepages-")
MEGABYTE = 10**6


@attrs.frozen
class SurplusRule:
    """How the surplus is divided.

    Attributes:
        bend: how much decayed use counts, in thousandths; see ``view.usage``.
        by_class: see ``division.divide``.
    """

    bend: int = 0
    by_class: bool = False


class Shares:
    """What queues are due in one session, in base units; a queue that hangs in the air: nothing.

    Args:
        view: of the session.
        bend: how surplus is divided.
    """

    def __init__(self, view: View, bend: SurplusRule) -> None:
        self._view = view
        self._bend = bend
        self._due: dict[str, dict[str, int]] = {}
        self._decided: dict[tuple[tuple[str, int] | str, ...], tuple[str, ...]] = {}
        self._entitled: dict[str, dict[str, int]] = {}
        self._stated: dict[str, dict[str, int]] = {}
        self._nodes = {node.queue.name: node for node in view.queues()}
        total = view.total()
        named = {name for node in self._nodes.values() for name, _ in _named_resources(node)}
        self.resources = tuple(name for name, _ in total.items if name != PODS or name in named)
        """Those that are divided."""
        self._pool_deserved = {
            name: amounts
            for name, node in self._nodes.items()
            if (amounts := dict(node.queue.pool_deserved.items))
        }
        divided = {name for amounts in self._pool_deserved.values() for name in amounts}
        self._pool_limits = self._pool_limits_by_queue(divided)
        in_pools = (
            [each for each in view.pools.total.items if each[0] in divided] if divided else []
        )
        self.dimensions = frozenset(name for name, _ in in_pools)
        """Resources of node pools that are divided, by dimension."""
        self.resources += tuple(name for name, _ in in_pools)
        self._total = total.plus(Resources(tuple(in_pools)))
        self._divide(ROOT, {name: self._total.get(name) for name in self.resources})

    def due(self, queue: str) -> Resources:
        """The fair share of a queue."""
        amounts = self._due.get(queue)
        return Resources.of(amounts) if amounts else NOTHING

    def fair(self, queue: str, resource: str) -> int:
        """The fair share of one resource, 0 where it is not divided."""
        return self._due.get(queue, {}).get(resource, 0)

    def deserved(self, queue: str, resource: str) -> int | None:
        """What the queue itself deserves; None when it does not say. See ``deserves``."""
        return self.stated(queue).get(resource)

    def stated(self, queue: str) -> Mapping[str, int]:
        """The same for every resource that it names."""
        known = self._stated.get(queue)
        if known is None:
            node = self._nodes[queue]
            known = {}
            for name in self.resources:
                amount = self._deserves(node, name, self._total.get(name))
                if amount is not None:
                    known[name] = amount
            self._stated[queue] = known
        return known

    def entitled(self, queue: str, resource: str) -> int:
        """What it may hold without being over: its fair share or what it deserves, if larger."""
        return self.entitlement(queue).get(resource, 0)

    def entitlement(self, queue: str) -> Mapping[str, int]:
        """The same for every resource that is divided."""
        known = self._entitled.get(queue)
        if known is None:
            node = self._nodes[queue]
            known = dict(self._due.get(queue, {}))
            for name, amount in self.stated(queue).items():
                known[name] = max(known.get(name, 0), amount)
            limits = self._pool_limits.get(queue, ())
            for name, amount in (*node.limit.items, *limits):
                if name in known:
                    known[name] = min(known[name], amount)
            self._entitled[queue] = known
        return known

    def _divide(self, parent: str, amounts: Mapping[str, int]) -> None:
        names = self._view.children(parent)
        nodes = [self._nodes[name] for name in names]
        guarantees = [dict(node.guarantee.items) for node in nodes]
        limits = [dict(node.limit.items) for node in nodes]
        wanted = [dict(self._view.requested(name).items) for name in names]
        used = [dict(self._view.usage(name).average) if self._bend.bend else {} for name in names]
        for name in names:
            self._due[name] = {}
        all_weigh = not self._bend.bend and all(node.queue.weight > 0 for node in nodes)
        for resource, total in amounts.items():
            if not any(guarantees) and not any(asks.get(resource) for asks in wanted):
                for name in names:
                    self._due[name][resource] = 0
                continue
            if all_weigh and resource not in self.dimensions:
                most = _most_of_each(wanted, guarantees, limits, resource)
                if sum(most) <= total:  # as the rounds of a division would come to
                    for name, share in zip(names, most, strict=True):
                        self._due[name][resource] = share
                    continue
            stakes = self._stakes(
                nodes,
                wanted,
                used,
                guarantees=[amounts.get(resource, 0) for amounts in guarantees],
                limits=[amounts.get(resource) for amounts in limits],
                resource=resource,
                total=total,
            )
            shares = divide_fairly(
                total,
                stakes,
                unit=division_step(resource),
                bend=self._bend.bend,
                by_class=self._bend.by_class,
            )
            for name, share in zip(names, shares, strict=True):
                self._due[name][resource] = share
        for name in names:
            if self._view.children(name):
                self._divide(name, self._due[name])

    def _stakes(
        self,
        nodes: list[QueueNode],
        wanted: list[dict[str, int]],
        used: list[dict[str, int]],
        *,
        guarantees: list[int],
        limits: list[int | None],
        resource: str,
        total: int,
    ) -> list[Stake]:
        kept = sum(guarantees)
        stakes = []
        for node, guarantee, limit, asks, use in zip(
            nodes, guarantees, limits, wanted, used, strict=True
        ):
            queue = node.queue
            wants = asks.get(resource, 0)
            if limit is not None:
                wants = min(wants, limit)
            elif resource in self.dimensions:
                wants = min(wants, dict(self._pool_limits.get(queue.name, ())).get(resource, wants))
            if kept > guarantee:
                wants = min(wants, max(0, total - (kept - guarantee)))
            deserved = self._deserves(node, resource, total) or 0
            stakes.append(
                Stake(
                    uid=queue.uid or queue.name,
                    created=queue.created,
                    guarantee=guarantee,
                    deserved=deserved,
                    wants=wants,
                    weight=queue.weight,
                    priority=queue.priority,
                    usage=min(USAGE_ONE, use.get(resource_of(resource), 0)),
                )
            )
        return stakes

    def deciding(self, asked: Resources) -> tuple[str, ...]:
        """What a gang's queue is judged by: accelerators alone when it asks for any.

        A queue that borrows CPU may still claim its GPUs, and one that lends CPU may still be
        over in GPUs. What is asked for in pools that are divided is judged there, and as a whole
        only where it is asked for elsewhere, too.
        """
        # Amounts count in pools alone: thousands of unlike gangs ask for the same resources.
        about = (
            asked.items
            if self.dimensions
            else tuple([each[0] for each in asked.items if each[1] > 0])
        )
        known = self._decided.get(about)
        if known is None:
            known = self._decided[about] = self._deciding(asked)
        return known

    def _deciding(self, asked: Resources) -> tuple[str, ...]:
        elsewhere = dict(asked.items)
        for name, amount in asked.items:
            if name in self.dimensions:
                whole = resource_of(name)
                elsewhere[whole] = elsewhere.get(whole, 0) - amount
            elif pool_of(name):
                elsewhere[name] = 0
        names = tuple(
            name for name, amount in elsewhere.items() if amount > 0 and resource_of(name) != PODS
        )
        return tuple(name for name in names if accelerator(name)) or names

    def _deserves(self, node: QueueNode, name: str, total: int) -> int | None:
        if name not in self.dimensions:
            return deserved_amount(node, name, total)
        amount = self._pool_deserved.get(node.queue.name, {}).get(name)
        return amount if amount is None or amount < UNLIMITED else total

    def _pool_limits_by_queue(self, divided: set[str]) -> dict[str, tuple[tuple[str, int], ...]]:
        """By queue the smallest cap on its path, for each dimension that is divided."""
        own = {
            name: amounts
            for name, node in self._nodes.items()
            if (
                amounts := [each for each in node.queue.pool_capability.items if each[0] in divided]
            )
        }
        limits: dict[str, tuple[tuple[str, int], ...]] = {}
        for name, node in self._nodes.items() if own else ():
            smallest: dict[str, int] = {}
            for above in node.path:
                for dimension, cap in own.get(above, ()):
                    smallest[dimension] = min(cap, smallest.get(dimension, cap))
            if smallest:
                limits[name] = tuple(sorted(smallest.items()))
        return limits


def _most_of_each(
    wanted: Sequence[Mapping[str, int]],
    guarantees: Sequence[Mapping[str, int]],
    limits: Sequence[Mapping[str, int]],
    resource: str,
) -> list[int]:
    """What siblings want of a resource within their limits, and what is guaranteed to them where that is more."""
    return [
        max(kept.get(resource, 0), min(asks.get(resource, 0), limit.get(resource, UNLIMITED)))
        for asks, kept, limit in zip(wanted, guarantees, limits, strict=True)
    ]


def deserved_amount(node: QueueNode, resource: str, total: int) -> int | None:
    """What a queue deserves of a resource of which there is so much; None when it does not say.

    Who says what he deserves of something and nothing about CPU or memory deserves as much of
    these as there is: nobody meant to lose his GPUs' memory to a neighbour. Accelerators are
    deserved only where they are named.
    """
    deserved = node.queue.deserved
    if resource in deserved:
        amount = deserved.get(resource)
        return amount if amount < UNLIMITED else total
    return total if deserved.items and not accelerator(resource) else None


def saturation(entitled: Mapping[str, int], held: Mapping[str, int]) -> int:
    """The largest share of a resource that is held, in parts of ``SHARE_ONE``.

    What is held of a resource of which a queue is entitled to nothing counts a thousandfold.
    """
    return most_saturated(entitled, held)[0]


def most_saturated(entitled: Mapping[str, int], held: Mapping[str, int]) -> tuple[int, str]:
    """The same with the resource of which that is held, GPUs where several are; empty for none."""
    largest, which = 0, ""
    for resource, amount in held.items():
        due = entitled.get(resource)
        if not amount or due is None:
            continue
        scaled = amount * SHARE_ONE
        share = scaled // due if due else 1000 * scaled // division_step(resource)
        if share > largest or (share == largest and accelerator(resource)):
            largest, which = share, resource
    return largest, which


def division_step(resource: str) -> int:
    """Base units in which surplus is dealt out: a device, a thousandth of a core, a megabyte."""
    if resource.startswith(BYTES):
        return MEGABYTE
    resource = resource_of(resource)
    return unit_of(resource) if accelerator(resource) else 1


def _named_resources(node: QueueNode) -> tuple[tuple[str, int], ...]:
    queue = node.queue
    return (*queue.guarantee.items, *queue.deserved.items, *queue.capability.items)
