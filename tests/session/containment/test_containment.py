"""Exceptions planted in sessions: one object is set aside, all others go on as if it were not there."""

from __future__ import annotations

import gc
import weakref

import pytest

from gpusched.actions import allocate, enqueue, preempt
from gpusched.base import limits
from gpusched.base.errors import InvariantBroken
from gpusched.session.allocate import queue_order
from gpusched.session.preempt import preemption_plans, stopped_gangs, victims
from gpusched.session.start.gang_start import GangStarts
from gpusched.session.status import binds, gang_status, queue_status
from gpusched.testing.given import Given
from tests.populations import one_of
from tests.session import planting
from tests.session.planting import plant

pytestmark = [pytest.mark.contains, pytest.mark.long]

GPU = "nvidia.com/gpu"


def crowd(*culprits, pods=1):
    """Four nodes and two queues: somebody runs, somebody fits, somebody needs room made."""
    c = Given(now=1000.0).nodes(4, gpus=8, rack="r1")
    for name in ("a", "b"):
        c.queue(name, limits={"deserved": {GPU: 16}})
    c.gang("runs", pods=2, gpus=8, queue="b", created=0.5)
    c.when.carried_out()
    c.now = 1100.0
    for name in culprits:
        c.gang(name, pods=pods, gpus=8, queue="a", created=1.0, priority=5)
    c.gang("good", pods=1, gpus=8, queue="a", created=2.0, priority=5)
    c.gang("late", pods=1, gpus=4, queue="b", created=3.0, priority=5)
    c.gang("needs", pods=3, gpus=8, queue="b", created=4.0, priority=9)
    c.gang("huge", pods=9, gpus=8, queue="b", created=5.0)
    return c


def outcome(c):
    """What was decided for everybody."""
    plan = c.decision.plan
    return (
        {gang.gang.name: [(b.key.name, b.node) for b in gang.binds] for gang in plan.binds},
        [claim.gang.name for claim in plan.preemptions],
        c.then.evicted(),
    )


def set_aside(c):
    """Names of what is set aside."""
    return [each.suspect.key.name for each in c.decision.set_aside]


def places(name, **how):
    """Every function that is called with the object while a session is held."""
    c = crowd("bad", **how)
    return planting.called_with(name, c.when.one_session)


def functions():
    """Owner and name of each of them, by label."""
    return {label: (owner, name) for label, owner, name, _ in planting.functions()}


@pytest.mark.parametrize("pods", [1, 9])
def test_wherever_it_raises_for_a_gang_the_others_go_on(monkeypatch, pods):
    """All functions of session, actions, placement and plugins that are called with the gang."""
    without = crowd()
    without.when.one_session()
    expected = outcome(without)
    labels = places("bad", pods=pods)
    assert len(labels) > 40
    known = functions()
    for label in one_of(2, labels, first=int(pods == 1)):
        c = crowd("bad", pods=pods)
        fired = []
        with monkeypatch.context() as patch:
            plant(patch, *known[label], on="bad", fired=fired)
            c.when.one_session()
        assert fired, label
        assert c.decision.degraded is None, label
        if c.then.faults() and not set_aside(c):
            # Of a hook that was asked about nobody else: its guard's answer counts.
            assert set(c.then.started()) == expected[0].keys(), label
            continue
        assert outcome(c) == expected, label
        assert set_aside(c) == ["bad"], label
        if label.endswith("GangStatus.__init__"):
            continue  # what it is told cannot be made either: an event remains
        assert c.then.reason("bad") == "SchedulerError", label
        assert "set aside" in c.then.why("bad"), label
        assert "Planted: planted in" in c.then.why("bad"), label


def test_a_gang_that_runs_is_set_aside_and_stays_charged(monkeypatch):
    """It is no victim, its pods keep their room, and it is told that it runs."""
    c = crowd()
    plant(monkeypatch, victims.Victims, "_examine_gang", on="runs")
    c.when.one_session()
    assert set_aside(c) == ["runs"]
    assert c.then.evicted() == []
    assert c.then.queue("b").allocated.get(GPU) == 16_000
    assert set(c.then.nodes().values()) == {"node-2", "node-3"}


