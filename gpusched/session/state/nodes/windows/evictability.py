"""From when on a gang that runs, or would start now, may be evicted whole, as far as that is known."""

from __future__ import annotations

from gpusched.api.meta.duration import NANOSECONDS
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.snapshot import Snapshot


def evictable_from(snapshot: Snapshot, gang: Gang, *, began: int) -> int | None:
    """When its protected time is over, whole seconds since the epoch; None where it may not be evicted.

    Disruption budgets may forbid at any time what they allow now: a gang under one is not counted on.

    Args:
        snapshot: with queues and disruption budgets.
        gang: that runs or would start.
        began: when it did, whole seconds since the epoch.
    """
    if not gang.terms.preemptible or _has_disruption_budget(snapshot, gang):
        return None
    return began + -(-protected_ns(snapshot, gang) // NANOSECONDS)


def protected_ns(snapshot: Snapshot, gang: Gang) -> int:
    """How long the gang is safe from eviction once it runs, in nanoseconds: its own word, or its queues'."""
    if gang.terms.min_runtime_ns:
        return gang.terms.min_runtime_ns
    queue = snapshot.queues.get(gang.queue)
    for name in queue.path if queue is not None else ():
        node = snapshot.queues.get(name)
        if node is not None and node.queue.min_runtime_ns:
            return node.queue.min_runtime_ns
    return 0


def _has_disruption_budget(snapshot: Snapshot, gang: Gang) -> bool:
    if not snapshot.budgets:
        return False
    pods = [pod for pod_set in gang.pod_sets for pod in pod_set.pods]
    pods += [member.pod for member in gang.placed]
    return any(
        budget.selector is not None
        and budget.namespace == pod.namespace
        and budget.selector.matches(pod.labels)
        for budget in snapshot.budgets
        for pod in pods
    )
