"""What is wrong with queues, in sentences with numbers: what freezes, what is at fault, what is odd.

A queue that cannot be placed in the tree, or whose limits contradict each other, is frozen with
everything below it. A promise that cannot be kept is void, and its owner goes on without it.
What is only odd is remarked on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gpusched.api.meta.quantity import format_quantity
from gpusched.api.meta.resources import Resources
from gpusched.api.queue.queue import ROOT_QUEUE, Queue
from gpusched.base.limits import FOREIGN_TEXT_MAX, QUEUE_DEPTH_MAX


def queue_path(name: str, known: Mapping[str, Queue]) -> tuple[tuple[str, ...], str]:
    """Names from a queue up to, and without, ``root``; and why there is no such path, or empty."""
    path: list[str] = []
    here = name
    while here != ROOT_QUEUE:
        if here in path:
            ring = " -> ".join([*path[path.index(here) :], here])
            return tuple(path), f"queues form a cycle: {ring}; change one spec.parent"
        if here not in known:
            return tuple(path), f"parent queue {here!r} of {path[-1]!r} does not exist; create it"
        path.append(here)
        if len(path) > QUEUE_DEPTH_MAX:
            return tuple(path), f"queue {name!r} is deeper than {QUEUE_DEPTH_MAX} levels"
        here = known[here].parent
    return tuple(path), ""


def limits_error(queue: Queue) -> str:
    """Which of a queue's own limits contradict each other; empty when none do."""
    pairs = [
        (queue.guarantee, queue.deserved, "guarantee", "deserved"),
        (queue.guarantee, queue.capability, "guarantee", "capability"),
        (queue.deserved, queue.capability, "deserved", "capability"),
    ]
    pairs += [
        (pool.deserved, pool.capability, f"deserved in pool {pool.name}", "capability")
        for pool in queue.node_pools
    ]
    for smaller, larger, what, limit in pairs:
        for resource, amount in smaller.items:
            if resource in larger and amount > larger.get(resource):
                numbers = f"{_amount_text(amount, resource)} > {_amount_text(larger.get(resource), resource)}"
                return f"queue {queue.name!r}: {what} of {resource} is above {limit}: {numbers}"
    return ""


def overcommitted_guarantees(
    parent: str, deserved: Resources, children: Iterable[Queue]
) -> tuple[dict[str, str], str]:
    """Children whose guarantees no longer fit into what their parent deserves.

    The oldest are kept: a new child does not take from older ones.

    Returns:
        Sentences by name of the child, and one for the parent, empty when all fit.
    """
    refused: dict[str, str] = {}
    told = ""
    for resource, limit in deserved.items:
        sums = 0
        for child in sorted(children, key=_age_key):
            amount = child.guarantee.get(resource)
            if sums + amount <= limit:
                sums += amount
                continue
            refused.setdefault(
                child.name,
                f"queue {child.name!r}: guarantee of {_amount_text(amount, resource)} {resource} does not "
                f"fit: parent {parent!r} deserves {_amount_text(limit, resource)}, of which "
                f"{_amount_text(sums, resource)} are guaranteed to older children",
            )
        if refused and not told:
            wanted = sum(child.guarantee.get(resource) for child in children)
            if wanted > limit:
                told = (
                    f"queue {parent!r}: guarantees of its children sum to "
                    f"{_amount_text(wanted, resource)} {resource}, above its deserved of "
                    f"{_amount_text(limit, resource)}"
                )
    return refused, told


def unmet_guarantees(queues: Iterable[Queue], capacity: Resources) -> dict[str, str]:
    """Queues below ``root`` whose guarantees exceed the cluster, with a sentence each.

    Args:
        queues: all children of ``root``.
        capacity: of all nodes, also of those that are down for the moment.
    """
    void: dict[str, str] = {}
    if not capacity:
        return void  # No node has been seen yet: that says nothing about any queue.
    sums: dict[str, int] = {}
    for queue in sorted(queues, key=_age_key):
        for resource, amount in queue.guarantee.items:
            kept = sums.get(resource, 0)
            if kept + amount > capacity.get(resource):
                others = f", {_amount_text(kept, resource)} of it for others" if kept else ""
                void[queue.name] = (
                    f"queue {queue.name!r}: guarantee of {_amount_text(amount, resource)} {resource} "
                    f"cannot be kept: the cluster has {_amount_text(capacity.get(resource), resource)}"
                    f"{others}; the queue goes on without it"
                )
                break
        else:
            for resource, amount in queue.guarantee.items:
                sums[resource] = sums.get(resource, 0) + amount
    return void


def queue_warnings(
    queue: Queue, *, weightless: int, children: Sequence[Queue], held: Resources,
    limit: Resources,
) -> str:  # fmt: skip
    """What its owner should know although nothing is stopped; empty for nothing.

    Args:
        queue: in question.
        weightless: queues of its parent, itself included, when none of them has a weight; else 0.
        children: its own.
        held: by its subtree.
        limit: its capability, or that of a queue above where that is smaller.
    """
    told = []
    for resource, amount in limit.items:
        if held.get(resource) > amount:
            told.append(
                f"holds {_amount_text(held.get(resource), resource)} {resource}, above its limit of "
                f"{_amount_text(amount, resource)}: nothing that asks for it starts until it holds less"
            )
        own = queue.capability
        if resource in own and own.get(resource) > amount:
            told.append(
                f"its capability of {_amount_text(own.get(resource), resource)} {resource} is above the "
                f"{_amount_text(amount, resource)} of a queue above it, which counts"
            )
    for resource, amount in queue.deserved.items:
        wanted = sum(child.deserved.get(resource) for child in children)
        if wanted > amount:
            told.append(
                f"its {len(children)} children deserve {_amount_text(wanted, resource)} {resource} "
                f"together, it deserves {_amount_text(amount, resource)}"
            )
    if weightless:
        told.append(
            f"all {weightless} queues below {queue.parent!r} have weight 0: what is idle there "
            f"is nobody's share"
        )
    return "; ".join(told)


def inherited_limit(own: Resources, above: Resources) -> Resources:
    """The smaller of two caps for each resource that either names: absent is no limit, not zero."""
    if not above.items:
        return own
    amounts = dict(above.items)
    for resource, amount in own.items:
        amounts[resource] = min(amount, amounts.get(resource, amount))
    return Resources.of(amounts)


def _age_key(queue: Queue) -> tuple[float, str]:
    return queue.created, queue.name


def _amount_text(amount: int, resource: str) -> str:
    return format_quantity(amount, resource=resource)[:FOREIGN_TEXT_MAX]
