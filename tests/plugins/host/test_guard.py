"""The guard: contains, times, blames, and sets aside what keeps failing."""

from __future__ import annotations

import asyncio

import pytest

from gpusched.base.errors import Fenced, InvariantBroken, PluginFault
from gpusched.base.limits import PLUGIN_FAULTS_MAX, PLUGIN_NEW_TRIES
from gpusched.pluginhost.guard import HookId, PluginGuard, run_foreign_code


class SteppingClock:
    """Each look at the clock is one second later."""

    def __init__(self):
        self.time = 0.0

    def monotonic(self):
        """Seconds."""
        self.time += 1.0
        return self.time


@pytest.fixture
def guard():
    return PluginGuard(SteppingClock())


def reciprocal(number):
    return 1 / number


def refuse(fault, number):
    return f"{fault} ({number})"


def test_an_answer_goes_through(guard):
    """A hook that works is called with its arguments and answers for itself."""
    assert guard.wrap_hook("cap", "quota_check", reciprocal, refuse)(4) == 0.25


def test_a_fault_is_contained_and_blamed(guard):
    """The fallback answers with the same arguments and knows plugin, hook and cause."""
    check = guard.wrap_hook("cap", "quota_check", reciprocal, refuse)
    message = "plugin cap failed in hook quota_check: ZeroDivisionError: division by zero"
    assert check(0) == f"{message} (0)"
    assert guard.hook_records()[HookId("cap", "quota_check")].last_fault == message
    assert guard.degraded_messages() == ()


def test_the_first_fault_of_a_hook_leaves_its_story_and_no_stack(guard):
    """An author sees the line; frames, and the snapshot they hold, are let go."""
    faults = []
    check = guard.wrap_hook(
        "cap", "quota_check", reciprocal, lambda fault, number: faults.append(fault)
    )
    check(0)
    check(0)
    story = guard.hook_records()[HookId("cap", "quota_check")].story
    assert "in reciprocal" in story
    assert "return 1 / number" in story
    for fault in faults:
        assert fault.__traceback__ is None
        assert isinstance(fault.__cause__, ZeroDivisionError)
        assert fault.__cause__.__traceback__ is None


def test_an_answer_that_the_hook_does_not_allow_is_a_fault(guard):
    """A checker around the plugin's callable raises PluginFault, which is kept as it is."""

    def wrong(number):
        raise PluginFault("cap", "quota_check", "None is no verdict")

    check = guard.wrap_hook("cap", "quota_check", wrong, refuse)
    assert check(1) == "plugin cap failed in hook quota_check: None is no verdict (1)"


@pytest.mark.parametrize("ours", [InvariantBroken("story"), Fenced("lease lost")])
def test_our_own_faults_go_through(guard, ours):
    """A broken invariant of ours is never put down to a plugin."""

    def broken(number):
        raise ours

    with pytest.raises(type(ours)):
        guard.wrap_hook("cap", "quota_check", broken, refuse)(1)
    assert guard.hook_records()[HookId("cap", "quota_check")].faults == 0
    with pytest.raises(type(ours)):
        run_foreign_code("cap", "load", lambda: broken(1))


def test_calls_are_counted_and_timed(guard):
    """Calls, seconds and faults by plugin and hook; a call that raises is timed too."""
    check = guard.wrap_hook("cap", "quota_check", reciprocal, refuse)
    guard.wrap_hook("bare", "node_score", reciprocal, refuse)(1)
    for number in (1, 0, 2):
        check(number)
    records = guard.hook_records()
    assert list(records) == [HookId("bare", "node_score"), HookId("cap", "quota_check")]
    record = records[HookId("cap", "quota_check")]
    assert (record.calls, record.total_s, record.slowest_s, record.faults) == (3, 3.0, 1.0, 1)


def failing(guard, faults):
    calls = []

    def check(number):
        calls.append(number)
        return 1 / number

    guarded = guard.wrap_hook("cap", "quota_check", check, refuse)
    for _ in range(faults):
        guarded(0)
    return guarded, calls


def test_a_hook_that_keeps_failing_is_quarantined(guard):
    """After so many faults in a row the hook refuses without being called, and that is shown."""
    guarded, calls = failing(guard, PLUGIN_FAULTS_MAX)
    assert guard.is_quarantined("cap", "quota_check")
    assert guarded(1).startswith("plugin cap failed in hook quota_check: ZeroDivisionError")
    assert len(calls) == PLUGIN_FAULTS_MAX
    (message,) = guard.degraded_messages()
    assert message.startswith("plugin cap failed in hook quota_check")
    assert not guard.is_quarantined("cap", "enqueue_check")
    assert not guard.is_quarantined("other", "quota_check")


def test_faults_with_successes_between_do_not_add_up(guard):
    """One odd gang among good ones never gets a plugin quarantined."""
    guarded, _ = failing(guard, PLUGIN_FAULTS_MAX - 1)
    guarded(1)
    failing(guard, PLUGIN_FAULTS_MAX - 1)
    assert not guard.is_quarantined("cap", "quota_check")


def test_a_session_gives_one_more_try(guard):
    """A quarantined hook is tried once a session; a success ends the quarantine."""
    guarded, calls = failing(guard, PLUGIN_FAULTS_MAX)
    guard.begin_session()
    assert isinstance(guarded(0), str)
    assert isinstance(guarded(1), str)
    assert len(calls) == PLUGIN_FAULTS_MAX + 1
    guard.begin_session()
    assert guarded(2) == 0.5
    assert guarded(4) == 0.25
    assert not guard.is_quarantined("cap", "quota_check")


