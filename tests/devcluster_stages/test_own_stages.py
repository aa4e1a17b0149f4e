"""The project's own stages on single objects, before any cluster is involved."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from gpusched.devcluster.stages import funcs, load, match, render
from gpusched.devcluster.stages.addresses import AddressBook
from gpusched.devcluster.stages.expressions import Subject

STAGES = load.load([Path(__file__).parents[2] / "kwok-scenarios" / "stages"])
NOW = 1_800_000_000.0
AT = "2027-01-15T08:00:00Z"
JOB = [{"kind": "Job", "name": "j", "uid": "u"}]


def pod(phase: str, **metadata: Any) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": "p", "namespace": "n", "uid": "1", **metadata},
        "spec": {"nodeName": "a", "containers": [{"name": "c", "image": "i"}]},
        "status": {
            "phase": phase,
            "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": AT}],
            **({"startTime": AT} if phase != "Pending" else {}),
        },
    }


def played(obj: dict[str, Any]) -> tuple[str, float, list[render.Effect | None]] | None:
    subject = Subject(obj, now=NOW)
    stages = [s for s in STAGES if s.kind == obj["kind"]]
    assert len(match.candidates(stages, subject)) <= 1, "stages must exclude each other"
    choice = match.choose(stages, subject, random.Random(1))
    if choice is None:
        return None
    table = funcs.functions(obj, now=AT, start_time=AT, addresses=AddressBook(lambda _node: ""))
    effects = [render.effect(step, obj, table) for step in choice.stage.steps]
    return choice.stage.name, choice.delay_s, effects


def test_pod_starts_after_its_time() -> None:
    """A bound pod is Running and Ready a moment after its binding, or when it asks to be."""
    found = played(pod("Pending"))
    assert found is not None
    name, delay, (patch,) = found
    assert (name, delay) == ("gpusched-pod-start", 1.0)
    assert isinstance(patch, render.Patch)
    status = patch.body["status"]
    assert (status["phase"], status["podIP"]) == ("Running", "10.0.0.1")
    assert {c["type"]: c["status"] for c in status["conditions"]} == {
        "Initialized": "True",
        "Ready": "True",
        "ContainersReady": "True",
    }
    later = played(pod("Pending", annotations={"gpusched.io/start-after": "1m30s"}))
    assert later is not None
    assert later[1] == 90.0


def test_init_containers_end_and_sidecars_run() -> None:
    """An initContainer without restartPolicy has ended when the pod runs; a sidecar runs on."""
    obj = pod("Pending")
    obj["spec"]["initContainers"] = [
        {"name": "i", "image": "x"},
        {"name": "s", "image": "x", "restartPolicy": "Always"},
    ]
    found = played(obj)
    assert found is not None
    (patch,) = found[2]
    assert isinstance(patch, render.Patch)
    states = [list(c["state"]) for c in patch.body["status"]["initContainerStatuses"]]
    assert states == [["terminated"], ["running"]]


@pytest.mark.parametrize(
    ("metadata", "want"),
    [
        ({"ownerReferences": JOB}, ("gpusched-pod-succeed", 10.0)),
        ({"annotations": {"gpusched.io/run-for": "30s"}}, ("gpusched-pod-succeed", 30.0)),
        (
            {"annotations": {"gpusched.io/run-for": "junk"}, "ownerReferences": JOB},
            ("gpusched-pod-succeed", 10.0),
        ),
        (
            {"annotations": {"gpusched.io/fail-after": "2m"}, "ownerReferences": JOB},
            ("gpusched-pod-fail", 120.0),
        ),
        ({}, None),
        ({"ownerReferences": [{"kind": "ReplicaSet", "name": "r", "uid": "u"}]}, None),
    ],
)
def test_pod_ends_as_asked(metadata: dict[str, Any], want: tuple[str, float] | None) -> None:
    """Pods of Jobs end by themselves, others run on; annotations overrule both."""
    found = played(pod("Running", **metadata))
    assert (found and found[:2]) == want


def test_exit_code() -> None:
    """A failure has the exit code that was asked for."""
    asked = {"gpusched.io/fail-after": "1s", "gpusched.io/exit-code": "137"}
    found = played(pod("Running", annotations=asked))
    assert found is not None
    (patch,) = found[2]
    assert isinstance(patch, render.Patch)
    (container,) = patch.body["status"]["containerStatuses"]
    assert container["state"]["terminated"]["exitCode"] == 137
    assert patch.body["status"]["phase"] == "Failed"


def test_deleted_pod_goes_quickly() -> None:
    """A deleted pod is gone after a tenth of a second; finalizers make it Failed first."""
    found = played(pod("Running", deletionTimestamp=AT))
    assert found == ("gpusched-pod-gone", 0.1, [render.Delete()])
    held = played(pod("Running", deletionTimestamp=AT, finalizers=["x/y"]))
    assert held is not None
    assert held[0] == "gpusched-pod-stop"
    assert played(pod("Failed", deletionTimestamp=AT, finalizers=["x/y"])) is None


def node(ready: str | None = None, **annotations: str) -> dict[str, Any]:
    conditions = [] if ready is None else [{"type": "Ready", "status": ready}]
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"name": "a", "annotations": annotations},
        "status": {"conditions": conditions, "capacity": {"nvidia.com/gpu": "8"}},
    }


def test_node_becomes_ready_and_keeps_its_capacity() -> None:
    """A new node is Ready at once; its capacity stays and becomes allocatable."""
    found = played(node())
    assert found is not None
    name, delay, (patch,) = found
    assert (name, delay) == ("gpusched-node-ready", 0.0)
    assert isinstance(patch, render.Patch)
    status = patch.body["status"]
    assert status["conditions"][0]["type"] == "Ready"
    assert status["allocatable"] == {"nvidia.com/gpu": "8"}
    assert "capacity" not in status


def test_node_heartbeat_is_rare_and_failures_last() -> None:
    """A Ready node reports every ten minutes; one that was failed stays so until released."""
    beat = played(node("True"))
    assert beat is not None
    assert beat[0] == "gpusched-node-heartbeat"
    assert 600 <= beat[1] <= 660
    failed = played(node("True", **{"gpusched.io/node-failed": "true"}))
    assert failed is not None
    assert failed[0] == "gpusched-node-failed"
    assert played(node("False", **{"gpusched.io/node-failed": "true"})) is None
    back = played(node("False"))
    assert back is not None
    assert back[0] == "gpusched-node-ready"


def test_addresses_are_unique_and_reused() -> None:
    """Pods get addresses in sequence; a freed one is the next to be given."""
    book = AddressBook({"a": "10.9.0.0/24"}.get)  # type: ignore[arg-type]

    def address(uid: str, node: str = "a") -> str:
        return book.pod(node, host_network=False, uid=uid, name="", namespace="")

    assert [address(u) for u in ("1", "2", "1")] == ["10.9.0.1", "10.9.0.2", "10.9.0.1"]
    book.release("1")
    assert address("3") == "10.9.0.1"
    assert address("4", "other") == "10.0.0.1"
    assert book.pod("a", host_network=True, uid="5", name="", namespace="") == book.node("a")
