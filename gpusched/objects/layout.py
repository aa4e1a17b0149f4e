"""Which GPUs of a node sit together, as a layout says it: lists of slot numbers, maybe nested."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

Island: TypeAlias = "tuple[int, ...] | tuple[Island, ...]"
"""Slots that are linked better with each other than with the rest: their numbers, or the
islands in it."""


def slots_in(islands: tuple[Island, ...]) -> Iterator[int]:
    """All slot numbers, in the order in which they are written."""
    for island in islands:
        for each in island:
            if isinstance(each, int):
                yield each
            else:
                yield from slots_in((each,))
