"""Clusters that several queues share, as a cache holds them: for whole sessions in one process."""

from __future__ import annotations

import gc
import random
import time
from typing import Any, Final

import attrs

from gpusched.api.gang.pod_group import TopologyRequest
from gpusched.api.pod.pod import PodClass, PodPhase
from gpusched.config.model import DEFAULT
from gpusched.session.state.session_cache import SessionCache
from gpusched.testing import entities
from gpusched.testing.given import Given

SEED: Final = 1
GPUS_A_NODE: Final = 8
GPU: Final = entities.GPU
NODE: Final[dict[str, Any]] = {"gpus": GPUS_A_NODE, "cpu": 128_000, "memory": 1024 * entities.GIB}


UNBOUNDED: Final = attrs.evolve(DEFAULT.limits, session_work=10_000_000, victim_work=10_000_000)
"""Limits of sessions that look at every gang, however many wait."""


def one_reclaims(*, nodes: int) -> Given:
    """Every GPU runs a job of one queue; another, whose due is half of them, wants them all."""
    rng = random.Random(SEED)
    c = Given(config=DEFAULT)
    c.cache.use_limits(UNBOUNDED)
    c.nodes(nodes, **NODE)
    half = {"deserved": {GPU: nodes * GPUS_A_NODE // 2}}
    c.queue("lends", limits=half).queue("takes", limits=half)
    spec = _gpu_pod()
    for number in range(nodes * GPUS_A_NODE):
        node, slot = divmod(number, GPUS_A_NODE)
        c.pod(
            f"runs-{number:05d}", spec=spec, queue="lends", node=f"node-{node}", slots=1 << slot,
            plan="p", phase=PodPhase.RUNNING, scheduled=c.now - rng.randrange(600, 90_000),
        )  # fmt: skip
    for number in range(nodes * GPUS_A_NODE):
        c.pod(f"waits-{number:05d}", spec=spec, queue="takes")
    return c


def many_queues(*, nodes: int, queues: int, gangs: int, size: int, free: int = 8) -> Given:
    """A tree of four levels whose leaves hold gangs that wait; ``free`` GPUs a node are free."""
    rng = random.Random(SEED)
    c = Given(config=DEFAULT)
    c.nodes(nodes, **NODE)
    leaves = _tree(c, queues, rng)
    spec = _gpu_pod()
    for node in range(nodes):
        for slot in range(GPUS_A_NODE - free):
            c.pod(
                f"runs-{node}-{slot}", spec=spec, queue=rng.choice(leaves), node=f"node-{node}",
                slots=1 << slot, plan="p", phase=PodPhase.RUNNING, scheduled=c.now - 3600,
            )  # fmt: skip
    for number in range(gangs):
        name = f"gang-{number:05d}"
        queue = rng.choice(leaves)
        c.group(name, queue=queue, min_member=size, created=entities.BORN + number)
        c.pods(name, size, group=name, spec=spec, created=entities.BORN + number)
    return c


def racks_reclaimed(*, nodes: int, a_rack: int, gangs: int, size: int) -> Given:
    """Every GPU runs a job of one queue; gangs of another, which is due half of them, want a rack each."""
    rng = random.Random(SEED)
    c = Given(config=DEFAULT)
    for number in range(nodes):
        c.node(f"node-{number}", labels={"gpusched.io/rack": f"rack-{number // a_rack}"}, **NODE)
    half = {"deserved": {GPU: nodes * GPUS_A_NODE // 2}}
    c.queue("lends", limits=half).queue("takes", limits=half)
    spec = _gpu_pod()
    for number in range(nodes * GPUS_A_NODE):
        node, slot = divmod(number, GPUS_A_NODE)
        c.pod(
            f"runs-{number:05d}", spec=spec, queue="lends", node=f"node-{node}", slots=1 << slot,
            plan="p", phase=PodPhase.RUNNING, scheduled=c.now - rng.randrange(600, 90_000),
        )  # fmt: skip
    for number in range(gangs):
        name = f"gang-{number:05d}"
        c.group(name, queue="takes", min_member=size, topology=TopologyRequest(required="rack"))
        c.pods(name, size, group=name, spec=spec)
    return c


def unlike_gangs(*, nodes: int, gangs: int) -> Given:
    """Gangs of one pod on empty nodes, no two of which ask for the same."""
    c = Given(config=DEFAULT)
    c.cache.use_limits(UNBOUNDED)
    c.nodes(nodes, **NODE).queue("q")
    for number in range(gangs):
        memory = 8 * entities.GIB + number * 2**20
        spec = entities.pod_class(gpus=1, cpu=4000, memory=memory)
        c.pod(f"gang-{number:05d}", spec=spec, queue="q")
    return c


def _tree(c: Given, queues: int, rng: random.Random) -> list[str]:
    """Queues in levels of about 1 : 3 : 9 : 27; the names of the last level."""
    sizes = [queues * part // 40 for part in (1, 3, 9)]
    sizes.append(queues - sum(sizes))
    above = ["root"]
    for level, count in enumerate(sizes):
        made = [f"q{level}-{number:03d}" for number in range(count)]
        for number, name in enumerate(made):
            deserved = {GPU: rng.randrange(0, 3) * (64 >> level)}
            c.queue(
                name, parent=above[number % len(above)], weight=rng.randrange(1, 5),
                limits={"deserved": deserved},
            )  # fmt: skip
        above = made
    return above


def _gpu_pod() -> PodClass:
    return entities.pod_class(gpus=1, cpu=4000, memory=16 * entities.GIB)


def session_s(c: Given, *, kept: bool = False) -> float:
    """CPU seconds of one snapshot and session.

    Args:
        c: the cluster.
        kept: whether filters' answers of earlier sessions may be used.
    """
    if not kept:
        c.session_cache = SessionCache()
    gc.collect()
    began = time.process_time()
    c.when.one_session()
    return time.process_time() - began
