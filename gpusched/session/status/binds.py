"""The places that a session gave, as data of its plan."""

from __future__ import annotations

from gpusched.session.state.plan import GangBind, PodBind
from gpusched.session.state.session import Session


def build_gang_binds(session: Session) -> tuple[GangBind, ...]:
    """Bindings for the places given in this session, sorted by gang."""
    nodes = session.snapshot.nodes.nodes
    binds = []
    for gang, places in session.placements.by_gang():
        if gang.expected_count:
            continue  # their room is held for them; see ``job_suspend_changes``
        moved = [
            PodBind(
                place.pod.key,
                place.pod.uid,
                nodes[place.row].name,
                nodes[place.row].uid,
                place.slots,
                place.pod.rank,
                place.pod.pod_class.requests,
                session.devices.claim_binds(place.pod) if place.pod.pod_class.claims else (),
            )
            for place in places
        ]
        moved.sort(key=lambda bind: (bind.key, bind.uid))
        binds.append(
            GangBind(
                gang=gang.key,
                uid=gang.uid,
                generation=gang.generation,
                queue=gang.queue,
                min_member=gang.min_member,
                placed=gang.ready_members,
                binds=tuple(moved),
                proof=session.placements.proof(gang),
                left_waiting=gang.pending - len(moved),
                grows=bool(gang.placed) and not gang.missing_members,
            )
        )
    return tuple(binds)
