"""What seeds found, as the shortest runs that show it."""

from __future__ import annotations

import logging

import pytest

from gpusched.lab.chaos.play import play_script
from gpusched.lab.chaos.scripts.script import parse_script

pytestmark = pytest.mark.long

CLUSTER = [
    {"at": 0.0, "do": "node", "name": "n0", "gpus": 2, "rack": "r0"},
    {"at": 0.0, "do": "node", "name": "n1", "gpus": 2, "rack": "r1"},
    {"at": 0.0, "do": "topology"},
    {"at": 0.0, "do": "priority", "name": "low", "value": 10},
    {"at": 0.0, "do": "priority", "name": "high", "value": 100},
    {"at": 0.0, "do": "queue", "name": "q0"},
    {"at": 1.0, "do": "start", "slot": 0},
]


@pytest.fixture(autouse=True)
def silent():
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def gang(at, name, count, *, gpus, least=0, **about):
    """A gang of queue q0 whose pods are made anew when they are deleted."""
    role = {"name": "w", "count": count, "gpus": gpus}
    return {
        "at": at, "do": "gang", "name": name, "queue": "q0", "min": least or count,
        "roles": [role], "by": "pods", **about,
    }  # fmt: skip


def refused_evictions(*steps):
    """A gang of one rack with two pods more than it needs is preempted; each eviction fails."""
    steps = (
        *CLUSTER,
        gang(0.5, "first", 1, gpus=2, priority="high", lasts=60),
        gang(0.5, "low", 4, gpus=1, least=2, priority="low", rack="required"),
        {
            "at": 30.0, "do": "fault", "resource": "pods/eviction", "verbs": ["create"],
            "fault": {"type": "status", "code": 500}, "for": 60,
        },
        gang(57.0, "high", 1, gpus=2, priority="high"),
        *steps,
    )  # fmt: skip
    return play_script(parse_script({"seed": 1, "latency": [0.5, 0.5], "steps": list(steps)}))


def test_a_gang_that_is_being_evicted_starts_nowhere_else_before_that_is_answered():
    """A node of another rack comes: the two pods that wait may not go there yet."""
    run = refused_evictions({"at": 75.0, "do": "node", "name": "n2", "gpus": 2, "rack": "r0"})

    assert [str(each) for each in run.seen] == []


def test_nobody_is_evicted_for_a_gang_that_runs_already():
    """The first gang ends, and its room is used: no eviction is tried any more."""
    run = refused_evictions()

    assert run.seen == ()
    assert run.counts["binding"] == 4
    assert "eviction" not in run.counts


def test_pods_that_are_being_deleted_do_not_keep_their_gang_in_their_rack():
    """They take a minute to end; pods that take their place run in the other rack meanwhile."""
    run = play_script(
        parse_script(
            {
                "seed": 1,
                "steps": [
                    *CLUSTER,
                    gang(0.5, "first", 1, gpus=2, priority="high", lasts=40),
                    gang(2.0, "low", 4, gpus=1, least=2, priority="low", rack="required", stops=60),
                    gang(30.0, "high", 1, gpus=2, priority="high"),
                    {"at": 35.0, "do": "node", "name": "n2", "gpus": 2, "rack": "r0"},
                ],
            }
        )
    )

    assert run.counts["eviction"] == 2
    assert run.counts["binding"] >= 5
    assert [str(each) for each in run.seen] == []


def test_a_gang_that_lost_a_member_before_its_status_was_told_is_stopped_like_any_other():
    """It was whole for a moment, then the daemon died; no node has room for the pod made anew."""
    steps = [
        *CLUSTER,
        gang(5.0, "g", 2, gpus=2),
        {
            "at": 4.0, "do": "fault", "resource": "podgroups.scheduling.gpusched.io/status",
            "verbs": ["patch", "update"], "fault": {"type": "status", "code": 500}, "for": 6,
        },
        {"at": 6.5, "do": "kill", "slot": 0, "back": 5},
        {"at": 7.5, "do": "unnode", "name": "n1"},
    ]  # fmt: skip
    run = play_script(parse_script({"seed": 1, "steps": steps}))

    assert run.counts["binding"] == 2
    assert run.counts["eviction"] == 1
    assert [str(each) for each in run.seen] == []


