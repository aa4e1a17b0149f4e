"""``explain`` of groups of Kubernetes itself, alone and in trees, against canned answers."""

from __future__ import annotations

import json

import pytest

from gpusched.cli.main import main
from tests.cli.canned_objects import (
    SENTENCE,
    native_group,
    pod,
    serve_native_groups,
)


@pytest.mark.parametrize(
    "asked", [("podgroup", "llm"), ("pod", "llm-1"), ("job", "train"), ("podgroup", "train")]
)
def test_explain_a_group_of_kubernetes_itself(cluster, capsys, asked):
    """By its name, by a member's or by its Job's: needs, members and the reason with numbers."""
    serve_native_groups(cluster, native_group("llm"))
    labels = {"batch.kubernetes.io/job-name": "train"}
    members = [
        pod(f"llm-{index}", labels=labels, schedulingGroup={"podGroupName": "llm"})
        for index in range(4)
    ]
    cluster.objects |= {
        "/api/v1/namespaces/team-a/pods": [*members, pod("other")],
        "/api/v1/namespaces/team-a/pods/llm-1": members[1],
        "/apis/batch/v1/namespaces/team-a/jobs/train": {
            "metadata": {"name": "train", "namespace": "team-a"}, "spec": {"parallelism": 4},
        },
    }  # fmt: skip
    assert main(["explain", *asked]) == 0
    assert capsys.readouterr().out.splitlines()[:5] == [
        "PodGroup team-a/llm: Pending in queue research",
        "  needs   4 pods that start together",
        "  needs   4 waiting pods with cpu 500m, nvidia.com/gpu 8 each",
        "  has     4 pods: 4 pending",
        f"  why     InsufficientResources: {SENTENCE}",
    ]


def test_a_native_group_that_cannot_be_read_tells_its_conditions(cluster, capsys):
    """Given a group of which a field is no number, then what was said of it is shown."""
    bad = native_group("odd", gang={"minCount": "many"})
    serve_native_groups(cluster, bad)
    cluster.objects["/api/v1/namespaces/team-a/pods"] = []
    assert main(["explain", "podgroup", "odd"]) == 0
    assert f"why     InsufficientResources: {SENTENCE}" in capsys.readouterr().out


def test_explain_a_composite_group(cluster, capsys):
    """Its members are the pods of all groups below it; it needs so many of its children."""
    version = "/apis/scheduling.k8s.io/v1alpha3"
    tree, inner = native_group("job", gang={"minGroupCount": 2}), native_group("part")
    inner["spec"] |= {"parentCompositePodGroupName": "job"}
    leaf, alone = native_group("leaf"), native_group("alone")
    leaf["spec"]["parentCompositePodGroupName"] = "part"
    below = f"{version}/namespaces/team-a"
    members = [
        pod(f"p-{name}", schedulingGroup={"podGroupName": name}) for name in ("leaf", "alone")
    ]
    cluster.objects |= {
        "/apis": {"groups": [{"name": "scheduling.k8s.io", "versions": [{"version": "v1alpha3"}]}]},
        version: {"resources": [{"name": "podgroups"}, {"name": "compositepodgroups"}]},
        f"{below}/podgroups": [leaf, alone],
        f"{below}/compositepodgroups": [tree, inner],
        f"{below}/compositepodgroups/job": tree,
        "/api/v1/namespaces/team-a/pods": members,
        "/api/v1/namespaces/team-a/events": [],
    }
    assert main(["explain", "podgroup", "job"]) == 0
    assert capsys.readouterr().out.splitlines()[:4] == [
        "CompositePodGroup team-a/job: Pending in queue research",
        "  needs   2 of its groups at once, each with what it needs itself",
        "  needs   1 waiting pod with cpu 500m, nvidia.com/gpu 8 each",
        "  has     1 pod: 1 pending",
    ]


def serve_a_tree(cluster):
    """Two levels of groups: one that runs in part, one that waits, and one that cannot be read."""
    version = "/apis/scheduling.k8s.io/v1alpha3"
    below = f"{version}/namespaces/team-a"
    top = native_group("job", gang={"minGroupCount": 2})
    inner = native_group("workers", gang={"minGroupCount": 1})
    inner["spec"] |= {"parentCompositePodGroupName": "job"}
    rack = {"topology": [{"key": "example.com/rack"}]}
    leaves = [native_group(name, gang={"minCount": 2}) for name in ("a", "b", "lead")]
    for leaf, parent in zip(leaves, ("workers", "workers", "job"), strict=True):
        leaf["spec"] |= {"parentCompositePodGroupName": parent, "schedulingConstraints": rack}
    odd = native_group("odd", gang={"minCount": "many"})
    odd["spec"]["parentCompositePodGroupName"] = "job"
    runs = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    starts = {"phase": "Pending", "conditions": []}
    pods = [
        *(pod(f"a-{n}", schedulingGroup={"podGroupName": "a"}, nodeName="n") for n in range(3)),
        *(pod(f"b-{n}", schedulingGroup={"podGroupName": "b"}) for n in range(2)),
    ]
    for each, status in zip(pods, (runs, runs, starts), strict=False):
        each["status"] = status
    cluster.objects |= {
        "/apis": {"groups": [{"name": "scheduling.k8s.io", "versions": [{"version": "v1alpha3"}]}]},
        version: {"resources": [{"name": "podgroups"}, {"name": "compositepodgroups"}]},
        f"{below}/podgroups": [*leaves, odd],
        f"{below}/podgroups/b": leaves[1],
        f"{below}/compositepodgroups": [top, inner],
        f"{below}/compositepodgroups/job": top,
        f"{below}/compositepodgroups/workers": inner,
        "/api/v1/namespaces/team-a/pods": pods,
        "/api/v1/namespaces/team-a/events": [],
    }


TREE = """\
GROUP                          NEEDS            PLACED   READY   LEVEL
CompositePodGroup job          2 groups         1 of 3
|- CompositePodGroup workers   1 group          1 of 2
|  |- PodGroup a               2 pods           3 of 3   2       example.com/rack
|  `- PodGroup b               2 pods           0 of 2   0       example.com/rack
|- PodGroup lead               2 pods           0 of 0   0       example.com/rack
`- PodGroup odd                cannot be read   0 of 0   0
"""


@pytest.mark.parametrize("asked", ["job", "workers", "b"])
def test_explain_draws_the_tree_that_a_group_is_in(cluster, capsys, asked):
    """Each group under its parent with what it needs and has, whichever of them is asked about."""
    serve_a_tree(cluster)
    assert main(["explain", "podgroup", asked]) == 0
    assert TREE in capsys.readouterr().out
    assert main(["explain", "podgroup", asked, "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["tree"]
    assert [(row["name"], row["depth"], row["placed"]) for row in rows] == [
        ("job", 0, 1), ("workers", 1, 1), ("a", 2, 3), ("b", 2, 0), ("lead", 1, 0), ("odd", 1, 0),
    ]  # fmt: skip


def test_groups_that_are_in_each_other_are_drawn_once(cluster, capsys):
    """A circle has no top and no end."""
    serve_a_tree(cluster)
    below = "/apis/scheduling.k8s.io/v1alpha3/namespaces/team-a"
    top = cluster.objects[f"{below}/compositepodgroups"][0]
    top["spec"]["parentCompositePodGroupName"] = "workers"
    assert main(["explain", "podgroup", "job"]) == 0
    out = capsys.readouterr().out
    assert out.count("CompositePodGroup job ") == out.count("CompositePodGroup workers ") == 1
