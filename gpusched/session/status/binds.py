"""The places that a session gave, as data of its plan."""

from __future__ import annotations

from gpusched.api.gang.charge_record import ChargeRecord
from gpusched.api.node.node import Node
from gpusched.api.pod.pod import Pod
from gpusched.api.queue.queue import DEFAULT_QUEUE
from gpusched.cache.gangs.gang import Gang
from gpusched.session.state.plan import ClaimBind, GangBind, PodBind
from gpusched.session.state.session import Session
from gpusched.session.state.statement import Assignment
from gpusched.session.status.device_places import device_places


def build_gang_binds(session: Session) -> tuple[GangBind, ...]:
    """Bindings for the places given in this session, sorted by gang."""
    nodes, placements = session.snapshot.nodes.nodes, session.placements
    binds = []
    for gang, places in placements.by_gang():
        if gang.expected_count:
            continue  # their room is held for them; see ``job_suspend_changes``
        moved = [_pod_bind(session, gang, place, nodes[place.row]) for place in places]
        if len(moved) > 1:
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
                proof=placements.proof(gang),
                left_waiting=gang.pending - len(moved),
                grows=bool(gang.placed) and not gang.missing_members,
            )
        )
    return tuple(binds)


def _pod_bind(session: Session, gang: Gang, place: Assignment, node: Node) -> PodBind:
    claims: tuple[ClaimBind, ...] = ()
    pod, slots, device_slots = place.pod, place.slots, 0
    pod_class = pod.pod_class
    numa: tuple[int, ...] = ()
    if pod_class.claims:
        claims = session.devices.claim_binds(pod)
        device_slots, numa = device_places(session, node.name, claims)
        if pod_class.gpu in node.devices_only:
            # Which GPUs it has is said by the claim; where drivers number none, nobody knows.
            fits = device_slots.bit_count() == pod_class.gpus
            slots = device_slots if fits else 0
    return PodBind(
        pod.key,
        pod.uid,
        node.name,
        node.uid,
        slots,
        pod.rank,
        pod_class.requests,
        claims,
        device_slots,
        numa,
        _charge(gang, pod),
    )


def _charge(gang: Gang, pod: Pod) -> ChargeRecord | None:
    """Who pays for a member; None where it says so itself, and for a pod that is no part of anything."""
    if not (pod.owner or pod.group):
        return None
    if (pod.queue or DEFAULT_QUEUE, pod.creator) == (gang.queue, gang.creator):
        return None
    return ChargeRecord(gang.queue, gang.creator)
