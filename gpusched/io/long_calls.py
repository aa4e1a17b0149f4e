"""Decides, from looks at what a session is calling, whether a plugin will ever come back. Pure."""

from __future__ import annotations

from enum import Enum, auto

from gpusched import limits
from gpusched.pluginhost.guard import Running


class Call(Enum):
    """What one look found."""

    FINE = auto()
    STUCK = auto()
    LOST = auto()


class LongCalls:
    """Follows the call under way.

    Args:
        dump_after_s: one call for so long: say whose it is and where it stands.
        exit_after_s: one call for so long: the process must end.
    """

    def __init__(self, *, dump_after_s: float, exit_after_s: float) -> None:
        self._dump_after_s = dump_after_s
        self._exit_after_s = exit_after_s
        self._call: Running | None = None
        self._last = 0.0
        self._said = False
        self.lasts_s = 0.0

    def look(self, call: Running | None, *, now: float) -> Call:
        """One look; STUCK once a call, LOST at every look past the bound.

        Args:
            call: under way now.
            now: monotonic seconds.
        """
        passed, self._last = now - self._last, now
        if call is None or call != self._call:
            self._call = call
            self._said = False
            self.lasts_s = 0.0
            return Call.FINE
        # A look that comes late means that the whole process stood still, the plugin too.
        self.lasts_s += min(passed, 2 * limits.WATCHDOG_PERIOD_S)
        if self.lasts_s >= self._exit_after_s:
            return Call.LOST
        if self.lasts_s >= self._dump_after_s and not self._said:
            self._said = True
            return Call.STUCK
        return Call.FINE