def test_pods_whose_pod_group_is_deleted_are_evicted_for_a_gang_that_deserves_their_room():
    """They run on and hold both nodes, in the default queue now; the gang of q0 starts."""
    steps = [
        *CLUSTER,
        gang(2.0, "low", 2, gpus=2, priority="low"),
        {"at": 10.0, "do": "ungang", "gang": "low", "whole": False},
        {"at": 15.0, "do": "requeue", "name": "q0", "deserved": 4},
        gang(20.0, "high", 2, gpus=2, priority="high"),
    ]
    run = play_script(parse_script({"seed": 1, "steps": steps}))

    assert run.counts["eviction"] == 2
    assert run.counts["binding"] == 4
    assert [str(each) for each in run.seen] == []


def test_a_gang_that_gives_all_that_it_grew_by_back_is_not_bound():
    """Seed 20: two growing gangs were tried together, and one was left with nothing to be bound."""
    steps = [
        {"at": 0.0, "do": "node", "name": "n0", "gpus": 4, "rack": "r0"},
        {"at": 0.0, "do": "node", "name": "n1", "gpus": 4, "rack": "r1"},
        {"at": 0.0, "do": "priority", "name": "low", "value": 10},
        {"at": 0.0, "do": "priority", "name": "high", "value": 100},
        {"at": 0.0, "do": "queue", "name": "q1", "deserved": 4},
        {"at": 0.0, "do": "queue", "name": "q1a", "parent": "q1", "deserved": 2},
        {"at": 0.0, "do": "queue", "name": "q2", "deserved": 1, "capability": 7},
        {"at": 0.0, "do": "queue", "name": "q2b", "parent": "q2", "deserved": 0},
        {"at": 1.0, "do": "start", "slot": 0},
        {
            "at": 7.0, "do": "gang", "name": "g5", "queue": "q2b", "priority": "high",
            "grouped": False, "min": 2, "roles": [{"name": "w0", "count": 2, "gpus": 1}],
            "suspended": False, "by": "jobs",
        },
        {
            "at": 25.0, "do": "gang", "name": "g1", "queue": "q1a", "priority": "high", "min": 1,
            "roles": [{"name": "w0", "count": 4, "gpus": 1}], "by": "jobs",
        },
        {
            "at": 37.0, "do": "gang", "name": "g0", "queue": "q1a", "priority": "low", "lasts": 62,
            "min": 1, "by": "jobs",
            "roles": [
                {"name": "w0", "count": 2, "gpus": 4}, {"name": "w1", "count": 4, "gpus": 1}
            ],
        },
    ]  # fmt: skip
    run = play_script(parse_script({"seed": 20, "daemons": 1, "steps": steps}))
    assert [str(each) for each in run.seen] == []


def test_shares_keep_their_gpus_when_the_lease_is_deleted():
    """Seed 9145: two halves on one GPU and one on the next, then pods with whole ones."""
    halves = [{"name": "w0", "count": 3, "share": 0.5}]
    roles = [
        {"name": "w0", "count": 2, "gpus": 1},
        {"name": "w1", "count": 2, "gpus": 1},
        {"name": "w2", "count": 1, "gpus": 8},
    ]
    run = play_script(
        parse_script(
            {
                "seed": 9145,
                "daemons": 2,
                "steps": [
                    {"at": 0.0, "do": "node", "name": "n1", "gpus": 8, "rack": "r1"},
                    {"at": 0.0, "do": "queue", "name": "q0", "capability": 5},
                    {"at": 0.0, "do": "queue", "name": "q1", "deserved": 2},
                    {"at": 0.0, "do": "queue", "name": "q1b", "parent": "q1", "deserved": 1},
                    {"at": 0.0, "do": "gang", "name": "g0", "queue": "q0", "grouped": False,
                     "min": 3, "roles": halves, "suspended": False, "by": "jobs"},
                    {"at": 1.0, "do": "start", "slot": 1},
                    {"at": 19.0, "do": "lease", "how": "delete"},
                    {"at": 23.0, "do": "gang", "name": "g1", "queue": "q1b", "rack": "preferred",
                     "lasts": 25, "min": 2, "roles": roles, "by": "jobs"},
                ],
            }
        )
    )  # fmt: skip

    assert [str(each) for each in run.seen] == []
    assert run.counts["binding"] > 3
