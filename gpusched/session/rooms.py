"""What running gangs would leave free, kept between sessions as long as they do not change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import attrs

from gpusched.arrays.columns import Ints, NodeColumns
from gpusched.cache.gangs import Gang
from gpusched.objects.meta import GangKey
from gpusched.objects.resources import Resources
from gpusched.session.by_gang import ByGang


@attrs.frozen(slots=True, eq=False)
class Room:
    """Of one gang.

    Attributes:
        rows: of its members, int64, shape (members,).
        amounts: int64, shape (members, resources).
        charged: the same for the accounts of queues.
    """

    rows: Ints
    amounts: Ints
    charged: Resources


class Rooms:
    """By gang, see the module. Not for members that share GPUs: what those leave depends on others."""

    def __init__(self) -> None:
        self._epoch = -1
        self._of: ByGang[Room | Literal[False]] = ByGang()

    def of(self, gang: Gang, nodes: NodeColumns, make: Callable[[], Room | None]) -> Room | None:
        """The room of all its members; made when it is not known for these rows."""
        if self._epoch != nodes.epoch:
            self._epoch = nodes.epoch
            self._of.clear()
        known = self._of.get(gang)
        if known is None:
            known = make() or False
            self._of.put(gang, known)
        return known or None

    def only(self, gangs: Mapping[GangKey, Gang]) -> None:
        """Of all others nothing need be known any more."""
        self._of.only(gangs.values(), len(gangs))
