"""Limits of the configuration that sessions keep to: each changes what one session decides."""

from __future__ import annotations

from typing import Any

from gpusched.api.gang.move_record import MoveRecord
from gpusched.api.gang.pod_group import PodGroup
from gpusched.api.meta.identity import ObjectKey
from gpusched.api.serializer.seal import Seal
from gpusched.cache.gangs.move_records import MoveRecords
from gpusched.cache.store import MovableStore
from gpusched.config.model import LimitsConfig
from gpusched.testing import entities
from tests.session.allocate.test_gang_life import started
from tests.session.backfill.test_backfill import NOW, running, waiting
from tests.session.preempt.test_preempt import nodes, runs
from tests.session.state.test_promises import leaving, promised


def under(c: Any, **limits: Any) -> Any:
    """The cluster under limits of which these are not as by default."""
    c.cache.use_limits(LimitsConfig(**limits))
    return c


def job(c: Any, name: str, **more: Any) -> Any:
    """A Job of one pod with 8 GPUs that was started."""
    fields = {"suspended": False, "queue": "default", "gpus": 8, **more}
    return c.job(name, parallelism=1, completions=1, indexed=True, **fields)


def test_a_started_job_goes_back_after_the_admitted_timeout(given):
    """Given 20 s, when a Job got no place for 21 s, then it is suspended again; by default not yet."""
    c = given.nodes(0)
    job(c, "unlucky", started={"admitted": c.now - 21})
    assert c.when.one_session().job_changes == ()
    under(c, admitted_timeout_s=20.0)
    (switch,) = c.when.one_session().job_changes
    assert switch.suspend
    assert "within 20 s of its start" in switch.message


def test_room_is_held_for_pods_until_the_arrival_timeout(given):
    """Given 5 s, when no pod has come for 6 s, then another gang gets the room."""
    c = given.nodes(1, gpus=8)
    job(c, "started", pods=0, started={"admitted": c.now - 6})
    c.gang("quick", pods=1, gpus=8, created=entities.BORN + 100)
    c.when.one_session()
    assert c.then.started() == []
    under(c, pod_arrival_timeout_s=5.0).when.one_session()
    assert c.then.started() == ["quick"]


def test_room_is_held_for_lost_members_until_the_repair_timeout(given):
    """Given 3 s, when a gang has lacked a member for 5 s, then another gang gets its room."""
    c = started(given.nodes(4, gpus=8), "a", 3, need=4, since=given.now - 5)
    c.gang("one", pods=1, gpus=8)
    c.when.one_session()
    assert c.then.started() == []
    under(c, repair_timeout_s=3.0).when.one_session()
    assert c.then.started() == ["one"]


def test_a_session_binds_no_more_than_it_may(given):
    """Given 2 bindings a session, when three pods fit, then the third starts in the next."""
    c = under(given.nodes(1, gpus=8), binds_per_session=2)
    for name in ("a", "b", "c"):
        c.gang(name, pods=1, gpus=1)
    c.when.bound()
    assert c.then.started() == ["a", "b"]
    c.when.one_session()
    assert c.then.started() == ["c"]


def test_an_action_evicts_no_more_than_it_may(given):
    """Given 1 eviction a session, when two gangs need a victim each, then one gets its room first."""
    c = runs(runs(nodes(given, n1=4, n2=4), "a", "n1 n1 n1 n1"), "b", "n2 n2 n2 n2")
    for name in ("new-a", "new-b"):
        c.gang(name, pods=4, gpus=1, priority=9)
    assert len(c.when.one_session().preemptions) == 2
    assert len(under(c, evictions_per_session=1).when.one_session().preemptions) == 1


def test_an_action_looks_at_no_more_victims_than_it_may(given):
    """Given no work for victims, then the second claimant of a session waits for the next."""
    c = runs(runs(nodes(given, n1=4, n2=4), "a", "n1 n1 n1 n1"), "b", "n2 n2 n2 n2")
    for name in ("new-a", "new-b"):
        c.gang(name, pods=4, gpus=1, priority=9)
    assert len(under(c, victim_work=1).when.one_session().preemptions) == 1


def test_nominated_room_is_held_until_its_timeout(given):
    """Given 30 s, when victims end for 31 s, then the room is for the first in queue order again."""
    c = promised(leaving(given, 4), since=given.now - 31)
    c.node("node-1", gpus=8, unschedulable=True)
    c.gang("late", pods=1, gpus=4, created=entities.BORN - 100)
    c.when.one_session()
    assert c.then.reason("big") == "PreemptionInProgress"
    under(c, nomination_timeout_s=30.0).when.one_session()
    assert c.then.reason("late") == "PreemptionInProgress"


def test_a_gang_is_moved_again_after_the_pause():
    """Given a pause of 10 s, when a gang was moved 11 s ago, then it may be moved again; not by default."""
    move = MoveRecord(at=100.0, places=())
    groups: MovableStore[PodGroup] = MovableStore()
    groups.put(ObjectKey("default", "g"), entities.pod_group("g", move=move, created=1.0))
    records = MoveRecords(groups, MovableStore(), lambda: Seal(open=True))
    assert [gang.name for gang, _ in records.recent_moves(111.0, LimitsConfig().move_pause_s)] == [
        "g"
    ]
    assert records.recent_moves(111.0, 10.0) == ()


def test_starts_are_told_of_no_more_gangs_than_the_configuration_says(given):
    """Given one estimate a session, when two gangs wait for an end, then one is told its start."""
    c = given.nodes(1, gpus=8)
    running(c, "r", ["node-0"], length=100)
    waiting(c, "w-a", 1, length=60, born=NOW - 8)
    waiting(c, "w-b", 1, length=60, born=NOW - 4)
    c.when.one_session()
    told = [bool(c.then.status(name).estimated_start) for name in ("w-a", "w-b")]
    assert told == [True, True]
    under(c, start_estimates=1).when.one_session()
    assert [bool(c.then.status(name).estimated_start) for name in ("w-a", "w-b")] == [True, False]
