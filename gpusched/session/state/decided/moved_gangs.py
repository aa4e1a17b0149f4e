"""Gangs that leave so that others fit, and the room held for them until they are made again.

What is held is recorded on the gang's PodGroup or Job, so that a restart keeps it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import attrs
import msgspec

from gpusched.api.devices.slots import gpu_request
from gpusched.api.gang.move_record import MoveRecord, MoveTarget
from gpusched.api.meta.identity import UID, GangKey, ResourceVersion
from gpusched.api.meta.resources import NOTHING, Resources
from gpusched.api.pod.pod import NO_GANG_ANNOTATIONS, Pod, PodClass, PodPhase
from gpusched.arrays.columns import request_vector
from gpusched.cache.gangs.expected_pods import expected_pod_uid, job_parallelism
from gpusched.cache.gangs.gang import Gang, PodSet
from gpusched.cache.snapshot import Snapshot
from gpusched.session.state.statement import Assignment


def assignments_held_for_move(
    snapshot: Snapshot, gang: Gang, move: MoveRecord, nominated: int
) -> tuple[Assignment, ...]:
    """Places that are still held for a moved gang.

    Each member that was made since and has its place, or a nomination, takes one off. While old
    members stay, their quota is charged for them: what is held for these costs none.

    Args:
        snapshot: of this moment.
        gang: that was moved.
        move: its record.
        nominated: members with a nomination.
    """
    if snapshot.is_past(move.at + snapshot.limits.nomination_timeout_s):
        return ()
    nodes = snapshot.nodes
    left = [
        (place.node, place.requests)
        for place in move.places
        for _ in range(place.pods)
        if place.node in nodes.row
    ]
    old = 0
    for member in gang.placed:
        if member.pod.created < move.at:
            old += 1
        else:
            _remove_one(left, member.node, member.pod.pod_class.requests)
    if gang.job is not None and gang.pod_group is None:
        # Authors of a Job may write there: never more places than it can have pods.
        left = left[: job_parallelism(gang.job)]
    left = left[: max(0, len(left) - nominated)]
    places = []
    for number, (node, requests) in enumerate(left):
        request = request_vector(requests, nodes.columns)
        charged = requests if number >= old else NOTHING
        pod = _expected_pod(gang.key, number, charged)
        places.append(Assignment(pod, nodes.row[node], 0, request, is_nomination=True))
    return tuple(places)


def _remove_one(left: list[tuple[str, Resources]], node: str, requests: Resources) -> None:
    """Take off the place of a member that was made: on its node, else one that is as large."""
    for fits in (
        [each for each in left if each == (node, requests)],
        [each for each in left if each[1] == requests],
    ):
        if fits:
            left.remove(fits[-1])
            return


def make_move_record(places: Sequence[Assignment], snapshot: Snapshot) -> MoveRecord:
    """The record of places held for a gang, to be written on its PodGroup or Job."""
    counts: dict[tuple[str, Resources], int] = {}
    for place in places:
        key = (snapshot.nodes.nodes[place.row].name, place.pod.pod_class.requests)
        counts[key] = counts.get(key, 0) + 1
    found = [MoveTarget(node, count, requests) for (node, requests), count in counts.items()]
    found.sort(key=lambda each: (each.node, each.requests.items, each.pods))
    return MoveRecord(float(int(snapshot.now)), tuple(found))


def as_pending_gang(gang: Gang) -> Gang:
    """The gang as it will be when it was stopped and all its members are made again."""
    pods = [
        msgspec.structs.replace(
            member.pod,
            uid=expected_pod_uid(UID(f"{gang.key.kind}/{gang.key}"), number),
            node="",
            slots=0,
            plan="",
            scheduled=0.0,
            phase=PodPhase.PENDING,
        )
        for number, member in enumerate(gang.placed)
    ]
    kinds: dict[tuple[str, str, str], list[Pod]] = {}
    for pod in pods:
        kinds.setdefault((pod.role, pod.sub_group, pod.pod_class.digest), []).append(pod)
    pod_sets = tuple(
        PodSet(role, of[0].pod_class, tuple(of), part)
        for (role, part, _), of in sorted(kinds.items())
    )
    return attrs.evolve(
        gang,
        pod_sets=pod_sets,
        placed=(),
        min_member=max(gang.min_member, len(pods)),
        ready_roles=(),
        ready_sub_groups=(),
        running=0,
        succeeded_counted=0,
        allocated=NOTHING,
        pending_requests=_total_requests(pods),
    )


def _total_requests(pods: Sequence[Pod]) -> Resources:
    asked = NOTHING
    for pod in pods:
        asked = asked.plus(pod.pod_class.requests)
    return asked


def _expected_pod(gang: GangKey, number: int, requests: Resources) -> Pod:
    """A pod with these requests and without rules, for a member that is to be made."""
    gpu, gpus = gpu_request(requests)
    digest = hashlib.blake2b(repr(requests.items).encode(), digest_size=16).hexdigest()
    return Pod(
        namespace=gang.namespace,
        name=f"{gang.name}-moved-{number}",
        uid=expected_pod_uid(UID(f"{gang.kind}/{gang}"), number),
        resource_version=ResourceVersion(""),
        created=0.0,
        labels={},
        owner=None,
        scheduler="",
        pod_class=PodClass(
            digest=digest,
            requests=requests,
            gpu=gpu,
            gpus=gpus,
            node_selector=(),
            affinity=None,
            preferred=(),
            tolerations=(),
            unsupported="",
        ),
        priority=0,
        priority_class="",
        group="",
        queue="",
        hints=NO_GANG_ANNOTATIONS,
    )
