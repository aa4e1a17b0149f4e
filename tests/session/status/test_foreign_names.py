"""Sentences without names of other namespaces: what is hidden, and what only looks like a name."""

from __future__ import annotations

import pytest

from gpusched.session.status.foreign_names import hide_names

SPACES = {"mine", "team-b", "team-c", "zone-a"}
ONE = "a workload of another namespace"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("best rack r0 has room for 0 (1 held by team-b/llm-7)", f"best rack r0 has room for 0 (1 held by {ONE})"),
        ("1 held by mine/a, 1 by team-b/llm", f"1 held by mine/a, 1 by {ONE}"),
        ("2 break its pod anti-affinity (team-b/db-0, team-c/db-1)", "2 break its pod anti-affinity (workloads of other namespaces)"),
        ("taken by team-b/db-0, team-c/db-1 and 3 more", "taken by workloads of other namespaces and 3 more"),
        ("gang team-b/a is not preemptible", "a gang of another namespace is not preemptible"),
        ("for Deployment team-b/a by", "for a Deployment of another namespace by"),
        ("which claim team-b/c has too", "which a claim of another namespace has too"),
        ("loses 2 pods for PodGroup team-b/x: preempted for team-b/x: it needs", f"loses 2 pods for a PodGroup of another namespace: preempted for {ONE}: it needs"),
        ("when team-b/a.b-c is to have ended", f"when {ONE} is to have ended"),
        ("held by team-b/secr...", f"held by {ONE}..."),
    ],
)  # fmt: skip
def test_names_of_others_are_taken_out(said, told):
    """In every place where sentences have them, also where they were cut."""
    assert hide_names(said, "mine", SPACES.__contains__) == told


@pytest.mark.parametrize(
    "said",
    [
        "needs 2 pods with 8 nvidia.com/gpu; annotation gpusched.io/queue; topology.kubernetes.io/zone In c",
        "2 nodes are held from 2026-01-01T01:00:01Z on for mine/big",
        "best rack zone-a/r3 has room for 1",
        "counted one by one they fit zone-a/r3, but no rack was found",
        "device gpu.example.com/team-b/gpu-0 of claim mine/a",
        "do not match its node selector (team/role=x, theirs is y)",
        "no slash",
    ],
)
def test_what_is_no_name_of_others_stays(said):
    """Resources, labels, domains, devices, and names of the reader's own namespace."""
    assert hide_names(said, "mine", SPACES.__contains__) == said
