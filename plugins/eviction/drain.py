"""Queues that are to be emptied: what runs in them, or in queues below them, is stopped."""

from __future__ import annotations

from typing import ClassVar

import attrs

from gpusched.plugin import ALLOW, DependsOn, Gang, Hooks, QueueNode, Reason, Verdict, View, deny

POLICY = "HoldAndDrain"


@attrs.frozen
class Drain:
    """Carries out ``stopPolicy: HoldAndDrain``; disruption budgets slow it down, as always."""

    name: ClassVar[str] = "drain"
    api: ClassVar[int] = 1
    depends_on: ClassVar[DependsOn] = DependsOn.VIEW

    def open(self, hooks: Hooks, view: View) -> None:
        """Register the check that stops gangs of draining queues."""

        def check(gang: Gang) -> Verdict:
            node = view.queue(gang.queue)
            stopped = _draining_queue(node, view) if node is not None else ""
            if not stopped:
                return ALLOW
            return deny(
                Reason.QUEUE_STOPPED,
                "queue {name} has stopPolicy {policy}: what runs in it is stopped",
                name=stopped,
                policy=POLICY,
            )

        hooks.stop_check(check, queues=lambda node: bool(_draining_queue(node, view)))


def _draining_queue(node: QueueNode, view: View) -> str:
    """The queue on the path that is to be emptied; empty for none."""
    for name in node.path:
        above = view.queue(name)
        if above is not None and above.queue.stop_policy == POLICY:
            return name
    return ""
