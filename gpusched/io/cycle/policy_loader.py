"""Loads what a configuration names, and tries it on nothing, beside the event loop.

Imports of foreign code may take seconds, or never end: neither may cost the lease.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable
from typing import TypeVar

from gpusched.api.devices.gpu_layout import GpuLayoutCatalog
from gpusched.base import limits
from gpusched.base.classes import frozen
from gpusched.base.clock import Clock
from gpusched.base.errors import ConfigError
from gpusched.config.gpu_layouts import load_shipped_layouts
from gpusched.config.model import Config
from gpusched.io.workers.worker_thread import WorkerThread
from gpusched.pluginhost.registry import load_policy
from gpusched.pluginhost.rehearsal import rehearse
from gpusched.session.state.policy import Policy

T = TypeVar("T")


@frozen
class LoadedPolicy:
    """A policy that can be put in force.

    Attributes:
        warnings: what makes no sense in the configuration, one sentence each.
        layouts: of GPUs, those beside the configuration or those that come with the program.
    """

    policy: Policy
    warnings: tuple[str, ...]
    layouts: GpuLayoutCatalog


class PolicyLoader:
    """Does jobs in a thread of its own, within a bound.

    Args:
        clock: times the hooks of a trial.
        inline: everything is done in the event loop (virtual time).
    """

    def __init__(self, clock: Clock, *, inline: bool) -> None:
        self._clock = clock
        self._inline = inline
        self._thread: WorkerThread | None = None

    async def load(self, config: Config) -> LoadedPolicy:
        """Import, build and try what the configuration names.

        Raises:
            ConfigError: with every problem found, or that it takes too long.
        """
        return await self.run_in_thread(lambda: self._load(config), source=config.source)

    async def run_in_thread(self, job: Callable[[], T], *, source: str) -> T:
        """Do something that may take long. What hangs is left behind.

        Args:
            job: raises what it likes.
            source: the file's name for a sentence.

        Raises:
            ConfigError: it takes too long.
        """
        if self._inline:
            return job()
        if self._thread is None:
            self._thread = WorkerThread("configuration")
        try:
            async with asyncio.timeout(limits.CONFIG_LOAD_MAX_S):
                return await self._thread.run(job)
        except TimeoutError as error:
            self.close()
            raise ConfigError(
                f"{source}: loading it takes longer than {limits.CONFIG_LOAD_MAX_S:g} s: "
                "some plugin or action that it names does not come back"
            ) from error

    def close(self) -> None:
        """The thread ends when it has nothing more to do."""
        if self._thread is not None:
            self._thread.stop()
            self._thread = None

    def _load(self, config: Config) -> LoadedPolicy:
        importlib.invalidate_caches()  # a package may have been installed since
        policy = load_policy(config)
        layouts = load_shipped_layouts() if config.layouts is None else config.layouts
        return LoadedPolicy(policy, rehearse(config, policy, clock=self._clock), layouts)
