"""Levels that a gang names otherwise than by their names: by node label, or by number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import attrs

from gpusched.cache.gangs import Gang
from gpusched.objects.adapters.groups import TIER
from gpusched.objects.group import TopologyWish
from gpusched.topology.domain import HOST, Level

_OTHERWISE: Final = ("/", ":")
"""In a node label, and in the number of a tier; hardly ever in the name of a level."""


def with_level_names(gang: Gang, levels: Callable[[], Sequence[Level]]) -> Gang:
    """The gang with its wishes by the names of levels; itself where they are so already.

    What is no level by any name stays as it is, and is refused where the wish is read.

    Args:
        gang: any gang.
        levels: gives the levels, widest first; called only when there is a name to find.
    """
    own = gang.topology
    if not gang.sub_groups and not own.required and not own.preferred:
        return gang
    wishes = [own, *(part.topology for part in gang.sub_groups)]
    if not any(_otherwise(wish) for wish in wishes):
        return gang
    known = levels()
    parts = tuple(
        attrs.evolve(part, topology=_named(part.topology, known)) for part in gang.sub_groups
    )
    return attrs.evolve(gang, topology=_named(gang.topology, known), sub_groups=parts)


def _otherwise(wish: TopologyWish) -> bool:
    return any(mark in wish.required or mark in wish.preferred for mark in _OTHERWISE)


def _named(wish: TopologyWish, levels: Sequence[Level]) -> TopologyWish:
    return attrs.evolve(
        wish, required=_name(wish.required, levels), preferred=_name(wish.preferred, levels)
    )


def _name(text: str, levels: Sequence[Level]) -> str:
    """Of the level that has this name or this label, or is the so-many-th above the hosts."""
    if any(level.name == text for level in levels):
        return text
    by_label = next((level.name for level in levels if level.label == text), None)
    if by_label is not None:
        return by_label
    number = text.removeprefix(TIER)
    if number == text or not number.isdecimal():
        return text
    above = [level.name for level in reversed(levels) if level.label != HOST]
    tier = int(number)
    if tier == 0:
        return next((level.name for level in levels if level.label == HOST), text)
    # A tier above the widest level allows the whole cluster: the widest is the nearest to that.
    return above[min(tier, len(above)) - 1] if above else text
