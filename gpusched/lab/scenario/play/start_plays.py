"""When gangs that wait start, played beside a daemon on an embedded cluster: by what its API tells, in this process."""

from __future__ import annotations

import json
from typing import Any

from gpusched.advice.service.waiting_starts import play_waiting_starts
from gpusched.advice.trial import TrialCluster
from gpusched.base.clock import Clock
from gpusched.config.model import Config
from gpusched.devcluster.cluster import DevCluster
from gpusched.engine.schedulers.scheduler import StoppedClock
from gpusched.engine.world import RUN_FOR
from gpusched.io.client.api_client import ApiClient
from gpusched.io.history.played_starts import PlayedStarts
from gpusched.io.recordings.snapshot_reader import take_snapshot
from gpusched.lab.virtual_time.client_sessions import sessions_to
from gpusched.lab.virtual_time.cluster_run import credentials_of


async def play_starts_of(cluster: DevCluster, clock: Clock, config: Config) -> PlayedStarts:
    """Starts of the gangs that wait in a cluster.

    Args:
        cluster: read as any client reads it.
        clock: the cluster's.
        config: of the daemon.
    """
    api = await ApiClient.connect(
        credentials_of(cluster), clock=clock, opened=sessions_to(cluster.in_process)
    )
    try:
        recording = await take_snapshot(api, now=clock.now())
    finally:
        await api.close()
    lines = (line for of_kind in recording.lines.values() for line in of_kind)
    objects = [_without_run_times(json.loads(line)) for line in lines]
    trial = TrialCluster(objects, config, now=recording.header.taken_at, clock=StoppedClock())
    return play_waiting_starts(trial)


def _without_run_times(obj: Any) -> Any:
    """An object without the annotation that tells fake nodes how long to run its pods: no real cluster has that."""
    if isinstance(obj, dict):
        return {name: _without_run_times(each) for name, each in obj.items() if name != RUN_FOR}
    return [_without_run_times(each) for each in obj] if isinstance(obj, list) else obj
