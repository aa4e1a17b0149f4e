"""Changes that sessions depend on, and which of them sessions have taken into account."""

from __future__ import annotations

from math import inf

from gpusched.base import limits
from gpusched.base.debounce import Change
from gpusched.cache.snapshot import ExpectedStarts


class SeenChanges:
    """Counts changes by kind, and remembers how many the last snapshot and the last whole session knew of."""

    def __init__(self) -> None:
        self.count = 0
        """All of them."""
        self._unforeseen = self._news = 0
        """Those that no session has counted on, and those of them that are not late."""
        self._taken = (0, 0)
        self._begun_with = -1
        """How many changes the last session knew of, of every kind."""
        self._looked_at = -1
        self._holds_until = -inf
        self._estimated = -1
        self._untold_since = -inf
        """When a session was held that left what it was to tell to those after it, and none has told it since; infinite for none,
        minus infinity while nobody was told anything."""

    def note(self, change: Change) -> None:
        """Something changed."""
        self.count += 1
        self._unforeseen += change is not Change.FORESEEN
        self._news += change in (Change.ANY, Change.ALONE)

    def may_tell_later(self, now: float) -> bool:
        """Whether a session may leave what it is to tell to the next one: nobody has waited for long for what others left."""
        untold_s = now - self._untold_since
        return self._untold_since == inf or 0.0 <= untold_s < limits.STATUS_UNTOLD_MAX_S

    def begin_session(self, now: float) -> bool:
        """Whether all that a session knows is what the last whole one decided on, but for what that had counted on and has come.

        Where nothing of that has come since the last session this one is there to tell, as it is where what others left
        has been untold for long.
        """
        came, self._begun_with = self.count != self._begun_with, self.count
        self._taken = (self._unforeseen, self._news)
        as_told = self._unforeseen == self._looked_at and now < self._holds_until
        return came and as_told and self.may_tell_later(now)

    def note_whole_session(
        self, now: float, *, holds_until: float, starts: ExpectedStarts, gangs: int = 0
    ) -> float:
        """Note that the session has looked at everybody.

        Args:
            now: of the session.
            holds_until: when a moment comes that it asked about.
            starts: as it told them.
            gangs: of how many it told the status.

        Returns:
            When starts are to be worked out though nothing happens: this session left what was told, and there was news.
        """
        self._untold_since = inf
        self._looked_at, news = self._taken
        self._holds_until = holds_until
        asked_s = min(limits.ESTIMATES_SESSION_GANG_S * gangs, limits.ESTIMATES_SESSION_MAX_S)
        if starts.at >= now:
            self._estimated = news
        again = max(
            starts.at + max(limits.ESTIMATES_EVERY_S, asked_s), now + limits.TENANT_ROUND_PAUSE_S
        )
        return again if news != self._estimated else inf

    def note_settled_session(self, now: float, *, holds_until: float) -> None:
        """Note that the session ended early and has decided about everybody nevertheless, together with the one before it.

        Args:
            now: of the session.
            holds_until: when a moment comes that it asked about.
        """
        self._untold_since = min(self._untold_since, now)
        self._looked_at, _ = self._taken
        self._holds_until = min(self._holds_until, holds_until)
