"""Room that is held for gangs that were moved, until their members are made again and placed.

It is read back from the record of the move, see ``objects.move``: nothing lives in memory. The
members for whom it is held need not exist; they are stood for by pods that say what they ask for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import attrs
import msgspec

from gpusched import limits
from gpusched.arrays.columns import demand
from gpusched.cache.gangs import Gang, Task
from gpusched.cache.snapshot import Snapshot
from gpusched.cache.unborn import mark_unborn, wanted_pods
from gpusched.objects.meta import UID, GangKey, ResourceVersion
from gpusched.objects.move import Move, MovedTo
from gpusched.objects.pod import NO_HINTS, Pod, PodClass, PodPhase
from gpusched.objects.resources import NOTHING, Resources
from gpusched.objects.slot import gpu_request
from gpusched.session.statement import Place


def held_places(snapshot: Snapshot, gang: Gang, move: Move, promised: int) -> tuple[Place, ...]:
    """What is still held of a move.

    Each member that was made since and has its place, or a promise, takes one off. While old
    members stay, their quota is charged for them: what is held for these costs none.

    Args:
        snapshot: of this moment.
        gang: that was moved.
        move: its record.
        promised: members that are promised room otherwise.
    """
    if snapshot.now - move.at >= limits.MOVED_HOLD_S:
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
            _take_off(left, member.node, member.pod.pod_class.requests)
    if gang.job is not None and gang.pod_group is None:
        # Whoever may change a Job may write there: never more than it can have.
        left = left[: wanted_pods(gang.job)]
    left = left[: max(0, len(left) - promised)]
    places = []
    for number, (node, requests) in enumerate(left):
        ask = demand(requests, nodes.columns)
        charged = requests if number >= old else NOTHING
        pod = _stand_in(gang.key, number, charged)
        places.append(Place(pod, nodes.row[node], 0, ask, promised=True))
    return tuple(places)


def _take_off(left: list[tuple[str, Resources]], node: str, requests: Resources) -> None:
    """A member came: the place on its node is its own, else one that is as large."""
    for fits in (
        [each for each in left if each == (node, requests)],
        [each for each in left if each[1] == requests],
    ):
        if fits:
            left.remove(fits[-1])
            return


def move_of(places: Sequence[Place], snapshot: Snapshot) -> Move:
    """The record of places found for a gang, to be written now."""
    counts: dict[tuple[str, Resources], int] = {}
    for place in places:
        key = (snapshot.nodes.nodes[place.row].name, place.pod.pod_class.requests)
        counts[key] = counts.get(key, 0) + 1
    found = [MovedTo(node, count, requests) for (node, requests), count in counts.items()]
    found.sort(key=lambda each: (each.node, each.requests.items, each.pods))
    return Move(float(int(snapshot.now)), tuple(found))


def as_waiting(gang: Gang) -> Gang:
    """The gang as it will be when it was stopped and all its members are made again."""
    pods = [
        msgspec.structs.replace(
            member.pod,
            uid=mark_unborn(UID(f"{gang.key.kind}/{gang.key}"), number),
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
    tasks = tuple(
        Task(role, of[0].pod_class, tuple(of), part)
        for (role, part, _), of in sorted(kinds.items())
    )
    return attrs.evolve(
        gang,
        tasks=tasks,
        placed=(),
        min_member=max(gang.min_member, len(pods)),
        ready_roles=(),
        ready_sub_groups=(),
        running=0,
        credit=0,
        held=NOTHING,
        asked=_sum(pods),
    )


def _sum(pods: Sequence[Pod]) -> Resources:
    asked = NOTHING
    for pod in pods:
        asked = asked.plus(pod.pod_class.requests)
    return asked


def _stand_in(gang: GangKey, number: int, requests: Resources) -> Pod:
    """A pod that asks for so much and has no rules."""
    gpu, gpus = gpu_request(requests)
    digest = hashlib.blake2b(repr(requests.items).encode(), digest_size=16).hexdigest()
    return Pod(
        namespace=gang.namespace,
        name=f"{gang.name}-moved-{number}",
        uid=mark_unborn(UID(f"{gang.kind}/{gang}"), number),
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
        role="",
        sub_group="",
        hints=NO_HINTS,
        rank=-1,
        node="",
        phase=PodPhase.PENDING,
        deleting=False,
        gated=False,
        scheduled=0.0,
        slots=0,
        plan="",
        fence="",
        unschedulable_reason="",
        unschedulable="",
    )
