"""What events say about gangs that wait or start: on their object, and on the pods that wait."""

from __future__ import annotations

import re
from typing import Final

from gpusched.io.status_writes import StatusCache
from gpusched.objects.encode import EventNote, ObjectRef
from gpusched.objects.meta import UID, ObjectKey
from gpusched.session.plan import Ask, GangStatus

WAITS: Final = "FailedScheduling"
"""As kube-scheduler's users know it."""
_NUMBERS: Final = re.compile(r"[0-9]+")


def words(sentence: str) -> str:
    """A sentence without its numbers: only other words are worth another event."""
    return _NUMBERS.sub("0", sentence)


def pod_note(key: ObjectKey, uid: UID, ask: Ask) -> EventNote:
    """Why this pod waits."""
    return EventNote(
        regarding=ObjectRef("Pod", key, uid),
        type="Warning",
        reason=WAITS,
        action="Scheduling",
        note=ask.sentence,
    )


def gang_note(status: GangStatus, cache: StatusCache) -> EventNote:
    """That the gang is scheduled, or why it waits; on a pod where its PodGroup is missing."""
    gang = status.gang
    ref = ObjectRef(gang.kind, ObjectKey(gang.namespace, gang.name), status.uid)
    pod = cache.pod(status.waiting[0][1]) if status.waiting else None
    if pod is not None and gang.kind == "PodGroup" and ref.key not in cache.groups.items:
        # The PodGroup does not exist: whoever looks, looks at a pod that names it.
        ref = ObjectRef("Pod", pod.key, pod.uid)
    return EventNote(
        regarding=ref,
        type="Normal" if status.is_scheduled else "Warning",
        reason="Scheduled" if status.is_scheduled else WAITS,
        action="Binding" if status.is_scheduled else "Scheduling",
        note=status.scheduled.sentence,
    )
