"""Full cycles of clusters that many queues share: racks, and a deep tree. ``cycles`` has those that evict thousands."""

from __future__ import annotations

from typing import Final

from benchmarks.figures import Figure, middle
from benchmarks.shared_cluster import many_queues, racks_reclaimed, session_s
from gpusched.base.limits import PLAN_BINDS_MAX
from gpusched.io.observe.process_limits import collect_garbage_rarely
from gpusched.testing.given import Given

RUNS: Final = 3
TREE_MAX_S: Final = 1.5
QUIET_MAX_S: Final = 0.1


def measure() -> list[Figure]:
    """CPU seconds of a session: gangs take racks, a tree is served, nothing has changed."""
    collect_garbage_rarely()  # as the daemon does
    return [_racks(), *_tree()]


def _racks() -> Figure:
    nodes, a_rack, size = 1000, 16, 100
    runs, leave = [], 0
    for _ in range(RUNS):
        c = racks_reclaimed(nodes=nodes, a_rack=a_rack, gangs=5, size=size)
        runs.append(session_s(c))
        leave = _evicted(c)
        if not leave or leave % size:
            raise RuntimeError(f"{leave} pods are evicted, so that something else was measured")
    seconds, spread = middle(runs)
    return Figure(
        name=f"one cycle, {nodes:,} nodes in racks of {a_rack}, gangs of {size} take a rack, {leave} evicted",
        measured=seconds, unit="s", spread=spread,
    )  # fmt: skip


def _evicted(c: Given) -> int:
    return sum(len(stop.evictions) for each in c.then.plan.preemptions for stop in each.stops)


def _tree() -> list[Figure]:
    shape = "1,000 nodes, 200 queues in 4 levels, 10,000 pods in 1,000 gangs"
    first, quiet = [], []
    for _ in range(RUNS):
        c = many_queues(nodes=1000, queues=200, gangs=1000, size=10)
        first.append(session_s(c) + _bind_s(c))
        _come_to_rest(c)
        quiet.append(session_s(c, kept=True))
    return [
        _figure(f"cycles until 5,000 are placed, empty cluster, {shape}", first, TREE_MAX_S),
        _figure(f"a cycle in which nothing changed, {shape}", quiet, QUIET_MAX_S),
    ]


def _bind_s(c: Given) -> float:
    """Bind what fits, session by session: seconds of those up to 5,000 pods, the first left out.

    A session looks at no more gangs than its budget of work allows, so it takes two or three.
    """
    placed, seconds = _bound(c), 0.0
    while placed < PLAN_BINDS_MAX:
        seconds += session_s(c, kept=True)
        more = _bound(c)
        if not more:
            raise RuntimeError(f"{placed} pods were placed, so that something else was measured")
        placed += more
    while _bound(c):
        c.when.one_session()
    return seconds


def _come_to_rest(c: Given) -> None:
    """Have sessions carried out until one wants nothing more: claims are news to the next."""
    while True:
        plan = c.when.carried_out()
        if not (plan.binds or plan.preemptions or plan.stops):
            return


def _bound(c: Given) -> int:
    """Pods that the last plan bound, which run from now on."""
    binds = c.then.plan.binds
    for gang in binds:
        c.when.accept(gang)
    return sum(len(gang.binds) for gang in binds)


def _figure(name: str, runs: list[float], most: float) -> Figure:
    seconds, spread = middle(runs)
    return Figure(
        name=name, measured=seconds, unit="s", spread=spread, target=f"<= {most:g} s",
        met=seconds <= most,
    )  # fmt: skip
