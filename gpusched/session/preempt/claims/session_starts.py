"""Gangs that were given places in this session, as gangs that run.

Nothing of them was sent yet, so they lose no work by leaving: a start is taken back at once where
the next session would evict it. What is lent is lent for longer than a moment.
"""

from __future__ import annotations

import attrs
import msgspec

from gpusched.api.meta.identity import GangKey
from gpusched.api.meta.resources import total
from gpusched.cache.gangs.gang import Gang, Placed
from gpusched.session.state.session import Session


def started_gangs(session: Session) -> dict[GangKey, Gang]:
    """Preemptible gangs that were given places in this session, with these as their members."""
    nodes = session.snapshot.nodes.nodes
    found = {}
    for gang, places in session.placements.by_gang():
        if not gang.terms.preemptible:
            continue
        taken = {place.pod.uid for place in places}
        started = [
            Placed(
                msgspec.structs.replace(place.pod, scheduled=session.snapshot.now),
                nodes[place.row].name,
                confirmed=False,
                slots=place.slots,
            )
            for place in places
        ]
        waiting = (
            attrs.evolve(each, pods=tuple(pod for pod in each.pods if pod.uid not in taken))
            for each in gang.pod_sets
        )
        requests = total(place.pod.pod_class.requests for place in places)
        found[gang.key] = attrs.evolve(
            gang,
            placed=(*gang.placed, *started),
            pod_sets=tuple(each for each in waiting if each.pods),
            allocated=gang.allocated.plus(requests),
        )
    return found
