"""What layouts would gain: the recorded cluster is simulated as it is and as it would be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpusched.api.meta.gpu_resources import GpuResource
from gpusched.base.classes import frozen
from gpusched.config.model import Config
from gpusched.engine.from_snapshot import SimulationStart
from gpusched.engine.objects import Obj
from gpusched.engine.run_record import RunRecord
from gpusched.engine.simulation import SimulationCase, run_simulation
from gpusched.engine.world import SimulatedDelays
from gpusched.lab.report.statistics.named import statistic
from gpusched.lab.simulate.mig.choice import NodeLayout
from gpusched.lab.simulate.mig.demand import CONFIG, resource_of


@frozen
class TrialFigures:
    """What happens to jobs of a cluster in a simulated span.

    Attributes:
        started: jobs that waited at the beginning, or came, and started.
        waiting: jobs that have not started at the end.
        mean_wait: as the reports have it, with its unit; ``-`` where nothing started.
        broken: invariants that did not hold, a sentence each.
    """

    started: int
    waiting: int
    mean_wait: str
    broken: tuple[str, ...]


def with_layouts(
    objects: Sequence[Obj], changes: Sequence[NodeLayout], gpu: GpuResource
) -> tuple[Obj, ...]:
    """Objects of the cluster once the MIG manager has carried the layouts out."""
    by_name = {each.node.name: each for each in changes}
    return tuple(
        _changed(obj, by_name[obj["metadata"]["name"]], gpu)
        if obj.get("kind") == "Node" and obj["metadata"]["name"] in by_name
        else obj
        for obj in objects
    )


def _changed(node: Obj, change: NodeLayout, gpu: GpuResource) -> Obj:
    metadata, status = node["metadata"], node.get("status") or {}
    labels = {**(metadata.get("labels") or {}), CONFIG: change.layout.name}
    offers = {resource_of(profile, gpu): str(n) for profile, n in change.provides.items()}

    def amounts(given: Mapping[str, str]) -> dict[str, str]:
        kept = {
            name: text
            for name, text in given.items()
            if name != gpu.name and not (gpu.slice_prefix and name.startswith(gpu.slice_prefix))
        }
        return {**kept, **offers}

    return {
        **node,
        "metadata": {**metadata, "labels": labels},
        "status": {
            **status,
            **{part: amounts(status.get(part) or {}) for part in ("capacity", "allocatable")},
        },
    }


def try_layouts(
    start: SimulationStart,
    objects: Sequence[Obj],
    *,
    config: Config,
    until_s: float,
    pace: SimulatedDelays,
) -> TrialFigures:
    """Simulate objects under a configuration.

    Args:
        start: the recorded cluster, for its time.
        objects: of it, with other layouts or as they are.
        config: of the daemon.
        until_s: seconds that are simulated.
        pace: how long things take.
    """
    record = run_simulation(
        SimulationCase(
            name="mig", config=config, objects=objects, until=until_s, pace=pace,
            epoch=start.epoch,
        )
    )  # fmt: skip
    return _figures(record)


def _figures(record: RunRecord) -> TrialFigures:
    wait = statistic(record, "mean(wait)")
    return TrialFigures(
        started=sum(job.started is not None and job.started > 0 for job in record.jobs),
        waiting=sum(job.started is None and job.ended is None for job in record.jobs),
        mean_wait="-" if wait.value is None else str(wait),
        broken=tuple(f"{each.invariant} did not hold: {each.sentence}" for each in record.broken),
    )