def test_several_culprits_at_once(monkeypatch):
    """Each is set aside, nobody else."""
    c = crowd("bad", "worse", "worst")
    plant(monkeypatch, GangStarts, "start", on="bad")
    plant(monkeypatch, binds, "GangBind", on="worse")
    plant(monkeypatch, enqueue, "admission_age_verdict", on="worst")
    expected = crowd()
    expected.when.one_session()
    c.when.one_session()
    assert set_aside(c) == ["bad", "worse", "worst"]
    assert outcome(c) == outcome(expected)


def test_many_culprits_of_one_defect(monkeypatch):
    """Twelve gangs of one tenant have the same odd shape; who does not is scheduled."""
    bad = [f"bad-{number:02}" for number in range(12)]
    c = crowd(*bad)
    original = GangStarts.start

    def start(starts, gang):
        if gang.key.name.startswith("bad-"):
            raise ZeroDivisionError
        return original(starts, gang)

    monkeypatch.setattr(GangStarts, "start", start)
    expected = crowd()
    expected.when.one_session()
    c.when.one_session()
    assert set_aside(c) == bad
    assert c.decision.degraded is None
    assert outcome(c) == outcome(expected)


def test_a_culprit_that_no_frame_names_is_found_by_halves(monkeypatch):
    """The stack holds no object: what is left out tells."""
    c = crowd("bad")
    original = allocate.in_queue_order

    def turns(session, gangs, **how):
        if any(gang.key.name == "bad" for gang in session.gangs):
            raise_without_names()
        return original(session, gangs, **how)

    monkeypatch.setattr(allocate, "in_queue_order", turns)
    expected = crowd()
    expected.when.one_session()
    c.when.one_session()
    assert set_aside(c) == ["bad"]
    assert outcome(c) == outcome(expected)


def raise_without_names():
    """Like a library that works on numbers."""
    raise ArithmeticError


def test_it_is_tried_again_when_it_changes_and_not_before(monkeypatch):
    """A session costs nothing more while it is known, and forgets it when it is well."""
    c = crowd("bad")
    calls = []
    original = GangStarts.start

    def start(starts, gang):
        if gang.key.name == "bad" and gang.missing_members > 1:
            calls.append(gang.key)
            raise KeyError("bad")
        return original(starts, gang)

    monkeypatch.setattr(GangStarts, "start", start)
    c.gang("bad", pods=2, gpus=8, queue="a", created=1.0, priority=5)
    c.when.one_session()
    assert set_aside(c) == ["bad"]
    assert len(c.decision.contained) == 1
    c.when.one_session()
    assert len(calls) == 1
    assert c.decision.contained == ()
    assert set_aside(c) == ["bad"]
    c.gone("bad-1")
    c.group("bad", queue="a", min_member=1, created=1.0)
    c.when.one_session()
    assert set_aside(c) == []
    assert "bad" in c.then.started()


def test_it_is_tried_again_after_a_time_that_doubles(monkeypatch):
    """The culprit may have depended on others; who fails again is not told anew."""
    c = crowd("bad")
    fired = []
    plant(monkeypatch, GangStarts, "start", on="bad", fired=fired)
    c.when.one_session()
    for wait_s, tries in ((599, 1), (2, 2), (1190, 2), (20, 3)):
        c.now += wait_s
        c.when.one_session()
        assert len(fired) == tries, wait_s
    assert c.decision.contained == ()
    monkeypatch.undo()
    c.now += limits.SET_ASIDE_RETRY_MAX_S
    c.when.one_session()
    assert set_aside(c) == []


def test_who_is_gone_is_forgotten(monkeypatch):
    """Nothing is kept of gangs that are deleted."""
    c = crowd("bad")
    plant(monkeypatch, GangStarts, "start", on="bad")
    c.when.one_session()
    c.gone("bad-0")
    c.cache.drop_group(c.decision.set_aside[0].suspect.key[1:])
    c.when.one_session()
    assert c.decision.set_aside == ()


