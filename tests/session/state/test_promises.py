"""Room of those who leave: seen now it is taken, seen later it is free; promises are kept."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given as forall
from hypothesis import settings
from hypothesis import strategies as st

from gpusched.api.meta.identity import ObjectKey
from gpusched.api.pod.pod import PodPhase
from gpusched.arrays.columns import request_vector
from gpusched.arrays.node_usage import NodeUsage
from gpusched.base import limits
from gpusched.session.state.session import Session
from gpusched.session.state.session_cache import SessionCache
from gpusched.session.state.statement import Statement
from gpusched.testing import entities
from gpusched.testing.given import Given

pytestmark = pytest.mark.long


def leaving(c: Given, count: int) -> Given:
    """Two nodes of 8 GPUs; on the first, ``count`` pods of one GPU are being deleted."""
    c.nodes(2, gpus=8)
    spec = entities.pod_class(gpus=1)
    for number in range(8):
        c.pod(
            f"old-{number}", spec=spec, node="node-0", slots=1 << number, plan="p",
            phase=PodPhase.RUNNING, deleting=number < count, scheduled=entities.BORN,
        )  # fmt: skip
    return c


def test_a_gang_is_promised_the_room_that_is_becoming_free(given):
    """What leaves anyway is waited for: nobody else gets it, and nobody is evicted."""
    c = leaving(given, 4).gang("big", pods=3, gpus=4)
    plan = c.when.one_session()
    assert plan.binds == ()
    (claim,) = plan.preemptions
    assert sorted(node for _, _, node in claim.nominations) == ["node-0", "node-1", "node-1"]
    assert claim.stops == ()
    assert c.then.reason("big") == "PreemptionInProgress"
    assert {node for _, node in c.then.status("big").nominated} == {"node-0", "node-1"}


def test_free_room_that_a_promise_needs_is_given_to_nobody(given):
    """The free part of a promise is held; what is free beyond it is not."""
    c = leaving(given, 4)
    c.gang("big", pods=2, gpus=6, created=entities.BORN)
    c.gang("late", pods=1, gpus=8, created=entities.BORN + 1)
    c.when.one_session()
    assert c.then.reason("big") == "InsufficientResources"
    assert c.then.started() == ["late"]
    c2 = leaving(Given(), 4)
    c2.gang("big", pods=3, gpus=4, created=entities.BORN)
    c2.gang("late", pods=1, gpus=1, created=entities.BORN + 1)
    c2.when.one_session()
    assert c2.then.started() == []


def promised(c: Given, *, since: float, node: str = "node-0") -> Given:
    """A gang of one whose room on a node was promised at a time."""
    c.group("big", min_member=1)
    return c.pod(
        "big-0", group="big", gpus=4, nominated=node,
        unschedulable_reason="PreemptionInProgress", unschedulable_since=since,
    )  # fmt: skip


def test_a_promise_is_read_back_after_a_restart(given):
    """Room promised by an earlier process stays reserved for the gang, and later serves it."""
    c = promised(leaving(given, 4), since=given.now - 5)
    c.node("node-1", gpus=8, unschedulable=True)
    c.gang("late", pods=1, gpus=4, created=entities.BORN - 100)
    plan = c.when.one_session()
    assert plan.binds == ()
    assert plan.preemptions == ()
    assert c.then.reason("big") == "PreemptionInProgress"
    for number in range(4):
        c.gone(f"old-{number}")
    assert [bind.gang.name for bind in c.when.one_session().binds] == ["big"]


def test_a_promise_ends_with_its_time_and_with_its_node(given):
    """A promise that is too old, or on a node that is gone, holds nothing."""
    c = promised(leaving(given, 4), since=given.now - limits.NOMINATION_MAX_S - 1)
    assert [bind.gang.name for bind in c.when.one_session().binds] == ["big"]
    c2 = promised(leaving(Given(), 4), since=given.now, node="gone")
    assert [bind.gang.name for bind in c2.when.one_session().binds] == ["big"]


def test_a_promise_that_cannot_be_kept_is_withdrawn(given):
    """The node was cordoned while its pods were leaving: the gang goes elsewhere at once."""
    c = promised(leaving(given, 4), since=given.now)
    c.node("node-0", gpus=8, unschedulable=True)
    plan = c.when.one_session()
    assert [bind.gang.name for bind in plan.binds] == ["big"]
    assert c.then.nodes() == {"big-0": "node-1"}


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@forall(st.integers(0, 10**6))
def test_now_and_later_say_what_the_amounts_say(seed):
    """Against plain sums: later = real - releasing + reserved, now = the larger of real and later."""
    rng = random.Random(seed)
    c = leaving(Given(), rng.randint(0, 8))
    nodes = c.cache.take_snapshot(0.0).nodes
    node_usage = NodeUsage(nodes)
    real, releasing = nodes.used.copy(), nodes.leaving.copy()
    reserved = np.zeros_like(real)
    ask = request_vector(entities.pod_class(gpus=1).requests, nodes.columns)
    for _ in range(20):
        row = rng.randint(0, 1)
        match rng.randint(0, 3):
            case 0:
                node_usage.add(row, ask, slots=0)
                real[row, ask.columns] += ask.amounts
            case 1:
                node_usage.release_later(row, ask)
                releasing[row, ask.columns] += ask.amounts
            case 2:
                node_usage.reserve_later(row, ask)
                reserved[row, ask.columns] += ask.amounts
            case _:
                node_usage.show_usage(later=bool(rng.randint(0, 1)))
        later = real - releasing + reserved
        assert np.array_equal(
            node_usage.used, later if node_usage.later else np.maximum(real, later)
        )


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@forall(st.integers(0, 10**6))
def test_rolling_back_evictions_and_promises_is_identity(seed):
    """Bench and accounts are as they were, whatever a statement evicted, promised and lifted."""
    rng = random.Random(seed)
    c = leaving(Given(), 2).queue("a")
    snapshot = c.cache.take_snapshot(c.now)
    session = Session(
        snapshot,
        c.policy.plugins,
        c.policy.capabilities,
        guard=c.guard,
        session_cache=SessionCache(),
        placement=c.placement,
    )
    before = (session.node_usage.used.copy(), session.queue_accounts.staying("default"))
    victims = [gang for gang in snapshot.placed_gangs.values() if gang.placed]
    with session.pipelining():
        seen = (session.node_usage.used.copy(), session.queue_accounts.allocated("default"))
        statement: Statement = session.statement()
        for gang in rng.sample(victims, 3):
            session.evict(statement, gang, gang.placed[0])
        spec = entities.pod_class(gpus=rng.randint(0, 3))
        statement.assign(
            entities.pod("x", spec), 0, request_vector(spec.requests, snapshot.nodes.columns)
        )
        assert session.queue_accounts.allocated("default") != seen[1]
        statement.rollback()
        assert np.array_equal(session.node_usage.used, seen[0])
        assert session.queue_accounts.allocated("default") == seen[1]
    assert np.array_equal(session.node_usage.used, before[0])
    assert session.queue_accounts.staying("default") == before[1]


def test_what_was_decided_is_carried_out_step_by_step(given):
    """Promised, then bound as soon as those who leave are gone."""
    c = leaving(given, 4).gang("big", pods=3, gpus=4)
    c.when.carried_out()
    assert c.cache.pods[ObjectKey("default", "big-0")].nominated
    assert c.when.carried_out().preemptions == ()
    for number in range(4):
        c.gone(f"old-{number}")
    c.when.carried_out()
    assert {c.cache.pods[ObjectKey("default", f"big-{n}")].node for n in range(3)} == {
        "node-0",
        "node-1",
    }


def test_what_was_freed_for_a_gang_waits_for_the_actions_that_evict(given):
    """A promise of which one half is free and the other not (a crash in between): others wait."""
    c = given.nodes(2, gpus=8)
    c.group("old", min_member=1).pod(
        "old-0", group="old", gpus=8, node="node-1", slots=255, plan="p", phase=PodPhase.RUNNING
    )
    c.group("big", min_member=2)
    for number in range(2):
        c.pod(
            f"big-{number}", group="big", gpus=8, nominated=f"node-{number}",
            unschedulable_reason="PreemptionInProgress", unschedulable_since=c.now - 5,
        )  # fmt: skip
    c.gang("small", pods=1, gpus=8, created=entities.BORN + 1)
    plan = c.when.one_session()
    assert plan.binds == ()
    assert c.then.status("big").nominated == ()
    c.when.carried_out()
    assert c.then.started() == []
    assert [bind.gang.name for bind in c.when.one_session().binds] == ["small"]


def test_a_promise_for_a_part_of_the_gang_is_none(given):
    """Only one of two members was promised room before a crash: the gang does not wait for it."""
    c = leaving(given, 8)
    c.node("node-1", gpus=8, unschedulable=True)
    c.group("big", min_member=2)
    c.pod(
        "big-0", group="big", gpus=4, nominated="node-0",
        unschedulable_reason="PreemptionInProgress", unschedulable_since=c.now,
    )  # fmt: skip
    c.pod("big-1", group="big", gpus=4)
    (claim,) = c.when.one_session().preemptions
    assert len(claim.nominations) == 2
