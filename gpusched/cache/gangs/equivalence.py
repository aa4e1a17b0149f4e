"""Which gangs are equal for placement: the one key under which an answer for one gang holds for others.

Caches of what was found for a gang ask here; what it compares itself, it leaves out by
name. A test walks all fields of gangs and of what they are made of: each is in the key, or stands
in the test's list with the reason why no placement reads it.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import Flag, auto
from functools import lru_cache
from typing import Final

import attrs

from gpusched.api.gang.pod_group import GangTerms
from gpusched.cache.gangs.gang import Gang


class Omit(Flag):
    """Parts that a caller leaves out of the key.

    Attributes:
        LENGTH: how long the gang says it runs; for callers that no reservation concerns, or that
            compare lengths.
        SIZE: the minimum, and the number of pods of each class and of expected ones; for callers
            that compare how many members are needed, and only where all pods are of one class.
        NAMESPACE: for callers that exclude gangs with rules about other pods or with volumes.
    """

    NOTHING = 0
    LENGTH = auto()
    SIZE = auto()
    NAMESPACE = auto()


PlacementKey = tuple[Hashable, ...]


def placement_key(gang: Gang, *, without: Omit = Omit.NOTHING) -> PlacementKey:
    """All that decides where a gang may be placed, apart from the labels and volumes of its pods.

    A gang that has places is equal to no other, and neither is one that holds out for a preferred
    level: it has waited for a time of its own.
    """
    unique = bool(gang.placed) or bool(gang.topology.max_wait_ns)
    return (
        gang.queue,
        gang.priority,
        gang.topology,
        gang.min_roles,
        gang.ready_roles,
        gang.sub_groups,
        gang.parent_groups,
        gang.min_sub_groups,
        gang.ready_sub_groups,
        gang.succeeded_counted,
        gang.allocated,
        gang.leaving_allocated,
        gang.error,
        gang.suspended,
        bool(gang.expected_count),
        gang.pod_group.min_resources if gang.pod_group else None,
        gang.key if unique else None,
        gang.accounts,
        "" if Omit.NAMESPACE in without else gang.key.namespace,
        _member_classes(gang, sizes=Omit.SIZE not in without),
        _gang_terms(gang, lengths=Omit.LENGTH not in without),
    )


def lone_key(gang: Gang) -> PlacementKey | None:
    """All of ``placement_key`` without its namespace that tells gangs of one pod which waits, and of nothing else, from each other.

    Their terms, topology and accounts stand beside it, which thousands have in common. None for any other gang.
    """
    if len(gang.pod_sets) != 1 or gang.min_member != 1 or gang.placed or gang.expected_count:
        return None
    (pod_set,) = gang.pod_sets
    if len(pod_set.pods) != 1 or gang.pending_requests != pod_set.pod_class.charged:
        return None
    if gang.min_roles or gang.ready_roles or gang.sub_groups or gang.parent_groups:
        return None
    if gang.min_sub_groups or gang.ready_sub_groups or gang.topology.max_wait_ns:
        return None
    if gang.succeeded_counted or gang.allocated.items or gang.leaving_allocated.items:
        return None
    group, job = gang.pod_group, gang.job
    if group is not None and group.min_resources is not None:
        return None
    if job is not None and (job.deadline_s, job.parallelism) != _NO_JOB:
        return None
    return (
        gang.queue,
        gang.priority,
        gang.error,
        pod_set.role,
        pod_set.sub_group,
        pod_set.pod_class.digest,
        pod_set.pods[0].deadline_s,
    )


def without_length(key: PlacementKey) -> PlacementKey:
    """The same key of a gang, but for how long it says it runs."""
    lengths = key[-1]
    assert isinstance(lengths, tuple), "as _gang_terms gives it"
    return (*key[:-1], _without_length(lengths[0]))


def _member_classes(gang: Gang, *, sizes: bool) -> Hashable:
    """The classes of the members; with sizes also how many there are, and how many are needed."""
    if not sizes:
        return tuple((each.role, each.sub_group, each.pod_class.digest) for each in gang.pod_sets)
    return (
        gang.min_member,
        gang.expected_count,
        gang.pending_requests,
        tuple(
            (each.role, each.sub_group, each.pod_class.digest, len(each.pods))
            for each in gang.pod_sets
        ),
    )


def _gang_terms(gang: Gang, *, lengths: bool) -> Hashable:
    if not lengths:
        return _without_length(gang.terms)
    job = gang.job
    return (
        gang.terms,
        (job.deadline_s, job.parallelism) if job is not None else _NO_JOB,
        _pod_deadlines(gang),
    )


@lru_cache(maxsize=1024)
def _without_length(terms: GangTerms) -> GangTerms:
    """The terms of gangs that are equal but for how long they say they run; few differ."""
    return attrs.evolve(terms, expected_duration_ns=0)


_NO_JOB: Final = (0, 0)


def _pod_deadlines(gang: Gang) -> tuple[int, ...]:
    """Deadlines of members that wait, seconds, each once, sorted."""
    return tuple(sorted({pod.deadline_s for each in gang.pod_sets for pod in each.pods}))
