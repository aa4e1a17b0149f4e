"""Sessions of a burst look at more and more, and never spend more than all actions otherwise may."""

from __future__ import annotations

import attrs
import pytest

from gpusched.config.model import LimitsConfig
from gpusched.session.decide import decide
from gpusched.session.state.order.work_budget import WorkBudget
from gpusched.session.state.order.work_times import next_work_times, with_work_times
from gpusched.testing.authors import repeats
from gpusched.testing.given import Given

WORK = 8_000
"""Of one action of a session: some 26 lone pods that start."""


def burst(pods: int, *, nodes: int = 60) -> Given:
    """Equal pods of one tenant, and a queue for somebody else."""
    c = Given().nodes(nodes, gpus=8).queue("a").queue("b").namespace("alice").namespace("bob")
    c.cache.use_limits(LimitsConfig(session_work=WORK))
    for number in range(pods):
        c.pod(f"p-{number:03d}", namespace="alice", queue="a", gpus=1)
    return c


def session(c: Given, times: int) -> int:
    """Decide in a session of so much work, bind what was decided; how much the next one may spend."""
    c.snapshot = with_work_times(c.cache.take_snapshot(c.now), times)
    c.guard.begin_session()
    c.decision = decide(
        c.snapshot, c.policy, guard=c.guard, session_cache=c.session_cache, incremental="compared"
    )
    assert not c.decision.differs
    c.cache.rounds = c.decision.rounds
    assert repeats(c)
    for gang in c.decision.plan.binds:
        c.when.accept(gang)
    decision, actions = c.decision, len(c.policy.actions)
    return next_work_times(c.snapshot, decision.plan, decision.rounds, actions=actions)


def test_each_session_of_a_burst_looks_at_twice_as_many():
    """Given more pods than a session looks at, all of which start, then sessions grow until all have."""
    c = burst(400)
    started, times = [], [1]
    while sum(started) < 400:
        times.append(session(c, times[-1]))
        started.append(len(c.decision.plan.binds))
    assert times == [1, 2, 4, len(c.policy.actions), len(c.policy.actions), 1]
    assert started[1] == pytest.approx(2 * started[0], abs=2)
    assert started[2] == pytest.approx(4 * started[0], abs=4)


def test_a_gang_that_does_not_start_ends_the_burst():
    """Given room for some alone, then the session in which it runs out is followed by one of the usual length."""
    c = burst(400, nodes=8)
    times, seen = 1, []
    for _ in range(5):
        times = session(c, times)
        seen.append(times)
    assert seen == [2, 1, 1, 1, 1]


def test_a_session_that_looks_at_all_is_followed_by_one_of_the_usual_length():
    """Nothing waits for another turn."""
    assert session(burst(10), 1) == 1


def test_another_tenants_gang_starts_in_a_long_session():
    """Given the burst of one tenant, then a gang of another one is bound by the next session."""
    c = burst(400)
    times = session(c, session(c, 1))
    c.gang("small", pods=2, namespace="bob", queue="b", gpus=1)
    session(c, times)
    assert "bob" in {bind.gang.namespace for bind in c.decision.plan.binds}


@pytest.mark.parametrize("times", [2, 4, 5])
def test_a_long_session_spends_no_more_than_all_actions_may(monkeypatch, times):
    """Given gangs for which nobody has room, then actions have no share of their own that would be too much."""
    found: list[int] = []
    real = WorkBudget.begin_action
    monkeypatch.setattr(
        WorkBudget, "begin_action", lambda self: (found.append(self.spent), real(self))[1]
    )
    c = burst(0, nodes=4)
    for number in range(160):
        c.pod(f"u-{number:03d}", namespace="alice", queue="a", gpus=9 + number, created=c.now - 600)
    snapshot, actions = with_work_times(c.cache.take_snapshot(c.now), times), len(c.policy.actions)
    assert actions == 5
    assert snapshot.limits == attrs.evolve(c.cache.limits, session_work=times * WORK)
    c.guard.begin_session()
    decide(snapshot, c.policy, guard=c.guard, session_cache=c.session_cache)
    assert (len(found) < actions) == (times > 2)
    assert all(spent + times * WORK <= actions * WORK for spent in found)
