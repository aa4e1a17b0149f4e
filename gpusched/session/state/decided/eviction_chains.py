"""Which evictions repeat others, and which follow from others: gangs evicted again, and chains of evictions.

A gang is *evicted again* where it was left without its minimum, started once more and is left without it
once more within the window of the configuration. A *chain* is made of evictions of which each took a gang
for which others had been evicted: A for B, then B for C. Where it comes back to a gang (A for B, then B
for A) it is a *cycle*: room was handed round, and the work of all of them lost for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from gpusched.api.gang.eviction_record import PastEviction, with_eviction
from gpusched.api.meta.identity import UID
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.snapshot import Snapshot
from gpusched.session.state.plan import EvictionChain, EvictionCount


@attrs.frozen(slots=True)
class _EvictionEdge:
    """One gang left for another one."""

    victim: UID
    claimant: UID
    at: float
    gpu_seconds: int


class RecentEvictions:
    """Evictions of all gangs within the window, by the gang for which they were made.

    Args:
        gangs: of the snapshot.
        since: evictions before it do not count, seconds since the epoch.
    """

    def __init__(self, gangs: Iterable[Gang], *, since: float) -> None:
        edges = {
            _EvictionEdge(gang.uid, each.claimant, each.at, each.gpu_seconds)
            for gang in gangs
            for each in gang.evictions.since(since)
            if each.claimant
        }
        self._lengths: dict[_EvictionEdge, int] = {}
        self._by_claimant: dict[UID, list[_EvictionEdge]] = {}
        for edge in sorted(edges, key=lambda each: (each.at, each.victim, each.claimant)):
            self._lengths[edge] = self._length(edge.victim, edge.at)
            self._by_claimant.setdefault(edge.claimant, []).append(edge)

    def chain(self, victim: UID, eviction: PastEviction) -> EvictionChain:
        """The chain that ends with an eviction which is decided now."""
        before = list(self._evictions_before(victim, eviction.at))
        return EvictionChain(
            length=self._length(victim, eviction.at),
            is_cycle=any(edge.victim == eviction.claimant for edge in before),
            gpu_seconds=eviction.gpu_seconds + sum(edge.gpu_seconds for edge in before),
        )

    def _length(self, victim: UID, at: float) -> int:
        """Of the longest chain that ends with an eviction of this gang at that moment."""
        earlier = (each for each in self._by_claimant.get(victim, ()) if each.at <= at)
        return 1 + max((self._lengths[each] for each in earlier), default=0)

    def _evictions_before(self, victim: UID, at: float) -> Iterator[_EvictionEdge]:
        """All evictions from which one of this gang at that moment follows."""
        seen: set[_EvictionEdge] = set()
        open_ends = [(victim, at)]
        while open_ends:
            gang, until = open_ends.pop()
            for edge in self._by_claimant.get(gang, ()):
                if edge.at <= until and edge not in seen:
                    seen.add(edge)
                    open_ends.append((edge.victim, edge.at))
                    yield edge


def recent_evictions(snapshot: Snapshot) -> RecentEvictions:
    """Evictions of all gangs of a snapshot within the window of its configuration."""
    known = {gang.uid: gang for gang in snapshot.gangs if gang.evictions.past}
    known.update({gang.uid: gang for gang in snapshot.placed_gangs.values() if gang.evictions.past})
    return RecentEvictions(known.values(), since=snapshot.now - snapshot.limits.eviction_window_s)


def count_eviction(
    gang: Gang,
    eviction: PastEviction,
    recent: RecentEvictions,
    *,
    placed_at: float,
    window_s: float,
) -> EvictionCount:
    """Count an eviction that leaves a gang without its minimum.

    Args:
        gang: that leaves.
        eviction: that is decided now.
        recent: of all gangs.
        placed_at: when the last of the members that leave got its place, seconds since the epoch.
        window_s: within which evictions count.
    """
    record = with_eviction(gang.evictions, eviction, placed_at=placed_at)
    return EvictionCount(
        record=record,
        times=len(record.since(eviction.at - window_s)),
        window_s=window_s,
        chain=recent.chain(gang.uid, eviction),
    )
