"""Values that packages above the session keep: for its length, as kube-scheduler's CycleState does, or longer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

T = TypeVar("T")


class CycleState:
    """One value of each class, made by the first that needs it, and kept as long as this is."""

    def __init__(self) -> None:
        self._values: dict[type[object], object] = {}

    def get_or_make(self, kind: type[T], make: Callable[[], T]) -> T:
        """The value of a class; made now when there is none."""
        known = self._values.get(kind)
        if known is None:
            known = self._values[kind] = make()
        return cast("T", known)
