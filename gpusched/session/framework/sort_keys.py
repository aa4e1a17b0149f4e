"""Keys by which plugins order queues, gangs and pods, made comparable."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from gpusched.base.classes import frozen

Key = tuple[int | str, ...]


@frozen
class SortKeyHook:
    """Sort keys of one plugin.

    Attributes:
        key: computes the key of an item.
        alike: whether gangs of one equivalence class have the same key.
        plugin: its name.
        rests_on: tells all on which keys depend beside their items; None where that is not declared.
        of_members: whether they depend on the classes and roles of members that wait.
    """

    key: Callable[..., Key]
    alike: bool = False
    plugin: str = ""
    rests_on: Callable[[], Hashable | None] | None = None
    of_members: bool = True


@frozen
class KeyMeaning:
    """What a part of a sort key says to people.

    Attributes:
        value: short, for a column of a table; empty where the part says nothing of interest.
        message: words such as ``class training counts 1000``.
        only_if_decisive: whether they are told only where this part puts a gang after another one.
    """

    value: str
    message: str
    only_if_decisive: bool = False


class Excluded(Exception):
    """The item is left out of this session, because its key could not be computed."""


def comparable_key(key: Key) -> tuple[tuple[int, int, str], ...]:
    """A key of which every part compares with every other, whatever types plugins return."""
    return tuple([(0, part, "") if isinstance(part, int) else (1, 0, part) for part in key])


def joined_sort_key(orders: Sequence[Callable[..., Key]], *about: object) -> Any:
    """The joined key of an item, comparable whatever types plugins return; None to leave it out."""
    joined: list[tuple[int, int, str]] = []
    try:
        for order in orders:
            joined += comparable_key(order(*about))
    except Excluded:
        return None
    return tuple(joined)


def parts_by_hook(orders: Sequence[SortKeyHook], *about: object) -> Any:
    """The key of an item as ``joined_sort_key`` makes it, each hook's part by itself; None to leave it out."""
    try:
        return tuple([comparable_key(order.key(*about)) for order in orders])
    except Excluded:
        return None


def plain_key(part: Sequence[tuple[int, int, str]]) -> Key:
    """One hook's part of such a key, as the hook gave it."""
    return tuple([text if is_text else number for is_text, number, text in part])
