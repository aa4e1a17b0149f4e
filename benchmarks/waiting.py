"""What gangs cost that only wait: a session in which nothing changed, by how many wait."""

from __future__ import annotations

import gc
import time
from typing import Final

from benchmarks.figures import Figure, middle, number
from gpusched.api.meta.identity import Owner
from gpusched.api.pod.pod import GangAnnotations, PodPhase
from gpusched.config.model import DEFAULT
from gpusched.io.observe.process_limits import collect_garbage_rarely
from gpusched.testing import entities
from gpusched.testing.given import Given

RUNS: Final = 5
NODES: Final = 100
CORES_A_NODE: Final = 10
CORES_A_POD: Final = 2
SIZE: Final = 10
HINTS: Final = GangAnnotations(expected_duration_ns=900 * 10**9)
ALIKE_MAX_US: Final = 60.0
UNLIKE_MAX_US: Final = 800.0
SMALLEST: Final = 1


def measure() -> list[Figure]:
    """Quiet sessions with 1,000 and 5,000 gangs that wait, beside the smallest session."""
    collect_garbage_rarely()  # as the daemon does
    smallest = quiet_s(SMALLEST, alike=True)
    return [
        _figure(count, alike=alike, smallest=smallest)
        for alike in (True, False)
        for count in (1000, 5000)
    ]


def _figure(count: int, *, alike: bool, smallest: list[float]) -> Figure:
    runs = quiet_s(count, alike=alike)
    seconds, _ = middle(runs)
    least, _ = middle(smallest)
    each = [(run - least) * 1e6 / (count - SMALLEST) for run in runs]
    cost, spread = middle(each)
    most = ALIKE_MAX_US if alike else UNLIKE_MAX_US
    kind = "alike" if alike else "unlike"
    return Figure(
        name=f"a quiet session, {count:,} {kind} gangs wait: each of them",
        measured=cost,
        unit="us",
        spread=f"{spread}; whole {number(seconds * 1e3)} ms, {seconds / least:.1f} smallest",
        target=f"<= {most:g} us",
        met=cost <= most,
    )


def quiet_s(count: int, *, alike: bool) -> list[float]:
    """Seconds of sessions in which nothing changed since the one before.

    Args:
        count: Jobs that wait, suspended, for a full cluster.
        alike: whether they ask for the same.

    Raises:
        RuntimeError: something was started, so that something else was measured.
    """
    c = full_cluster()
    for index in range(count):
        c.job(
            f"waits-{index:05d}", parallelism=SIZE, completions=SIZE, indexed=True, suspended=True,
            queue="q", hints=HINTS, cpu=CORES_A_POD * 1000,
            memory=2 * entities.GIB + (0 if alike else index * 2**20),
        )  # fmt: skip
    for _ in range(2):
        c.when.one_session()
    times = []
    for _ in range(RUNS):
        gc.collect()
        began = time.process_time()
        plan = c.when.one_session()
        times.append(time.process_time() - began)
        if plan.job_changes or len(plan.gangs) < count:
            raise RuntimeError(f"{len(plan.job_changes)} Jobs were started")
    return times


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
