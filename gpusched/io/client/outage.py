"""An API server that cannot be reached, told once by all who follow it."""

from __future__ import annotations


class ServerOutage:
    """Which followers of one client cannot reach the API server now.

    A server that goes away takes some thirty watches with it: the first that meets a cause tells it for all, and the
    last one that works again tells how many do.
    """

    def __init__(self) -> None:
        self._lost: set[str] = set()
        self._told: set[str] = set()
        self._most = 0

    def note_loss(self, follower: str, cause: str) -> bool:
        """A follower cannot reach the server; whether nobody has told this cause in this outage.

        Args:
            follower: a name that no other follower has.
            cause: what is wrong, in words that are the same for all followers.
        """
        self._lost.add(follower)
        self._most = max(self._most, len(self._lost))
        new = cause not in self._told
        self._told.add(cause)
        return new

    def note_return(self, follower: str) -> int | None:
        """A follower reaches the server again, or follows no more.

        Returns:
            How many had lost it where this was the last of them, 0 where others still have, None where it had not.
        """
        if follower not in self._lost:
            return None
        self._lost.remove(follower)
        if self._lost:
            return 0
        most, self._most = self._most, 0
        self._told.clear()
        return most
