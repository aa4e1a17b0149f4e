"""Gangs of a run that were evicted again and again, and chains of evictions; see docs/thrash.md.

A run's record has evictions of pods. Here one counts for its gang where it left that without its minimum.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from gpusched.base.classes import frozen
from gpusched.base.limits import EVICTION_WINDOW_S
from gpusched.engine.run_record import EvictionRecord, LifeEnd, PodLife, RunRecord
from gpusched.session.state.decided.eviction_chains import EvictionEdge, EvictionGraph
from gpusched.session.state.plan import EvictionChain

_CLAIMANT: Final = re.compile(r"\bfor ([a-z0-9-]+/[a-z0-9][a-z0-9.-]*)")
"""The gang for which a pod left, in the sentence with which it did."""
_THOUSAND: Final = 1000


@frozen(kw_only=True)
class GangEviction:
    """One time that a job was left without its minimum.

    Attributes:
        job: its key.
        claimant: key of the job for which it left; empty where it was stopped for its own sake.
        at: seconds since the run began.
        times: evictions of the job within the window up to this one.
        chain: that ends with this one.
    """

    job: str
    claimant: str
    at: float
    times: int
    chain: EvictionChain


def gang_evictions(
    record: RunRecord, *, window_s: float = EVICTION_WINDOW_S
) -> tuple[GangEviction, ...]:
    """Evictions of jobs in the order of time.

    Args:
        record: the run, or the part of it so far.
        window_s: within which evictions are repeated ones, and chains count.
    """
    owner = {f"{pod.namespace}/{pod.name}": pod.job for pod in record.pods}
    keys = {job.key for job in record.jobs}
    edges = []
    for each in sorted(_evictions_below_minimum(record), key=lambda one: (one.at, one.job)):
        named = _CLAIMANT.search(each.sentence)
        name = named[1] if named is not None else ""
        claimant = name if name in keys else owner.get(name, "")
        edges.append(EvictionEdge(each.job, claimant, each.at, each.lost // _THOUSAND))
    found: list[GangEviction] = []
    begin = 0
    for number, edge in enumerate(edges):
        while edges[begin].at < edge.at - window_s:
            begin += 1
        recent = edges[begin:number]
        found.append(
            GangEviction(
                job=edge.victim,
                claimant=edge.claimant,
                at=edge.at,
                times=1 + sum(each.victim == edge.victim for each in recent),
                chain=EvictionGraph(each for each in recent if each.claimant).chain(edge),
            )
        )
    return tuple(found)


def _evictions_below_minimum(record: RunRecord) -> Iterator[EvictionRecord]:
    """Evictions of pods that left their job without its minimum, one for each run of it."""
    jobs = {job.key: job for job in record.jobs}
    pods: dict[str, list[PodLife]] = {}
    for pod in record.pods:
        pods.setdefault(pod.job, []).append(pod)
    placed = {f"{pod.namespace}/{pod.name}": pod.bound for pod in record.pods}
    last: dict[str, float] = {}
    for each in record.evictions:
        job, bound = jobs.get(each.job), placed.get(each.pod)
        if job is None or bound is None or bound < last.get(each.job, 0.0):
            continue
        if _members_left(pods.get(each.job, ()), each.at) < job.min_member:
            last[each.job] = each.at
            yield each


def _members_left(pods: Sequence[PodLife], at: float) -> int:
    """Members that go on, or have succeeded, once those that were told to go by then are gone."""
    return sum(
        pod.bound is not None
        and pod.bound <= at
        and (
            ((pod.ended is None or pod.ended > at) and (pod.told is None or pod.told > at))
            or (pod.end is LifeEnd.SUCCEEDED and pod.ended is not None and pod.ended <= at)
        )
        for pod in pods
    )
