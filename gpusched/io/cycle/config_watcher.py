"""Reads the configuration again when one of its files has changed, or when asked to by a signal.

    looking --content differs, twice the same--> judging --good--> applied between two sessions
       ^                                            |
       +------------- refused: log, event, metric <-+-- bad, or takes a restart

The content is compared, not names or times: a ConfigMap is swapped by a symbolic link, an
editor writes in place, and neither must be missed nor read half-written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gpusched.base import errors, limits
from gpusched.base.clock import Clock
from gpusched.base.errors import ConfigError
from gpusched.config.load import ConfigFiles, load_files, read_files
from gpusched.config.model import Config
from gpusched.config.reload import ConfigAdopted, ConfigKept, decide_reload
from gpusched.config.yaml_tree import list_names
from gpusched.io.cycle.policy_loader import LoadedPolicy, PolicyLoader
from gpusched.io.observe.daemon_events import CONFIG, DaemonEvents
from gpusched.io.observe.logs import Logger
from gpusched.io.observe.telemetry import Telemetry
from gpusched.io.workers.work_queue import OnContained, log_contained_fault

_log = Logger(__name__)


class ConfigWatcher:
    """See the module.

    Args:
        path: of the file.
        in_force: what was read from it at the start.
        clock: time.
        telemetry: counts reloads and shows what is in force.
        daemon_events: tells an operator.
        adopt: takes a configuration and what it names, as a whole; called in the event loop.
        inline: files are read and plugins imported in the event loop (virtual time).
        read: reads the file.
        on_contained: told of a look that failed by our own doing; what is in force stays.
    """

    def __init__(
        self,
        path: str,
        in_force: Config,
        *,
        clock: Clock,
        telemetry: Telemetry,
        daemon_events: DaemonEvents,
        adopt: Callable[[Config, LoadedPolicy], None],
        inline: bool = False,
        read: Callable[[str], ConfigFiles] = read_files,
        on_contained: OnContained = log_contained_fault,
    ) -> None:
        self._on_contained = on_contained
        self._path = path
        self._in_force = in_force
        self._telemetry = telemetry
        self._daemon_events = daemon_events
        self._adopt = adopt
        self._read = read
        self._loader = PolicyLoader(clock, inline=inline)
        self._asked = asyncio.Event()
        self._seen = self._judged = in_force.digest
        telemetry.set_config(in_force.digest, refused=False)

    def ask_now(self) -> None:
        """Read the file now and judge it, even if it is the same as before."""
        self._asked.set()

    async def run(self) -> None:
        """Look at the file until the task is cancelled."""
        try:
            while True:
                asked = await self._pause_until_look()
                try:
                    await self._look_at_file(asked=asked)
                except errors.Fenced:
                    raise
                except Exception as error:  # noqa: BLE001 - what is in force stays, and it looks again
                    self._on_contained("configuration", error, self._path)
        finally:
            self._loader.close()

    async def _pause_until_look(self) -> bool:
        """Until the next look; whether it was asked for."""
        try:
            async with asyncio.timeout(limits.CONFIG_POLL_S):
                await self._asked.wait()
        except TimeoutError:
            return False
        self._asked.clear()
        return True

    async def _look_at_file(self, *, asked: bool) -> None:
        try:
            found: ConfigFiles | ConfigError = await self._loader.run_in_thread(
                lambda: self._read(self._path), source=self._path
            )
        except ConfigError as error:
            found = error
        digest = found.digest if isinstance(found, ConfigFiles) else str(found)
        same_twice, self._seen = digest == self._seen, digest
        if not asked and (digest == self._judged or not same_twice):
            return
        self._judged = digest
        if isinstance(found, ConfigFiles):
            await self._judge_files(found)
        else:
            self._refuse(ConfigKept(found.problems))

    async def _judge_files(self, files: ConfigFiles) -> None:
        try:
            new: Config | ConfigError = await self._loader.run_in_thread(
                lambda: load_files(files, source=self._path), source=self._path
            )
        except ConfigError as error:
            new = error
        decision = decide_reload(self._in_force, new)
        if isinstance(decision, ConfigAdopted):
            await self._try_config(decision)
        elif isinstance(decision, ConfigKept):
            self._refuse(decision)
        else:
            self._confirm_in_force(files.digest)

    async def _try_config(self, wanted: ConfigAdopted) -> None:
        try:
            loaded = await self._loader.load(wanted.config)
        except ConfigError as error:
            self._refuse(ConfigKept(error.problems))
        else:
            self._apply(wanted, loaded)

    # -- outcomes --------------------------------------------------------------------------
    def _apply(self, decision: ConfigAdopted, loaded: LoadedPolicy) -> None:
        config = decision.config
        self._in_force = config
        self._adopt(config, loaded)
        self._telemetry.config_reload("applied")
        self._telemetry.set_config(config.digest, refused=False)
        changed = list_names(decision.changed)
        _log.info(
            "the configuration was applied",
            file=self._path,
            changed=changed,
            hash=config.digest[:16],
        )
        for warning in loaded.warnings:
            _log.warning("the configuration may not do what was meant", why=warning)
        self._daemon_events.recovered(
            CONFIG, reason="ConfigApplied", action="Reloading",
            message=f"{self._path}: applied; what changed: {changed}",
        )  # fmt: skip

    def _confirm_in_force(self, digest: str) -> None:
        """The file asks for what is in force, perhaps again after it was refused."""
        self._telemetry.config_reload("unchanged")
        self._telemetry.set_config(digest, refused=False)
        _log.info("the configuration asks for what is in force", file=self._path)
        self._daemon_events.recovered(
            CONFIG, reason="ConfigUnchanged", action="Reloading",
            message=f"{self._path}: asks for what is in force",
        )  # fmt: skip

    def _refuse(self, decision: ConfigKept) -> None:
        self._telemetry.config_reload("refused")
        self._telemetry.set_config(self._in_force.digest, refused=True)
        _log.error("the changed configuration is refused", why=decision.message)
        self._daemon_events.warn(
            CONFIG, reason="ConfigRefused", action="Reloading", message=decision.message
        )
