"""Higher priority first: among queues by their own priority, among gangs by their pods'."""

from __future__ import annotations

from typing import ClassVar

import attrs

from gpusched.plugin import Hooks, View


@attrs.frozen
class Priority:
    """Orders queues and gangs by their priority numbers."""

    name: ClassVar[str] = "priority"
    api: ClassVar[int] = 1

    def open(self, hooks: Hooks, _view: View) -> None:
        """See the class."""
        hooks.queue_order(lambda node: (-node.queue.priority,))
        hooks.gang_order(lambda gang: (-gang.priority,))
