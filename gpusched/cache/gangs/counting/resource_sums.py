"""Sums that follow their parts: one part changes, the rest is not added up again."""

from __future__ import annotations

from gpusched.api.meta.identity import GangKey
from gpusched.api.meta.resources import Resources
from gpusched.base.limits import COLUMN_MAX


class ResourceSums:
    """What the gangs of one queue hold; exact inside, saturating at ``COLUMN_MAX`` outside."""

    __slots__ = ("_amounts", "_parts")

    def __init__(self) -> None:
        self._parts: dict[GangKey, Resources] = {}
        self._amounts: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._parts)

    def set_part(self, key: GangKey, part: Resources) -> None:
        """Enter or replace what one gang holds."""
        self.drop_part(key)
        self._parts[key] = part
        for name, amount in part.items:
            self._amounts[name] = self._amounts.get(name, 0) + amount

    def drop_part(self, key: GangKey) -> None:
        """One gang holds nothing any more."""
        part = self._parts.pop(key, None)
        if part is None:
            return
        for name, amount in part.items:
            self._amounts[name] -= amount
        if not self._parts:
            self._amounts.clear()

    def sum_parts(self) -> Resources:
        """Sum of the amounts of all gangs."""
        return Resources.of(
            {name: min(COLUMN_MAX, amount) for name, amount in self._amounts.items() if amount}
        )
