"""A session among pods that Jobs were to have ends when these have started: the one before it looked at everybody else."""

from __future__ import annotations

from math import inf

import attrs
import pytest

from gpusched.api.meta.identity import ObjectKey, Owner
from gpusched.base.clock import SystemClock
from gpusched.base.debounce import Change
from gpusched.cache.snapshot import ExpectedStarts
from gpusched.io.workers.seen_changes import SeenChanges
from gpusched.pluginhost.guard import PluginGuard
from gpusched.session.decide import decide
from gpusched.session.state.session_cache import SessionCache
from gpusched.testing import entities


def started(given, *names, **more):
    """Jobs of two pods that were started a moment ago, whose pods do not exist yet, and gangs behind them; counted."""
    c = given.nodes(len(names), gpus=8)
    for name in names:
        about = {"parallelism": 2, "completions": 2, "queue": "default", "gpus": 4, **more}
        c.job(name, **about, pods=0, started={"admitted": c.now - 1})
    for number in range(4):
        c.gang(f"waits-{number}", pods=1, gpus=8)
    c.when.one_session()
    assert c.then.started() == []
    c.told = []
    c.cache.on_change.append(lambda: c.told.append(c.cache.change.name))
    return c


def pods_come(c, name, numbers=(0, 1), **more):
    """Pods of a Job come."""
    owner = Owner("Job", name, entities.uid("Job", name, "default"))
    for number in numbers:
        c.pod(f"{name}-{number}", rank=number, owner=owner, **{"gpus": 4, **more})


def foreseen_session(c):
    """The session that follows where nothing else has happened."""
    c.cache.may_end_early = c.cache.foreseen = True
    c.when.one_session()
    return c.decision


def whole(c):
    """The same session if it looked at everybody."""
    snapshot = attrs.evolve(c.snapshot, foreseen=False)
    cache = SessionCache()
    return decide(snapshot, c.policy, guard=PluginGuard(SystemClock()), session_cache=cache)


def test_pods_that_a_job_was_to_have_are_foreseen(given):
    """Its own, which ask for what was told, and no more than it was to have."""
    c = started(given, "train")
    pods_come(c, "train")
    assert c.told == ["FORESEEN", "FORESEEN"]
    c.cache.take_snapshot(c.now)
    pods_come(c, "train", [2])
    assert c.told[2:] == ["ANY"]


@pytest.mark.parametrize("more", [{"gpus": 3}, {"priority": 5}, {"gated": True}])
def test_others_are_not(given, more):
    """They leave room over, or pass others."""
    c = started(given, "train")
    pods_come(c, "train", **more)
    assert c.told == ["ANY", "ANY"]


def test_pods_of_a_job_that_waits_are_not(given):
    """Nobody has counted on pods that somebody makes of a paused Job."""
    c = started(given, "train")
    job = c.cache.jobs.items[ObjectKey("default", "train")]
    c.cache.put_job(job.key, attrs.evolve(job, suspended=True))
    pods_come(c, "train")
    assert "FORESEEN" not in c.told


def test_a_session_with_foreseen_pods_ends_when_they_have_started(given):
    """Given two Jobs, when pods of both came, then both start where they would in a whole session, and nobody else is told of."""
    c = started(given, "one", "two")
    pods_come(c, "one")
    pods_come(c, "two")
    decision = foreseen_session(c)
    assert (decision.ended_early, decision.settled) == (True, True)
    assert c.then.started() == ["one", "two"]
    assert decision.plan.gangs == decision.plan.queues == ()
    assert decision.plan.binds == whole(c).plan.binds


def test_it_does_not_end_before_all_that_are_awaited_had_a_turn(given):
    """Given that one has no room any more, then everybody behind it was looked at or follows, and the other one has started."""
    c = started(given, "one", "two")
    pods_come(c, "one")
    pods_come(c, "two")
    c.gone("none").pod("other", gpus=8, node="node-0", slots=255, scheduler="default-scheduler")
    decision = foreseen_session(c)
    assert len(c.then.started()) == 1
    assert not decision.settled
    assert decision.plan.binds == whole(c).plan.binds


