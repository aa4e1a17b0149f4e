"""Which evictions repeat others, and which follow from others: gangs evicted again, and chains of evictions.

A gang is *evicted again* where it was left without its minimum, started once more and is left without it
once more within the window of the configuration. A *chain* is made of evictions of which each took a gang
for which others had been evicted: A for B, then B for C. Where it comes back to a gang (A for B, then B
for A) it is a *cycle*: room was handed round, and the work of all of them lost for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpusched.api.gang.eviction_record import PastEviction, with_eviction
from gpusched.base.classes import frozen
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.snapshot import Snapshot
from gpusched.session.state.plan import EvictionChain, EvictionCount


@frozen(slots=True)
class EvictionEdge:
    """One gang left for another one.

    Attributes:
        victim, claimant: what tells the two from all other gangs.
        at: seconds.
        gpu_seconds: work that was lost.
    """

    victim: str
    claimant: str
    at: float
    gpu_seconds: int


class EvictionGraph:
    """Evictions within a window, by the gang for which they were made.

    Args:
        edges: in any order.
    """

    def __init__(self, edges: Iterable[EvictionEdge]) -> None:
        self._lengths: dict[EvictionEdge, int] = {}
        self._by_claimant: dict[str, list[EvictionEdge]] = {}
        for edge in sorted(set(edges), key=lambda each: (each.at, each.victim, each.claimant)):
            self._lengths[edge] = self._length(edge.victim, edge.at)
            self._by_claimant.setdefault(edge.claimant, []).append(edge)

    def chain(self, last: EvictionEdge) -> EvictionChain:
        """The chain that ends with an eviction which is decided now."""
        before = list(self._evictions_before(last))
        return EvictionChain(
            length=self._length(last.victim, last.at),
            is_cycle=any(edge.victim == last.claimant for edge in before),
            gpu_seconds=last.gpu_seconds + sum(edge.gpu_seconds for edge in before),
        )

    def _length(self, victim: str, at: float) -> int:
        """Of the longest chain that ends with an eviction of this gang at that moment."""
        earlier = (each for each in self._by_claimant.get(victim, ()) if each.at <= at)
        return 1 + max((self._lengths[each] for each in earlier), default=0)

    def _evictions_before(self, last: EvictionEdge) -> Iterator[EvictionEdge]:
        """All evictions from which one follows."""
        seen: set[EvictionEdge] = set()
        open_ends = [last]
        while open_ends:
            later = open_ends.pop()
            for edge in self._by_claimant.get(later.victim, ()):
                if edge.at <= later.at and edge not in seen:
                    seen.add(edge)
                    open_ends.append(edge)
                    yield edge


def recent_evictions(snapshot: Snapshot) -> EvictionGraph:
    """Evictions of all gangs of a snapshot within the window of its configuration."""
    since = snapshot.now - snapshot.limits.eviction_window_s
    return EvictionGraph(
        EvictionEdge(gang.uid, each.claimant, each.at, each.gpu_seconds)
        for gang in (*snapshot.gangs, *snapshot.placed_gangs.values())
        if gang.evictions.past
        for each in gang.evictions.since(since)
        if each.claimant
    )


def count_eviction(
    gang: Gang,
    eviction: PastEviction,
    recent: EvictionGraph,
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
        chain=recent.chain(
            EvictionEdge(gang.uid, eviction.claimant, eviction.at, eviction.gpu_seconds)
        ),
    )
