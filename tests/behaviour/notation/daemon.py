"""A daemon inside a simulation that is started when the case is ready, and may be restarted."""

from __future__ import annotations

import asyncio
import random
from types import TracebackType
from typing import Self

from gpusched.app import App, AppOptions
from gpusched.config.model import Config
from gpusched.lab.virtual_time.client_sessions import sessions_to
from gpusched.lab.virtual_time.cluster_run import ClusterRun, credentials_of


class Restartable:
    """An ``App`` that speaks to the world's cluster inside the loop; leaving the context ends it.

    Args:
        world: whose cluster and clock it uses.
        config: of the daemon.
        seed: of its jitter.
    """

    def __init__(self, world: ClusterRun, *, config: Config, seed: int) -> None:
        self._world = world
        self._config = config
        self._seed = seed
        self._starts = 0
        self._task: asyncio.Task[None] | None = None
        self.app: App | None = None

    async def __aenter__(self) -> Self:
        """Nothing runs yet."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, why: BaseException | None, at: TracebackType | None
    ) -> None:
        """End it like a kill."""
        await self._kill()

    def start(self) -> None:
        """Start a process; each has an identity of its own."""
        self.app = App(
            AppOptions(
                config=self._config,
                clock=self._world.clock,
                rng=random.Random(f"{self._seed}/{self._starts}"),  # repeatable
                kubeconfig=credentials_of(self._world.cluster),
                identity=f"daemon-{self._starts}",
                inline=True,
                opened=sessions_to(self._world.cluster.in_process),
            )
        )
        self._starts += 1
        self._task = asyncio.create_task(self.app.run(), name=f"daemon {self._starts}")

    async def restart(self) -> None:
        """End the process in order, and start another."""
        assert self.app is not None, "nothing was started"
        assert self._task is not None, "nothing was started"
        self.app.stop()
        await self._task
        self.start()

    def check(self) -> None:
        """Say how it broke, if it did.

        Raises:
            GpuschedError: the daemon broke.
        """
        if self._task is not None and self._task.done():
            self._task.result()

    async def _kill(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
