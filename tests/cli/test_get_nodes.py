"""``get nodes``, over real HTTP against canned answers: what is free, and who is there."""

from __future__ import annotations

import json

import pytest

from gpusched.cli.main import main
from tests.cli.test_get_jobs import member, of_group, shown


def node(name, *, gpus=8, ready="True", **spec):
    """A node with GPUs and a label that tells their type."""
    amounts = {"nvidia.com/gpu": str(gpus), "cpu": "64", "memory": "256Gi", "pods": "110"}
    return {
        "metadata": {
            "name": name, "uid": f"uid-{name}", "resourceVersion": "1",
            "creationTimestamp": "2001-01-01T00:00:00Z",
            "labels": {"nvidia.com/gpu.product": "H100"} if gpus else {},
        },
        "spec": spec,
        "status": {
            "allocatable": amounts, "capacity": amounts,
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }  # fmt: skip


@pytest.fixture
def filled(cluster):
    """Three nodes: one with a gang and a pod of others, one cordoned, one without GPUs that is not ready."""
    cluster.objects |= {
        "/api/v1/nodes": [
            node("b", unschedulable=True), node("a"), node("c", gpus=0, ready="False"),
        ],
        "/api/v1/pods": [
            *(of_group("train", number, node="a") for number in range(3)),
            member("theirs", node="a", scheduler="default-scheduler"),
            member("waits"),
        ],
    }  # fmt: skip
    return cluster


def test_nodes_tell_what_is_free_and_how_many_are_there(filled, capsys):
    """Given pods of several schedulers, then all of them take from their node; gangs are ours alone."""
    assert main(["get", "nodes"]) == 0
    first, second, third = shown(capsys)
    assert (first["NAME"], first["STATE"], first["TYPE"]) == ("a", "Ready", "H100")
    assert (first["GPUS"], first["FREE"]) == ("8", "4")
    assert (first["PODS"], first["GANGS"]) == ("4", "1")
    assert (second["STATE"], second["FREE"]) == ("Ready,SchedulingDisabled", "8")
    assert (third["STATE"], third["TYPE"], third["GPUS"]) == ("NotReady", "", "0")


def test_wide_lines_name_gangs_and_what_else_is_free(filled, capsys):
    """Given ``-o wide``, then CPU and memory that are free, and the gangs' names."""
    assert main(["get", "node", "-o", "wide"]) == 0
    first = shown(capsys)[0]
    assert (first["CPU"], first["MEMORY"], first["GANGNAMES"]) == (
        "60",
        "256Gi",
        "team-a/PodGroup/train",
    )


def test_nodes_as_json(filled, capsys):
    """Amounts are quantities, as in the API."""
    assert main(["get", "nodes", "-o", "json"]) == 0
    first = json.loads(capsys.readouterr().out)["items"][0]
    assert (first["metadata"]["name"], first["metadata"]["uid"]) == ("a", "uid-a")
    assert (first["gpus"], first["freeGpus"]) == ("8", "4")
    assert first["gangs"] == ["team-a/PodGroup/train"]


def test_who_may_not_list_nodes_is_told_which_role_lets_them(filled, capsys):
    """Given a tenant, then one sentence and the exit status of a right that lacks."""
    filled.objects["/api/v1/nodes"] = 403
    assert main(["get", "nodes"]) == 77
    assert "nodes" in capsys.readouterr().err
