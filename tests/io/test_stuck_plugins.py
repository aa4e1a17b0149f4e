"""A plugin that does not come back is named with its hook and the line where it stands."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from gpusched.base.clock import SystemClock
from gpusched.base.errors import ConfigError
from gpusched.base.limits import WATCHDOG_PERIOD_S
from gpusched.config.model import DEFAULT
from gpusched.io.cycle.policy_loader import PolicyLoader
from gpusched.io.observe.daemon_events import DaemonEvents
from gpusched.io.observe.plugin_report import PluginReport
from gpusched.io.observe.telemetry import Telemetry
from gpusched.io.observe.watchdog import HookCallState, LongHookCalls, Watchdog
from gpusched.io.workers.worker_thread import WorkerThread
from gpusched.pluginhost.guard import HookId, PluginGuard, RunningCall

CALL = RunningCall(HookId("cap", "quota_check"), 7.0)


def looks(calls, *, step=WATCHDOG_PERIOD_S):
    """What a series of looks finds, one every ``step`` seconds."""
    logic = LongHookCalls(dump_after_s=2.0, exit_after_s=10.0)
    return [logic.check_calls(call, now=100 + n * step) for n, call in enumerate(calls)]


def test_calls_that_come_and_go_are_fine():
    """However many there are, and however long the session is."""
    calls = [RunningCall(HookId("cap", "quota_check"), float(n // 3)) for n in range(100)]
    assert set(looks(calls)) == {HookCallState.FINE}
    assert set(looks([None] * 100)) == {HookCallState.FINE}


def test_a_call_that_lasts_is_named_once_and_ended_at_last():
    """After two seconds the one, after ten the other."""
    found = looks([CALL] * 30)
    assert found.count(HookCallState.STUCK) == 1
    assert found.index(HookCallState.STUCK) == 4
    assert found.index(HookCallState.LOST) == 20


def test_a_second_call_is_named_anew():
    """The same hook called again is another call."""
    found = looks([CALL] * 6 + [CALL._replace(since=8.0)] * 6)
    assert found.count(HookCallState.STUCK) == 2


def test_a_paused_process_is_no_plugins_fault():
    """When the looks themselves come late, the plugin had no time either."""
    assert set(looks([CALL] * 2, step=3600.0)) == {HookCallState.FINE}


def test_it_sees_a_real_plugin_hang(monkeypatch, caplog):
    """The log has plugin, hook and the stack of the session's thread; then the process ends."""
    monkeypatch.setattr("gpusched.base.limits.WATCHDOG_PERIOD_S", 0.01)
    monkeypatch.setattr("gpusched.base.limits.PLUGIN_STUCK_S", 0.03)
    monkeypatch.setattr("gpusched.base.limits.PLUGIN_STUCK_MAX_S", 0.1)
    release, ended = threading.Event(), []
    told: list[RunningCall] = []

    def wait_for_ever(_gang):
        assert release.wait(60)

    def end(status):
        ended.append(status)
        release.set()

    async def main():
        guard, aside = PluginGuard(SystemClock()), WorkerThread("session")
        check = guard.wrap_hook("cap", "quota_check", wait_for_ever, lambda fault, gang: None)
        dog = Watchdog(
            SystemClock(),
            leading=lambda: True,
            exit_after_s=3600,
            blocked=lambda: None,
            running=lambda: guard.running,
            session=lambda: aside.ident,
            stuck=told.append,
            end=end,
        )
        dog.start()
        await aside.run(lambda: check("gang"))
        aside.stop()
        dog.stop()

    with caplog.at_level(logging.ERROR, logger="gpusched"):
        asyncio.run(main())
    assert ended == [70]
    assert [running.who for running in told] == [("cap", "quota_check")]
    first, last = caplog.records
    assert first.message == "a plugin does not come back"
    assert first.gpusched_facts["plugin"] == "cap"
    assert first.gpusched_facts["hook"] == "quota_check"
    assert "wait_for_ever" in first.gpusched_dump
    assert last.message == "a plugin does not come back, ending at once"


def test_a_thread_aside_does_jobs_in_order_and_passes_on_what_they_raise():
    """Answers and exceptions come out where the job is awaited."""

    async def main():
        aside = WorkerThread("work")
        assert await asyncio.gather(*(aside.run(lambda n=n: n * n) for n in range(5))) == [
            0, 1, 4, 9, 16,
        ]  # fmt: skip
        with pytest.raises(ZeroDivisionError):
            await aside.run(lambda: 1 / 0)
        with pytest.raises(RuntimeError, match="StopIteration"):
            await aside.run(lambda: next(iter(())))
        assert await aside.run(lambda: "still there") == "still there"
        aside.stop()

    asyncio.run(main())


def test_a_process_ends_although_a_job_does_not():
    """The thread is no reason to stay: a plugin that hangs must not outlive SIGTERM."""
    hangs = threading.Event()
    begun = threading.Event()

    async def main():
        aside = WorkerThread("session")
        waiting = asyncio.create_task(aside.run(lambda: (begun.set(), hangs.wait(60))))
        assert await asyncio.to_thread(begun.wait, 60)
        waiting.cancel()
        aside.stop()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        return next(t for t in threading.enumerate() if t.ident == aside.ident)

    thread = asyncio.run(main())
    assert thread.is_alive()
    assert thread.daemon
    hangs.set()
    thread.join(60)
    assert not thread.is_alive()


def test_a_configuration_whose_plugin_never_imports_is_refused(monkeypatch):
    """The loop goes on meanwhile, what hangs is left behind, and the next file is read all the same."""
    monkeypatch.setattr("gpusched.base.limits.CONFIG_LOAD_MAX_S", 0.05)
    hangs = threading.Event()

    async def main():
        loader = PolicyLoader(SystemClock(), inline=False)
        with pytest.raises(ConfigError, match="loading it takes longer than"):
            await loader.run_in_thread(lambda: hangs.wait(60), source="f.yaml")
        monkeypatch.setattr("gpusched.base.limits.CONFIG_LOAD_MAX_S", 60.0)
        loaded = await loader.load(DEFAULT)
        assert [action.name for action in loaded.policy.actions] == list(DEFAULT.actions)
        assert loaded.warnings == ()
        loader.close()

    asyncio.run(main())
    hangs.set()


def test_a_slow_hook_is_named_once(monkeypatch, caplog):
    """All calls of one session count together; the histogram has every session."""
    clock = SteppingClock()
    guard, telemetry = PluginGuard(clock), Telemetry()
    report = PluginReport(telemetry, DaemonEvents(Nobody(), lambda: None))
    check = guard.wrap_hook("cap", "quota_check", lambda gang: gang, lambda fault, gang: None)
    for _ in range(3):
        check("g")
        check("h")
        report.after_session(guard)
    said = [record for record in caplog.records if record.message == "a plugin takes long"]
    assert [record.gpusched_facts["seconds"] for record in said] == [2.0]
    text = telemetry.render().decode()
    telemetry.shutdown()
    assert 'gpusched_plugin_hook_seconds_count{hook="quota_check",plugin="cap"} 3' in text
    assert 'gpusched_plugin_hook_seconds_sum{hook="quota_check",plugin="cap"} 6' in text


class SteppingClock:
    """Each look at the clock is one second later."""

    def __init__(self):
        self.time = 0.0

    def monotonic(self):
        """Seconds."""
        self.time += 1.0
        return self.time


class Nobody:
    """Nobody is told of anything."""

    def record(self, note, **how):
        """Nothing is to be told in this test."""
        raise AssertionError(note)
