"""When a decision may turn out differently though nothing in the cluster has changed."""

from __future__ import annotations

from gpusched.api.queue.budget import period_end_at
from gpusched.cache.snapshot import Snapshot


def next_wakeup(snapshot: Snapshot) -> float | None:
    """When a gang stops holding out for a level, a window of a Reservation changes, or a budget opens again.

    Returns:
        Seconds since the epoch, later than the snapshot's ``now``; None when none of these is known.
    """
    holding_out = [gang for gang in snapshot.gangs if gang.preferences_end]  # few, if any
    ends = [end for gang in holding_out if gang.pending for end in gang.preferences_end]
    for reservation in snapshot.reservations:
        window = reservation.current_window(snapshot.now)
        if window is not None:
            ends += [window.begins - reservation.move_before_s, window.begins, window.ends]
    ends += [
        float(period_end_at(queue.budget.period, queue.budget_record.period_start))
        for node in snapshot.queues.queues.values()
        if (queue := node.queue).budget is not None and queue.budget_record.as_of
    ]
    return min((end for end in ends if end > snapshot.now), default=None)
