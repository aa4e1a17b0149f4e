"""Tells of GPU layouts that do not count: in an event on the node, a metric, and the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gpusched.api.devices.slots import SLOTS
from gpusched.api.meta.identity import ObjectKey
from gpusched.api.node.node import Node
from gpusched.api.pod.pod import Pod
from gpusched.api.serializer.requests import EventNote, ObjectRef
from gpusched.io.observe.daemon_events import EventSink
from gpusched.io.observe.logs import Logger
from gpusched.session.framework.reasons import Reason
from gpusched.topology.layout_choice import LayoutIssue

_log = Logger(__name__)


class LayoutEvents:
    """See the module. The node works on with the next source that has a layout.

    Args:
        events: writes them, when this process leads.
        count: counts what cannot be believed, by kind and field.
    """

    def __init__(self, events: EventSink, count: Callable[[str, str], None]) -> None:
        self._events = events
        self._count = count

    def record(self, node: Node, doubts: tuple[LayoutIssue, ...], new: bool) -> None:
        """A node was shown of which something does not count; ``new`` when it did before."""
        for doubt in doubts if new else ():
            self._count("nodes", doubt.field)
            _log.warning("a GPU layout cannot be believed", node=node.name, why=doubt.message)
        self._events.record(
            EventNote(
                regarding=ObjectRef("Node", ObjectKey("", node.name), node.uid),
                type="Warning",
                reason=Reason.INVALID_SPEC,
                action="Reading",
                note="; ".join(doubt.message for doubt in doubts),
            )
        )


UNTRUSTED: Final = "UntrustedSlots"
_LOGGED_EACH: Final = 100
_FIELD: Final = f"metadata.annotations[{SLOTS}]"


class SlotEvents:
    """See the module. The pod is charged for as many GPUs as it asks for.

    Args:
        events: writes them, when this process leads.
        count: counts what cannot be believed, by kind and field.
    """

    def __init__(self, events: EventSink, count: Callable[[str, str], None]) -> None:
        self._events = events
        self._count = count
        self._told = 0

    def record(self, pod: Pod, why: str) -> None:
        """A bound pod says of its slots what does not count.

        Where the key of the seal was lost, each of 100,000 pods does: the log names the first
        hundred, then one whenever their number has doubled, and a metric counts all.
        """
        self._count("pods", _FIELD)
        self._told += 1
        if self._told <= _LOGGED_EACH or self._told.bit_count() == 1:
            _log.warning(
                "slots of a pod cannot be believed", pod=pod.key, node=pod.node, why=why,
                so_far=self._told,
            )  # fmt: skip
        wanted = 1 if pod.pod_class.share is not None else pod.pod_class.gpus
        charged = f"{wanted} GPU{'s' * (wanted != 1)}" if wanted else "no GPU"
        self._events.record(
            EventNote(
                regarding=ObjectRef("Pod", pod.key, pod.uid),
                type="Warning",
                reason=UNTRUSTED,
                action="Reading",
                note=f"{why}; it is charged for {charged} of node {pod.node}, whichever are left. "
                "Only gpusched writes these annotations: make the pod again to get slots",
            )
        )
