"""What one tenant asks for costs the others nothing but its own share of a session."""

from __future__ import annotations

from gpusched.base import limits
from gpusched.cache.snapshot import Snapshot
from gpusched.config.model import LimitsConfig
from gpusched.session.allocate.queue_order import in_queue_order
from gpusched.session.framework.reasons import Reason
from gpusched.session.start import growth
from gpusched.session.state.order.work_budget import max_min_fair_split
from gpusched.testing.authors import repeats
from gpusched.testing.given import Given

FLOOD = 60
"""Unlike gangs: with the share below a session looks at some ten of them."""


def small_sessions() -> Given:
    """An empty cluster whose sessions can look at little."""
    c = Given()
    c.cache.use_limits(LimitsConfig(session_work=8_000))
    return c


def flooded(**fields):
    """One tenant's gangs, each of its own shape and too large for every node; a queue beside it."""
    c = small_sessions().nodes(4, gpus=8).queue("a").queue("b").namespace("alice").namespace("bob")
    for number in range(FLOOD):
        c.pod(
            f"u-{number:02d}", namespace="alice", queue="a", gpus=9 + number, created=c.now - 600,
            **fields,
        )  # fmt: skip
    return c


def looked_at(c):
    """Gangs of the flood that the last session looked at."""
    return {each.gang.name for each in c.then.plan.gangs if not each.provisional}


def test_a_small_gang_is_bound_beside_a_flood():
    """Given a flood, when another tenant's gang comes, then the same session binds it."""
    c = flooded().gang("small", pods=2, namespace="bob", queue="b", gpus=1)
    c.when.one_session()
    assert {bind.gang.namespace for bind in c.then.plan.binds} == {"bob"}
    assert len(looked_at(c)) < FLOOD


def test_a_session_uses_no_more_than_its_work():
    """Work is counted: at most the session's share, and one gang more, in each action."""
    c = flooded()
    for _ in range(10):
        c.when.one_session()
        assert 0 < len(looked_at(c)) <= 14


def test_everybody_is_looked_at_in_a_round():
    """Given many sessions on the same cluster, then each gang of the flood is looked at, in turn."""
    c = flooded()
    seen: set[str] = set()
    sessions = 0
    while len(seen) < FLOOD:
        c.when.one_session()
        seen |= looked_at(c)
        sessions += 1
        assert sessions <= FLOOD // 4
    while c.cache.rounds[0].left:
        c.when.one_session()
        sessions += 1
        assert sessions <= FLOOD // 4


def test_the_first_in_line_are_looked_at_in_every_session():
    """What comes free goes to them first."""
    c = flooded()
    for _ in range(5):
        c.when.one_session()
        assert "u-00" in looked_at(c)


