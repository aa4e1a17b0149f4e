"""A full cluster of a thousand nodes with 500 gangs that wait, made without a simulation.

It is in balance, as a cluster is that has been full for long: each queue holds what it deserves, and what runs
has the priority of what waits, or a higher one. What could be evicted for others was so before.
"""

from __future__ import annotations

import random
from typing import Final

from benchmarks.advice.random_clusters import (
    BEGIN,
    CLASSES,
    GPU,
    NODE_GPUS,
    PRODUCT,
    QUEUES,
    DrawnGang,
    RandomCluster,
    draw_queues,
    in_order,
    make_node,
    make_priority_class,
)
from gpusched.advice.start_answer import starting_gangs
from gpusched.advice.trial import TrialCluster
from gpusched.api.meta.gpu_resources import gpu_resources_in_force
from gpusched.api.meta.identity import format_time
from gpusched.config.model import DEFAULT
from gpusched.engine.objects import Obj, key_of, plural_of
from gpusched.engine.schedulers.scheduler import StoppedClock

AGE_S: Final = 3600


def make_large_cluster(seed: int, *, nodes: int = 1000, waiting: int = 520) -> RandomCluster:
    """Gangs of every kind are put on the first nodes with room until there is none for many; others wait.

    Args:
        seed: of everything that is drawn.
        nodes: how many.
        waiting: gangs that wait, less those that would start at once.
    """
    draw = random.Random(seed)
    made = [make_node(index, tainted=index % 6 == 5) for index in range(nodes)]
    filling = _Filling(made)
    running: list[Obj] = []
    waits: list[Obj] = []
    held = dict.fromkeys(QUEUES, 0)
    number = count = 0
    while count < waiting:
        full = filling.free <= nodes // 50
        gang = DrawnGang(
            draw,
            number,
            tainted=True,
            queue="" if full else min(QUEUES, key=lambda name: held[name]),
            priority_class="" if full else "mid",
        )
        objects, gpus = gang.objects()
        number += 1
        created = BEGIN + (number if number < nodes else AGE_S + number)
        placed = None if full else filling.placed(objects)
        stamped = [_admitted(obj, created) for obj in placed or objects]
        if placed is not None:
            running += stamped
            filling.free -= gpus
            held[gang.queue] += gpus
        else:
            waits += stamped
            count += 1
    objects = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}},
        *(make_priority_class(name, value) for name, value in CLASSES),
        *draw_queues(draw, NODE_GPUS * nodes),
        *made,
        *running,
        *waits,
    ]
    return _settled(RandomCluster(in_order(objects), BEGIN + 3 * AGE_S))


def _settled(cluster: RandomCluster) -> RandomCluster:
    """The cluster without gangs that would start at once, or have others evicted."""
    trial = TrialCluster(cluster.objects, DEFAULT, now=cluster.now, clock=StoppedClock())
    gone: set[str] = set()
    with gpu_resources_in_force(DEFAULT.gpu_resources):
        for evict in (False, False, False, True):
            names = {each.name for each in starting_gangs(trial.decide(evict=evict))}
            for obj in cluster.objects:
                if _gang_name(obj) in names:
                    trial.objects.remove(plural_of(obj), key_of(obj))
            gone |= names
    kept = (obj for obj in cluster.objects if _gang_name(obj) not in gone)
    return RandomCluster(tuple(kept), cluster.now)


def _gang_name(obj: Obj) -> str:
    labels = obj["metadata"].get("labels") or {}
    return str(labels.get("gpusched.io/pod-group") or obj["metadata"]["name"])


class _Filling:
    """Free GPUs of nodes while gangs are put on them."""

    def __init__(self, nodes: list[Obj]) -> None:
        self._nodes = nodes
        self._left = [NODE_GPUS] * len(nodes)
        self.free = NODE_GPUS * len(nodes)

    def placed(self, objects: list[Obj]) -> list[Obj] | None:
        """The manifests of a gang that runs; None where it has no room, or is a Job."""
        if objects[0]["kind"] == "Job":
            return None
        members = [obj for obj in objects if obj["kind"] == "Pod"]
        example = objects[-1]["spec"]
        gpus = int(example["containers"][0]["resources"]["limits"][GPU])
        rows = self._rows(example, gpus, len(members))
        if rows is None:
            return None
        done = [obj for obj in objects if obj["kind"] != "Pod"]
        for row, obj in zip(rows, members, strict=True):
            self._left[row] -= gpus
            name = self._nodes[row]["metadata"]["name"]
            began = format_time(BEGIN + AGE_S)
            bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": began}
            done.append(
                {
                    **obj,
                    "spec": {**obj["spec"], "nodeName": name},
                    "status": {"phase": "Running", "startTime": began, "conditions": [bound]},
                }
            )
        return done

    def _rows(self, spec: Obj, gpus: int, pods: int) -> list[int] | None:
        found: list[int] = []
        product = (spec.get("nodeSelector") or {}).get(PRODUCT)
        for row, node in enumerate(self._nodes):
            if product and node["metadata"]["labels"][PRODUCT] != product:
                continue
            if node["spec"].get("taints") and not spec.get("tolerations"):
                continue
            found += [row] * (self._left[row] // gpus)
            if len(found) >= pods:
                return found[:pods]
        return None


def _admitted(obj: Obj, created: float) -> Obj:
    """The manifest as the API server keeps it: with the time at which it came, and a pod's priority."""
    made = {**obj, "metadata": {**obj["metadata"], "creationTimestamp": format_time(created)}}
    if obj["kind"] == "Pod":
        values = dict(CLASSES)
        made["spec"] = {**obj["spec"], "priority": values[obj["spec"]["priorityClassName"]]}
    return made
