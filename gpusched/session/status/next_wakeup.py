"""When a decision may turn out differently though nothing in the cluster has changed."""

from __future__ import annotations

from gpusched.cache.snapshot import Snapshot


def next_wakeup(snapshot: Snapshot) -> float | None:
    """When the next gang that waits stops holding out for a level it prefers.

    Returns:
        Seconds since the epoch, later than the snapshot's ``now``; None when no gang holds out.
    """
    ends = [
        gang.created + request.max_wait_ns / 1e9
        for gang in snapshot.gangs
        if gang.pending
        for request in gang.topology_requests
        if request.preferred and request.max_wait_ns
    ]
    return min((end for end in ends if end > snapshot.now), default=None)
