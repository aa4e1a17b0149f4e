"""Queues that take from each other without end? Never: crowded histories with all gates."""

from __future__ import annotations

import random
import re
from collections import Counter

import pytest

from tests.populations import one_of
from tests.session.crowds import MIN_RUNTIME_S, Crowd, Pair

pytestmark = pytest.mark.long

ROUNDS = 5
"""Times that something changes from outside."""
QUIET = 60
"""Sessions in which a history without changes must come to rest."""
SEEDS = 60
AT_ONCE = re.compile("evicted at once for default/(g[0-9]+)")


def rest(crowd: Crowd, seen: Counter[Pair]) -> None:
    """Sessions until nothing happens, not even when all minimum runtimes are over.

    Raises:
        AssertionError: that never comes, two gangs evict each other, or somebody left in vain.
    """
    waiting: set[str] = set()
    for _ in range(2):
        for _ in range(QUIET):
            plan, pairs = crowd.step()
            seen.update(set(pairs))
            waiting.update(one for one, _ in pairs)
            for status in plan.gangs:
                # Who would lose the room at once leaves it to the one that would take it.
                instead = AT_ONCE.search(status.scheduled.message)
                if instead and status.gang.name in waiting:
                    waiting.discard(status.gang.name)
                    waiting.add(instead[1])
            waiting.difference_update(bind.gang.name for bind in plan.binds)
            for one, other in pairs:
                assert (other, one) not in seen, f"{one} and {other} evict each other: {seen}"
            if crowd.quiet(plan):
                break
        else:
            pytest.fail(f"not at rest after {QUIET} sessions: {seen}")
        assert waiting == set(), f"nobody used the room that was made: {seen}"
        crowd.c.now += 2 * MIN_RUNTIME_S


def live(seed: int) -> tuple[int, int]:
    """A whole history; evictions, and gangs."""
    crowd = Crowd(random.Random(seed))
    crowd.start()
    for _ in range(ROUNDS):
        before, pods = crowd.evicted, len(crowd.c.cache.pods)
        seen: Counter[Pair] = Counter()
        rest(crowd, seen)
        # Nobody is evicted for the same gang over and over, and each pod twice at most.
        assert max(seen.values(), default=0) <= 2, seen
        assert crowd.evicted - before <= 2 * pods, seen
        for _ in range(4):
            crowd.change()
    return crowd.evicted, crowd.made


def test_evictions_end_where_nothing_changes():
    """Evictions are few for what there is, and then all is quiet."""
    lives = [live(seed) for seed in one_of(10, range(SEEDS))]
    # A generator that evicts nobody would prove nothing.
    assert sum(evicted for evicted, _ in lives) >= 2 * len(lives), lives
