"""How far sessions have come with looking at every gang, and whether and when another one is to follow.

A tenant that has more waiting than its share of a session is looked at in rounds. What changed while a round
went on may concern gangs looked at before: then another round follows at once. Where nothing has changed a
round is repeated only when a moment has come that one of its sessions had asked about.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from gpusched.base import limits


class NextSession(NamedTuple):
    """What follows a session.

    Attributes:
        goes_on: whether the next session begins where this one ended; else where this one began.
        after_s: seconds until the next session, where one follows though nothing happens; None for none.
    """

    goes_on: bool
    after_s: float | None


class RoundProgress:
    """One for each daemon; told of every session that it held."""

    def __init__(self) -> None:
        self._since: int | None = None
        """Changes that were known when the round began which goes on; None for no round."""
        self._settled = -1
        """Number of the change up to which every gang was looked at."""
        self._stays_until = inf
        """The first moment that a session of the round asked about and that was still to come."""
        self._rests_until = -inf
        """When gangs are looked at again though nothing has changed."""

    def note_session(
        self, changes: int, *, unfinished: bool, stays_until: float, now: float
    ) -> NextSession:
        """Note a session, and tell what follows it.

        Args:
            changes: that the session knew of.
            unfinished: whether a tenant has gangs that are still to be looked at.
            stays_until: before when the session would decide the same, if nothing changed.
            now: of the session.
        """
        settled = changes == self._settled
        if self._since is None and settled and now < self._rests_until:
            self._rests_until = min(self._rests_until, stays_until)
            return NextSession(goes_on=False, after_s=None)
        before = inf if self._since is None else self._stays_until
        self._stays_until = min(before, stays_until)
        if unfinished:
            if self._since is None:
                self._since = changes
            pause_s = limits.TENANT_ROUND_PAUSE_S if settled else 0.0
            return NextSession(goes_on=True, after_s=pause_s)
        since, self._since = self._since, None
        self._settled = changes if since is None else since
        self._rests_until = self._stays_until
        return NextSession(goes_on=True, after_s=None if self._settled == changes else 0.0)
