"""What events say about gangs that wait or start: on their object, and on the pods that wait."""

from __future__ import annotations

import re
from typing import Final

from gpusched.api.foreign.kinds import WORKLOADS, api_version_of
from gpusched.api.meta.identity import UID, ObjectKey
from gpusched.api.pod.gang_membership import PART, WITHOUT_OBJECT
from gpusched.api.serializer.requests import EventNote, ObjectRef
from gpusched.cache.gangs.foreign.group_specs import GROUP_KINDS
from gpusched.io.write.status_cache import StatusCache, find_group
from gpusched.session.state.plan import GangStatus, PendingReason, PodBind

WAITS: Final = "FailedScheduling"
"""As kube-scheduler's users know it."""
SCHEDULED: Final = "Scheduled"
"""The same, of what starts: on each pod, and on the gang's object with what was decided."""
FAILS_IF_EVICTED: Final = "FailsIfEvicted"
UNKNOWN_KEY: Final = "UnknownKey"
KEY_LINE: Final = "keys"
"""What an author misspelt stays to be told, whatever else there is to tell."""
WARNING_LINE: Final = "warnings"
"""What an author should change is told beside why the gang waits, and neither replaces the other."""
_NUMBERS: Final = re.compile(r"[0-9]+")


def without_numbers(message: str) -> str:
    """A sentence without its numbers: only other words are worth another event."""
    return _NUMBERS.sub("0", message)


def pod_event(key: ObjectKey, uid: UID, ask: PendingReason) -> EventNote:
    """Why this pod waits."""
    return EventNote(
        regarding=ObjectRef("Pod", key, uid),
        type="Warning",
        reason=WAITS,
        action="Scheduling",
        note=ask.message,
    )


def assigned_event(bind: PodBind) -> EventNote:
    """That this pod was bound, in the words of kube-scheduler."""
    return EventNote(
        regarding=ObjectRef("Pod", bind.key, bind.uid),
        type="Normal",
        reason=SCHEDULED,
        action="Binding",
        note=f"Successfully assigned {bind.key} to {bind.node}",
    )


def event_object(status: GangStatus, cache: StatusCache) -> ObjectRef:
    """The gang's object; a pod where there is none: users look there then."""
    gang = status.gang
    key = ObjectKey(gang.namespace, gang.name)
    pod = cache.find_pod(status.waiting_pods[0][1]) if status.waiting_pods else None
    group = find_group(cache, gang)
    missing = gang.kind in WITHOUT_OBJECT or (gang.kind in GROUP_KINDS and group is None)
    if pod is not None and missing:
        return ObjectRef("Pod", pod.key, pod.uid)
    served = (
        cache.foreign.served.get((group.kind, group.source)) if group and group.source else None
    )
    version = served.api_version if served else api_version_of(gang.kind)
    uid, part = status.uid, ""
    if gang.kind in WORKLOADS:
        text, _, part = uid.partition("/")
        uid = UID(text)
    if part:  # the gang is a group or a stage of its controller
        name = gang.name.partition("/")[0]
        name = name.rpartition("-")[0] if gang.kind == "LeaderWorkerSet" else name
        name = name.partition(PART)[0]
        key = ObjectKey(gang.namespace, name)
    return ObjectRef(gang.kind, key, uid, version)


def gang_event(status: GangStatus, cache: StatusCache) -> EventNote:
    """That the gang is scheduled, or why it waits."""
    ref = event_object(status, cache)
    return EventNote(
        regarding=ref,
        type="Normal" if status.is_scheduled else "Warning",
        reason=SCHEDULED if status.is_scheduled else WAITS,
        action="Binding" if status.is_scheduled else "Scheduling",
        note=status.scheduled.message,
        why="" if status.is_scheduled else status.scheduled.reason,
    )
