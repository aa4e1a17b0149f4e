"""What a daemon does about itself: faults of plugins, its configuration, and where both are told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from gpusched.api.devices.gpu_layout import GpuLayoutCatalog
from gpusched.api.serializer.requests import ObjectRef
from gpusched.base.clock import Clock
from gpusched.config.load import ConfigFiles
from gpusched.config.model import Config
from gpusched.io.cycle.config_watcher import ConfigWatcher
from gpusched.io.cycle.policy_loader import LoadedPolicy
from gpusched.io.cycle.session_cycle import SessionCycle, SessionRules
from gpusched.io.observe.daemon_events import STUCK, DaemonEvents, EventSink
from gpusched.io.observe.logs import Logger
from gpusched.io.observe.plugin_report import PluginReport
from gpusched.io.observe.telemetry import Telemetry
from gpusched.io.solver.process import SolverProcess
from gpusched.io.solver.report import SolverReport
from gpusched.io.write.status_cache import StatusCache
from gpusched.pluginhost.guard import PluginGuard, RunningCall

_log = Logger(__name__)
_WITHOUT_QUOTAS: Final = (
    "the priority class of a PodGroup counts even where a quota would refuse its pods; apply "
    "manifests/rbac.yaml, or set podGroupPriority: ofPods"
)
_WITHOUT_KIND: Final = {
    "reservations.scheduling.gpusched.io": (
        "no node is kept for a Reservation; kubectl apply -k manifests/ brings the kind and the right"
    ),
}
"""What is then not so, and what to do, by kind."""


class DaemonHealth:
    """See the module.

    Args:
        cycle: whose rules are replaced on a reload, and whose sessions are reported.
        events: writes what is told.
        cache: knows the objects that it is told about.
        regarding: our own pod or Lease.
        config_file: to be watched; empty when the configuration is built in.
        read_config: reads that file.
        clock: time.
        telemetry: counts.
        layouts: takes the GPU layouts that count from now on.
        priority_rules: takes what the configuration says of priority classes from now on.
        bounds: takes the limits and the rate of requests of a configuration.
        inline: nothing is done in threads (virtual time).
        solver: whose losses are reported; None when searches run in this process.
    """

    def __init__(
        self,
        cycle: SessionCycle,
        events: EventSink,
        cache: StatusCache,
        *,
        regarding: Callable[[], ObjectRef],
        config_file: str,
        read_config: Callable[[str], ConfigFiles],
        clock: Clock,
        telemetry: Telemetry,
        layouts: Callable[[GpuLayoutCatalog], None],
        priority_rules: Callable[[Config], None],
        bounds: Callable[[Config], None],
        inline: bool,
        solver: SolverProcess | None = None,
    ) -> None:
        self._cycle = cycle
        self._clock = clock
        self._layouts = layouts
        self._priority_rules = priority_rules
        self._bounds = bounds
        self._unread: set[str] = set()
        self._loop = asyncio.get_running_loop()
        self.daemon_events = DaemonEvents(events, regarding)
        self._report = PluginReport(telemetry, self.daemon_events)
        cycle.faults.set_reporters(self.daemon_events, events, cache)
        self._watch: ConfigWatcher | None = None
        cycle.judged.append(self._report.after_session)
        self._solver_report: SolverReport | None = None
        if solver is not None:
            self._solver_report = report = SolverReport(solver, self.daemon_events)
            cycle.judged.append(lambda _guard: report.after_session())
        telemetry.set_config(cycle.rules.config.digest, refused=False)
        if config_file:
            self._watch = ConfigWatcher(
                config_file, cycle.rules.config, clock=clock, telemetry=telemetry,
                daemon_events=self.daemon_events, adopt=self._adopt_config, inline=inline, read=read_config,
                on_contained=cycle.faults.report_failure,
            )  # fmt: skip

    @property
    def degraded(self) -> str:
        """Empty when all is well, else which hooks are set aside, or that the solver is."""
        solver = self._solver_report.degraded if self._solver_report is not None else ""
        own = (*self._report.degraded, *filter(None, (solver, *self._unread_texts())))
        return "; ".join((*own, *self._cycle.faults.degraded))

    def _unread_texts(self) -> list[str]:
        return [f"{kind} may not be read" for kind in sorted(self._unread)]

    async def run(self) -> None:
        """Watch the daemon until the task is cancelled."""
        if self._watch is not None:
            await self._watch.run()

    def reload(self) -> None:
        """Somebody asks for the configuration to be read again."""
        if self._watch is None:
            _log.warning("there is no configuration file to read again; name one with --config")
        else:
            self._watch.ask_now()

    def report_stuck(self, running: RunningCall) -> None:
        """A call of a hook does not come back; may be called from any thread."""
        self._loop.call_soon_threadsafe(self._tell_stuck, running)

    def _tell_stuck(self, running: RunningCall) -> None:
        plugin, hook = running.who
        self.daemon_events.warn(
            STUCK, reason="PluginStuck", action="Scheduling",
            message=f"plugin {plugin} does not come back from its hook {hook}: no session ends, "
            "and the daemon will be started again",
        )  # fmt: skip

    def report_unread(self, kind: str, refused: bool) -> None:
        """A kind that decisions can do without may not be read, or (False) may be again."""
        self._unread.discard(kind)
        if refused:
            self._unread.add(kind)
        if not refused:
            self.daemon_events.recovered(
                kind, reason="Reading", action="Reading", message=f"{kind} can be read again"
            )
            return
        self.daemon_events.warn(
            kind, reason="NotAllowed", action="Reading",
            message=f"{kind} may not be read: {_WITHOUT_KIND.get(kind, _WITHOUT_QUOTAS)}",
        )  # fmt: skip

    def _adopt_config(self, config: Config, loaded: LoadedPolicy) -> None:
        self._cycle.rules = SessionRules(config, loaded.policy, PluginGuard(self._clock))
        self._layouts(loaded.layouts)
        self._priority_rules(config)
        self._bounds(config)
        self._cycle.wake()
