"""The copy of the cluster on which questions are decided: read when one is asked, kept for seconds."""

from __future__ import annotations

import json

from gpusched.advice.trial import TrialCluster
from gpusched.base.clock import Clock
from gpusched.config.load import load_file
from gpusched.config.model import DEFAULT, Config
from gpusched.io.client.api_client import ApiClient
from gpusched.io.leader.shard_board import find_board
from gpusched.io.recordings.snapshot_reader import take_snapshot


class ClusterCopy:
    """Reads the cluster again where what is known of it is too old.

    Args:
        kubeconfig: as for the daemon.
        config_file: the daemon's, which is read with the cluster each time; empty for none.
        fresh_s: seconds for which a copy is good.
        clock: time.
    """

    def __init__(
        self, kubeconfig: str | None, config_file: str, *, fresh_s: float, clock: Clock
    ) -> None:
        self._kubeconfig = kubeconfig
        self._config_file = config_file
        self._fresh_s = fresh_s
        self._clock = clock
        self._trial: TrialCluster | None = None
        self._read_at = 0.0

    async def trial(self) -> TrialCluster:
        """A copy that is fresh; of which moment, it says itself.

        Raises:
            ClusterUnreachable: no answer of the API server.
            Denied: nothing may be read.
            ConfigError: the daemon's configuration file is wrong now.
        """
        age = self._clock.monotonic() - self._read_at
        if self._trial is None or age > self._fresh_s:
            self.forget()
            self._trial = await self._read()
            self._read_at = self._clock.monotonic()
        return self._trial

    def forget(self) -> None:
        """The copy may have been left changed: read anew."""
        self._trial = None

    async def _read(self) -> TrialCluster:
        config: Config = load_file(self._config_file) if self._config_file else DEFAULT
        api = await ApiClient.connect(self._kubeconfig, clock=self._clock)
        try:
            recording = await take_snapshot(api, now=self._clock.now())
            board = await find_board(api, config.leader_election) if config.shards else None
        finally:
            await api.close()
        objects = (json.loads(line) for lines in recording.lines.values() for line in lines)
        taken_at = recording.header.taken_at
        return TrialCluster(objects, config, now=taken_at, clock=self._clock, board=board)
