"""Each invariant that objects can show is seen where it is broken, and nowhere else."""

from __future__ import annotations

import copy

import pytest

from gpusched.testing import invariants


def node(name, *, gpus=8, rack="r0"):
    """A node of a rack."""
    return {
        "metadata": {"name": name, "labels": {"rack": rack}},
        "status": {"allocatable": {"nvidia.com/gpu": str(gpus), "pods": "110"}},
    }


def pod(name, on, *, slots, gpus=4, group="g", term=1, at="2026-01-01T00:00:10Z"):
    """A pod that we bound."""
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {"gpusched.io/pod-group": group},
            "annotations": {
                "gpusched.io/plan": "p",
                "gpusched.io/slots": slots,
                "gpusched.io/fence": f"d/{term}",
            },
        },
        "spec": {
            "schedulerName": "gpusched",
            "nodeName": on,
            "containers": [{"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}],
        },
        "status": {
            "phase": "Running",
            "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": at}],
        },
    }


def cluster():
    """A gang of two in one rack, within its queue."""
    return {
        "pods": [pod("a", "n0", slots="0,1,2,3"), pod("b", "n1", slots="0,1,2,3")],
        "nodes": [node("n0"), node("n1"), node("n2", rack="r1")],
        "podgroups": [
            {
                "metadata": {"name": "g", "namespace": "default"},
                "spec": {"queue": "q", "minMember": 2, "topology": {"required": "rack"}},
            }
        ],
        "queues": [
            {"metadata": {"name": "org"}, "spec": {"capability": {"nvidia.com/gpu": "8"}}},
            {"metadata": {"name": "q"}, "spec": {"parent": "org"}},
        ],
        "topologies": [
            {
                "metadata": {"name": "default"},
                "spec": {"levels": [{"name": "rack", "nodeLabel": "rack"}]},
            }
        ],
    }


def over_room(found):
    found["nodes"][0]["status"]["allocatable"]["nvidia.com/gpu"] = "2"


def slot_twice(found):
    found["pods"].append(pod("c", "n0", slots="3,4,5,6", group=""))
    found["queues"].clear()


def slots_missing(found):
    found["pods"][0]["metadata"]["annotations"]["gpusched.io/slots"] = "0,1"


def in_part(found):
    del found["pods"][1]


def two_racks(found):
    found["pods"][1]["spec"]["nodeName"] = "n2"


def over_capability(found):
    found["queues"][0]["spec"]["capability"]["nvidia.com/gpu"] = "7"


def older_fence(found):
    found["pods"][0]["metadata"]["annotations"]["gpusched.io/fence"] = "d/2"
    found["pods"][1]["status"]["conditions"][0]["lastTransitionTime"] = "2026-01-01T00:00:11Z"


def not_asked(found):
    found["pods"][0]["spec"]["schedulerName"] = "default-scheduler"


def gated(found):
    found["pods"][0]["spec"]["schedulingGates"] = [{"name": "x"}]


def without_reason(found):
    found["podgroups"][0]["status"] = {"conditions": [{"type": "Scheduled", "status": "False"}]}


def test_a_sound_cluster_is_silent():
    assert invariants.findings(cluster()) == []


@pytest.mark.parametrize(
    ("breaks", "invariant"),
    [
        (over_room, "I1"),
        (slot_twice, "I2"),
        (slots_missing, "I2"),
        (in_part, "I3"),
        (two_racks, "I4"),
        (over_capability, "I5"),
        (older_fence, "I8"),
        (not_asked, "I11"),
        (gated, "I11"),
        (without_reason, "I15"),
    ],
)
def test_what_is_broken_is_named_once(breaks, invariant):
    found = copy.deepcopy(cluster())
    breaks(found)
    said = invariants.findings(found)
    assert [each.invariant for each in said] == [invariant], said


def test_bindings_of_one_second_have_no_order():
    found = cluster()
    found["pods"][0]["metadata"]["annotations"]["gpusched.io/fence"] = "d/2"
    assert invariants.findings(found) == []


def test_who_was_told_to_go_is_not_charged_to_the_queue():
    found = cluster()
    over_capability(found)
    found["pods"][0]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert [each.invariant for each in invariants.findings(found)] == []