def test_where_somebody_else_starts_as_well_others_may(given):
    """Given that a gang has room which the session before did not see, then all that is behind it is looked at by the next one."""
    c = started(given, "one")
    pods_come(c, "one")
    c.nodes(1, prefix="more", gpus=8)
    decision = foreseen_session(c)
    assert c.then.started() == ["one", "waits-0"]
    assert not decision.settled


def times_looked_at(c, name):
    """How often the session that follows looks at a gang: once to admit it, and in its turn."""
    seen = []
    c.cache.may_end_early = c.cache.foreseen = True
    c.snapshot = c.cache.take_snapshot(c.now)
    c.guard.begin_session()
    c.decision = decide(
        c.snapshot,
        c.policy,
        guard=c.guard,
        session_cache=c.session_cache,
        on_gang=lambda gang: seen.append(gang.name),
    )
    assert (c.decision.ended_early, c.decision.settled) == (True, True)
    assert c.decision.plan.binds == whole(c).plan.binds
    return seen.count(name)


def test_nobody_has_a_turn_behind_pods_that_went_where_they_were_expected(given):
    """Given that the session before put the pods of two Jobs where they go now, then it has found that nobody else starts."""
    c = started(given, "one", "two")
    pods_come(c, "one")
    assert times_looked_at(c, "waits-0") == 1
    assert c.then.started() == ["one"]
    pods_come(c, "two")
    assert times_looked_at(c, "waits-0") == 1


def test_the_first_behind_them_has_one_where_that_is_not_known(given):
    """Given nothing that is kept of the session before, then who is next is asked."""
    c = started(given, "one")
    pods_come(c, "one")
    c.session_cache.forget_all()
    assert times_looked_at(c, "waits-0") == 2


def test_a_session_in_which_no_awaited_gang_starts_is_whole(given):
    """Given that pods came for which there is no room any more, then everybody is told."""
    c = started(given, "one")
    pods_come(c, "one")
    c.pod("other", gpus=8, node="node-0", slots=255, scheduler="default-scheduler")
    decision = foreseen_session(c)
    assert not decision.ended_early
    assert decision.plan == whole(c).plan


def test_a_session_without_such_pods_is_whole(given):
    """Given that nothing but time has passed, when a gang starts, then everybody behind it is looked at."""
    c = given.nodes(1, gpus=8).gang("fits", pods=1, gpus=8).gang("waits", pods=1, gpus=8)
    decision = foreseen_session(c)
    assert not decision.ended_early
    assert decision.plan == whole(c).plan


def kinds(*changes):
    """Changes of these kinds, of which a whole session at second 100 knew, with starts worked out then."""
    seen = SeenChanges()
    for change in changes:
        seen.note(change)
    seen.begin_session(100.0)
    assert seen.note_whole_session(100.0, holds_until=160.0, starts=ExpectedStarts(100.0)) == inf
    return seen


@pytest.mark.parametrize(
    ("change", "at", "foreseen"),
    [
        (Change.FORESEEN, 101.0, True),
        (Change.FORESEEN, 160.0, False),
        (Change.ANY, 101.0, False),
        (Change.ALONE, 101.0, False),
        (Change.LATE, 101.0, False),
    ],
)
def test_what_was_counted_on_is_foreseen_until_a_moment_comes(change, at, foreseen):
    """A moment that the whole session asked about may let others start."""
    seen = kinds(Change.ANY)
    seen.note(change)
    assert seen.begin_session(at) is foreseen


@pytest.mark.parametrize(
    ("change", "again"), [(Change.ANY, 102.0), (Change.FORESEEN, inf), (Change.LATE, inf)]
)
def test_starts_are_worked_out_again_where_there_was_news(change, again):
    """A gang that came just after they were told is told its own two seconds later, though nothing else happens."""
    seen = kinds(Change.ANY)
    seen.note(change)
    seen.begin_session(101.0)
    left = ExpectedStarts(100.0)
    assert seen.note_whole_session(101.0, holds_until=inf, starts=left) == again
    seen.begin_session(102.5)
    told = ExpectedStarts(102.5)
    assert seen.note_whole_session(102.5, holds_until=inf, starts=told) == inf


