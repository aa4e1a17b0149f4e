"""Tells of GPU layouts that do not count: in an event on the node, a metric, and the log."""

from __future__ import annotations

from collections.abc import Callable

from gpusched.io.logs import Log
from gpusched.io.own_news import Events
from gpusched.objects.encode import EventNote, ObjectRef
from gpusched.objects.meta import ObjectKey
from gpusched.objects.node import Node
from gpusched.session.reasons import Reason
from gpusched.topology.layouts import Doubt

_log = Log(__name__)


class LayoutNews:
    """See the module. The node works on with the next source that has a layout.

    Args:
        events: writes them, when this process leads.
        count: counts what cannot be believed, by kind and field.
    """

    def __init__(self, events: Events, count: Callable[[str, str], None]) -> None:
        self._events = events
        self._count = count

    def tell(self, node: Node, doubts: tuple[Doubt, ...], new: bool) -> None:
        """A node was shown of which something does not count; ``new`` when it did before."""
        for doubt in doubts if new else ():
            self._count("nodes", doubt.field)
            _log.warning("a GPU layout cannot be believed", node=node.name, why=doubt.sentence)
        self._events.tell(
            EventNote(
                regarding=ObjectRef("Node", ObjectKey("", node.name), node.uid),
                type="Warning",
                reason=Reason.INVALID_SPEC,
                action="Reading",
                note="; ".join(doubt.sentence for doubt in doubts),
            )
        )
