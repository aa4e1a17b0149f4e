"""Plugins whose hooks failed or are set aside, and how long hooks take: metrics, log and event.

Told after each session from the records of its guard; a decision never waits for it.
"""

from __future__ import annotations

from typing import Final

from gpusched.base import limits
from gpusched.io.observe.daemon_events import PLUGINS, DaemonEvents
from gpusched.io.observe.logs import Logger
from gpusched.io.observe.telemetry import Telemetry
from gpusched.pluginhost.guard import HookId, HookRecord, PluginGuard

_NEVER: Final = HookRecord()
_log = Logger(__name__)


class PluginReport:
    """See the module.

    Args:
        telemetry: counts.
        daemon_events: tells an operator that a hook was set aside.
    """

    def __init__(self, telemetry: Telemetry, daemon_events: DaemonEvents) -> None:
        self._telemetry = telemetry
        self._daemon_events = daemon_events
        self._guard: PluginGuard | None = None
        self._before: dict[HookId, HookRecord] = {}
        self._slow: set[HookId] = set()
        self._aside: tuple[HookId, ...] = ()
        self.degraded: tuple[str, ...] = ()
        """One sentence for each hook that is set aside."""

    def after_session(self, guard: PluginGuard) -> None:
        """A session under this guard has ended."""
        if guard is not self._guard:  # a new configuration starts with a clean record
            self._guard = guard
            self._before = {}
            self._slow.clear()
        records = guard.hook_records()
        for who, record in records.items():
            self._count(who, record, self._before.get(who, _NEVER))
        self._before = records
        self.degraded = guard.degraded_messages()
        self._tell_aside(tuple(who for who, record in records.items() if record.quarantined))

    def _count(self, who: HookId, record: HookRecord, before: HookRecord) -> None:
        if record.faults > before.faults:
            self._telemetry.plugin_faults(*who, record.faults - before.faults)
            if not before.faults:
                _log.dump(
                    "a hook failed for the first time", record.story,
                    plugin=who.plugin, hook=who.hook,
                )  # fmt: skip
        if record.calls == before.calls:
            return
        seconds = record.total_s - before.total_s
        self._telemetry.plugin_session(*who, seconds)
        if seconds >= limits.PLUGIN_SLOW_S and who not in self._slow:
            self._slow.add(who)
            _log.warning(
                "a plugin takes long",
                plugin=who.plugin, hook=who.hook, seconds=round(seconds, 3),
                calls=record.calls - before.calls,
            )  # fmt: skip

    def _tell_aside(self, aside: tuple[HookId, ...]) -> None:
        if aside == self._aside:
            return
        self._aside = aside
        self._telemetry.set_quarantined(aside)
        if aside:
            message = "; ".join(self.degraded)
            _log.error("hooks are set aside", why=message)
            self._daemon_events.warn(
                PLUGINS, reason="PluginDegraded", action="Scheduling", message=message
            )
        else:
            _log.info("every hook of every plugin answers again")
            self._daemon_events.recovered(
                PLUGINS, reason="PluginRecovered", action="Scheduling",
                message="every hook of every plugin answers again",
            )  # fmt: skip
