"""What gangs cost that only wait: a round in which nothing changed, by how many wait.

A round looks at each of them once, in one session or, where they ask for more than their share of
one, in several (docs/fair-sessions.md).
"""

from __future__ import annotations

import gc
import time
from typing import Final

from benchmarks.figures import Figure, middle, number
from gpusched.api.meta.identity import GangKey, Owner
from gpusched.api.pod.pod import GangAnnotations, PodPhase
from gpusched.config.model import DEFAULT
from gpusched.io.observe.process_limits import collect_garbage_rarely
from gpusched.session.framework.reasons import Reason
from gpusched.testing import entities
from gpusched.testing.given import Given

RUNS: Final = 3
NODES: Final = 100
CORES_A_NODE: Final = 10
CORES_A_POD: Final = 2
SIZE: Final = 10
HINTS: Final = GangAnnotations(expected_duration_ns=900 * 10**9)
ALIKE_MAX_US: Final = 60.0
UNLIKE_MAX_US: Final = 800.0
SMALLEST: Final = 1
SESSIONS_MAX: Final = 200
"""Of one round."""
WAITS: Final = "waits-"


def measure() -> list[Figure]:
    """Quiet rounds with 1,000 and 5,000 gangs that wait, beside the smallest session."""
    collect_garbage_rarely()  # as the daemon does
    smallest, _ = quiet_rounds(SMALLEST, alike=True)
    return [
        _figure(count, alike=alike, smallest=smallest)
        for alike in (True, False)
        for count in (1000, 5000)
    ]


def _figure(count: int, *, alike: bool, smallest: list[float]) -> Figure:
    runs, sessions = quiet_rounds(count, alike=alike)
    seconds, _ = middle(runs)
    least, _ = middle(smallest)
    each = [(run - sessions * least) * 1e6 / (count - SMALLEST) for run in runs]
    cost, spread = middle(each)
    most = ALIKE_MAX_US if alike else UNLIKE_MAX_US
    kind = "alike" if alike else "unlike"
    return Figure(
        name=f"a quiet round, {count:,} {kind} gangs wait: each of them",
        measured=cost,
        unit="us",
        spread=f"{spread}; whole {number(seconds * 1e3)} ms in {sessions} sessions, "
        f"{seconds / least:.1f} smallest",
        target=f"<= {most:g} us",
        met=cost <= most,
    )


def quiet_rounds(count: int, *, alike: bool) -> tuple[list[float], int]:
    """CPU seconds of rounds in which nothing changed since the one before, and sessions of the longest.

    Args:
        count: Jobs that wait, suspended, for a full cluster.
        alike: whether they ask for the same.

    Raises:
        RuntimeError: something was started, or some were never looked at.
    """
    c = full_cluster()
    for index in range(count):
        c.job(
            f"{WAITS}{index:05d}", parallelism=SIZE, completions=SIZE, indexed=True, suspended=True,
            queue="q", hints=HINTS, cpu=CORES_A_POD * 1000,
            memory=2 * entities.GIB + (0 if alike else index * 2**20),
        )  # fmt: skip
    _play_round(c, count)
    rounds = [_play_round(c, count) for _ in range(RUNS)]
    return [seconds for seconds, _ in rounds], max(sessions for _, sessions in rounds)


def _play_round(c: Given, count: int) -> tuple[float, int]:
    """CPU seconds and sessions until each of the gangs that wait was looked at."""
    seconds, looked_at = 0.0, set[GangKey]()
    for session in range(1, SESSIONS_MAX + 1):
        gc.collect()
        began = time.process_time()
        plan = c.when.one_session()
        seconds += time.process_time() - began
        if plan.job_changes:
            raise RuntimeError(f"{len(plan.job_changes)} Jobs were started")
        looked_at |= {
            each.gang
            for each in plan.gangs
            if each.gang.name.startswith(WAITS) and each.scheduled.reason != Reason.WAITING_FOR_TURN
        }
        if len(looked_at) == count:
            return seconds, session
    raise RuntimeError(f"{count - len(looked_at)} of {count} gangs were not looked at")


def full_cluster() -> Given:
    """Every core is held by Jobs of ten pods, which end one after another."""
    c = Given(config=DEFAULT)
    c.nodes(NODES, cpu=CORES_A_NODE * 1000, memory=64 * entities.GIB, gpus=0).queue("q")
    a_node = CORES_A_NODE // CORES_A_POD
    for index in range(NODES * a_node // SIZE):
        name = f"runs-{index:03d}"
        c.job(
            name, parallelism=SIZE, completions=SIZE, indexed=True, queue="q", hints=HINTS, pods=0
        )
        owner = Owner("Job", name, entities.uid("Job", name, "default"))
        for member in range(SIZE):
            node = (index * SIZE + member) // a_node
            c.pod(
                f"{name}-{member}", owner=owner, rank=member, queue="q", hints=HINTS,
                cpu=CORES_A_POD * 1000, memory=2 * entities.GIB, node=f"node-{node}", plan="p",
                phase=PodPhase.RUNNING, scheduled=c.now - 10 - index,
            )  # fmt: skip
    return c
