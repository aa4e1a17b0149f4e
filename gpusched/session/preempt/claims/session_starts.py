"""Gangs that were given places in this session, as gangs that run.

Nothing of them was sent yet, so they lose no work by leaving: a start is taken back at once where
the next session would evict it. What is lent is lent for longer than a moment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import attrs
import msgspec

from gpusched.api.meta.identity import GangKey
from gpusched.api.meta.resources import total
from gpusched.cache.gangs.gang import Gang, Placed
from gpusched.session.state.session import Session
from gpusched.session.state.statement import Assignment


def started_gangs(session: Session) -> dict[GangKey, Gang]:
    """Preemptible gangs that were given places in this session, with these as their members."""
    return {
        gang.key: gang_with_starts(session, gang, places)
        for gang, places in session.placements.by_gang()
        if gang.terms.preemptible
    }


def nominated_gangs(session: Session) -> dict[GangKey, Gang]:
    """Preemptible gangs with a nomination, as they will be when they have their places."""
    return {
        gang.key: gang_with_starts(session, gang, places)
        for gang, places in session.placements.by_gang_with_nominations()
        if gang.terms.preemptible and session.nominations.has_nomination(gang)
    }


def gang_with_starts(session: Session, gang: Gang, places: Sequence[Assignment]) -> Gang:
    """The gang as it is once these places are bound."""
    nodes = session.snapshot.nodes.nodes
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
    requests = total(place.pod.pod_class.charged for place in places)
    return attrs.evolve(
        gang,
        placed=(*gang.placed, *started),
        pod_sets=tuple(each for each in waiting if each.pods),
        ready_roles=_add_names(gang.ready_roles, [place.pod.role for place in places])
        if gang.min_roles
        else (),
        ready_sub_groups=_add_names(
            gang.ready_sub_groups, [place.pod.sub_group for place in places]
        )
        if gang.sub_groups
        else (),
        allocated=gang.allocated.plus(requests),
    )


def _add_names(
    counts: Iterable[tuple[str, int]], more: Sequence[str]
) -> tuple[tuple[str, int], ...]:
    """Counts by name, each more by how often the name is among those that are added."""
    found = Counter(dict(counts))
    found.update(more)
    return tuple(sorted(found.items()))
