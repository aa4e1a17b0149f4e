"""What the daemon has to tell about itself, in events where an operator looks.

Regarding is the daemon's own pod in a cluster (``kubectl describe pod``), else the Lease it
takes part in. Only the leader writes; what still holds when a process comes to lead is told
then, so that news of a standby is not lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from gpusched.api.serializer.requests import EventNote, ObjectRef

CONFIG: Final = "config"
PLUGINS: Final = "plugins"
STUCK: Final = "stuck"
SOLVER: Final = "solver"
CONTAINED: Final = "contained"
DIED: Final = "died"
DOMAINS: Final = "domains"
RESTORED: Final = "restored"


class EventSink(Protocol):
    """What we use of ``io.events.EventWriter``."""

    def record(
        self, note: EventNote, *, topic: str = "", settle_s: float = 0.0, line: str = ""
    ) -> None:
        """Tell it when it may be told."""


class DaemonEvents:
    """See the module.

    Args:
        events: writes them.
        regarding: our own pod or our Lease, as known at the moment.
    """

    def __init__(self, events: EventSink, regarding: Callable[[], ObjectRef]) -> None:
        self._events = events
        self._regarding = regarding
        self._standing: dict[str, tuple[str, str, str]] = {}

    def warn(self, line: str, *, reason: str, action: str, message: str) -> None:
        """Something is wrong with the daemon, until ``recovered`` is called for the same line."""
        self._standing[line] = (reason, action, message)
        self._record_event("Warning", line, reason, action=action, message=message)

    def recovered(self, line: str, *, reason: str, action: str, message: str) -> None:
        """It went as it was meant to, or does so again."""
        self._standing.pop(line, None)
        self._record_event("Normal", line, reason, action=action, message=message)

    def repeat_warnings(self) -> None:
        """This process leads now: tell what still holds."""
        for line, (reason, action, message) in self._standing.items():
            self._record_event("Warning", line, reason, action=action, message=message)

    def _record_event(
        self, kind: str, line: str, reason: str, *, action: str, message: str
    ) -> None:
        note = EventNote(
            regarding=self._regarding(), type=kind, reason=reason, action=action, note=message
        )
        self._events.record(note, line=line)
