"""What a decision costs, and how it grows with nodes and with classes of pods."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable
from itertools import pairwise
from statistics import median
from typing import Final

import msgspec
import numpy as np

from benchmarks.figures import Figure, middle
from benchmarks.inputs import GPUS_A_NODE, NAMESPACE, node, pod
from benchmarks.shared_cluster import UNBOUNDED
from gpusched.api.serializer.codecs import CODECS
from gpusched.base.clock import SystemClock
from gpusched.cache.cache import Cache
from gpusched.config.model import DEFAULT
from gpusched.pluginhost.guard import PluginGuard
from gpusched.pluginhost.registry import load_policy
from gpusched.session.decide import decide
from gpusched.session.state.session_cache import SessionCache

SEED: Final = 1
RUNS: Final = 7
A_POD_MAX_MS: Final = 0.2
A_DOUBLING_MAX: Final = 2.2
"""Twice, and a tenth for noise."""
NODES: Final = (500, 1000, 2000, 4000)
CLASSES: Final = (1, 4, 16)
GROWTH_PODS: Final = 512
_NOW: Final = 1_767_225_600.0


def measure() -> list[Figure]:
    """Cost of a pod in gangs and alone, and growth."""
    figures = [
        _a_pod("64 gangs of 8 x 8 GPUs", gangs=64, size=8, gpus=8),
        _a_pod("64 gangs of 8 x 1 GPU", gangs=64, size=8, gpus=1),
        _a_pod("1,000 single pods", gangs=1000, size=1, gpus=1),
    ]
    return figures + _growth()


def _a_pod(name: str, *, gangs: int, size: int, gpus: int) -> Figure:
    nodes, pods = 1000, gangs * size
    cache = filled(nodes, gangs=gangs, size=size, gpus=gpus, classes=1)
    samples = [ms / pods for ms in session_ms(cache, expect=pods)]
    cost, spread = middle(samples)
    return Figure(
        name=f"decide, {name}, {nodes:,} nodes",
        measured=cost,
        unit="ms/pod",
        spread=spread,
        raw=_numpy_ms(nodes, pods) / pods,
        raw_is="numpy argmax",
        target=f"<= {A_POD_MAX_MS} ms/pod",
        met=cost <= A_POD_MAX_MS,
    )


def _growth() -> list[Figure]:
    cost = {
        (nodes, classes): median(
            session_ms(
                filled(nodes, gangs=GROWTH_PODS // 8, size=8, gpus=1, classes=classes),
                expect=GROWTH_PODS,
            )
        )
        for nodes in NODES
        for classes in CLASSES
    }
    figures = []
    for classes in CLASSES:
        row = [cost[nodes, classes] for nodes in NODES]
        ratios = [larger / smaller for smaller, larger in pairwise(row)]
        figures.append(
            Figure(
                name=f"decide {GROWTH_PODS} pods, {classes} classes, nodes doubled",
                measured=max(ratios),
                unit="times",
                spread=" ".join(f"{each:.0f}" for each in row) + " ms",
                target=f"<= {A_DOUBLING_MAX} a doubling",
                met=max(ratios) <= A_DOUBLING_MAX,
            )
        )
    row = [cost[NODES[-1], classes] for classes in CLASSES]
    ratio = max(larger / smaller for smaller, larger in pairwise(row)) ** 0.5
    figures.append(
        Figure(
            name=f"decide {GROWTH_PODS} pods, {NODES[-1]:,} nodes, classes doubled",
            measured=ratio,
            unit="times",
            spread=" ".join(f"{each:.0f}" for each in row) + " ms",
            target=f"<= {A_DOUBLING_MAX} a doubling",
            met=ratio <= A_DOUBLING_MAX,
        )
    )
    return figures


def filled(nodes: int, *, gangs: int, size: int, gpus: int, classes: int) -> Cache:
    """A cache with a third of its nodes partly used, and gangs that wait."""
    rng = random.Random(SEED)
    cache = Cache(DEFAULT.scheduler_names)
    cache.use_limits(UNBOUNDED)  # shares of work would leave some of them to later sessions
    for index in range(nodes):
        _put("nodes", cache.put_node, node(index), serial=index)
    for index in range(nodes // 3):
        held = pod(f"held-{index}", gpus=rng.randrange(1, GPUS_A_NODE - 3))
        held["spec"]["nodeName"] = f"node-{rng.randrange(nodes // 2):05d}"
        held["spec"]["schedulerName"] = "default-scheduler"
        _put("pods", cache.put_pod, held, serial=index)
    for gang in range(gangs):
        for member in range(size):
            made = pod(f"gang-{gang:04d}-{member:03d}", gpus=gpus)
            if size > 1:
                made["metadata"]["annotations"] = {"gpusched.io/min-member": str(size)}
                made["metadata"]["ownerReferences"] = [_owner(gang)]
            requests = made["spec"]["containers"][0]["resources"]["requests"]
            requests["memory"] = f"{4 + gang % classes}Gi"
            _put("pods", cache.put_pod, made, serial=nodes + gang * size + member)
    return cache


def session_ms(cache: Cache, *, expect: int) -> list[float]:
    """Milliseconds of CPU of a snapshot and a session with nothing kept from earlier ones, some runs.

    Raises:
        RuntimeError: not every pod got a place, so something else was measured.
    """
    policy = load_policy(DEFAULT)
    guard = PluginGuard(SystemClock())
    times = []
    for _ in range(RUNS):
        _touch_all(cache)
        gc.collect()
        began = time.process_time()
        decision = decide(
            cache.take_snapshot(_NOW), policy, guard=guard, session_cache=SessionCache()
        )
        times.append((time.process_time() - began) * 1e3)
        placed = sum(len(gang.binds) for gang in decision.plan.binds)
        if placed != expect:
            raise RuntimeError(f"{placed} of {expect} pods were placed")
    return times


def _touch_all(cache: Cache) -> None:
    """Every gang is counted anew, as after a burst of events."""
    for each in cache.pods.values():
        if each.scheduler in cache.schedulers:
            cache.families.add_member(each, each)


def _put(kind: str, put: Callable[..., None], obj: dict[str, object], *, serial: int) -> None:
    metadata = obj["metadata"]
    assert isinstance(metadata, dict)
    metadata["uid"] = f"{kind[0]}{serial:07d}-0000-4000-8000-000000000000"
    metadata["resourceVersion"] = str(serial + 1)
    metadata["creationTimestamp"] = "2026-01-01T00:00:00Z"
    metadata.setdefault("namespace", NAMESPACE) if kind == "pods" else None
    line = msgspec.json.encode({"type": "ADDED", "object": obj})
    put(CODECS[kind].decode_event(line).item)


def _owner(gang: int) -> dict[str, object]:
    return {
        "apiVersion": "example.com/v1", "kind": "Trainer", "name": f"gang-{gang:04d}",
        "uid": f"t{gang:07d}-0000-4000-8000-000000000000", "controller": True,
    }  # fmt: skip


def _numpy_ms(nodes: int, pods: int) -> float:
    """One mask of fits over all nodes, then for each pod the best row and its new fit."""
    rng = np.random.default_rng(SEED)
    free = rng.integers(0, 9, size=(nodes, 4))
    ask = np.array([1, 1, 1, 1])
    score = rng.integers(0, 1000, size=nodes)
    times = []
    for _ in range(RUNS):
        left = free + pods
        began = time.process_time()
        fits = (left // ask).min(axis=1)
        rank = np.where(fits > 0, score, -1)
        for _ in range(pods):
            row = int(rank.argmax())
            left[row] -= ask
            rank[row] = rank[row] if (left[row] >= ask).all() else -1
        times.append((time.process_time() - began) * 1e3)
    return median(times)
