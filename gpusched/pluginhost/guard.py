"""Contains plugins: a fault of theirs costs what the hook's rule says, never the session.

Every callable that a plugin registers is called through ``Guard.wrap_hook``: it is timed, and when
it raises, the hook's fallback answers and the fault is put down to plugin and hook. A hook
that fails ``PLUGIN_FAULTS_MAX`` times in a row is quarantined: its fallback answers without
calling it, so filters and checks go on refusing. Each session gives it one more try, and one
success ends the quarantine: a single odd pod group must not stop the others for ever. So it is also
tried for what it did not fail for yet, a few of them a session. Where a plugin registers several callables for one hook, each has its own row of faults: what one of them
answers says nothing about the others.

    working --fault--> failing --N in a row--> quarantined --(one try a session) success--> working

Our own broken invariants pass through: they are no plugin's fault. So does the interrupt of a
person at a terminal; ``sys.exit`` of a plugin does not.

What is being called at the moment can be read from another thread, so that a watchdog can name
a call that does not come back.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from typing import Concatenate, Final, NamedTuple, ParamSpec, TypeVar

import attrs

from gpusched.base.classes import define, frozen
from gpusched.base.clock import Clock
from gpusched.base.errors import Fenced, InvariantBroken, PluginFault
from gpusched.base.limits import (
    FOREIGN_TEXT_MAX,
    PLUGIN_FAULTS_MAX,
    PLUGIN_NEW_TRIES,
    PLUGIN_SUBJECTS_MAX,
)
from gpusched.session.framework.guard import HookListener

P = ParamSpec("P")
R = TypeVar("R")

_TRACEBACK_CALLS: Final = 8
"""Innermost calls of a stack that an author needs to find a fault."""
_PASSED_THROUGH: Final = (InvariantBroken, Fenced, KeyboardInterrupt)


class HookId(NamedTuple):
    """Names of a plugin and of one of its hooks, to which a fault is put down."""

    plugin: str
    hook: str


class RunningCall(NamedTuple):
    """A call under way: whose, and since when in monotonic seconds."""

    who: HookId
    since: float


@frozen(kw_only=True)
class HookRecord:
    """What is known of one hook of one plugin since the configuration was loaded.

    Attributes:
        calls: how often it was called; while quarantined, only its tries count.
        total_s: seconds spent in it, all calls together.
        slowest_s: seconds of its slowest call.
        faults: how often it raised.
        last_fault: the sentence of the newest fault, empty when there was none.
        story: the innermost lines of the stack of its first fault, for its author.
    """

    calls: int = 0
    total_s: float = 0.0
    slowest_s: float = 0.0
    faults: int = 0
    quarantined: bool = False
    last_fault: str = ""
    story: str = ""


@frozen
class FailingHook:
    """A hook that failed when it was called last, and so what the next session depends on.

    Attributes:
        in_a_row: how often by now.
        why: of the newest fault.
        part: which of the plugin's callables for this hook.
        about: names of what it failed for, sorted.
    """

    plugin: str
    hook: str
    in_a_row: int
    why: str
    part: str = ""
    about: tuple[str, ...] = ()


@define
class _FaultStreak:
    """Faults in a row of one callable, and names of what it was asked about then."""

    in_a_row: int = 0
    tries_left: int = 0
    new_tries_left: int = PLUGIN_NEW_TRIES
    last: PluginFault | None = None
    about: set[str] = attrs.Factory(set)

    @property
    def quarantined(self) -> bool:
        return self.in_a_row >= PLUGIN_FAULTS_MAX

    def begin_session(self) -> None:
        """Allow the tries of one session."""
        self.tries_left = 1 if self.quarantined else 0
        self.new_tries_left = PLUGIN_NEW_TRIES

    def may_try(self, about: str) -> bool:
        """Whether the callable is tried although it is quarantined."""
        if about and about not in self.about and len(self.about) < PLUGIN_SUBJECTS_MAX:
            self.new_tries_left -= 1
            return self.new_tries_left >= 0
        self.tries_left -= 1
        return self.tries_left >= 0

    def count_success(self) -> None:
        """A call succeeded: faults in a row start at 0 again."""
        self.in_a_row = 0
        self.about.clear()

    def count_fault(self, fault: PluginFault, about: str) -> None:
        """Count one more fault."""
        self.in_a_row += 1
        self.last = fault
        if about and len(self.about) < PLUGIN_SUBJECTS_MAX:
            self.about.add(about)


@define
class _HookLedger:
    calls: int = 0
    total_s: float = 0.0
    slowest_s: float = 0.0
    faults: int = 0
    last: PluginFault | None = None
    story: str = ""
    streaks: dict[str, _FaultStreak] = attrs.Factory(dict)
    shown: HookRecord | None = None
    """The record that was made last."""

    def record(self) -> HookRecord:
        """What is known now: the record of before where nothing has happened since."""
        shown, quarantined = self.shown, self.quarantined
        if (
            shown is None
            or shown.calls != self.calls
            or shown.faults != self.faults
            or shown.quarantined != quarantined
        ):
            shown = self.shown = HookRecord(
                calls=self.calls,
                total_s=self.total_s,
                slowest_s=self.slowest_s,
                faults=self.faults,
                quarantined=quarantined,
                last_fault=str(self.last) if self.last else "",
                story=self.story,
            )
        return shown

    @property
    def quarantined(self) -> bool:
        if not self.faults:  # as nearly always, and each session asks all of them
            return False
        return any(streak.quarantined for streak in self.streaks.copy().values())


class PluginGuard:
    """One for each loaded configuration; a new configuration starts with a clean record.

    Used by one session at a time. ``hook_records`` may be read from another thread.

    Args:
        clock: measures calls by its monotonic time; no decision depends on it.
        compares_lists: whether hooks that answer for a list of victims are held against what they
            answer for each of them: for tests and trials, as it costs more than it saves.
    """

    def __init__(self, clock: Clock, *, compares_lists: bool = False) -> None:
        self._clock = clock
        self.compares_lists = compares_lists
        self._ledgers: dict[HookId, _HookLedger] = {}
        self._registered: set[tuple[str, str, str]] = set()
        self._running: tuple[HookId, float] | None = None

    @property
    def running(self) -> RunningCall | None:
        """The innermost call under way; read it once, as it changes."""
        running = self._running
        return None if running is None else RunningCall(*running)

    def begin_session(self) -> None:
        """Give every quarantined hook one more try. Called before plugins are opened."""
        for ledger in self._ledgers.values():
            if ledger.faults:  # as seldom, and each session asks all of them twice
                for streak in ledger.streaks.values():
                    streak.begin_session()

    def register_hook(self, plugin: str, hook: str, part: str = "") -> None:
        """Keep a record of the callable, though it may never be wrapped or called."""
        named = (plugin, hook, part)
        if named in self._registered:  # as in each session but the first
            return
        self._registered.add(named)
        ledger = self._ledgers.setdefault(HookId(plugin, hook), _HookLedger())
        ledger.streaks.setdefault(part, _FaultStreak())

    def wrap_hook(
        self,
        plugin: str,
        hook: str,
        fn: Callable[P, R],
        fallback: Callable[Concatenate[PluginFault, P], R],
        *,
        part: str = "",
        listener: HookListener | None = None,
    ) -> Callable[P, R]:
        """The same callable, contained and timed.

        Args:
            plugin: name of who registers it.
            hook: name of the hook.
            fn: the plugin's callable; it may also raise ``PluginFault`` for an answer that its
                hook does not allow.
            fallback: answers in its place, given the fault and the same arguments. It is ours:
                what it raises goes through.
            part: which of the plugin's callables for this hook, the same in each session.
            listener: is told when it fails, and when it has answered first.
        """
        who = HookId(plugin, hook)
        # Asked first: each session wraps every hook again, and seldom is one new.
        ledger = self._ledgers.get(who) or self._ledgers.setdefault(who, _HookLedger())
        streak = ledger.streaks.get(part) or ledger.streaks.setdefault(part, _FaultStreak())
        monotonic = self._clock.monotonic
        unanswered = listener is not None

        # No functools.wraps: sixty hooks a session would pay for names that nobody reads. A session
        # makes hundreds of calls, so that what each one costs here is a few percent of all.
        def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
            nonlocal unanswered
            if streak.in_a_row >= PLUGIN_FAULTS_MAX and not streak.may_try(_names_of(args)):
                assert streak.last is not None
                return fallback(streak.last, *args, **kwargs)
            fault: PluginFault | None = None
            outer, start = self._running, monotonic()
            self._running = (who, start)
            try:
                answer = fn(*args, **kwargs)
            except _PASSED_THROUGH:
                raise
            except BaseException as error:  # noqa: BLE001 - containing plugins is our task
                if listener is not None and isinstance(error, Exception):
                    listener.failed(error, args)
                if not ledger.faults:
                    ledger.story = "".join(
                        traceback.format_exception(error, limit=-_TRACEBACK_CALLS)
                    )
                fault = _without_tracebacks(_plugin_fault(plugin, hook, error))
            else:
                if unanswered and listener is not None:
                    unanswered = False
                    listener.answered()
                if streak.in_a_row:
                    streak.count_success()
            finally:
                self._running = outer
            took_s = monotonic() - start
            ledger.calls += 1
            ledger.total_s += took_s
            if took_s > ledger.slowest_s:  # noqa: PLR1730 - a call of max costs as much as the rest
                ledger.slowest_s = took_s
            if fault is None:
                return answer
            ledger.faults += 1
            ledger.last = fault
            streak.count_fault(fault, _names_of(args))
            return fallback(fault, *args, **kwargs)

        return guarded

    def failing_hooks(self) -> tuple[FailingHook, ...]:
        """Hooks that failed when they were called last, by plugin and hook."""
        return tuple(
            FailingHook(
                *who,
                streak.in_a_row,
                streak.last.why if streak.last else "",
                part,
                tuple(sorted(streak.about)),
            )
            for who, ledger in sorted(self._ledgers.items())
            for part, streak in sorted(ledger.streaks.items())
            if streak.in_a_row
        )

    def resume_failing(self, failing: Iterable[FailingHook]) -> None:
        """Go on where another guard was, which is to be done before the first session."""
        for each in failing:
            ledger = self._ledgers.setdefault(HookId(each.plugin, each.hook), _HookLedger())
            ledger.last = PluginFault(each.plugin, each.hook, each.why)
            ledger.faults += each.in_a_row
            ledger.streaks[each.part] = _FaultStreak(
                in_a_row=each.in_a_row, last=ledger.last, about=set(each.about)
            )

    def is_quarantined(self, plugin: str, hook: str, part: str = "") -> bool:
        """Whether the hook is answered by its fallback for having failed too often in a row."""
        ledger = self._ledgers.get(HookId(plugin, hook))
        streak = ledger.streaks.get(part) if ledger is not None else None
        return streak is not None and streak.quarantined

    def hook_records(self) -> dict[HookId, HookRecord]:
        """A copy of what is known, by plugin and hook, for metrics."""
        return {who: ledger.record() for who, ledger in sorted(self._ledgers.copy().items())}

    def degraded_messages(self) -> tuple[str, ...]:
        """One sentence for each quarantined callable, empty when all is well."""
        return tuple(
            f"{streak.last} ({PLUGIN_FAULTS_MAX} times in a row or more, so it is set aside)"
            for _, ledger in sorted(
                (who, each) for who, each in self._ledgers.copy().items() if each.quarantined
            )
            for _, streak in sorted(ledger.streaks.copy().items())
            if streak.quarantined
        )


def run_foreign_code(plugin: str, step: str, fn: Callable[[], R]) -> R:
    """Run foreign code outside of a session: import it, build it.

    Raises:
        PluginFault: whatever it raised, named.
    """
    try:
        return fn()
    except _PASSED_THROUGH:
        raise
    except BaseException as error:
        raise _plugin_fault(plugin, step, error) from error


def _names_of(args: tuple[object, ...]) -> str:
    """Names of the gangs, pods, classes and queues that a hook is asked about."""
    return " ".join(name for each in args if (name := _name_of(each)))


def _name_of(value: object) -> str:
    if isinstance(value, str):
        return value
    for field in ("key", "uid", "digest"):
        known = getattr(value, field, None)
        if known is not None:
            return str(known)
    return str(getattr(getattr(value, "queue", None), "name", ""))


def _without_tracebacks(fault: PluginFault) -> PluginFault:
    """Without stacks: their frames would keep the session and its snapshot in memory."""
    error: BaseException | None = fault
    while error is not None:
        error.__traceback__ = None
        error.__context__ = None
        error = error.__cause__
    return fault


def _plugin_fault(plugin: str, hook: str, error: BaseException) -> PluginFault:
    if isinstance(error, PluginFault):
        return error
    said = " ".join(str(error).split())[:FOREIGN_TEXT_MAX]
    kind = type(error).__name__
    fault = PluginFault(plugin, hook, f"{kind}: {said}" if said else kind)
    fault.__cause__ = error
    return fault
