"""The order in which gangs that wait had their turns, with the very keys by which they were sorted."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from gpusched.api.meta.identity import GangKey


class TurnFirst(StrEnum):
    """Why a gang has its turn before all that is new."""

    REPAIR = "repair"
    """It lost members that it needs."""
    STARTED = "started"
    """A session has started its Job, whose pods have no places yet."""


class WaitingTurn(NamedTuple):
    """The turn of a gang that could not start in it.

    Attributes:
        first: why its turn came before those of all that is new; None for one that is new itself.
        queues: the queues on its path, the widest first, each with the sort key that it had among its
            siblings with this gang: a part for each policy; None where there is no such queue.
        own: its sort key among the gangs of its queue: (a part for each policy, turns that it had,
            microseconds since the epoch since when it waits, its key).
    """

    gang: GangKey
    first: TurnFirst | None
    queues: tuple[tuple[str, Any], ...]
    own: tuple[Any, ...]


class WaitingOrder(NamedTuple):
    """Turns of a session in their order.

    Attributes:
        queue_policies: names of the plugins whose parts the keys of queues have, in their order.
        gang_policies: the same for keys of gangs.
    """

    queue_policies: tuple[str, ...]
    gang_policies: tuple[str, ...]
    turns: Sequence[WaitingTurn]


NO_ORDER = WaitingOrder((), (), ())
"""Of a session in which no turns are told."""
