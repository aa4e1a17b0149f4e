"""Suggestions carried out: each on the objects of the cluster, in a simulation of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from benchmarks.advice.random_clusters import RandomCluster, in_order
from gpusched.advice.trial import ObjectEdit
from gpusched.api.meta.gpu_resources import gpu_resources_in_force
from gpusched.api.meta.identity import GangKey
from gpusched.config.model import DEFAULT
from gpusched.engine.objects import Obj, key_of, plural_of
from gpusched.engine.simulation import Simulation, SimulationCase

WITHIN_S: Final = 400.0
"""Evicted pods go, and what was nominated is bound, in less."""


def objects_with(cluster: RandomCluster, edits: Sequence[ObjectEdit]) -> tuple[Obj, ...]:
    """What a cluster holds after a change."""
    by_key = {(plural_of(obj), key_of(obj)): obj for obj in cluster.objects}
    for edit in edits:
        if edit.becomes is None:
            by_key.pop((edit.plural, edit.key), None)
        else:
            by_key[edit.plural, edit.key] = edit.becomes
    return in_order(by_key.values())


def started_after(
    cluster: RandomCluster,
    edits: Sequence[ObjectEdit],
    gang: GangKey,
    *,
    within_s: float = WITHIN_S,
) -> float | None:
    """Seconds until a gang has its minimum in a simulation of the changed cluster; None for never.

    The simulation is the one of ``gpusched simulate``: it knows nothing of the advice.
    """
    case = SimulationCase(
        name="after",
        config=DEFAULT,
        objects=objects_with(cluster, edits),
        until=within_s,
        epoch=cluster.now,
        until_started=gang,
    )
    with gpu_resources_in_force(DEFAULT.gpu_resources):
        simulation = Simulation(case)
        record = simulation.run()
    if simulation.started_at is not None:
        return simulation.started_at
    # Pods of a Job that need not start together are gangs of their own.
    name = f"{gang.namespace}/{gang.name}"
    return next(
        (job.started for job in record.jobs if gang.kind == "Job" == job.kind and job.key == name),
        None,
    )
