"""Entities of one small kind by key, and those of them that cannot be believed."""

from __future__ import annotations

from typing import Generic, TypeVar

from gpusched.objects.meta import ObjectKey, Rejected

E = TypeVar("E")


class Shelf(Generic[E]):
    """Entities of one small kind by key, and those of them that cannot be believed."""

    def __init__(self) -> None:
        self.items: dict[ObjectKey, E] = {}
        self.rejected: dict[ObjectKey, Rejected] = {}

    def get(self, key: ObjectKey) -> E | Rejected | None:
        """What is there under a key, believed or not."""
        return self.items.get(key) or self.rejected.get(key)

    def put(self, key: ObjectKey, item: E | Rejected) -> None:
        """It is there, in this form."""
        if isinstance(item, Rejected):
            self.items.pop(key, None)
            self.rejected[key] = item
        else:
            self.rejected.pop(key, None)
            self.items[key] = item

    def drop(self, key: ObjectKey) -> None:
        """It is gone."""
        self.items.pop(key, None)
        self.rejected.pop(key, None)

    def keys(self) -> list[ObjectKey]:
        """Of all that is there, believed or not."""
        return [*self.items, *self.rejected]
