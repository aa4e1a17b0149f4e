"""The cluster as it is and the changed one, played from the same moment with the same arrivals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from gpusched.api.meta.gpu_resources import gpu_resources_in_force
from gpusched.base.classes import frozen
from gpusched.config.model import Config
from gpusched.engine.objects import Obj
from gpusched.engine.run_record import RunRecord
from gpusched.engine.simulation import SimulationCase, run_simulation
from gpusched.engine.timed_changes import TimedChange
from gpusched.engine.world import SimulatedDelays
from gpusched.lab.whatif.arrivals import LoadJob, load_arrivals
from gpusched.shards.board import Board

UNCHANGED: Final = "as it is"
CHANGED: Final = "changed"


@frozen(kw_only=True)
class PlayedCluster:
    """One of the two clusters.

    Attributes:
        name: ``as it is`` or ``changed``.
        config: of its daemon.
        load: what arrives.
        changes: what is done to it.
    """

    name: str
    config: Config
    load: Sequence[LoadJob] = ()
    changes: Sequence[TimedChange] = ()


@frozen(kw_only=True)
class PlayInput:
    """What both have in common.

    Attributes:
        objects: of the cluster at the moment at which both begin.
        epoch: that moment, seconds since the Unix epoch.
        until: seconds that are played.
        step_s: seconds for which changes are gathered before they are decided about; 0 for as the daemon does.
        board: of the daemons of shards; None where it is not known.
    """

    objects: Sequence[Obj]
    epoch: float
    until: float
    pace: SimulatedDelays
    step_s: float = 0.0
    board: Board | None = None


def play_cluster(
    given: PlayInput,
    cluster: PlayedCluster,
    on_progress: Callable[[float, int], None] | None = None,
) -> RunRecord:
    """What becomes of one of the two; equal inputs give equal records.

    Raises:
        ConfigError: the configuration names what does not exist.
        InvariantBroken: what was decided cannot be carried out: a bug.
    """
    with gpu_resources_in_force(cluster.config.gpu_resources):
        return run_simulation(
            SimulationCase(
                name=cluster.name,
                config=cluster.config,
                plays_shards=True,
                board=given.board,
                objects=given.objects,
                arrivals=load_arrivals(cluster.load, scheduler=min(cluster.config.scheduler_names)),
                changes=cluster.changes,
                until=given.until,
                step_s=given.step_s,
                pace=given.pace,
                epoch=given.epoch,
                told=on_progress,
            )
        )
