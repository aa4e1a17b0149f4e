"""Counts the members of a gang: those with a place, those that wait, those that cannot count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache

import attrs

from gpusched.api.meta.codec import KEYS_TOLD_MAX
from gpusched.api.meta.identity import UID
from gpusched.api.meta.resources import NOTHING, Resources
from gpusched.api.pod.pod import FAILED, RUNNING, SUCCEEDED, Pod, PodClass
from gpusched.api.queue.queue import DEFAULT_QUEUE
from gpusched.base.classes import define
from gpusched.cache.gangs.gang import Gang, GangSpec, Placed, make_pod_sets


@define(slots=True)
class _MemberCounts:
    """Members of a gang, sorted into what they do.

    Attributes:
        holding: classes of members with a place, leaving or not.
        going: members with a place that are being deleted.
        strange: keys of annotations and labels that look like ours and are not.
    """

    waiting: list[Pod] = attrs.field(factory=list)
    placed: list[Placed] = attrs.field(factory=list)
    holding: list[PodClass] = attrs.field(factory=list)
    going: list[Placed] = attrs.field(factory=list)
    gated: int = 0
    gates: set[str] = attrs.field(factory=set)
    leaving: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    strange: set[str] = attrs.field(factory=set)


def _count_members(
    pods: Sequence[Pod], places: Mapping[UID, tuple[str, bool, int]]
) -> _MemberCounts:
    found = _MemberCounts()
    for pod in pods:
        finished, place = pod.finished, places.get(pod.uid)
        if pod.strange_keys and not finished:
            found.strange.update(pod.strange_keys)
        member = Placed(pod, *place) if place is not None and not finished else None
        if member is not None:
            found.holding.append(pod.pod_class)
        if finished:
            found.succeeded += pod.phase is SUCCEEDED
            found.failed += pod.phase is FAILED
        elif pod.deleting:
            found.leaving += 1
            if member is not None:
                found.going.append(member)
        elif member is not None:
            found.placed.append(member)
            found.running += pod.phase is RUNNING
        elif pod.gated:
            found.gated += 1
            found.gates.update(pod.gates)
        else:
            found.waiting.append(pod)
    for members in (found.placed, found.going):
        if len(members) > 1:
            members.sort(key=lambda member: (member.pod.key, member.pod.uid))
    return found


def build_gang(
    origin: GangSpec, pods: Sequence[Pod], places: Mapping[UID, tuple[str, bool, int]]
) -> Gang:
    """Count the members of one gang.

    Args:
        origin: minimum, queue and wishes.
        pods: all members that exist, in any order.
        places: node, whether it is confirmed, and slots, for members that have a place.
    """
    found = _count_members(pods, places)
    found.succeeded += origin.successes.deleted_count
    strange = _strange_keys_of_objects(origin) | found.strange
    return Gang(
        key=origin.key,
        uid=origin.uid,
        generation=origin.generation,
        queue=_gang_queue(origin, pods),
        priority=_gang_priority(origin, pods),
        min_member=origin.min_member,
        min_roles=origin.min_roles,
        ready_roles=_ready_roles(origin, found.placed, pods),
        topology=origin.topology,
        sub_groups=origin.sub_groups,
        min_sub_groups=origin.min_sub_groups,
        ready_sub_groups=_ready_sub_groups(origin, found.placed, pods),
        pod_sets=make_pod_sets(found.waiting),
        placed=tuple(found.placed),
        gated=found.gated,
        gates=tuple(sorted(found.gates)) if found.gates else (),
        leaving=found.leaving,
        running=found.running,
        succeeded=found.succeeded,
        failed=found.failed,
        succeeded_counted=max(
            0, found.succeeded - origin.succeeded_known, origin.successes.of_going_on
        )
        if origin.counts_succeeded
        else 0,
        allocated=_sum_requests(found.holding),
        leaving_allocated=_sum_requests([member.pod.pod_class for member in found.going]),
        leaving_placed=tuple(found.going),
        pending_requests=_sum_requests([pod.pod_class for pod in found.waiting]),
        created=origin.created or min([pod.created for pod in pods], default=0.0),
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
        evictions=origin.evictions,
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
        ready += [pod.role for pod in pods if pod.phase is SUCCEEDED]
        ready += origin.successes.deleted_roles()
    return tuple(sorted(Counter(ready).items()))


def _ready_sub_groups(
    origin: GangSpec, placed: Sequence[Placed], pods: Sequence[Pod]
) -> tuple[tuple[str, int], ...]:
    if not origin.sub_groups:
        return ()
    ready = [member.pod.sub_group for member in placed]
    if origin.counts_succeeded:
        ready += [pod.sub_group for pod in pods if pod.phase is SUCCEEDED]
        ready += origin.successes.deleted_sub_groups()
    return tuple(sorted(Counter(ready).items()))


def _gang_priority(origin: GangSpec, pods: Sequence[Pod]) -> int:
    if origin.priority is not None:
        return origin.priority
    return max([pod.priority for pod in pods if not pod.finished], default=0)


def _gang_queue(origin: GangSpec, pods: Sequence[Pod]) -> str:
    if origin.pod_group is None and not origin.queue:
        named = sorted({pod.queue for pod in pods if pod.queue})
        return named[0] if named else DEFAULT_QUEUE
    return origin.queue or DEFAULT_QUEUE


def _sum_requests(classes: Sequence[PodClass]) -> Resources:
    if len(classes) < 2:  # most gangs are single pods, and have a place or wait for one
        return classes[0].charged if classes else NOTHING
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
