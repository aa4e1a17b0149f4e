"""The last look at Reservations: has one come, or was changed, that may keep nodes of the decision?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpusched.api.policy.reservation import AdvanceReservation
from gpusched.cache.cache import Cache


def reservation_error(
    cache: Cache, nodes: Iterable[str], decided_on: Sequence[AdvanceReservation]
) -> str:
    """Why these nodes may be kept for others than was decided on; empty when they are not.

    Which of its nodes a Reservation chooses, and who may be there, is what a session decides: all
    that it may choose count, so that the gang is decided again.

    Args:
        cache: as it is now.
        nodes: by name, on which pods would start.
        decided_on: Reservations as they were then.
    """
    known = {(each.uid, each.generation) for each in decided_on}
    changed = [
        each
        for _, each in sorted(cache.reservations.items.items())
        if (each.uid, each.generation) not in known
        and cache.part.reservation_here(each) is not None
    ]
    if not changed:
        return ""
    for name in sorted(set(nodes)):
        node = cache.rows.get(name)
        for each in changed:
            if node is not None and each.may_keep(name, node.labels):
                return f"Reservation {each.name}, which came or changed since, may keep node {name}"
    return ""
