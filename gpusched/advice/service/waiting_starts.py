"""When do gangs that wait start, as the line moves on? The cluster is played forward by the daemon's own sessions.

What a session tells lays gangs one behind the other in the order of its own moment. That order moves as queues get
starts and their gangs end, room is taken back for queues below their share, and who was evicted waits again: a
play has all of it, and lacks only who is still to come.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Final

from gpusched.advice.submission.forward import is_cut, objects_that_end
from gpusched.advice.trial import TrialCluster
from gpusched.api.meta.identity import UID, GangKey
from gpusched.engine.simulation import Simulation, SimulationCase
from gpusched.io.history.played_starts import PlayedStarts
from gpusched.session.decide import Decision
from gpusched.session.state.plan import GangBind

_UNTIL_S: Final = 7 * 86_400.0


def play_waiting_starts(
    trial: TrialCluster, *, is_late: Callable[[], bool] = lambda: False
) -> PlayedStarts:
    """Starts of gangs that wait.

    Args:
        trial: the cluster as it is now.
        is_late: asked after each session, whether the play is to end with it.
    """
    played = _play_line(trial, is_late)
    gc.collect()  # a played cluster is megabytes in cycles, and garbage is looked for rarely
    return played


def _play_line(trial: TrialCluster, is_late: Callable[[], bool]) -> PlayedStarts:
    watch = _LineWatch(trial)
    if not watch.left:
        return PlayedStarts(at=trial.now, starts={})
    objects, _, _ = objects_that_end(trial)
    case = SimulationCase(
        name="starts",
        config=trial.config,
        objects=objects,
        until=_UNTIL_S,
        epoch=trial.now,
        placed=watch.take,
        decided=watch.note_jobs,
        enough=lambda _sessions: is_cut(watch.simulation) or not watch.left or is_late(),
        plays_shards=True,
        board=trial.board,
    )
    watch.simulation = Simulation(case)
    watch.simulation.run()
    unknown = dict.fromkeys(((gang, uid) for gang, uid in watch.left.items()), 0.0)
    return PlayedStarts(at=trial.now, starts={**unknown, **watch.starts})


class _LineWatch:
    """Notes when gangs start that waited at the beginning."""

    simulation: Simulation

    def __init__(self, trial: TrialCluster) -> None:
        self.left = {
            each.key: each.uid
            for each in trial.take_snapshot().gangs
            if each.missing_members and (each.pod_sets or each.suspended)
        }
        self.starts: dict[tuple[GangKey, UID], float] = {}

    def take(self, now: float, bind: GangBind) -> None:
        """A gang got places."""
        if bind.placed + len(bind.binds) >= bind.min_member:
            self._note(bind.gang, self.simulation.case.epoch + now)

    def note_jobs(self, decision: Decision) -> None:
        """Jobs that are started: the pods that they make have their room."""
        for change in decision.plan.job_changes:
            if not change.suspend:
                self._note(GangKey("Job", *change.key), self.simulation.world.wall)

    def _note(self, gang: GangKey, at: float) -> None:
        uid = self.left.pop(gang, None)
        if uid is not None:
            self.starts[gang, uid] = at
