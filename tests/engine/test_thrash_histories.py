"""Random hours of demand through the whole engine: no room goes round while nothing changes.

Queues ask by turns for more than they deserve, with gangs larger than what is free, elastic ones and
priorities, and no minRuntime. What is evicted again, or in a circle, must have a cause from outside in
between: something was submitted or ended.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import attrs
import pytest

from gpusched import API_VERSION
from gpusched.engine.run_record import LifeEnd, RunRecord
from gpusched.engine.simulation import Arrival, SimulationCase, run_simulation
from gpusched.lab.report.statistics.repeated_evictions import GangEviction, gang_evictions
from gpusched.lab.simulate.traces.workload import equal_nodes
from tests.engine.engine_cases import QUICK
from tests.populations import one_of

pytestmark = [pytest.mark.long, pytest.mark.early]

Obj = dict[str, Any]
SEEDS = range(40)
SPAN_S = 2400.0
WITH_MOVES = attrs.evolve(
    QUICK, actions=("enqueue", "allocate", "preempt", "reclaim", "consolidate", "backfill")
)


@attrs.frozen
class History:
    """A cluster and what is asked of it, from a seed.

    Attributes:
        seed: odd ones have gangs of three priorities.
        runs_s: how long work runs, from and to.
    """

    seed: int
    runs_s: tuple[int, int]

    def case(self) -> SimulationCase:
        """As the engine plays it: with moves of running gangs where a third of the seeds says so."""
        rng = random.Random(self.seed)
        nodes, gpus = rng.randint(1, 2), rng.choice((4, 8))
        objects = [*equal_nodes(nodes, gpus), *_priorities()]
        leaves = []
        for top in ("a", "b", "c")[: rng.randint(2, 3)]:
            objects.append(_queue(rng, top, nodes * gpus, "root"))
            below = [f"{top}-0", f"{top}-1"] if rng.random() < 0.4 else []
            objects += [_queue(rng, leaf, nodes * gpus, top) for leaf in below]
            leaves += below or [top]
        return SimulationCase(
            name=f"history-{self.seed}",
            config=WITH_MOVES if self.seed % 3 == 0 else QUICK,
            objects=objects,
            arrivals=list(self._arrivals(rng, leaves, nodes * gpus, gpus)),
            until=2 * SPAN_S,
            seed=self.seed,
        )

    def _arrivals(
        self, rng: random.Random, leaves: list[str], total: int, most: int
    ) -> Iterator[Arrival]:
        at, number = 0.0, 0
        while at < SPAN_S:
            size = rng.choice((1, 1, 2, 3, 4)), rng.choice((1, 1, 2, 4))
            if size[1] > most or size[0] * size[1] > total:
                continue
            turn = leaves[int(at // 600) % len(leaves)]
            queue = turn if rng.random() < 0.6 else rng.choice(leaves)
            named = rng.choice(("", "mid", "high")) if self.seed % 2 else ""
            spec: Obj = {"queue": queue, "minMember": rng.choice((1, size[0], size[0]))}
            if named:
                spec["priorityClassName"] = named
            run_s = rng.randint(*self.runs_s)
            yield Arrival(at, tuple(_gang(f"g{number}", spec, size, run_s)))
            number += 1
            at += rng.expovariate(1 / 150)


def _priorities() -> list[Obj]:
    head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    return [{**head, "metadata": {"name": n}, "value": v} for n, v in (("mid", 10), ("high", 100))]


def _queue(rng: random.Random, name: str, gpus: int, parent: str) -> Obj:
    spec: Obj = {"weight": rng.randint(1, 3), "parent": parent}
    if rng.random() < 0.8:
        spec["deserved"] = {"nvidia.com/gpu": str(rng.randint(0, gpus // 2))}
    return {"apiVersion": API_VERSION, "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def _gang(name: str, spec: Obj, size: tuple[int, int], run_s: int) -> Iterator[Obj]:
    """A PodGroup whose pods, so many of so many GPUs, a Job makes."""
    pods, gpus = size
    meta = {"name": name, "namespace": "x"}
    of_class = {each: spec[each] for each in spec.keys() & {"priorityClassName"}}
    yield {"apiVersion": API_VERSION, "kind": "PodGroup", "metadata": meta, "spec": spec}
    asks = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": str(gpus)}
    container = {"name": "main", "image": "r/x:1", "resources": {"requests": asks, "limits": asks}}
    pod = {"schedulerName": "gpusched", "restartPolicy": "Never", "containers": [container]}
    template = {
        "metadata": {
            "labels": {"gpusched.io/pod-group": name},
            "annotations": {"gpusched.io/run-for": f"{run_s}s"},
        },
        "spec": {**pod, **of_class},
    }
    yield {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": meta,
        "spec": {
            "parallelism": pods, "completions": pods, "completionMode": "Indexed",
            "template": template,
        },
    }  # fmt: skip


def changes(record: RunRecord, since: float, until: float) -> bool:
    """Whether something was submitted or ended by itself between two moments."""
    moments = [job.created for job in record.jobs]
    moments += [job.ended for job in record.jobs if job.ended is not None]
    moments += [
        pod.ended for pod in record.pods if pod.end is LifeEnd.SUCCEEDED and pod.ended is not None
    ]
    return any(since < moment <= until for moment in moments)


def causeless(record: RunRecord, found: tuple[GangEviction, ...]) -> list[GangEviction]:
    """Evictions of a gang again although nothing came and nothing ended since it was evicted last."""
    last: dict[str, float] = {}
    wrong = []
    for each in found:
        if each.job in last and not changes(record, last[each.job], each.at):
            wrong.append(each)
        last[each.job] = each.at
    return wrong


@pytest.mark.parametrize("runs_s", [(60, 1200), (50_000, 90_000)], ids=["short", "endless"])
def test_no_gang_is_evicted_again_while_nothing_changes(runs_s):
    """Given histories from seeds, of work that ends and of work that never does."""
    evictions = 0
    for seed in one_of(10, SEEDS):
        record = run_simulation(History(seed, runs_s).case())
        assert record.broken == ()
        found = gang_evictions(record)
        assert causeless(record, found) == [], seed
        evictions += len(found)
    assert evictions >= 4  # histories without evictions would prove nothing