def test_starts_that_a_session_in_rounds_left_for_long_are_worked_out_by_one_that_follows():
    seen = kinds(Change.ANY)
    seen.note(Change.ANY)
    seen.begin_session(103.5)
    assert seen.note_whole_session(103.5, holds_until=inf, starts=ExpectedStarts(100.0)) == 104.5


@pytest.mark.parametrize(("gangs", "again"), [(100, 102.0), (300, 106.0), (5000, 110.0)])
def test_the_more_gangs_wait_the_later_starts_have_a_session_of_their_own(gangs, again):
    """Sessions that are held anyway work them out after two seconds, whatever waits."""
    seen = kinds(Change.ANY)
    seen.note(Change.ANY)
    seen.begin_session(101.0)
    left = ExpectedStarts(100.0)
    assert seen.note_whole_session(101.0, holds_until=inf, starts=left, gangs=gangs) == again


def anew(c):
    """The last session if nothing were kept of those before."""
    guard = PluginGuard(SystemClock())
    return decide(c.snapshot, c.policy, guard=guard, session_cache=SessionCache())


def said(decision):
    """What a session decides, and whether it is left to others."""
    return decision.plan, decision.ended_early, decision.settled


@pytest.mark.parametrize("most", [2, 3, 4, 5, 5000])
def test_a_session_that_might_bind_no_more_has_not_found_that_nobody_else_starts(given, most):
    """Given one that bound as many pods as it may, when pods come that it counted on, then who had no turn has one."""
    given.cache.use_limits(attrs.evolve(given.cache.limits, binds_per_session=most))
    c = given.nodes(3, gpus=8)
    about = {"parallelism": 2, "completions": 2, "queue": "default", "gpus": 4}
    c.job("one", **about, pods=0, started={"admitted": c.now - 1})
    for number in range(8):
        c.gang(f"fits-{number}", pods=1, gpus=2)
    c.when.carried_out()
    pods_come(c, "one")
    assert said(foreseen_session(c)) == said(anew(c))
    assert c.decision.settled == (most == 5000)


def test_who_is_asked_behind_pods_that_were_counted_on_claims_nothing(given):
    """Given a session that had no time left for claims, when pods come that it counted on, then those who wait claim in the next one, kept or not."""
    given.cache.use_limits(attrs.evolve(given.cache.limits, victim_work=0))
    c = given.queue("other").priority_class("high", 100).nodes(2, gpus=8)
    about = {"parallelism": 2, "completions": 2, "queue": "default", "gpus": 4}
    c.job("one", **about, pods=0, started={"admitted": c.now - 1})
    c.group("low", min_member=1, queue="other")
    c.pod("low-0", group="low", gpus=8, node="node-1", slots=255, scheduled=c.now - 900)
    c.gang("high", pods=1, gpus=8, queue="other", priority=100)
    c.when.one_session()
    pods_come(c, "one")
    c.cache.use_limits(attrs.evolve(c.cache.limits, victim_work=1_000))
    assert said(foreseen_session(c)) == said(anew(c))
    assert (c.then.started(), c.decision.settled) == (["one"], True)
    assert [each.gang.name for each in whole(c).plan.preemptions] == ["high"]


@pytest.mark.parametrize("most", [1, 2, 3, 5000])
def test_where_a_session_may_bind_few_pods_it_ends_as_it_would_anew(given, most):
    """Given pods that go where they were expected, then a session that may bind no more after them is the same with and without what is kept."""
    given.cache.use_limits(attrs.evolve(given.cache.limits, binds_per_session=most))
    c = started(given, "one", "two")
    pods_come(c, "one")
    pods_come(c, "two")
    assert said(foreseen_session(c)) == said(anew(c))
