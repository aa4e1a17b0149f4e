"""Windows of Reservations in sessions: what may start where, which nodes are chosen, and who is evicted."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given as holds_for
from hypothesis import settings
from hypothesis import strategies as st

from gpusched.api.meta.identity import UID, ObjectKey, Owner, ResourceVersion, format_time
from gpusched.api.meta.resources import Resources
from gpusched.api.policy.reservation import AdvanceReservation, ReservationWindow
from gpusched.config.model import DEFAULT
from gpusched.testing import entities
from gpusched.testing.given import Given
from tests.session.running import budget

NOW = int(entities.NOW)
NS = 10**9
MOVING = attrs.evolve(
    DEFAULT, actions=("enqueue", "allocate", "preempt", "reclaim", "consolidate", "backfill")
)


def reserve(c, name, *, after_s, lasts_s=3600, **fields):
    """A Reservation whose first window begins so many seconds from now."""
    made = AdvanceReservation(
        name=name,
        uid=UID(f"r-{name}"),
        resource_version=ResourceVersion("1"),
        first=ReservationWindow(NOW + after_s, NOW + after_s + lasts_s),
        **fields,
    )
    c.cache.reservations.put(ObjectKey("", name), made)
    return made


def running(c, name, on, *, length=0, since=NOW - 10, queue="default", gpus=8, **terms):
    """A gang of which one pod runs on each of these nodes."""
    c.group(
        name, min_member=len(on), queue=queue, expected_duration_ns=length * NS, phase="Running",
        **terms,
    )  # fmt: skip
    for number, node in enumerate(on):
        c.pod(
            f"{name}-{number}", group=name, node=node, gpus=gpus, scheduled=since, phase="Running",
            created=since,
        )  # fmt: skip


def waiting(c, name, pods, *, length=0, queue="default", gpus=8, priority=0, least=0, **terms):
    """A gang whose pods all wait."""
    c.group(
        name, min_member=least or pods, queue=queue, expected_duration_ns=length * NS,
        created=NOW - 5, **terms,
    )  # fmt: skip
    c.pods(name, pods, group=name, gpus=gpus, created=NOW - 5, priority=priority)


def reservation_status(c, name):
    """What the last session says of a Reservation."""
    return next(each for each in c.decision.plan.reservations if each.name == name)


# -- which nodes --------------------------------------------------------------------------------
def test_of_a_number_of_nodes_those_are_chosen_that_are_soonest_empty(given):
    """Given four nodes of which two will still be held, the other two are kept."""
    given.nodes(4, gpus=8)
    running(given, "long", ["node-0"], preemptible=False)
    running(given, "short", ["node-1"], length=600, preemptible=False)
    reserve(given, "r", after_s=900, node_count=2)
    given.when.one_session()
    assert reservation_status(given, "r").nodes == ("node-1", "node-2")


def test_nodes_that_were_chosen_before_are_chosen_again(given):
    """Given a choice in the status, it stands as long as its nodes are there, and is made up for."""
    given.nodes(4, gpus=8)
    reserve(given, "r", after_s=900, node_count=2, chosen=("node-2", "node-3"))
    given.when.one_session()
    assert reservation_status(given, "r").nodes == ("node-2", "node-3")
    given.cache.drop_node("node-3")
    given.when.one_session()
    assert reservation_status(given, "r").nodes == ("node-0", "node-2")


def test_as_many_whole_nodes_are_kept_as_offer_the_amount(given):
    """Given 12 GPUs on nodes of eight, two nodes are kept."""
    given.nodes(4, gpus=8)
    amount = Resources.parse({"nvidia.com/gpu": "12"}, field="")
    reserve(given, "r", after_s=900, resources=amount)
    given.when.one_session()
    status = reservation_status(given, "r")
    assert (status.nodes, status.is_ready) == (("node-0", "node-1"), True)


def test_two_that_choose_take_different_nodes_and_what_is_too_few_is_told(given):
    """Given two Reservations of two nodes each of three, the second keeps one and says so."""
    given.nodes(3, gpus=8)
    reserve(given, "a", after_s=900, node_count=2)
    reserve(given, "b", after_s=1200, node_count=2)
    given.when.one_session()
    assert reservation_status(given, "a").nodes == ("node-0", "node-1")
    second = reservation_status(given, "b")
    assert (second.nodes, second.is_ready) == (("node-2",), False)
    assert second.ready.message == (
        "needs 2 nodes; there are 1 node, 2 more are kept by other Reservations then; it keeps the "
        "1 node that it finds"
    )


# -- what starts --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("length", "terms", "starts"),
    [
        (800, {"preemptible": False}, True),
        (900, {"preemptible": False}, True),
        (901, {"preemptible": False}, False),
        (0, {"preemptible": False}, False),
        (0, {}, True),
        (0, {"min_runtime_ns": 900 * NS}, True),
        (0, {"min_runtime_ns": 901 * NS}, False),
    ],
)
def test_a_gang_starts_if_it_ends_or_can_be_evicted_by_the_beginning(given, length, terms, starts):
    """Given a window in 900 s, a gang starts if it is over by then, to the second."""
    given.nodes(1, gpus=8)
    reserve(given, "r", after_s=900, node_names=("node-0",))
    waiting(given, "g", 1, length=length, **terms)
    given.when.one_session()
    assert given.then.started() == (["g"] if starts else [])


def test_a_window_that_leaves_gangs_where_they_are_lets_none_start_to_be_evicted(given):
    """Given atStart Leave, what is preemptible does not start: nobody would evict it."""
    given.nodes(1, gpus=8)
    reserve(given, "r", after_s=900, node_names=("node-0",), evicts=False)
    waiting(given, "g", 1)
    given.when.one_session()
    assert given.then.started() == []


def test_a_disruption_budget_over_its_pods_keeps_a_gang_from_starting(given):
    """Given a budget that could protect it then, a preemptible gang is not counted on to leave."""
    given.nodes(1, gpus=8)
    reserve(given, "r", after_s=900, node_names=("node-0",))
    waiting(given, "g", 1)
    budget(given, "all", allowed=1)
    given.when.one_session()
    assert given.then.started() == []


def test_equal_gangs_of_two_namespaces_are_told_apart(given):
    """Given a window for one namespace, its gang starts, and an equal one of another does not."""
    given.nodes(2, gpus=8)
    reserve(given, "r", after_s=-10, node_names=("node-0", "node-1"), namespaces=("lab",))
    for namespace in ("default", "lab"):
        given.group("g", namespace=namespace, min_member=1, created=NOW - 5)
        given.pods("g", 1, group="g", namespace=namespace, gpus=8, created=NOW - 5)
    plan = given.when.one_session()
    assert [bind.gang.namespace for bind in plan.binds] == ["lab"]


def test_a_gang_of_a_queue_below_may_use_what_the_queue_may(given):
    """Given a window for a queue, gangs of its children start in it."""
    given.nodes(1, gpus=8)
    given.queue("dept").queue("team", parent="dept")
    reserve(given, "r", after_s=-10, node_names=("node-0",), queues=("dept",))
    waiting(given, "g", 1, queue="team")
    waiting(given, "other", 1)
    given.when.one_session()
    assert given.then.started() == ["g"]
    assert "1 is kept by Reservation r until" in given.then.why("other")


def test_nobody_is_evicted_on_nodes_that_the_claimant_could_not_use(given):
    """Given an urgent gang that may not run past a window, preemption leaves its nodes alone."""
    given.nodes(2, gpus=8)
    running(given, "one", ["node-0"], since=NOW - 500)
    running(given, "two", ["node-1"], since=NOW - 10)
    reserve(given, "r", after_s=900, node_names=("node-1",))
    waiting(given, "urgent", 1, priority=100, preemptible=False)
    given.when.one_session()
    assert given.then.evicted() == ["one-0"]


def test_a_gang_that_waits_is_told_its_start_after_the_window(given):
    """Given a gang that no window lets start now, its start is estimated at the end of it."""
    given.nodes(2, gpus=8)
    reserve(given, "r", after_s=900, lasts_s=600, node_names=("node-0", "node-1"))
    waiting(given, "g", 2, length=7200, preemptible=False)
    given.when.one_session()
    assert given.then.status("g").estimated_start == NOW + 1500
    assert f"2 nodes are held for it from {format_time(NOW + 1500)} on" in given.then.why("g")


def test_windows_that_recur_for_ever_leave_an_endless_gang_no_start(given):
    """Given a window each day without end, a gang that never ends gets no start there."""
    given.nodes(1, gpus=8)
    reserve(given, "r", after_s=900, lasts_s=600, every_s=86_400, node_names=("node-0",))
    waiting(given, "g", 1, preemptible=False)
    given.when.one_session()
    assert given.then.status("g").estimated_start == 0.0
    waiting(given, "day", 1, length=86_400 - 600, preemptible=False)
    given.when.one_session()
    assert given.then.status("day").estimated_start == NOW + 1500


def test_growth_keeps_out_of_windows_too(given):
    """Given an elastic gang, no further member starts where the gang would run into a window."""
    given.nodes(2, gpus=8)
    reserve(given, "r", after_s=900, node_names=("node-1",))
    waiting(given, "g", 2, least=1, preemptible=False)
    plan = given.when.one_session()
    assert [(bind.node) for gang in plan.binds for bind in gang.binds] == ["node-0"]


# -- when it begins -----------------------------------------------------------------------------
def test_what_may_not_be_there_is_evicted_whole_when_the_window_has_begun(given):
    """Given a gang with one pod on a node that is kept, both its pods leave, and those of others stay."""
    given.nodes(3, gpus=8)
    running(given, "both", ["node-0", "node-1"])
    running(given, "fixed", ["node-2"], preemptible=False)
    reserve(given, "r", after_s=-1, node_names=("node-1", "node-2"))
    plan = given.when.one_session()
    assert given.then.evicted() == ["both-0", "both-1"]
    assert [stop.evictions[0].action for stop in plan.stops] == ["reservation"]
    status = reservation_status(given, "r")
    assert (status.phase, status.in_the_way) == ("Active", 2)
    assert "1 gang that cannot be evicted stays, for nobody knows how long" in status.ready.message


@pytest.mark.parametrize(
    ("fields", "terms"),
    [
        ({"evicts": False}, {}),
        ({"queues": ("default",)}, {}),
        ({"namespaces": ("default",)}, {}),
        ({}, {"preemptible": False}),
        ({}, {"min_runtime_ns": 11 * NS}),
    ],
)
def test_what_may_stay_is_not_evicted(given, fields, terms):
    """Given a window that leaves it, or is for it, or a gang that may not be evicted yet, it stays."""
    given.nodes(1, gpus=8)
    running(given, "g", ["node-0"], since=NOW - 10, **terms)
    reserve(given, "r", after_s=-1, node_names=("node-0",), **fields)
    given.when.one_session()
    assert given.then.evicted() == []


def test_a_disruption_budget_that_allows_nothing_holds_an_eviction_back(given):
    """Given a budget without a disruption left, the gang stays until it has one."""
    given.nodes(1, gpus=8)
    running(given, "g", ["node-0"])
    reserve(given, "r", after_s=-1, node_names=("node-0",))
    budget(given, "all", allowed=0)
    given.when.one_session()
    assert given.then.evicted() == []


def test_gangs_move_off_in_the_time_before_and_never_onto_nodes_that_are_kept(given):
    """Given two Reservations that are near, a gang moves to the one node that no window keeps."""
    given.nodes(3, gpus=8)
    given.group("g", min_member=1, phase="Running")
    owner = Owner("Job", "g", UID("job-g"))
    given.pod(
        "g-0", group="g", node="node-0", gpus=8, scheduled=NOW - 90, phase="Running",
        created=NOW - 95, owner=owner,
    )  # fmt: skip
    reserve(given, "a", after_s=500, move_before_s=600, node_names=("node-0",))
    reserve(given, "b", after_s=700, move_before_s=900, node_names=("node-1",))
    plan = given.when.one_session()
    (claim,) = plan.preemptions
    assert (claim.gang.name, claim.moves_itself, claim.action) == ("g", True, "reservation")
    assert [place.node for place in claim.moves[0].move.places] == ["node-2"]
    assert given.then.evicted() == ["g-0"]


# -- all of it ----------------------------------------------------------------------------------
@st.composite
def worlds(draw):
    """Nodes, gangs that run and wait, and Reservations, in any mixture."""
    c = Given(config=MOVING)
    count = draw(st.integers(2, 5))
    c.nodes(count, gpus=8)
    c.queue("a").queue("b")
    names = [f"node-{number}" for number in range(count)]
    terms = st.fixed_dictionaries(
        {
            "preemptible": st.booleans(),
            "length": st.sampled_from([0, 0, 100, 500, 5000]),
            "queue": st.sampled_from(["a", "b", "default"]),
            "min_runtime_ns": st.sampled_from([0, 0, 300 * NS, 3000 * NS]),
        }
    )
    for number, node in enumerate(names):
        if draw(st.booleans()):
            running(
                c, f"run-{number}", [node], since=NOW - draw(st.integers(5, 400)), **draw(terms)
            )
    for number in range(draw(st.integers(1, 3))):
        where = draw(
            st.sampled_from(
                [{"node_names": tuple(sorted(draw(st.sets(st.sampled_from(names), min_size=1))))},
                 {"node_count": draw(st.integers(1, count))}]
            )
        )  # fmt: skip
        reserve(
            c, f"res-{number}", after_s=draw(st.sampled_from([-100, 50, 200, 900])), lasts_s=600,
            queues=draw(st.sampled_from([(), ("a",), ("a", "b")])),
            evicts=draw(st.booleans()), every_s=draw(st.sampled_from([0, 0, 900])),
            move_before_s=draw(st.sampled_from([0, 100, 1000])), **where,
        )  # fmt: skip
    for number in range(draw(st.integers(1, 5))):
        pods = draw(st.integers(1, 3))
        waiting(
            c, f"wait-{number}", pods, least=draw(st.integers(1, pods)),
            priority=draw(st.sampled_from([0, 0, 10])), gpus=draw(st.sampled_from([4, 8])),
            **draw(terms),
        )  # fmt: skip
    return c


def may_be_given(c, key, node):
    """Whether a gang may get a place on a node by the rules of the page, worked out by themselves."""
    gang = {each.key: each for each in (*c.snapshot.gangs, *c.snapshot.placed_gangs.values())}[key]
    kept = {each.name: each for each in c.decision.plan.reservations}
    began = gang.started_at or NOW
    length = gang.terms.expected_duration_ns // NS
    end = began + length if length and began + length > NOW else float("inf")
    for each in c.snapshot.reservations:
        window = each.current_window(NOW)
        if window is None or node not in kept[each.name].nodes or gang.queue in each.queues:
            continue
        if end <= window.begins and window.begins > NOW:
            continue
        leaves = gang.terms.preemptible and each.evicts
        protected = began + gang.terms.min_runtime_ns / NS
        near = window.begins - each.move_before_s <= NOW
        if not (leaves and protected <= window.begins and not near):
            return False
    return True


@settings(max_examples=30, deadline=None)
@holds_for(worlds())
def test_no_gang_gets_a_place_where_it_would_run_into_a_window(c):
    """Given anything, no binding, nomination or move of a session is on a node closed to its gang."""
    plan = c.when.one_session()
    assert c.then.faults() == ()
    given_places = [(gang.gang, bind.node) for gang in plan.binds for bind in gang.binds]
    given_places += [
        (claim.gang, node) for claim in plan.preemptions for _, _, node in claim.nominations
    ]
    wrong = [(str(key), node) for key, node in given_places if not may_be_given(c, key, node)]
    assert wrong == []
    for claim in plan.preemptions:
        for move in claim.moves:
            near = {
                node
                for each in c.snapshot.reservations
                for status in plan.reservations
                if status.name == each.name and claim.action == "reservation"
                for node in status.nodes
                if (window := each.current_window(NOW)) and window.begins <= NOW
            }
            assert near.isdisjoint(place.node for place in move.move.places)
