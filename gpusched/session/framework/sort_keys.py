"""Keys by which plugins order queues, gangs and pods, made comparable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs

Key = tuple[int | str, ...]


@attrs.frozen
class SortKeyHook:
    """Sort keys of one plugin.

    Attributes:
        key: computes the key of an item.
        alike: whether gangs of one equivalence class have the same key.
    """

    key: Callable[..., Key]
    alike: bool = False


class Excluded(Exception):
    """The item is left out of this session, because its key could not be computed."""


def joined_sort_key(orders: Sequence[Callable[..., Key]], *about: object) -> Any:
    """The joined key of an item, comparable whatever types plugins return; None to leave it out."""
    joined: list[tuple[int, int, str]] = []
    try:
        for order in orders:
            joined += [
                (0, part, "") if isinstance(part, int) else (1, 0, part) for part in order(*about)
            ]
    except Excluded:
        return None
    return tuple(joined)
