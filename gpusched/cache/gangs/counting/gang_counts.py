"""Counts the members of a gang: those with a place, those that wait, those that cannot count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from gpusched.api.meta.codec import KEYS_TOLD_MAX
from gpusched.api.meta.identity import UID
from gpusched.api.meta.resources import NOTHING, Resources
from gpusched.api.pod.pod import Pod, PodClass, PodPhase
from gpusched.api.queue.queue import DEFAULT_QUEUE
from gpusched.cache.gangs.gang import Gang, GangSpec, Placed, make_pod_sets


def build_gang(
    origin: GangSpec, pods: Sequence[Pod], places: Mapping[UID, tuple[str, bool, int]]
) -> Gang:
    """Count the members of one gang.

    Args:
        origin: minimum, queue and wishes.
        pods: all members that exist, in any order.
        places: node, whether it is confirmed, and slots, for members that have a place.
    """
    waiting: list[Pod] = []
    placed: list[Placed] = []
    holding: list[PodClass] = []
    going: list[Placed] = []
    gated = leaving = running = succeeded = failed = 0
    gates: set[str] = set()
    strange = _strange_keys_of_objects(origin)
    for pod in pods:
        if pod.strange_keys and not pod.finished:
            strange.update(pod.strange_keys)
        if pod.uid in places and not pod.finished:
            holding.append(pod.pod_class)
            if pod.deleting:
                going.append(Placed(pod, *places[pod.uid]))
        if pod.phase is PodPhase.SUCCEEDED:
            succeeded += 1
        elif pod.phase is PodPhase.FAILED:
            failed += 1
        elif pod.deleting:
            leaving += 1
        elif pod.uid in places:
            placed.append(Placed(pod, *places[pod.uid]))
            running += pod.phase is PodPhase.RUNNING
        elif pod.gated:
            gated += 1
            gates.update(pod.gates)
        else:
            waiting.append(pod)
    placed.sort(key=lambda member: (member.pod.key, member.pod.uid))
    pod_sets = make_pod_sets(waiting)
    return Gang(
        key=origin.key,
        uid=origin.uid,
        generation=origin.generation,
        queue=_gang_queue(origin, pods),
        priority=_gang_priority(origin, pods),
        min_member=origin.min_member,
        min_roles=origin.min_roles,
        ready_roles=_ready_roles(origin, placed, pods),
        topology=origin.topology,
        sub_groups=origin.sub_groups,
        min_sub_groups=origin.min_sub_groups,
        ready_sub_groups=_ready_sub_groups(origin, placed, pods),
        pod_sets=pod_sets,
        placed=tuple(placed),
        gated=gated,
        gates=tuple(sorted(gates)) if gates else (),
        leaving=leaving,
        running=running,
        succeeded=succeeded,
        failed=failed,
        succeeded_counted=max(0, succeeded - origin.succeeded_known)
        if origin.counts_succeeded
        else 0,
        allocated=_sum_requests(holding),
        leaving_allocated=_sum_requests(member.pod.pod_class for member in going),
        leaving_placed=tuple(going),
        pending_requests=_sum_requests(pod.pod_class for pod in waiting),
        created=origin.created or min((pod.created for pod in pods), default=0.0),
        pod_group=origin.pod_group,
        error=_gang_error(origin),
        warning=origin.warning,
        key_warning="; ".join(sorted(strange)[:KEYS_TOLD_MAX]) if strange else "",
        terms=origin.terms,
        job=origin.job,
        expected_count=origin.expected_count,
        job_failure=origin.job_failure,
        eviction_warning=origin.eviction_warning,
        turn=origin.turn,
        parent_groups=origin.parent_groups,
        tree=origin.tree,
    )


def _strange_keys_of_objects(origin: GangSpec) -> set[str]:
    """What is said of keys of its PodGroup and its Job that mean nothing."""
    said = set(origin.pod_group.strange_keys) if origin.pod_group is not None else set()
    if origin.job is not None:
        said.update(origin.job.strange_keys)
    return said


def _gang_error(origin: GangSpec) -> tuple[str, str]:
    """Why no attempt makes sense: what its spec says, else terms that cannot be read."""
    error = origin.terms.gpu_types.error or origin.terms.devices.error
    return ("InvalidSpec", error) if error and not origin.error[0] else origin.error


def _ready_roles(
    origin: GangSpec, placed: Sequence[Placed], pods: Sequence[Pod]
) -> tuple[tuple[str, int], ...]:
    if not origin.min_roles:
        return ()
    ready = [member.pod.role for member in placed]
    if origin.counts_succeeded:
        ready += [pod.role for pod in pods if pod.phase is PodPhase.SUCCEEDED]
    return tuple(sorted(Counter(ready).items()))


def _ready_sub_groups(
    origin: GangSpec, placed: Sequence[Placed], pods: Sequence[Pod]
) -> tuple[tuple[str, int], ...]:
    if not origin.sub_groups:
        return ()
    ready = [member.pod.sub_group for member in placed]
    if origin.counts_succeeded:
        ready += [pod.sub_group for pod in pods if pod.phase is PodPhase.SUCCEEDED]
    return tuple(sorted(Counter(ready).items()))


def _gang_priority(origin: GangSpec, pods: Sequence[Pod]) -> int:
    if origin.priority is not None:
        return origin.priority
    return max((pod.priority for pod in pods if not pod.finished), default=0)


def _gang_queue(origin: GangSpec, pods: Sequence[Pod]) -> str:
    if origin.pod_group is None and not origin.queue:
        named = sorted({pod.queue for pod in pods if pod.queue})
        return named[0] if named else DEFAULT_QUEUE
    return origin.queue or DEFAULT_QUEUE


def _sum_requests(classes: Iterable[PodClass]) -> Resources:
    counts: dict[str, tuple[PodClass, int]] = {}
    for pod_class in classes:
        known = counts.get(pod_class.digest)
        counts[pod_class.digest] = (pod_class, known[1] + 1 if known else 1)
    return _multiply_requests(
        tuple((each.charged, count) for _, (each, count) in sorted(counts.items()))
    )


@lru_cache(maxsize=4096)
def _multiply_requests(parts: tuple[tuple[Resources, int], ...]) -> Resources:
    """So many times each. Equal gangs share the answer, by which sums recognise them."""
    amounts = NOTHING
    for requests, count in parts:
        amounts = amounts.plus(requests, times=count)
    return amounts
