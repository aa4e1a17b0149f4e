"""What was found for gangs of a kind, so that the search for the next of them begins there."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

import attrs

from gpusched.cache.gangs import Gang
from gpusched.session.kinds import Kinds

if TYPE_CHECKING:  # it uses this
    from gpusched.session.reservations_search import Seeker
    from gpusched.session.reservations_sweep import Sweep


@attrs.define(slots=True)
class Before:
    """What was found for a gang of the same kind and length: this one starts no sooner.

    On the same profile and accounts, beside holds that are still there.

    Attributes:
        alone: when it could start if nobody held anything; None where it cannot start until the
            last moment, 0 for not known yet.
        start: of what was found for it beside the holds; 0 where nothing was.
        seeker: that looked for it.
        sweep: that goes on behind it.
    """

    alone: int | None = 0
    start: int = 0
    seeker: Seeker | None = None
    sweep: Sweep | None = None


class Found:
    """By kind, length and the state in which it was found."""

    def __init__(self, kinds: Kinds) -> None:
        self._kinds = kinds
        self._known: dict[Hashable, Before] = {}

    def of(self, gang: Gang, *, length: int, state: Hashable) -> Before:
        """To be read and told; of gangs that are like no other nothing is kept.

        Args:
            gang: that is looked for a start.
            length: seconds it will run.
            state: of everything on which a start depends but holds, of which there are only more.
        """
        kind = self._kinds.of(gang)
        if kind is None:
            return Before()
        return self._known.setdefault((kind, length, state), Before())


def was_told(gang: Gang) -> bool:
    """Whether it was told a time before: it held a reservation, which may be due."""
    return gang.pod_group is not None and b'"estimatedStartTime"' in gang.pod_group.status
