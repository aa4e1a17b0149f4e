"""A thread that notices when the event loop stands still.

Over 2 s it logs where the loop's thread is. A leader blocked beyond its lease margin is
ended on the spot: it can neither renew nor step down, and what it would send when it wakes
must never be sent.

It also looks at what sessions call in their own thread: a plugin that does not come back is
named with its hook, and ended with the process, since nothing else ends a thread.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import traceback
from collections.abc import Callable
from enum import Enum, auto

from gpusched.base import limits
from gpusched.base.clock import Clock
from gpusched.base.errors import GpuschedError
from gpusched.io.observe import logs
from gpusched.io.observe.logs import Logger
from gpusched.pluginhost.guard import RunningCall


class HookCallState(Enum):
    """What one look found."""

    FINE = auto()
    STUCK = auto()
    LOST = auto()


class LongHookCalls:
    """Follows the call under way.

    Args:
        dump_after_s: one call for so long: say whose it is and where it stands.
        exit_after_s: one call for so long: the process must end.
    """

    def __init__(self, *, dump_after_s: float, exit_after_s: float) -> None:
        self._dump_after_s = dump_after_s
        self._exit_after_s = exit_after_s
        self._call: RunningCall | None = None
        self._last = 0.0
        self._said = False
        self.lasts_s = 0.0

    def check_calls(self, call: RunningCall | None, *, now: float) -> HookCallState:
        """One look; STUCK once a call, LOST at every look past the bound.

        Args:
            call: under way now.
            now: monotonic seconds.
        """
        passed, self._last = now - self._last, now
        if call is None or call != self._call:
            self._call = call
            self._said = False
            self.lasts_s = 0.0
            return HookCallState.FINE
        # A look that comes late means that the whole process stood still, the plugin too.
        self.lasts_s += min(passed, 2 * limits.WATCHDOG_PERIOD_S)
        if self.lasts_s >= self._exit_after_s:
            return HookCallState.LOST
        if self.lasts_s >= self._dump_after_s and not self._said:
            self._said = True
            return HookCallState.STUCK
        return HookCallState.FINE


_log = Logger(__name__)


class LoopState(Enum):
    """What one look found."""

    FINE = auto()
    BLOCKED = auto()
    LOST = auto()


class BlockedLoop:
    """Decides, from the beats it is told, whether the loop stands still. Pure.

    Args:
        dump_after_s: blocked so long: say where.
        exit_after_s: blocked so long: the process must end.
    """

    def __init__(self, *, dump_after_s: float, exit_after_s: float) -> None:
        self._dump_after_s = dump_after_s
        self._exit_after_s = exit_after_s
        self._beats = -1
        self._last = 0.0
        self._said = False
        self.blocked_s = 0.0

    def check_loop(self, *, beats: int, now: float, leading: bool) -> LoopState:
        """One look; BLOCKED once per blockage, LOST at every look past the margin.

        Args:
            beats: how often the loop has beaten.
            now: monotonic seconds.
            leading: whether this process held the lease when the loop last ran.
        """
        passed, self._last = now - self._last, now
        if beats != self._beats:
            self._beats = beats
            self._said = False
            self.blocked_s = 0.0
            return LoopState.FINE
        # A look that comes late means that the whole process stood still: the loop had no
        # chance to beat either, and gets one.
        self.blocked_s += min(passed, 2 * limits.WATCHDOG_PERIOD_S)
        if leading and self.blocked_s >= self._exit_after_s:
            return LoopState.LOST
        if self.blocked_s >= self._dump_after_s and not self._said:
            self._said = True
            return LoopState.BLOCKED
        return LoopState.FINE


class Watchdog:
    """Beats in the loop, looks from a thread.

    Args:
        clock: readable from any thread.
        leading: whether we hold the lease; called from the thread.
        exit_after_s: the lease margin, the renew deadline.
        blocked: called from the thread once a blockage.
        running: the call of a plugin that a session waits for.
        session: the thread of sessions.
        stuck: called from the thread once a call that lasts.
        end: ends the process at once, without cleaning up.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        leading: Callable[[], bool],
        exit_after_s: float,
        blocked: Callable[[], None],
        running: Callable[[], RunningCall | None] = lambda: None,
        session: Callable[[], int] = lambda: 0,
        stuck: Callable[[RunningCall], None] = lambda _running: None,
        end: Callable[[int], object] | None = None,
    ) -> None:
        self._clock = clock
        self._leading = leading
        self._blocked = blocked
        self._running = running
        self._session = session
        self._stuck = stuck
        self._end = end or _end
        self._calls = LongHookCalls(
            dump_after_s=limits.PLUGIN_STUCK_S, exit_after_s=limits.PLUGIN_STUCK_MAX_S
        )
        self._logic = BlockedLoop(dump_after_s=limits.LOOP_BLOCKED_MAX_S, exit_after_s=exit_after_s)
        self._beats = 0
        self._beat_timer: asyncio.TimerHandle | None = None
        self._stopped = threading.Event()
        self._watched = 0
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        """Begin; called in the loop that is watched."""
        self._watched = threading.get_ident()
        self._beat()
        self._thread.start()

    def stop(self) -> None:
        """End the thread and the beat."""
        self._stopped.set()
        if self._beat_timer is not None:
            self._beat_timer.cancel()
        self._thread.join(timeout=2 * limits.WATCHDOG_PERIOD_S)

    def _beat(self) -> None:
        self._beats += 1
        self._beat_timer = asyncio.get_running_loop().call_later(
            limits.WATCHDOG_PERIOD_S, self._beat
        )

    def _watch(self) -> None:
        while not self._stopped.wait(limits.WATCHDOG_PERIOD_S):
            now = self._clock.monotonic()
            if self._look_at_loop(now) or self._look_at_plugins(now):
                self._end(GpuschedError.exit_status)
                return

    def _look_at_loop(self, now: float) -> bool:
        """Whether the process must end because its loop stands still."""
        finding = self._logic.check_loop(beats=self._beats, now=now, leading=self._leading())
        if finding is LoopState.FINE:
            return False
        seconds, stack = self._logic.blocked_s, _stack(self._watched)
        call = self._running()
        facts = {"seconds": seconds, **({"calling": _hook_name(call)} if call else {})}
        if finding is LoopState.LOST:
            _log.dump(
                "the event loop stood still beyond the lease margin, ending at once", stack, **facts
            )
            return True
        _log.dump("the event loop stands still", stack, **facts)
        self._blocked()
        return False

    def _look_at_plugins(self, now: float) -> bool:
        """Whether the process must end because a plugin does not come back."""
        call = self._running()
        finding = self._calls.check_calls(call, now=now)
        if call is None or finding is HookCallState.FINE:
            return False
        facts = {"plugin": call.who.plugin, "hook": call.who.hook, "seconds": self._calls.lasts_s}
        stack = _stack(self._session())
        if finding is HookCallState.LOST:
            _log.dump("a plugin does not come back, ending at once", stack, **facts)
            return True
        _log.dump("a plugin does not come back", stack, **facts)
        self._stuck(call)
        return False


def _end(status: int) -> None:
    logs.drain_log_queue()
    os._exit(status)


def _hook_name(call: RunningCall) -> str:
    return f"plugin {call.who.plugin}, hook {call.who.hook}"


def _stack(thread: int) -> str:
    frame = sys._current_frames().get(thread)  # noqa: SLF001 - the documented way
    return "".join(traceback.format_stack(frame)) if frame is not None else "(no such thread)"
