"""A session that starts Jobs ends when it knows that nobody else starts: what it would tell of them waits for the pods."""

from __future__ import annotations

from math import inf

import attrs
import pytest

from gpusched.base.clock import SystemClock
from gpusched.base.debounce import Change
from gpusched.cache.snapshot import ExpectedStarts
from gpusched.config.model import DEFAULT
from gpusched.io.workers.seen_changes import SeenChanges
from gpusched.pluginhost.guard import PluginGuard
from gpusched.session.decide import decide
from gpusched.session.state.order.round_progress import RoundProgress
from gpusched.session.state.session_cache import SessionCache
from gpusched.testing.given import Given


def jobs(given, count, *, nodes=1, **more):
    """Equal Jobs of two pods that wait, on nodes with room for one of them each."""
    c = given.nodes(nodes, gpus=8)
    about = {"parallelism": 2, "completions": 2, "queue": "default", "gpus": 4, "suspended": True}
    for number in range(count):
        c.job(f"job-{number}", pods=0, **{**about, **more})
    return c


def session(c, **changes):
    """A session whose status may wait, and the same one if it looked at everybody."""
    c.cache.may_end_early = True
    snapshot = attrs.evolve(c.cache.take_snapshot(c.now), status_may_wait=True, **changes)
    whole = attrs.evolve(snapshot, status_may_wait=False)
    return tuple(
        decide(each, c.policy, guard=PluginGuard(SystemClock()), session_cache=SessionCache())
        for each in (snapshot, whole)
    )


def started(decision):
    return [each.key.name for each in decision.plan.job_changes]


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_session_that_starts_jobs_before_equal_ones_tells_of_nobody(given, nodes):
    """The same Jobs start as in a whole session."""
    decision, whole = session(jobs(given, 5, nodes=nodes))
    assert (decision.ended_early, decision.settled) == (True, True)
    assert decision.plan.gangs == decision.plan.queues == ()
    assert len(started(decision)) == nodes
    assert decision.plan.job_changes == whole.plan.job_changes
    assert not whole.ended_early


def test_where_others_might_start_everybody_is_looked_at(given):
    """A smaller gang behind the Jobs has room beside them."""
    c = jobs(given, 3).nodes(1, prefix="more", gpus=2)
    c.gang("small", pods=1, gpus=2)
    decision, whole = session(c)
    assert not decision.ended_early
    assert decision.plan == whole.plan
    assert [each.gang.name for each in decision.plan.binds] == ["small"]


def test_where_others_wait_that_are_not_alike_everybody_is_looked_at(given):
    """Of a larger gang nobody knows that it is refused."""
    c = jobs(given, 3)
    c.gang("large", pods=2, gpus=8)
    decision, whole = session(c)
    assert (decision.ended_early, decision.plan) == (False, whole.plan)


def test_a_session_that_starts_pods_tells_of_everybody(given):
    """No pods follow that would bring more to tell."""
    c = given.nodes(1, gpus=8)
    for number in range(3):
        c.gang(f"gang-{number}", pods=2, gpus=4)
    decision, whole = session(c)
    assert (decision.ended_early, decision.plan) == (False, whole.plan)


def test_a_session_that_starts_nobody_tells_of_everybody(given):
    """All others are refused there, too, and that is news."""
    c = jobs(given, 3)
    c.pod("other", gpus=8, node="node-0", slots=255, scheduler="default-scheduler")
    decision, whole = session(c)
    assert (decision.ended_early, decision.plan) == (False, whole.plan)


def test_jobs_that_may_grow_are_looked_at_with_everybody(given):
    """A Job that starts with a part of its pods may have more of them in the same session."""
    c = jobs(given, 3, parallelism=3, started={"min_parallelism": 1})
    decision, whole = session(c)
    assert (decision.ended_early, decision.plan) == (False, whole.plan)


def test_a_session_that_moves_gangs_is_whole():
    """Moves are decided about when everybody has had a turn."""
    config = attrs.evolve(DEFAULT, actions=(*DEFAULT.actions, "consolidate"))
    c = jobs(Given(config=config), 3)
    decision, whole = session(c)
    assert (decision.ended_early, decision.plan) == (False, whole.plan)


def all_told(at):
    """Changes of which a whole session has told everything."""
    seen = SeenChanges()
    seen.note(Change.ANY)
    seen.begin_session(at)
    seen.note_whole_session(at, holds_until=at + 60.0, starts=ExpectedStarts(at))
    return seen


def test_the_first_session_tells_what_it_finds():
    """Nobody was told anything yet."""
    assert not SeenChanges().may_tell_later(100.0)


def test_pods_behind_a_settled_session_are_foreseen():
    """Given that one was settled, when pods come that it counted on, then they are foreseen until a moment comes."""
    seen = all_told(100.0)
    seen.note(Change.ANY)
    assert not seen.begin_session(110.0)
    seen.note_settled_session(110.0, holds_until=inf)
    seen.note(Change.FORESEEN)
    assert seen.begin_session(110.1)
    assert not seen.begin_session(160.0)


@pytest.mark.parametrize(
    ("at", "later"), [(110.0, True), (111.4, True), (111.5, False), (109.0, False)]
)
def test_settled_sessions_in_a_row_leave_nothing_untold_for_long(at, later):
    """Given sessions of which the first left what it was to tell at second 110, then those soon after it may leave theirs, too."""
    seen = all_told(100.0)
    assert seen.may_tell_later(109.9)
    seen.note_settled_session(110.0, holds_until=inf)
    seen.note_settled_session(111.0, holds_until=inf)
    assert seen.may_tell_later(at) is later
    seen.note_whole_session(111.5, holds_until=inf, starts=ExpectedStarts(111.5))
    assert seen.may_tell_later(120.0)


@pytest.mark.parametrize("settled", [True, False])
def test_the_session_behind_a_settled_one_may_end_early(settled):
    """That of the pods that come: it is about these alone."""
    rounds = RoundProgress()
    rounds.begin_session(1, (), now=1.0)
    rounds.note_session(1, rounds=(), stays_until=inf, now=1.0, ended_early=True, settled=settled)
    assert rounds.may_end_early is settled
