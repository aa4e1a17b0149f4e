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


def _comparable_parts(key: Key) -> list[tuple[int, int, str]]:
    return [(0, part, "") if isinstance(part, int) else (1, 0, part) for part in key]


def joined_sort_key(orders: Sequence[Callable[..., Key]], *about: object) -> Any:
    """The joined key of an item, comparable whatever types plugins return; None to leave it out."""
    try:
        return tuple(part for order in orders for part in _comparable_parts(order(*about)))
    except Excluded:
        return None
