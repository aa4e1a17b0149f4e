"""How long a decision waits for more changes after one, so that a burst is decided in few sessions."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

QUIET_SHARE: Final = 4
"""A quarter of the debounce without any change ends it early."""


class Change(Enum):
    """What kind of change a decision may depend on."""

    ANY = auto()
    ALONE = auto()
    """A pod that waits and is a gang of its own, complete."""
    FORESEEN = auto()
    """A pod that a Job which we started was to have: sessions have counted on it."""
    LATE = auto()
    """What frees nothing and is learned from alone, so that other changes are waited for."""


class Debounce:
    """The changes since the last session, seconds of any clock that is passed in.

    A pod that needs no other and comes after as long a rest as the debounce is waited for by nobody: its session
    begins at once. More that comes before it has begun is a burst.
    """

    def __init__(self) -> None:
        self._last = float("-inf")
        self._at_once = False

    def note_change(self, now: float, debounce_s: float, *, alone: bool = False) -> None:
        """Something changed.

        Args:
            now: of the change.
            debounce_s: longest wait of a session after a change.
            alone: whether it is the first since the last session, and is a pod that is a whole gang.
        """
        self._at_once = alone and now - self._last >= debounce_s
        self._last = now

    def ends_at(self, begun: float, debounce_s: float) -> float:
        """When the session is due that was first asked for at ``begun``."""
        if self._at_once:
            return begun
        return min(begun + debounce_s, self._last + debounce_s / QUIET_SHARE)