def test_a_queue_whose_status_raises_serves_its_gangs(monkeypatch):
    """Only what is told of it is missing; nobody is set aside."""
    c = crowd("bad")
    plain = crowd("bad")
    plain.when.one_session()
    plant(monkeypatch, queue_status, "_queue_state", on="a")
    c.when.one_session()
    assert c.decision.set_aside == ()
    assert [name for name, _ in c.decision.untold] == ["a"]
    assert c.then.started() == plain.then.started()
    told = {status.name for status in plain.then.plan.queues}
    assert {status.name for status in c.then.plan.queues} == told - {"a"}


def test_a_queue_for_which_it_raises(monkeypatch):
    """It goes with its gangs, which are told why; the other queue goes on."""
    c = crowd("bad")
    plant(monkeypatch, queue_order._QueueBranch, "__init__", on="a")
    c.when.one_session()
    assert [str(each.suspect) for each in c.decision.set_aside] == ["queue a"]
    assert set(c.then.started()) | {claim.gang.name for claim in c.then.plan.preemptions} == {
        "late",
        "needs",
    }
    assert c.then.reason("good") == c.then.reason("bad") == "SchedulerError"
    assert "queue a is set aside" in c.then.why("good")
    told = c.then.queue("a")
    assert not told.is_ready
    assert told.ready.reason == "SchedulerError"


def test_a_node_for_which_it_raises(monkeypatch):
    """Nothing is placed there; the other nodes take what fits."""
    c = crowd("bad").nodes(1, gpus=8, rack="r1")
    from gpusched.topology import levels as domain  # noqa: PLC0415

    levels = domain.topology_levels

    def levels_of(nodes, topologies):
        for node in nodes:
            if node.name == "node-4":
                raise OverflowError(node.name)
        return levels(nodes, topologies)

    monkeypatch.setattr("gpusched.session.state.session_cache.topology_levels", levels_of)
    c.when.one_session()
    assert [str(each.suspect) for each in c.decision.set_aside] == ["node node-4"]
    assert "node-4" not in c.then.nodes().values()
    assert c.then.started()
    c.when.bound()
    c.when.one_session()
    assert c.decision.degraded is None


def test_what_runs_on_a_node_that_is_set_aside_stays_where_it_is(monkeypatch):
    """Its gang is neither evicted nor counted as lost."""
    c = crowd().nodes(1, gpus=8, rack="r1")
    from gpusched.topology import levels as domain  # noqa: PLC0415

    levels = domain.topology_levels

    def levels_of(nodes, topologies):
        for node in nodes:
            if node.name == "node-0":
                raise OverflowError(node.name)
        return levels(nodes, topologies)

    monkeypatch.setattr("gpusched.session.state.session_cache.topology_levels", levels_of)
    c.when.one_session()
    assert set_aside(c) == ["node-0"]
    assert [stop.gang.name for stop in c.then.plan.stops] == []
    assert c.then.queue("b").allocated.get(GPU) == 16_000


def test_a_broken_invariant_is_contained_and_told_loudly(monkeypatch):
    """Nothing has been written yet: whoever it was about is set aside like by any fault."""
    c = crowd("bad")
    plant(monkeypatch, GangStarts, "start", on="bad", error=InvariantBroken)
    c.when.one_session()
    assert set_aside(c) == ["bad"]
    assert c.decision.set_aside[0].fault.loud


STEPS = [
    (preempt.Preempt, "run", ("evictions",)),
    (preempt, "preemption_claimants", ("evictions",)),
    (stopped_gangs, "stop_gangs", ("stops",)),
    (gang_status, "gang_statuses", ("gang statuses",)),
    (queue_status, "queue_statuses", ("queue statuses",)),
    (preemption_plans, "preemption_plans", ("claims",)),
    (preemption_plans, "gang_stops", ("stopped gangs",)),
    (binds, "build_gang_binds", ("binds",)),
    (enqueue.Enqueue, "run", ("enqueue",)),
]


