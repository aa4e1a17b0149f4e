"""``gpusched audit`` as a command: what it prints, and with which status it ends."""

from __future__ import annotations

import json

import msgspec
import pytest

from gpusched.cli.main import main
from gpusched.io.recordings.snapshot_file import SnapshotFile, write_snapshot

GPU = "nvidia.com/gpu"


def node(name, gpus=8):
    """A node."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"allocatable": {GPU: str(gpus), "cpu": "64", "pods": "110"}},
    }


def pod(name, *, on="n", gpus=4, slots="0-3", scheduler="gpusched", **notes):
    """A pod that we bound."""
    marks = {"slots": slots, "plan": "p", "fence": "d/1", **notes}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": name,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {f"gpusched.io/{key}": text for key, text in marks.items() if text},
        },
        "spec": {
            "nodeName": on,
            "schedulerName": scheduler,
            "containers": [{"name": "c", "resources": {"limits": {GPU: str(gpus)}}}],
        },
        "status": {"phase": "Running"},
    }


@pytest.fixture
def recorded(tmp_path):
    """Write a snapshot of pods on one node of eight GPUs; its path."""

    def write(*pods, anonymized=False):
        path = tmp_path / "cluster.snapshot"
        header = SnapshotFile(
            path="",
            taken_at=1_767_229_200.0,
            server="v1.36.2",
            recorder="0",
            objects={},
            anonymized=anonymized,
        )
        lines = {"nodes": [msgspec.json.encode(node("n"))]}
        lines["pods"] = [msgspec.json.encode(each) for each in pods]
        with path.open("wb") as out:
            write_snapshot(out, header, lines)
        return str(path)

    return write


def test_a_sound_snapshot_holds(recorded, capsys):
    """Given pods side by side, the audit ends with 0 and says what it looked at."""
    file = recorded(pod("a", slots="0,1,2,3"), pod("b", slots="4,5,6,7"))
    assert main(["audit", "--snapshot", file]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == "all invariants hold: looked at 2 pods, 1 nodes"
    assert "note: seals, terms and admission policies are not in a snapshot" in out


def test_violations_are_listed_with_what_to_do(recorded, capsys):
    """Given one slot for two pods, the audit ends with 1, names node and pods, and advises."""
    file = recorded(pod("a", slots="0,1,2,3"), pod("b", slots="3,4,5,6"))
    assert main(["audit", "--snapshot", file]) == 1
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "I2 Node n: slot 3 of node n has pods team/a and team/b"
    assert "delete one of the two pods" in out[1]
    assert out[-1].startswith("1 violation: looked at")


def test_the_same_as_json(recorded, capsys):
    """Given a stranger with records of ours, -o json has invariant, object, sentence and advice."""
    file = recorded(pod("a", slots="0,1,2,3", scheduler="other"))
    assert main(["audit", "--snapshot", file, "-o", "json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["holds"] is False
    assert told["looked"]["pods"] == 1
    (finding,) = told["findings"]
    assert (finding["invariant"], finding["kind"], finding["name"]) == ("I11", "Pod", "team/a")
    assert "does not ask for us" in finding["sentence"]
    assert finding["advice"]
    assert main(["audit", "--snapshot", file, "--scheduler", "other"]) == 0


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["--settle", "-1"], 2, "no number of seconds"),
        (["--settle", "soon"], 2, "no number of seconds"),
        (["--lease", "nothing"], 2, "no name of a lease"),
        (["--snapshot", "FILE", "--kubeconfig", "x"], 2, "exclude each other"),
        (["--snapshot", "/nowhere"], 78, "cannot be read"),
        (["--kubeconfig", "/nowhere"], 69, "kubeconfig"),
    ],
)
def test_wrong_usage_ends_as_in_other_commands(recorded, capsys, words, status, says):
    """Given nonsense, one sentence says what is wrong, with the status of its kind."""
    words = [recorded() if word == "FILE" else word for word in words]
    try:
        ended = main(["audit", *words])
    except SystemExit as left:
        ended = left.code
    assert ended == status
    assert says in capsys.readouterr().err


def test_text_of_tenants_obeys_no_terminal(recorded, capsys):
    """Given escapes in an annotation, they are not printed raw."""
    file = recorded(pod("a", slots="\x1b[31m0"))
    main(["audit", "--snapshot", file])
    assert "\x1b" not in capsys.readouterr().out


def test_an_anonymised_snapshot_has_no_messages_to_ask_for(recorded, capsys):
    """Given a pod that waits without a word, only a snapshot with messages is held to it."""
    waits = pod("a", slots="", on="")
    waits["metadata"]["annotations"] = {}
    assert main(["audit", "--snapshot", recorded(waits)]) == 1
    assert "I15 Pod team/a" in capsys.readouterr().out
    assert main(["audit", "--snapshot", recorded(waits, anonymized=True)]) == 0
    assert "I15 was not looked at" in capsys.readouterr().out


def test_a_device_that_two_claims_have_is_a_violation(cluster, capsys):
    """Of a live cluster, whose claims and slices are read where they are served."""

    def claim(name):
        result = {"request": "r", "driver": "d.example.com", "pool": "n", "device": "gpu-0"}
        status = {"allocation": {"devices": {"results": [result]}}}
        meta = {"name": name, "namespace": "team"}
        return {"metadata": meta, "spec": {"devices": {}}, "status": status}

    version = {"version": "v1"}
    cluster.objects |= {
        "/api/v1/pods": [],
        "/apis": {"groups": [{"name": "resource.k8s.io", "versions": [version]}]},
        "/apis/resource.k8s.io/v1": {
            "resources": [{"name": "resourceclaims"}, {"name": "resourceslices"}]
        },
        "/apis/resource.k8s.io/v1/resourceclaims": [claim("a"), claim("b")],
        "/apis/resource.k8s.io/v1/resourceslices": [],
    }
    assert main(["audit", "--settle", "0"]) == 1
    out = capsys.readouterr().out
    assert "device d.example.com/n/gpu-0 is given 2 times: to team/a and team/b" in out
    assert "no other scheduler allocates the same devices" in out
    cluster.objects["/apis/resource.k8s.io/v1/resourceclaims"] = 403
    assert main(["audit", "--settle", "0"]) == 0
    assert "devices were not looked at" in capsys.readouterr().out
