"""Room that an earlier session promised and that is not free yet: read back from the API.

A promise is the ``nominatedNodeName`` of each waiting pod, and the reason and time of its
``PodScheduled`` condition: nothing lives in memory, so a restart keeps it.
"""

from __future__ import annotations

import attrs

from gpusched import limits
from gpusched.arrays.columns import demand_of
from gpusched.cache.gangs import Gang
from gpusched.cache.snapshot import Snapshot
from gpusched.objects.meta import GangKey
from gpusched.session.reasons import Reason
from gpusched.session.statement import Evict, Place


def standing(snapshot: Snapshot) -> dict[GangKey, tuple[Place, ...]]:
    """The promises in force, by gang.

    That of a gang ends as a whole: with its time, with one of its nodes, or with one of the
    pods for whom it was made, whose share is simply not there any more.
    """
    found: dict[GangKey, tuple[Place, ...]] = {}
    for gang in snapshot.gangs:
        if gang.suspended:
            continue  # its pods do not exist
        places = _of(gang, snapshot)
        if places:
            found[gang.key] = places
    return found


def _of(gang: Gang, snapshot: Snapshot) -> tuple[Place, ...]:
    places: list[Place] = []
    nodes = snapshot.nodes
    for task in gang.tasks:
        for pod in task.pods:
            if not pod.nominated or pod.unschedulable_reason != Reason.PREEMPTION_IN_PROGRESS:
                continue
            row = nodes.row.get(pod.nominated)
            if row is None or snapshot.now - pod.unschedulable_since > limits.PROMISE_MAX_S:
                return ()
            ask = demand_of(task.pod_class, nodes.columns)
            places.append(Place(pod, row, 0, ask, promised=True))
    return tuple(places)


@attrs.frozen(slots=True, eq=False)
class MoveDraft:
    """A gang that leaves for a claim, and the places that are held for it meanwhile."""

    gang: Gang
    places: tuple[Place, ...]


@attrs.frozen(slots=True, eq=False)
class ClaimDraft:
    """What a kept statement of promises came to.

    Attributes:
        places: promised, at least one.
        evictions: who leaves for them.
        action, reason, sentence: who decided, and what victims and the gang are told.
        moves: those of the victims that have other places.
    """

    gang: Gang
    places: tuple[Place, ...]
    evictions: tuple[Evict, ...]
    action: str
    reason: str
    sentence: str
    moves: tuple[MoveDraft, ...] = ()
