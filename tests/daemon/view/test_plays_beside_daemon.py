"""Starts that are played by processes beside a real daemon: asked over the view's pipe, decided on a copy of the cluster."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.daemon.view.test_view_process import ask, start, until

pytestmark = pytest.mark.early

API = "scheduling.gpusched.io/v1alpha1"


def gang(name, *, says):
    """A group of one pod that takes the one node, and says how long it runs."""
    container = {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    labels = {"gpusched.io/pod-group": name}
    return [
        {"apiVersion": API, "kind": "PodGroup", "metadata": {"name": name, "namespace": "default"},
         "spec": {"minMember": 1, "expectedDuration": says}},
        {"apiVersion": "v1", "kind": "Pod",
         "metadata": {"name": f"{name}-0", "namespace": "default", "labels": labels},
         "spec": {"schedulerName": "gpusched", "containers": [container]}},
    ]  # fmt: skip


def test_a_gang_is_told_the_start_that_was_played(tmp_path):
    """Given two gangs for one node, then who waits is told a start that a play tells, at the end of the other."""
    amounts = {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "8"}
    node = {
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n0", "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "status": {"capacity": amounts, "allocatable": amounts},
    }  # fmt: skip
    objects = [node, *gang("first", says="1h"), *gang("second", says="1h")]
    (tmp_path / "gangs.yaml").write_text(yaml.safe_dump_all(objects))
    (tmp_path / "gpusched.yaml").write_text("cycle: {playStarts: 1s}\n")
    kubeconfig = tmp_path / "kubeconfig"
    processes = [
        start("devcluster", "--port", "0", "--kubeconfig", str(kubeconfig),
              "--apply", str(tmp_path / "gangs.yaml"))
    ]  # fmt: skip
    try:
        assert processes[0].stdout.readline(), processes[0].stderr.read()
        token = yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]["token"]
        daemon = start(
            "run", "--kubeconfig", str(kubeconfig), "--config", str(tmp_path / "gpusched.yaml"),
            "--listen", "none", "--view", "127.0.0.1:0", "--state-file", "none", "--log-format", "json",
        )  # fmt: skip
        processes.append(daemon)
        url = next(json.loads(line)["at"] for line in daemon.stderr if "the view is served" in line)
        _, told = until(
            lambda: ask(f"{url}/v1/gangs?state=Waiting", token),
            lambda a: [each.get("estimateKnownBy") for each in a[1].get("items", ())] == ["Played"],
        )
        (waits,) = told["items"]
        assert waits["estimatedStartTime"]
    finally:
        for process in reversed(processes):
            process.kill()
            process.communicate(timeout=30)
