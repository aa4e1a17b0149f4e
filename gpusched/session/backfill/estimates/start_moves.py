"""Why an estimated start is another than before: what it rested on then, compared with what it rests on now."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from gpusched.api.meta.duration import format_duration
from gpusched.api.meta.identity import GangKey, format_time
from gpusched.api.queue.start_errors import StartKnownBy
from gpusched.base.classes import frozen
from gpusched.base.limits import ESTIMATE_STEP_S
from gpusched.cache.snapshot import StartEstimate

_PART_OF_WAIT: Final = 10
"""A move counts from a tenth of the wait that is left on."""
_NANOSECONDS: Final = 10**9
_NAMED_MAX: Final = 2


@frozen(kw_only=True)
class ClusterChange:
    """What else is known of the time between two estimates of a gang.

    Attributes:
        running: gangs that hold places now.
        waiting: gangs that wait now.
        lost_nodes, new_nodes: names of nodes that can no more, or can newly, be used; sorted.
        namespace: of the gang, where names of other namespaces are hidden; empty where all are told.
    """

    running: AbstractSet[GangKey]
    waiting: AbstractSet[GangKey]
    lost_nodes: Sequence[str] = ()
    new_nodes: Sequence[str] = ()
    namespace: str = ""


def is_move(before: StartEstimate, after: StartEstimate, *, now: float) -> bool:
    """Whether two estimates differ by a minute at least, and by a tenth of the wait that is left."""
    left = max(0.0, before.start - now)
    return abs(after.start - before.start) >= max(ESTIMATE_STEP_S, left / _PART_OF_WAIT)


def explain_move(before: StartEstimate, after: StartEstimate, change: ClusterChange) -> str:
    """A sentence with both times and the cause, as far as it is known."""
    later = after.start > before.start
    cause = _why_later(before, after, change) if later else _why_earlier(before, after, change)
    by = _span_text(abs(after.start - before.start))
    times = f"{format_time(before.start)} to {format_time(after.start)}"
    return f"{by} {'later' if later else 'earlier'} than told before ({times}): {cause}"


def _why_later(before: StartEstimate, after: StartEstimate, change: ClusterChange) -> str:
    if change.lost_nodes:
        return f"{_nodes_text(change.lost_nodes)} cannot be used any more"
    if before.known_by != after.known_by == StartKnownBy.WINDOW:
        return "it waits for the end of a window now, for which a Reservation keeps nodes that it needs"
    came = [key for key in after.ahead if key not in set(before.ahead)]
    if came:
        return f"{_gangs_text(came, change)} before it in the order now"
    ends = dict(after.ends)
    for key, end in before.ends:
        if key in change.running and ends.get(key, 0) > end:
            return _end_moved(key, end, ends[key], change)
    taken = [
        (key, end)
        for key, end in after.ends
        if key not in dict(before.ends) and key in change.running
    ]
    if taken:
        key, end = taken[0]
        name = _gang_text(key, change)
        return f"it waits for the end of {name} at {format_time(float(end))} now"
    ahead = [
        (key, end)
        for key, end in after.ends
        if key not in dict(before.ends) and key in change.waiting
    ]
    if ahead:
        key, end = ahead[0]
        name = _gang_text(key, change)
        return f"{name}, which is before it and waits as well, is expected to end at {format_time(float(end))}"
    return _otherwise(after)


def _why_earlier(before: StartEstimate, after: StartEstimate, change: ClusterChange) -> str:
    if change.new_nodes:
        return f"{_nodes_text(change.new_nodes)} can be used now"
    if before.known_by == StartKnownBy.WINDOW != after.known_by:
        return "it waits for no window any more, for which a Reservation keeps nodes"
    for key, end in before.ends:
        if key not in change.running and key not in change.waiting and end > after.start - 1:
            return f"{_gang_text(key, change)}, for whose end it waited, has left before its time"
    left = [key for key in before.ahead if key not in set(after.ahead)]
    gone = [key for key in left if key not in change.running and key not in change.waiting]
    if gone:
        return f"{_gangs_text(gone, change)} no more before it in the order: gone"
    behind = [key for key in left if key in change.waiting]
    if behind:
        return f"{_gangs_text(behind, change)} behind it in the order now"
    ends = dict(after.ends)
    for key, end in before.ends:
        if key in ends and ends[key] < end:
            return _end_moved(key, end, ends[key], change)
    started = [key for key in left if key in change.running]
    if started:
        return f"{_gangs_text(started, change)} before it no more: started"
    return _otherwise(after)


def _end_moved(key: GangKey, before: int, now: int, change: ClusterChange) -> str:
    name = _gang_text(key, change)
    return (
        f"{name}, for whose end it waits, is expected to end at {format_time(float(now))} "
        f"instead of {format_time(float(before))}"
    )


def _otherwise(after: StartEstimate) -> str:
    if after.known_by == StartKnownBy.PLAYED:
        return "the whole line, played forward again, comes to another time"
    if after.known_by == StartKnownBy.QUOTA:
        return "what its queue may use, and others of it hold, has changed"
    if after.known_by == StartKnownBy.EVICTIONS:
        return "which gangs can be evicted for it, and from when on, has changed"
    return "where others sit, and in which order they are served, has changed"


def _gangs_text(keys: Sequence[GangKey], change: ClusterChange) -> str:
    """Names of some gangs with ``is`` or ``are``."""
    names = [_gang_text(key, change) for key in keys[:_NAMED_MAX]]
    if len(keys) > _NAMED_MAX:
        names = [names[0], f"{len(keys) - 1} more"]
    return f"{' and '.join(names)} {'is' if len(keys) == 1 else 'are'}"


def _gang_text(key: GangKey, change: ClusterChange) -> str:
    if change.namespace and key.namespace != change.namespace:
        return f"a {key.kind} of another namespace"
    return f"{key.kind} {key.namespace}/{key.name}"


def _nodes_text(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"node {names[0]}"
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return f"nodes {', '.join(names[:_NAMED_MAX])}{more}"


def _span_text(seconds: float) -> str:
    return format_duration(round(seconds) * _NANOSECONDS)
