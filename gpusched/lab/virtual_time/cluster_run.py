"""A whole cluster and its daemons in one loop of virtual time: the same seed, the same history.

    result = simulate(scenario, options=SimulationOptions(seed=7))

``scenario(world)`` is given the cluster's in-process client and the clock; when it returns the
run is over.
"""

from __future__ import annotations

import asyncio
import gc
import random
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from gpusched.app import App, AppOptions
from gpusched.base import limits
from gpusched.base.classes import frozen
from gpusched.base.clock import EPOCH, Clock, LoopClock
from gpusched.config.model import DEFAULT, Config
from gpusched.devcluster.apiserver.client.local_client import LocalClient
from gpusched.devcluster.cluster import ClusterOptions, DevCluster, start
from gpusched.devcluster.registry.gangs.features import OFF, GangFeatures
from gpusched.io.client.credentials import ApiAccess, GivenCredentials
from gpusched.io.client.transport import over_http
from gpusched.io.decisions.recorder import RecordingOptions
from gpusched.lab.virtual_time.client_sessions import sessions_to
from gpusched.lab.virtual_time.connections import MemoryNetwork
from gpusched.lab.virtual_time.history_digest import HistoryDigest
from gpusched.lab.virtual_time.loop import VIRTUAL_MAX_S, run_virtual

T = TypeVar("T")
_TOKEN: Final = "simulation"  # noqa: S105 - opens nothing but this run
_POLL_S: Final = 1.0
_COLLECT_OLDER: Final = (200, 50)
"""Looks at the young before one at the middle-aged, and of those before one at everything."""


@frozen(kw_only=True)
class SimulationOptions:
    """What a run is made of; together with the scenario it decides every byte.

    Attributes:
        seed: of uids, names and delays of the cluster, and of the daemons' jitter.
        config: of the daemons.
        daemons: how many run from the start; they elect a leader.
        apply: files and folders of YAML applied before anything runs.
        stages: whether fake nodes and pods live.
        stage_files: files and folders of Stages; empty for the project's own.
        gangs: what is served of Kubernetes' own gangs.
        epoch: wall time, seconds since the Unix epoch, at which the run begins.
        limit_s: virtual seconds after which the run counts as endless.
        recording: of the daemons' decisions; None keeps none.
        tell: given each write as one line, see ``History``.
        http: daemons speak HTTP to the cluster, over connections inside the loop, which costs
            more; else they hand requests over as they would be read from HTTP.
    """

    seed: int = 1
    config: Config = DEFAULT
    daemons: int = 1
    apply: Sequence[Path] = ()
    stages: bool = True
    stage_files: Sequence[Path] = ()
    gangs: GangFeatures = OFF
    epoch: float = EPOCH
    limit_s: float = VIRTUAL_MAX_S
    recording: RecordingOptions | None = None
    tell: Callable[[bytes], None] | None = None
    http: bool = False


@frozen(kw_only=True)
class RunOutcome(Generic[T]):
    """What came of a run.

    Attributes:
        value: what the scenario returned.
        digest: SHA-256 over every write, see ``History``.
        writes: how many there were.
        virtual_s: seconds that passed in the run.
    """

    value: T
    digest: str
    writes: int
    virtual_s: float


@frozen
class ClusterRun:
    """What a scenario acts on.

    Attributes:
        cluster: the running embedded cluster.
        clock: its time and the daemons'.
        daemons: in the order in which they were started.
    """

    cluster: DevCluster
    clock: Clock
    daemons: Sequence[asyncio.Task[None]]

    @property
    def client(self) -> LocalClient:
        """The cluster, in this process."""
        return self.cluster.client

    async def until(self, true: Callable[[], Any], *, within_s: float) -> None:
        """Wait until something holds, looking every second.

        Raises:
            TimeoutError: it did not within so many virtual seconds.
            GpuschedError: a daemon broke.
        """
        end = self.clock.monotonic() + within_s
        while not true():
            for daemon in self.daemons:
                if daemon.done():
                    daemon.result()
            if self.clock.monotonic() >= end:
                raise TimeoutError(f"not so within {within_s:g} virtual seconds")
            await self.clock.sleep(_POLL_S)


def simulate_cluster(
    scenario: Callable[[ClusterRun], Awaitable[T]], *, options: SimulationOptions
) -> RunOutcome[T]:
    """Run a scenario from an empty cluster to its end.

    Raises:
        Deadlock: everything waits and no timer is set; the message lists the tasks.
        Endless: it took more virtual time than ``limit_s``.
        ConfigError: something to apply was refused.
    """

    async def main(clock: LoopClock) -> RunOutcome[T]:
        if not options.http:
            return await _run(scenario, clock, Path(), options=options)
        with tempfile.TemporaryDirectory(prefix="gpusched-simulate-") as folder:
            return await _run(scenario, clock, Path(folder), options=options)

    with rare_garbage_collection():
        return run_virtual(
            main, epoch=options.epoch, limit_s=options.limit_s, network=MemoryNetwork()
        )


@contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """Look for garbage seldom: a cluster is trees that die by themselves, and long histories.

    By default a fifth of a long run goes into walking what is still there.
    """
    before = gc.get_threshold()
    gc.set_threshold(limits.COLLECT_AFTER_OBJECTS, *_COLLECT_OLDER)
    try:
        yield
    finally:
        gc.set_threshold(*before)


async def _run(
    scenario: Callable[[ClusterRun], Awaitable[T]],
    clock: LoopClock,
    folder: Path,
    *,
    options: SimulationOptions,
) -> RunOutcome[T]:
    cluster = await start(
        ClusterOptions(
            token=_TOKEN,
            clock=clock,
            seed=options.seed,
            apply=options.apply,
            stages=options.stages,
            stage_files=options.stage_files,
            gangs=options.gangs,
            records=False,
        )
    )
    daemons: list[asyncio.Task[None]] = []
    try:
        history = HistoryDigest(cluster.core.store, tell=options.tell)
        kubeconfig = folder / "kubeconfig"
        if options.http:
            kubeconfig.write_text(cluster.kubeconfig_text)
            kubeconfig.chmod(0o600)
        for number in range(options.daemons):
            app = App(_daemon(options, cluster, kubeconfig, number=number))
            daemons.append(asyncio.create_task(app.run(), name=f"daemon {number}"))
        value = await scenario(ClusterRun(cluster, clock, daemons))
        history.end()
        return RunOutcome(
            value=value,
            digest=history.digest,
            writes=history.writes,
            virtual_s=clock.monotonic(),
        )
    finally:
        for daemon in daemons:
            daemon.cancel()
        await asyncio.gather(*daemons, return_exceptions=True)
        await cluster.close()


def credentials_of(cluster: DevCluster) -> GivenCredentials:
    """What a daemon in this process needs to enter the cluster, without a kubeconfig to read."""
    return GivenCredentials(ApiAccess(host=cluster.url, authorization=f"Bearer {cluster.token}"))


def _daemon(
    options: SimulationOptions, cluster: DevCluster, kubeconfig: Path, *, number: int
) -> AppOptions:
    return AppOptions(
        config=options.config,
        clock=cluster.core.clock,
        rng=random.Random(f"{options.seed}/daemon/{number}"),  # noqa: S311  # repeatable
        kubeconfig=str(kubeconfig) if options.http else credentials_of(cluster),
        identity=f"daemon-{number}",
        inline=True,
        recording=options.recording,
        opened=over_http if options.http else sessions_to(cluster.in_process),
    )


__all__ = ["ClusterRun", "RunOutcome", "SimulationOptions", "credentials_of", "simulate_cluster"]