def test_room_goes_to_the_one_that_fits_however_far_behind():
    """Given a gang behind the flood that fits, then a bounded number of sessions binds it."""
    c = flooded()
    c.pod("zz-last", namespace="alice", queue="a", gpus=1)
    for _ in range(FLOOD // 4):
        c.when.one_session()
        if c.then.plan.binds:
            break
    assert [bind.gang.name for bind in c.then.plan.binds] == ["zz-last"]


def test_higher_priority_comes_first_whatever_the_round():
    """Given a round under way, when a gang of higher priority comes, then the next one binds it."""
    c = flooded()
    c.when.one_session()
    c.pod("high", namespace="alice", queue="a", gpus=1, priority=1000)
    c.when.one_session()
    assert [bind.gang.name for bind in c.then.plan.binds] == ["high"]


def test_nobody_passes_one_of_its_queue_that_was_never_looked_at():
    """Two namespaces in a queue: lower priority waits until all above have had a turn."""
    c = flooded(priority=1000)
    c.pod("low", namespace="bob", queue="a", gpus=1)
    c.when.one_session()
    assert not c.then.plan.binds
    sessions = 1
    while not c.then.plan.binds:
        c.when.one_session()
        sessions += 1
        assert sessions <= FLOOD // 4
    known = set(c.cache.rounds[0].known)
    assert len(known) == FLOOD
    assert c.then.plan.binds[0].gang.name == "low"


def test_equal_gangs_of_two_namespaces_share_their_queue():
    """Given a flood in the same queue and of the same priority, then another namespace is served."""
    c = flooded()
    c.gang("small", pods=2, namespace="bob", queue="a", gpus=1)
    for _ in range(FLOOD // 4):
        c.when.one_session()
        if c.then.plan.binds:
            break
    assert {bind.gang.namespace for bind in c.then.plan.binds} == {"bob"}


def test_a_strict_queue_is_served_from_its_front_alone():
    """Where the order of arrival counts, those behind the share wait, of whatever namespace."""
    c = small_sessions().nodes(4, gpus=8).queue("a", ordering="StrictFifo")
    for number in range(FLOOD):
        c.pod(f"u-{number:02d}", queue="a", gpus=9 + number, created=c.now - 600 + number)
    c.pod("late", queue="a", gpus=1, created=c.now - 1)
    for _ in range(3):
        c.when.one_session()
        assert "u-00" in looked_at(c)
        assert "late" not in looked_at(c)
        assert not c.then.plan.binds


def test_who_was_never_looked_at_is_told_how_many_are_before_it():
    """One sentence with the number, once it has waited for long; of one and of none in words that fit."""
    c = flooded()
    c.when.one_session()
    waiting = [each for each in c.then.plan.gangs if each.provisional]
    assert waiting
    assert {each.scheduled.reason for each in waiting} == {Reason.WAITING_FOR_TURN}
    assert "gangs of namespace alice in queue a are before it" in waiting[-1].scheduled.message
    said = " ".join(each.scheduled.message for each in waiting)
    assert "waits to be looked at: it is the next of namespace alice in queue a, which" in said
    assert "waits to be looked at: 1 gang of namespace alice in queue a is before it, which" in said
    assert "looked at: 0 " not in said


def test_pod_groups_without_pods_are_before_nobody():
    """Given PodGroups among a flood whose pods nobody has made yet, then gangs are told of as many before them as without these."""

    def told(idle):
        c = flooded()
        for number in range(idle):
            about = {"namespace": "alice", "queue": "a", "created": c.now - 600}
            c.group(f"u-{20 + number:02d}-idle", min_member=2, **about)
        c.when.one_session()
        return {
            each.gang.name: each.scheduled.message
            for each in c.then.plan.gangs
            if each.provisional and not each.gang.name.endswith("idle")
        }

    assert "44 gangs" in told(0)["u-58"]
    assert told(40) == told(0)


def test_the_same_snapshot_gives_the_same_plan_in_mid_round():
    """How far the rounds came stands in the snapshot, so that a recording repeats."""
    c = flooded()
    for _ in range(4):
        c.when.one_session()
        assert isinstance(c.snapshot, Snapshot)
        assert repeats(c)
    assert c.snapshot.tenant_rounds


def test_a_flood_of_queues_that_do_not_exist_gets_one_share():
    """A tenant may write any name of a queue; it gains nothing by many."""
    c = small_sessions().nodes(4, gpus=8).queue("b").namespace("alice").namespace("bob")
    for number in range(FLOOD):
        c.pod(f"u-{number:02d}", namespace="alice", queue=f"no-{number}", gpus=9 + number)
    c.gang("small", pods=2, namespace="bob", queue="b", gpus=1)
    c.when.one_session()
    assert {bind.gang.namespace for bind in c.then.plan.binds} == {"bob"}
    assert {queue for queue, _ in c.decision.waiting} <= {"b", "other"}


def test_empty_groups_are_shown_to_sessions_by_turns(monkeypatch):
    """Gangs without pods cost a session next to nothing, however many there are."""
    monkeypatch.setattr(limits, "IDLE_GANGS_MAX", 5)
    c = small_sessions().nodes(1, gpus=8).queue("a")
    for number in range(40):
        c.group(f"empty-{number:02d}", min_member=2, queue="a")
    c.when.one_session()
    assert len(c.snapshot.gangs) == 40  # all are new
    seen = set()
    for _ in range(8):
        c.when.one_session()
        assert len(c.snapshot.gangs) == 5
        assert c.decision.waiting == {("a", "NotEnoughMembers"): 40}
        seen |= {gang.key for gang in c.snapshot.gangs}
    assert len(seen) == 40
    c.queue("c")  # what is said of them may be another thing now
    c.when.one_session()
    assert len(c.snapshot.gangs) == 40


def test_shares_are_split_fairly():
    """Who asks for less than an equal part gets it; the others share what is left."""
    assert max_min_fair_split({"a": 10, "b": 1000, "c": 60}, 150) == {"a": 10, "c": 60, "b": 80}
    assert max_min_fair_split({"a": 10, "b": 1000, "c": 900}, 110) == {"a": 10, "c": 50, "b": 50}
    assert max_min_fair_split({}, 110) == {}


def test_gangs_whose_turn_to_start_has_not_come_are_not_asked_whether_they_grow(monkeypatch):
    """Given more lone pods than a session looks at, then none of the others is a gang that may grow."""
    asked: list[list[str]] = []

    def noted(session, gangs, **how):
        gangs = list(gangs)
        asked.append([gang.key.name for gang in gangs])
        return in_queue_order(session, gangs, **how)

    monkeypatch.setattr(growth, "in_queue_order", noted)
    c = small_sessions().nodes(40, gpus=8)
    for number in range(200):
        c.pod(f"p-{number:03d}", gpus=1)
    c.when.one_session()
    assert 0 < len(c.then.plan.binds) < 200
    assert [names for names in asked if names] == []
