"""Tells of gangs and pods that were made to leave: events, and the condition Preempted.

The condition becomes true when the first member was really made to leave, not when that was
decided; the session says when it is over. It is written by the one writer of each PodGroup.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import attrs

from gpusched.api.meta.identity import UID, GangKey, ObjectKey
from gpusched.api.serializer.requests import EventNote, ObjectRef, clip_text
from gpusched.base import limits
from gpusched.cache.gangs.foreign.group_specs import GROUP_KINDS
from gpusched.io.write.events.event_recorder import EventRecorder
from gpusched.io.write.status_cache import StatusCache, find_group
from gpusched.session.preempt.preemption_messages import repeats_message
from gpusched.session.state.plan import GangStatus, GangStop, JobSuspendChange, PendingReason

_DOING: Final = {"preempt": "Preempting", "reclaim": "Reclaiming", "consolidate": "Moving"}
_OTHERWISE: Final = "Stopping"
EVENT_LINE: Final = "moves"
"""What was done to a gang is told beside why it waits now, and neither replaces the other."""
REPEATS_LINE: Final = "repeats"
"""That a gang is evicted again and again is told beside why it leaves this time."""
EVICTED_AGAIN: Final = "EvictedAgain"
_REPEATED: Final = 2


class EvictionEvents:
    """See the module.

    Args:
        events: are told.
        cache: what the API showed last.
    """

    def __init__(self, events: EventRecorder, cache: StatusCache) -> None:
        self._events = events
        self._cache = cache
        self._told: OrderedDict[UID, PendingReason] = OrderedDict()

    def stopped(self, stop: GangStop) -> None:
        """A first member of a gang was made to leave."""
        first = stop.evictions[0]
        action = _DOING.get(first.action, _OTHERWISE)
        for each in stop.evictions[: limits.POD_EVENTS_MAX]:
            self._events.record(
                EventNote(
                    regarding=ObjectRef("Pod", each.key, each.uid), type="Normal",
                    reason=each.reason, action=action, note=each.message,
                )
            )  # fmt: skip
        gang = stop.gang
        key = ObjectKey(gang.namespace, gang.name)
        about = ObjectRef(gang.kind, key, stop.uid, self._api_version(gang))
        if stop.pause is not None:  # of a Job of single pods the gang is one of them
            about = ObjectRef("Job", stop.pause.key, stop.pause.uid)
        if about.kind == "Pod":
            return
        self._events.record(
            EventNote(
                regarding=about,
                type="Warning", reason=first.reason, action=action, note=first.message,
            ),
            line=EVENT_LINE,
        )  # fmt: skip
        self._tell_repeats(stop, about)
        if gang.kind in GROUP_KINDS and not stop.keeps_minimum:
            self._told[stop.uid] = PendingReason(reason=first.reason, message=first.message)
            self._told.move_to_end(stop.uid)
            if len(self._told) > limits.REPORTED_OBJECTS_MAX:
                self._told.popitem(last=False)

    def _tell_repeats(self, stop: GangStop, about: ObjectRef) -> None:
        """That a gang was evicted again, or that room goes round between gangs."""
        count = stop.count
        if count is None or (count.times < _REPEATED and not count.chain.is_cycle):
            return
        self._events.record(
            EventNote(
                regarding=about, type="Warning", reason=EVICTED_AGAIN, action="Evicting",
                note=repeats_message(count),
            ),
            line=REPEATS_LINE,
        )  # fmt: skip

    def _api_version(self, gang: GangKey) -> str:
        """Of a group of another project; empty for the usual one of the kind."""
        group = find_group(self._cache, gang)
        if group is None or not group.source:
            return ""
        served = self._cache.foreign.served.get((group.kind, group.source))
        return served.api_version if served is not None else ""

    def switched(self, switch: JobSuspendChange) -> None:
        """A Job was started, or suspended again as it got no place in time."""
        self._events.record(
            EventNote(
                regarding=ObjectRef("Job", switch.key, switch.uid),
                type="Warning" if switch.suspend else "Normal", reason=switch.reason,
                action="Suspending" if switch.suspend else "Starting", note=switch.message,
            ),
            line=EVENT_LINE,
        )  # fmt: skip

    def forget(self, uid: UID) -> None:
        """A gang is no more."""
        self._told.pop(uid, None)

    def merged(self, status: GangStatus) -> GangStatus:
        """The status with the condition that is still to be written, if one is."""
        ask = self._told.get(status.uid)
        if ask is None:
            return status
        group = find_group(self._cache, status.gang)
        shown = group.our_condition("Preempted") if group is not None else None
        if group is None or (
            shown is not None and shown.status == "True" and shown.message == clip_text(ask.message)
        ):
            del self._told[status.uid]
            return status
        return attrs.evolve(status, preempted=ask, is_preempted=True)
