"""Topology levels that a gang names by node label or by number, resolved to their names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import attrs

from gpusched.api.foreign.pod_groups import TIER
from gpusched.api.gang.pod_group import TopologyRequest
from gpusched.cache.gangs.gang import Gang
from gpusched.topology.levels import HOST, TopologyLevel

_NOT_A_LEVEL_NAME: Final = ("/", ":")
"""Marks of a node label and of a tier's number; hardly ever in the name of a level."""


def resolve_level_names(gang: Gang, levels: Callable[[], Sequence[TopologyLevel]]) -> Gang:
    """The gang with topology requests by the names of levels; itself where they are so already.

    What is no level by any name stays as it is, and is refused where the request is read.

    Args:
        gang: any gang.
        levels: gives the levels, widest first; called only when there is a name to find.
    """
    if not needs_level_names(gang):
        return gang
    known = levels()
    parts, holders = (
        tuple(attrs.evolve(part, topology=_resolved_request(part.topology, known)) for part in each)
        for each in (gang.sub_groups, gang.parent_groups)
    )
    return attrs.evolve(
        gang,
        topology=_resolved_request(gang.topology, known),
        sub_groups=parts,
        parent_groups=holders,
    )


def needs_level_names(gang: Gang) -> bool:
    """Whether the gang, or a part of it, names a level otherwise than by its name."""
    own = gang.topology
    if not gang.sub_groups and not own.required and not own.preferred:
        return False
    return any(_needs_resolving(request) for request in gang.topology_requests)


def named_labels(names: Iterable[str], levels: Sequence[TopologyLevel]) -> tuple[str, ...]:
    """What gangs name as a level and is none: node labels, or mistakes; sorted.

    Args:
        names: that gangs with their requests resolved give as levels.
        levels: of the cluster.
    """
    known = {level.name for level in levels}
    return tuple(sorted(set(names) - known))


def _needs_resolving(request: TopologyRequest) -> bool:
    return any(mark in request.required or mark in request.preferred for mark in _NOT_A_LEVEL_NAME)


def _resolved_request(request: TopologyRequest, levels: Sequence[TopologyLevel]) -> TopologyRequest:
    return attrs.evolve(
        request,
        required=_resolve_level_name(request.required, levels),
        preferred=_resolve_level_name(request.preferred, levels),
    )


def _resolve_level_name(text: str, levels: Sequence[TopologyLevel]) -> str:
    """Name of the level with this name or label, or with this number above the hosts."""
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
