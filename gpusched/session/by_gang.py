"""What is known of gangs from earlier sessions: gangs are frozen, so a changed one is another."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Generic, TypeVar

from gpusched.cache.gangs import Gang

V = TypeVar("V")
_KEPT_LEAST: Final = 48
"""Sweeping so few costs microseconds; what is kept of gangs that are gone is memory that others
lie behind, and that the process so never gives back."""


class ByGang(Generic[V]):
    """Values by the identity of gangs."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[Gang, V]] = {}
        """By ``id``; the gang is kept with it, so that no other gets its ``id``."""

    def get(self, gang: Gang) -> V | None:
        """What is known of it; None for nothing."""
        known = self.known.get(id(gang))
        return None if known is None else known[1]

    def put(self, gang: Gang, value: V) -> None:
        """From now on this is known of it."""
        self.known[id(gang)] = (gang, value)

    def clear(self) -> None:
        """Nothing is known any more."""
        self.known.clear()

    def only(self, gangs: Iterable[Gang], count: int) -> None:
        """Of all others nothing need be known any more; ``count`` is how many gangs these are."""
        if len(self.known) > max(_KEPT_LEAST, 2 * count):
            known = self.known
            self.known = {id(each): known[id(each)] for each in gangs if id(each) in known}
