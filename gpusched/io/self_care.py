"""What a daemon does about itself: its plugins' faults, its configuration, who hears of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gpusched.clock import Clock
from gpusched.config.model import Config, GroupPriority
from gpusched.io.config_watch import ConfigWatch
from gpusched.io.cycle import Rules, SessionCycle
from gpusched.io.loading import Loaded
from gpusched.io.logs import Log
from gpusched.io.own_news import STUCK, Events, OwnNews
from gpusched.io.plugin_report import PluginReport
from gpusched.io.solver_process import SolverProcess
from gpusched.io.solver_report import SolverReport
from gpusched.io.status_writes import StatusCache
from gpusched.io.telemetry import Telemetry
from gpusched.objects.encode import ObjectRef
from gpusched.objects.layout import Catalogue
from gpusched.pluginhost.guard import Guard, Running

_log = Log(__name__)


class SelfCare:
    """See the module.

    Args:
        cycle: whose rules are replaced on a reload, and whose sessions are reported.
        events: writes what is told.
        cache: knows the objects that it is told about.
        regarding: our own pod or Lease.
        config_file: to be watched; empty when the configuration is built in.
        clock: time.
        telemetry: counts.
        layouts: takes the GPU layouts that count from now on.
        group_priority: takes how far priority classes of PodGroups count from now on.
        inline: nothing is done in threads (virtual time).
        solver: whose losses are reported; None when searches run in this process.
    """

    def __init__(
        self,
        cycle: SessionCycle,
        events: Events,
        cache: StatusCache,
        *,
        regarding: Callable[[], ObjectRef],
        config_file: str,
        clock: Clock,
        telemetry: Telemetry,
        layouts: Callable[[Catalogue], None],
        group_priority: Callable[[GroupPriority], None],
        inline: bool,
        solver: SolverProcess | None = None,
    ) -> None:
        self._cycle = cycle
        self._clock = clock
        self._layouts = layouts
        self._group_priority = group_priority
        self._unread = ""
        self._loop = asyncio.get_running_loop()
        self.news = OwnNews(events, regarding)
        self._report = PluginReport(telemetry, self.news)
        cycle.faults.tell_with(self.news, events, cache)
        self._watch: ConfigWatch | None = None
        cycle.judged.append(self._report.after_session)
        self._solver_report: SolverReport | None = None
        if solver is not None:
            self._solver_report = report = SolverReport(solver, self.news)
            cycle.judged.append(lambda _guard: report.after_session())
        telemetry.set_config(cycle.rules.config.digest, refused=False)
        if config_file:
            self._watch = ConfigWatch(
                config_file, cycle.rules.config, clock=clock, telemetry=telemetry,
                news=self.news, adopt=self._adopt, inline=inline,
            )  # fmt: skip

    @property
    def degraded(self) -> str:
        """Empty when all is well, else which hooks are set aside, or that the solver is."""
        solver = self._solver_report.degraded if self._solver_report is not None else ""
        own = (*self._report.degraded, *filter(None, (solver, self._unread)))
        return "; ".join((*own, *self._cycle.faults.degraded))

    async def run(self) -> None:
        """Watch until cancelled."""
        if self._watch is not None:
            await self._watch.run()

    def reload(self) -> None:
        """Somebody asks for the configuration to be read again."""
        if self._watch is None:
            _log.warning("there is no configuration file to read again; name one with --config")
        else:
            self._watch.ask()

    def stuck(self, running: Running) -> None:
        """A call of a hook does not come back; may be called from any thread."""
        self._loop.call_soon_threadsafe(self._tell_stuck, running)

    def _tell_stuck(self, running: Running) -> None:
        plugin, hook = running.who
        self.news.warn(
            STUCK, reason="PluginStuck", action="Scheduling",
            sentence=f"plugin {plugin} does not come back from its hook {hook}: no session ends, "
            "and the daemon will be started again",
        )  # fmt: skip

    def unread(self, kind: str, refused: bool) -> None:
        """A kind that decisions can do without may not be read, or (False) may be again."""
        self._unread = f"{kind} may not be read" if refused else ""
        if not refused:
            self.news.well(
                kind, reason="Reading", action="Reading", sentence=f"{kind} can be read again"
            )
            return
        self.news.warn(
            kind, reason="NotAllowed", action="Reading",
            sentence=f"{kind} may not be read: the priority class of a PodGroup counts even where a "
            "quota would refuse its pods; apply manifests/rbac.yaml, or set podGroupPriority: ofPods",
        )  # fmt: skip

    def _adopt(self, config: Config, loaded: Loaded) -> None:
        self._cycle.rules = Rules(config, loaded.policy, Guard(self._clock))
        self._layouts(loaded.layouts)
        self._group_priority(config.pod_group_priority)
        self._cycle.wake()
