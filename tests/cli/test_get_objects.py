"""``get queues`` and ``get podgroups``, over real HTTP against canned answers."""

from __future__ import annotations

import json

import pytest

from gpusched.cli.main import main
from tests.cli.canned_objects import (
    API,
    NATIVE,
    SENTENCE,
    group,
    native_group,
    refused,
    serve_native_groups,
)


def test_get_queues(cluster, capsys):
    """Given no daemon, then a queue without status shows nothing where nothing is known, and ``default`` is counted."""
    cluster.objects["/api/v1/pods"] = []
    cluster.objects[f"{API}/queues"] = [
        {
            "metadata": {"name": "research"},
            "spec": {"parent": "root", "weight": 3, "capability": {"nvidia.com/gpu": "64"}},
            "status": {
                "state": "Open", "running": 2, "allocated": {"nvidia.com/gpu": "16"},
                "fairShare": {"nvidia.com/gpu": "24"}, "requested": {"nvidia.com/gpu": "40"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        },
        {"metadata": {"name": "odd\x1b[31m"}, "spec": "nonsense"},
    ]  # fmt: skip
    assert main(["get", "gq", "-o", "wide"]) == 0
    told = capsys.readouterr()
    header, built_in, second, first = told.out.splitlines()
    assert built_in.split() == [
        "default",
        "root",
        "Open",
        "1",
        "0",
        "0",
        "0",
        "0",
        "<unknown>",
        "0",
        "0",
        "Priority",
        "True",
    ]
    assert told.err == (
        "gpusched: read from the API, not from the daemon: this user logs in without a token, which the "
        "daemon's view asks for\n"
    )
    assert header.split() == [
        "NAME",
        "PARENT",
        "STATE",
        "WEIGHT",
        "RUNNING",
        "INQUEUE",
        "PENDING",
        "GPUS",
        "DESERVED",
        "AGE",
        "FAIRSHARE",
        "BORROWED",
        "REQUESTED",
        "LIMIT",
        "USED",
        "BUDGET",
        "STARTS",
        "ORDERING",
        "READY",
        "MESSAGE",
    ]
    shown = "research root Open 3 2 0 0 16 <unknown> 24 0 40 64 True"
    assert first.split() == shown.split()
    assert second.split() == ["odd?[31m", "<unknown>"]


def test_get_counts_the_gpu_resources_of_the_configuration(cluster, capsys, tmp_path):
    """Given a configuration with NPUs, then the columns of GPUs count them, and all kinds together."""
    file = tmp_path / "gpusched.yaml"
    file.write_text("gpuResources: [{name: example.com/npu}, {name: nvidia.com/gpu}]\n")
    amounts = {"example.com/npu": "16", "cpu": "4"}
    cluster.objects[f"{API}/queues"] = [
        {"metadata": {"name": "npus"}, "status": {"state": "Open", "allocated": amounts}},
        {
            "metadata": {"name": "both"},
            "status": {"state": "Open", "allocated": {**amounts, "nvidia.com/gpu": "500m"}},
        },
    ]
    assert main(["get", "queues", "--config", str(file)]) == 0
    _, both, _, npus = capsys.readouterr().out.splitlines()
    assert npus.split() == ["npus", "Open", "0", "0", "0", "16", "<unknown>"]
    assert both.split() == ["both", "Open", "0", "0", "0", "16.5", "<unknown>"]
    assert main(["get", "queues"]) == 0
    npus = capsys.readouterr().out.splitlines()[3]
    assert npus.split() == ["npus", "Open", "0", "0", "0", "0", "<unknown>"]


def test_the_queue_default_is_listed_once(cluster, capsys):
    """Given no object of that name, and then one, there is one row for it."""
    for queues in ([], [{"metadata": {"name": "default"}, "status": {"running": 2}}]):
        cluster.objects[f"{API}/queues"] = queues
        assert main(["get", "queues"]) == 0
        (row,) = capsys.readouterr().out.splitlines()[1:]
        assert row.split()[0] == "default"


def test_a_configuration_with_a_mistake_is_told_in_one_sentence(cluster, capsys, tmp_path):
    """By get as by explain, before the cluster is asked for anything."""
    file = tmp_path / "gpusched.yaml"
    file.write_text("gpuResources: [{name: npu}]\n")
    for command in (["get", "queues"], ["explain", "podgroup", "team-a/x"]):
        assert main([*command, "--config", str(file)]) == 78
        assert capsys.readouterr().err == (
            f"gpusched: {file}:1: name must be an extended resource such as nvidia.com/gpu, "
            'not "npu"\n'
        )
    assert cluster.asked == []


def test_get_podgroups_of_the_contexts_namespace(cluster, capsys):
    """Without -n it is the context's namespace; pages are joined."""
    cluster.objects[f"{API}/namespaces/team-a/podgroups"] = [
        group("a", phase="Inqueue", scheduled=0, conditions=[refused("NoRoom", SENTENCE)]),
        group("b"),
        group("c"),
    ]
    assert main(["get", "podgroups"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [
        "NAME",
        "QUEUE",
        "PHASE",
        "MIN",
        "SCHEDULED",
        "RUNNING",
        "REASON",
        "AGE",
    ]
    assert lines[1].split()[:6] == ["a", "research", "Inqueue", "4", "0", "NoRoom"]
    assert [line.split()[0] for line in lines[1:]] == ["a", "b", "c"]
    pages = [query.get("continue") for path, query in cluster.asked if path.endswith("/podgroups")]
    assert pages == [None, "2"]


def test_get_podgroups_elsewhere(cluster, capsys):
    """-A shows namespaces, -n asks for one; nothing found is said."""
    cluster.objects[f"{API}/podgroups"] = [group("a")]
    cluster.objects[f"{API}/namespaces/other/podgroups"] = []
    assert main(["get", "gpg", "-A"]) == 0
    assert capsys.readouterr().out.startswith("NAMESPACE   NAME")
    assert main(["get", "gpg", "-n", "other"]) == 0
    assert capsys.readouterr().out == "There are no podgroups in namespace other.\n"
    assert main(["get", "gpg", "-A", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["items"][0]["metadata"]["name"] == "a"


@pytest.mark.parametrize("own", [True, False])
def test_get_podgroups_of_kubernetes_itself(cluster, capsys, own):
    """Native groups stand among ours, in our words; also where none of our kinds is there."""
    serve_native_groups(cluster, native_group("llm"), own=own)
    assert main(["get", "podgroups", "-o", "wide"]) == 0
    header, line = capsys.readouterr().out.splitlines()
    assert line.split()[:5] == ["llm", "research", "Pending", "4", "InsufficientResources"]
    assert "API" in header.split()
    assert "scheduling.k8s.io/v1alpha2" in line
    assert SENTENCE in line


def test_get_podgroups_says_what_may_not_be_listed(cluster, capsys):
    """Given a user without the right to native groups, then ours are shown and that is said."""
    serve_native_groups(cluster)
    cluster.objects[f"{API}/namespaces/team-a/podgroups"] = [group("a")]
    cluster.objects[f"{NATIVE}/namespaces/team-a/podgroups"] = 403
    assert main(["get", "podgroups"]) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines()[1].split()[0] == "a"
    assert shown.err == (
        "gpusched: podgroups.scheduling.k8s.io are left out: this user may not list them\n"
    )


def test_a_cluster_without_the_resources(cluster, capsys):
    """Before manifests/ are applied the server knows no such kind."""
    for kind in ("queues", "podgroups"):
        assert main(["get", kind]) == 78
        assert capsys.readouterr().err == (
            f"gpusched: this cluster has no {kind}: CustomResourceDefinition {kind}.scheduling.gpusched.io is "
            f"not installed; kubectl apply -f manifests/crds/{kind}.yaml installs it, kubectl apply -k "
            "manifests/ all of gpusched\n"
        )
