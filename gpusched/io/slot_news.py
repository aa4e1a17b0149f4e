"""Names pods whose slots do not count as they say: in an event on the pod, a metric, and the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gpusched.io.logs import Log
from gpusched.io.own_news import Events
from gpusched.objects.encode import EventNote, ObjectRef
from gpusched.objects.pod import Pod
from gpusched.objects.slot import SLOTS

UNTRUSTED: Final = "UntrustedSlots"
_FIELD: Final = f"metadata.annotations[{SLOTS}]"
_log = Log(__name__)


class SlotNews:
    """See the module. The pod is charged for as many GPUs as it asks for.

    Args:
        events: writes them, when this process leads.
        count: counts what cannot be believed, by kind and field.
    """

    def __init__(self, events: Events, count: Callable[[str, str], None]) -> None:
        self._events = events
        self._count = count

    def tell(self, pod: Pod, why: str) -> None:
        """A bound pod says of its slots what does not count."""
        self._count("pods", _FIELD)
        _log.warning("slots of a pod cannot be believed", pod=pod.key, node=pod.node, why=why)
        wanted = 1 if pod.pod_class.share is not None else pod.pod_class.gpus
        charged = f"{wanted} GPU{'s' * (wanted != 1)}" if wanted else "no GPU"
        self._events.tell(
            EventNote(
                regarding=ObjectRef("Pod", pod.key, pod.uid),
                type="Warning",
                reason=UNTRUSTED,
                action="Reading",
                note=f"{why}; it is charged for {charged} of node {pod.node}, whichever are left. "
                "Only gpusched writes these annotations: make the pod again to get slots",
            )
        )
