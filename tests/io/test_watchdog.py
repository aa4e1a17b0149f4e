"""The watchdog: a blocked loop is named, a blocked leader ended, a paused process neither."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from gpusched.base.clock import SystemClock
from gpusched.base.limits import WATCHDOG_PERIOD_S
from gpusched.io.observe.watchdog import BlockedLoop, LoopState, Watchdog


def looks(*, beats, leading=False, step=WATCHDOG_PERIOD_S):
    """What a series of looks finds, one every ``step`` seconds."""
    logic = BlockedLoop(dump_after_s=2.0, exit_after_s=10.0)
    return [
        logic.check_loop(beats=beat, now=100 + n * step, leading=leading)
        for n, beat in enumerate(beats)
    ]


def test_a_beating_loop_is_fine():
    """As long as beats arrive nothing is found."""
    assert set(looks(beats=range(100), leading=True)) == {LoopState.FINE}


def test_a_blocked_loop_is_said_once_a_blockage():
    """After 2 s, once; after it turned again, a second blockage counts anew."""
    found = looks(beats=[0] + [1] * 20 + [2] * 20)
    assert found.count(LoopState.BLOCKED) == 2
    assert found.index(LoopState.BLOCKED) == 1 + 4


def test_a_blocked_leader_is_ended_a_blocked_standby_is_not():
    """The lease margin ends only who may still believe to lead."""
    beats = [0] + [1] * 30
    found = looks(beats=beats, leading=True)
    assert found.index(LoopState.LOST) == 1 + 20
    assert LoopState.LOST not in looks(beats=beats)


def test_a_paused_process_is_not_a_blocked_loop():
    """When the thread itself was late, the loop gets its chance first."""
    found = looks(beats=[0, 0, 1], leading=True, step=3600.0)
    assert found == [LoopState.FINE] * 3


@pytest.mark.parametrize("leading", [False, True])
def test_it_sees_a_real_loop_stand_still(monkeypatch, caplog, leading):
    """The stack in the log names the blocking call; the leader is ended with status 70."""
    monkeypatch.setattr("gpusched.base.limits.WATCHDOG_PERIOD_S", 0.01)
    monkeypatch.setattr("gpusched.base.limits.LOOP_BLOCKED_MAX_S", 0.03)
    told, ended = threading.Event(), []
    counted = []

    def end(status):
        ended.append(status)
        told.set()

    def blocked():
        counted.append(1)
        if not leading:
            told.set()

    async def main():
        dog = Watchdog(
            SystemClock(), leading=lambda: leading, exit_after_s=0.1, blocked=blocked, end=end
        )
        dog.start()
        block_here(told)
        dog.stop()

    def block_here(event):
        assert event.wait(20)

    with caplog.at_level(logging.ERROR, logger="gpusched"):
        asyncio.run(main())
    assert counted == [1]
    assert ended == ([70] if leading else [])
    assert "block_here" in caplog.records[0].gpusched_dump
