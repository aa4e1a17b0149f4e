"""The session that follows though nothing has changed that a decision depends on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gpusched.base import limits


class FollowingSession:
    """Has a session follow for gangs that wait for their turn, and for what only status depends on.

    Args:
        begin: begins a session.
        begin_soon: begins a session when nothing has happened for a moment.
        is_busy: whether bindings wait to be sent, from which sessions take the processor.
    """

    def __init__(
        self,
        *,
        begin: Callable[[], None],
        begin_soon: Callable[[], None],
        is_busy: Callable[[], bool],
    ) -> None:
        self._begin = begin
        self._begin_soon = begin_soon
        self._is_busy = is_busy
        self._delay_s = limits.STATUS_SESSION_DELAY_S
        self._turn: asyncio.TimerHandle | None = None
        self._status: asyncio.TimerHandle | None = None
        self._status_waits = False
        """Whether something happened since the last snapshot that only status depends on."""

    def note_status(self) -> None:
        """What happened was expected: only status follows, for more of it in one session, or in the next that is due anyway."""
        self._status_waits = True
        if self._status is None and self._turn is None:
            loop = asyncio.get_running_loop()
            self._status = loop.call_later(self._delay_s, self._tell_status)

    def note_gangs(self, count: int) -> None:
        """A session told the status of so many gangs: one that only status needs waits the longer, the more there are."""
        asked_s = count * limits.STATUS_SESSION_GANG_S
        most_s = limits.STATUS_SESSION_DELAY_MAX_S
        self._delay_s = max(limits.STATUS_SESSION_DELAY_S, min(asked_s, most_s))

    def _tell_status(self) -> None:
        self._status = None
        if self._is_busy():
            self.note_status()
        else:
            self._begin_soon()

    def note_snapshot(self) -> None:
        """A session tells all that has happened until now."""
        self._status_waits = False
        _cancel(self._status)
        self._status = None

    def follow(self, after_s: float | None) -> None:
        """Have the next session so many seconds after the one that was decided; None for when something happens."""
        _cancel(self._turn)
        self._turn = None
        if after_s is not None:
            self._turn = asyncio.get_running_loop().call_later(after_s, self._begin)
        elif self._status_waits:
            self.note_status()

    def stop(self) -> None:
        """No session follows any more."""
        _cancel(self._turn)
        _cancel(self._status)
        self._turn = self._status = None


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
