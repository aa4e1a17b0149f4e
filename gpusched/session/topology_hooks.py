"""What policies say about compact places and about nodes that are kept spare."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from gpusched.cache.gangs import Gang
from gpusched.objects.group import NO_WISH

Wanted = Callable[[Gang], bool]


@attrs.frozen(slots=True)
class Spare:
    """So many empty GPU nodes of each domain of a level are for those who run there already."""

    level: str
    nodes: int


@attrs.define
class TopologyHooks:
    """What was registered in one session.

    Attributes:
        compacts: whether a gang wants the most compact place though it does not say so; any.
    """

    compacts: list[Wanted] = attrs.field(factory=list)
    spares: list[Spare] = attrs.field(factory=list)

    def wants_compact(self, gang: Gang) -> bool:
        """Whether its place is to be as compact as there is."""
        return gang.topology != NO_WISH or any(each(gang) for each in self.compacts)