def test_what_is_broken_for_everybody_makes_sessions_plainer(monkeypatch):
    """As much as possible goes on, nobody is blamed, and it comes back when it works again."""
    for owner, name, off in STEPS:
        c = crowd("bad")
        with monkeypatch.context() as patch:
            if isinstance(owner, type):
                plant(patch, owner, name, on=None)
            else:
                original = getattr(owner, name)

                def broken(*_args, **_how):
                    raise planting.Planted("always")

                for module, known_as in list(planting.everywhere(original)):
                    patch.setattr(module, known_as, broken)
                from gpusched.session.containment import attempt  # noqa: PLC0415

                parts = tuple((n, broken if f is original else f) for n, f in attempt._PLAN_PARTS)
                patch.setattr(attempt, "_PLAN_PARTS", parts)
            c.when.one_session()
            assert c.decision.degraded is not None, name
            assert c.decision.degraded.mode.omitted_parts == off, name
            assert c.decision.set_aside == (), name
            if name != "build_gang_binds":
                assert "good" in c.then.started(), name
            c.when.one_session()
            assert c.decision.degraded.mode.omitted_parts == off, name
        c.now += limits.DEGRADED_RETRY_S + 1
        c.when.one_session()
        assert c.decision.degraded is None, name


def test_a_solver_that_always_raises_is_gone_without(monkeypatch):
    """Greedy placement does, and evictions still happen."""
    from gpusched.session.state import search_records  # noqa: PLC0415

    original = search_records.search_effort

    def effort(placement):
        if placement.solver == "cpsat":
            raise planting.Planted("solver")
        return original(placement)

    for module, known_as in list(planting.everywhere(original)):
        monkeypatch.setattr(module, known_as, effort)
    c = crowd("bad")
    c.when.one_session()
    assert c.decision.degraded.mode.omitted_parts == ("solver",)
    assert c.then.started()


def test_where_gangs_fail_only_together_each_is_decided_alone(monkeypatch):
    """One after another they get their places, session by session."""
    original = allocate.Allocate.run

    def run(self, session):
        if sum(1 for gang in session.gangs if gang.missing_members) > 1:
            raise_without_names()
        original(self, session)

    monkeypatch.setattr(allocate.Allocate, "run", run)
    c = Given(now=1000.0).nodes(3, gpus=8)
    for number in range(3):
        c.gang(f"g{number}", pods=1, gpus=8, created=float(number))
    started = []
    for _ in range(3):
        c.when.bound()
        started += c.then.started()
        assert c.decision.again
    assert started == ["g0", "g1", "g2"]
    assert "gangs together" in c.decision.degraded.mode.omitted_parts
    assert c.decision.set_aside == ()


def test_where_nothing_can_be_decided_everybody_is_told(monkeypatch):
    """No gang is blamed for what happens to all; nothing is bound, nobody is evicted."""
    c = crowd("bad")
    plant(monkeypatch, allocate.Allocate, "run", on=None)
    c.when.one_session()
    assert "decisions" in c.decision.degraded.mode.omitted_parts
    assert c.decision.set_aside == ()
    assert c.then.started() == []
    for name in ("bad", "good", "late", "needs", "huge"):
        assert c.then.reason(name) == "SchedulerError"
        assert "nothing can be decided" in c.then.why(name)
    monkeypatch.undo()
    c.now += limits.DEGRADED_RETRY_S + 1
    c.when.one_session()
    assert c.decision.degraded is None
    assert "good" in c.then.started()


def test_the_same_snapshot_gives_the_same_plan(monkeypatch):
    """Whoever is blamed follows from the snapshot alone."""
    plant(monkeypatch, GangStarts, "start", on="bad")
    plans = []
    for _ in range(2):
        c = crowd("bad", "fine")
        plans.append((c.when.one_session(), set_aside(c)))
    assert plans[0] == plans[1]


def test_nothing_of_a_session_that_broke_is_kept(monkeypatch):
    """Stacks hold sessions and snapshots: they are told as text."""
    alive = []
    original = GangStarts.start

    def start(starts, gang):
        alive.append(weakref.ref(starts._session))
        if gang.key.name == "bad":
            raise planting.Planted
        return original(starts, gang)

    monkeypatch.setattr(GangStarts, "start", start)
    c = crowd("bad")
    c.when.one_session()
    gc.collect()
    assert len(alive) > 1
    assert [each() for each in alive if each() is not None] == []
