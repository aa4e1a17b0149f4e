"""The last look before binding: what changed since the snapshot drops the whole gang."""

from __future__ import annotations

import attrs
import pytest

from gpusched.api.affinity.selector import Taint
from gpusched.api.meta.identity import UID, ObjectKey, ResourceVersion
from gpusched.api.policy.reservation import AdvanceReservation, ReservationWindow
from gpusched.cache.verify.placements import recheck_placements


def decided(c):
    """A decided gang of two, as the cycle would have it verified."""
    c.nodes(2, gpus=8).gang("g", pods=2, gpus=8)
    (gang,) = c.when.one_session().binds
    return gang


def verdict(c, gang, reservations=()):
    """What the last look says of a decision that knew of these Reservations."""
    moves = [(bind.key, bind.uid, bind.node, bind.node_uid, bind.slots) for bind in gang.binds]
    return recheck_placements(
        c.cache,
        gang.gang,
        generation=gang.generation,
        moves=moves,
        decided_on=c.snapshot.nodes,
        reservations=reservations,
    )


def regroup(c, **changes):
    group = c.cache.groups.items[ObjectKey("default", "g")]
    c.cache.put_group(group.key, attrs.evolve(group, **changes))


def test_nothing_changed(given):
    """Then the gang is bound."""
    assert verdict(given, decided(given)) == ""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c.node("node-1", gpus=8, unschedulable=True), "cordoned"),
        (lambda c: c.node("node-1", gpus=8, taints=[Taint("a", "", "NoSchedule")]), "tainted"),
        (lambda c: c.node("node-1", gpus=8, labels={"gpusched.io/rack": "x"}), "labelled"),
        (lambda c: c.node("node-1", gpus=8, not_ready="KubeletStopped"), "not ready"),
        (lambda c: c.node("node-1", gpus=8, own_uid="another"), "is gone"),
        (lambda c: c.node("node-1", gpus=7), "no room"),
        (lambda c: c.cache.drop_node("node-1"), "is gone"),
        (lambda c: c.gone("g-1"), "is gone"),
        (lambda c: c.pod("g-1", group="g", gpus=8, own_uid="another"), "is gone"),
        (lambda c: c.pod("g-1", group="g", gpus=8, gated=True), "gated"),
        (lambda c: c.pod("g-1", group="g", gpus=8, deleting=True), "deleted"),
        (lambda c: c.pod("g-1", group="g", gpus=8, node="node-0", scheduled=c.now), "bound"),
        (lambda c: c.pod("x", scheduler="other", gpus=1, node="node-1", slots=1), "no room"),
        (
            lambda c: c.cache.assume_binding(c.cache.pods["default", "g-1"], "node-0", 1),
            "has a place",
        ),
        (lambda c: regroup(c, generation=2), "was changed"),
        (lambda c: regroup(c, deleting=True), "is gone"),
        (lambda c: c.cache.drop_group(ObjectKey("default", "g")), "is gone"),
    ],
)
def test_what_changed_is_said(given, change, words):
    """In a sentence for the log."""
    gang = decided(given)
    change(given)
    assert words in verdict(given, gang)
    given.cache.forget("Pod/default/g-1")


def reserve(c, **fields):
    """A Reservation of the next hour."""
    made = AdvanceReservation(
        name="lecture",
        uid=UID("r"),
        resource_version=ResourceVersion("1"),
        first=ReservationWindow(int(c.now), int(c.now) + 3600),
        **fields,
    )
    c.cache.reservations.put(ObjectKey("", "lecture"), made)
    return made


@pytest.mark.parametrize(
    "fields", [{"node_names": ("node-1",)}, {"node_count": 1}, {"node_selector": ()}]
)
def test_a_reservation_that_came_since_is_said_and_one_that_was_known_is_not(given, fields):
    """Given one of a node of the gang, or that may choose it, then the gang is decided again."""
    gang = decided(given)
    made = reserve(given, **fields)
    assert "Reservation lecture, which came or changed since, may keep node node-" in verdict(
        given, gang
    )
    assert verdict(given, gang, [made]) == ""


@pytest.mark.parametrize(
    "fields", [{"node_names": ("node-9",)}, {"node_selector": (("pool", "x"),)}]
)
def test_a_reservation_of_other_nodes_changes_nothing(given, fields):
    """Given one that names other nodes, or labels that these do not have, then the gang is bound."""
    gang = decided(given)
    reserve(given, **fields)
    assert verdict(given, gang) == ""


def test_a_changed_reservation_counts_as_new_and_a_new_status_does_not(given):
    """Given another generation, then what was decided on the former one is decided again."""
    gang = decided(given)
    before = reserve(given, node_names=("node-1",))
    reserve(given, node_names=("node-1",), chosen=("node-1",))
    assert verdict(given, gang, [before]) == ""
    reserve(given, node_names=("node-1",), generation=2)
    assert "may keep node node-1" in verdict(given, gang, [before])


def test_a_heartbeat_of_a_node_changes_nothing(given):
    """Only what placement reads counts."""
    gang = decided(given)
    given.node("node-1", gpus=8)
    assert verdict(given, gang) == ""