def test_the_next_session_inherits_the_record(guard):
    """Hooks are registered anew in each session; faults are counted across sessions."""
    failing(guard, PLUGIN_FAULTS_MAX - 1)
    guard.begin_session()
    failing(guard, 1)
    assert guard.is_quarantined("cap", "quota_check")


def test_what_a_fallback_raises_goes_through(guard):
    """The fallback is ours: its bug is not hidden."""

    def bug(fault, number):
        raise KeyError(number)

    with pytest.raises(KeyError):
        guard.wrap_hook("cap", "quota_check", reciprocal, bug)(0)


def test_a_faults_text_is_one_short_line():
    """A plugin cannot write pages into our log."""
    with pytest.raises(PluginFault) as caught:
        run_foreign_code("cap", "load", lambda: (_ for _ in ()).throw(ValueError("a\nb" * 1000)))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize(
    "kind", [SystemExit, GeneratorExit, asyncio.CancelledError, RecursionError]
)
def test_a_plugin_cannot_end_the_process(guard, kind):
    """``sys.exit`` in a hook, or in a module that is imported, is a fault like any other."""

    def leave(number):
        raise kind(number)

    assert f"{kind.__name__}: 3 (3)" in guard.wrap_hook("cap", "quota_check", leave, refuse)(3)
    with pytest.raises(PluginFault, match=kind.__name__):
        run_foreign_code("cap", "load", lambda: leave(1))


def test_a_person_at_the_terminal_can(guard):
    """Control-C goes through."""

    def interrupted(number):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        guard.wrap_hook("cap", "quota_check", interrupted, refuse)(1)
    assert guard.running is None


def test_the_call_under_way_is_named(guard):
    """The innermost one, and afterwards again the one around it."""
    seen = []

    def inner(number):
        seen.append(guard.running)
        return reciprocal(number)

    def outer(number):
        seen.append(guard.running)
        guard.wrap_hook("bare", "node_score", inner, refuse)(0)
        seen.append(guard.running)

    guard.wrap_hook("cap", "quota_check", outer, refuse)(1)
    names = [running.who for running in seen]
    assert names == [("cap", "quota_check"), ("bare", "node_score"), ("cap", "quota_check")]
    assert seen[0] == seen[2]
    assert seen[0].since < seen[1].since
    assert guard.running is None


def test_each_callable_of_a_hook_is_counted_alone(guard):
    """What one filter of a plugin answers does not hide that another always fails."""
    fails = guard.wrap_hook("cap", "node_filter", reciprocal, refuse)
    answers = guard.wrap_hook("cap", "node_filter", reciprocal, refuse, part="2")
    for _ in range(PLUGIN_FAULTS_MAX):
        fails(0)
        answers(1)
    assert guard.is_quarantined("cap", "node_filter")
    assert not guard.is_quarantined("cap", "node_filter", "2")
    assert answers(4) == 0.25
    assert isinstance(fails(4), str)
    assert guard.hook_records()[HookId("cap", "node_filter")].quarantined
    assert len(guard.degraded_messages()) == 1
    second = PluginGuard(SteppingClock())
    second.resume_failing(guard.failing_hooks())
    assert second.failing_hooks() == guard.failing_hooks()
    assert second.is_quarantined("cap", "node_filter")


def test_a_quarantined_hook_is_tried_for_what_it_did_not_fail_for(guard):
    """One odd gang keeps nobody else from an answer, which ends the quarantine."""
    asked = []

    def check(name):
        asked.append(name)
        if name == "odd":
            raise LookupError(name)
        return name

    wrapped = guard.wrap_hook("cap", "quota_check", check, lambda fault, name: f"refused {name}")
    for _ in range(PLUGIN_FAULTS_MAX + 1):
        guard.begin_session()
        wrapped("odd")
    assert guard.is_quarantined("cap", "quota_check")
    guard.begin_session()
    assert [wrapped("odd"), wrapped("odd"), wrapped("fine")] == ["refused odd"] * 2 + ["fine"]
    assert asked[-2:] == ["odd", "fine"]
    assert not guard.is_quarantined("cap", "quota_check")


def test_a_hook_that_fails_for_all_is_tried_for_few_of_them(guard):
    """A session does not pay for thousands of calls that fail."""
    calls = []
    wrapped = guard.wrap_hook(
        "cap", "quota_check", lambda name: calls.append(name) or 1 / 0, lambda fault, name: None
    )
    guard.begin_session()
    for number in range(1000):
        wrapped(f"gang-{number}")
    assert len(calls) == PLUGIN_FAULTS_MAX + PLUGIN_NEW_TRIES
    guard.begin_session()
    known = tuple(calls)
    for name in known:
        wrapped(name)
    assert len(calls) == PLUGIN_FAULTS_MAX + PLUGIN_NEW_TRIES + 1


def test_another_guard_goes_on_with_what_a_hook_failed_for(guard):
    """A session that is replayed makes the same tries."""
    wrapped = guard.wrap_hook("cap", "quota_check", reciprocal, refuse)
    for _ in range(PLUGIN_FAULTS_MAX):
        guard.wrap_hook("cap", "named", lambda name: 1 / 0, lambda fault, name: None)("odd")
        wrapped(0)
    later = PluginGuard(SteppingClock())
    later.resume_failing(guard.failing_hooks())
    assert later.failing_hooks() == guard.failing_hooks()
    assert [each.about for each in later.failing_hooks()] == [("odd",), ()]
