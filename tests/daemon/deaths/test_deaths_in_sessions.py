"""Real processes that are killed in the middle of sessions: the third lives without the suspect."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request

import pytest
import yaml

pytestmark = pytest.mark.early

KILLED = """
import os, signal, sys
from gpusched.session.start.gang_start import GangStarts
original = GangStarts.start

def start(starts, gang):
    if gang.key.name == "bad":
        os.kill(os.getpid(), signal.SIGKILL)
    return original(starts, gang)

GangStarts.start = start
from gpusched.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
RAISES = KILLED.replace("os.kill(os.getpid(), signal.SIGKILL)", "raise RuntimeError('planted')")
BROKEN = """
import sys
from gpusched.commit import machine
from gpusched.base.errors import InvariantBroken
from gpusched.io.write import binder
original = machine.advance_commit

def advance(state, event):
    if state.gang.gang.name == "bad":
        raise InvariantBroken("planted")
    return original(state, event)

binder.advance_commit = advance
from gpusched.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
ELECTION = {"leaseDuration": "7s", "renewDeadline": "6s", "retryPeriod": "200ms"}


def objects():
    """Two nodes, and two gangs of which each fills one."""
    amounts = {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "8"}
    for number in range(2):
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": f"node-{number}",
                "annotations": {"kwok.x-k8s.io/node": "fake"},
            },
            "status": {"capacity": amounts, "allocatable": amounts},
        }
    for name in ("bad", "good"):
        yield {
            "apiVersion": "scheduling.gpusched.io/v1alpha1",
            "kind": "PodGroup",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"minMember": 1},
        }
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{name}-0",
                "namespace": "default",
                "labels": {"gpusched.io/pod-group": name},
            },
            "spec": {
                "schedulerName": "gpusched",
                "containers": [
                    {
                        "name": "c",
                        "image": "i",
                        "resources": {"limits": {"nvidia.com/gpu": "8", "cpu": "1"}},
                    }
                ],
            },
        }


@pytest.fixture
def cluster(tmp_path):
    """An embedded cluster in a process of its own; its address."""
    manifest = tmp_path / "objects.yaml"
    manifest.write_text(yaml.safe_dump_all(objects()))
    command = [sys.executable, "-m", "gpusched.cli.main", "devcluster"]
    with subprocess.Popen(
        [*command, "--kubeconfig", str(tmp_path / "kubeconfig"), "--apply", str(manifest)],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip
        yield process.stdout.readline().split()[1]
        process.terminate()


def get(url, path):
    """An object of the cluster."""
    with urllib.request.urlopen(f"{url}{path}", timeout=30) as answer:
        return json.load(answer)


def start(tmp_path, program):
    """``gpusched run``, with exceptions or worse planted in it."""
    config = tmp_path / "gpusched.yaml"
    config.write_text(yaml.safe_dump({"leaderElection": ELECTION}))
    return subprocess.Popen(
        [sys.executable, "-c", program, "run", "--listen", "127.0.0.1:0", "--view", "none",
         "--kubeconfig", str(tmp_path / "kubeconfig"), "--config", str(config),
         "--state-file", str(tmp_path / "state"), "--log-format", "json"],
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
    )  # fmt: skip


def until(true, within=90.0):
    """Wait in real time; there is no other for processes."""
    end = time.monotonic() + within
    while not true():
        assert time.monotonic() < end
        time.sleep(0.2)


def condition(url):
    """What the gang is told."""
    group = get(url, "/apis/scheduling.gpusched.io/v1alpha1/namespaces/default/podgroups/bad")
    found = group.get("status", {}).get("conditions", [])
    return next((each["message"] for each in found if each["type"] == "Scheduled"), "")


def test_the_third_start_lives_and_serves_the_others(tmp_path, cluster):
    """Two are killed with the gang in hand; the third sets it aside, says so and goes on."""
    for _ in range(2):
        process = start(tmp_path, KILLED)
        process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL
    process = start(tmp_path, KILLED)
    try:
        until(lambda: "2 processes died with it in hand" in condition(cluster))
        node = get(cluster, "/api/v1/namespaces/default/pods/good-0")["spec"].get("nodeName")
        assert node
        events = get(cluster, "/apis/events.k8s.io/v1/events")["items"]
        report_crashes = [each["note"] for each in events if each["reason"] == "SchedulerDied"]
        assert all(
            "in allocate with gang PodGroup default/bad in hand" in note for note in report_crashes
        )
        assert any("set aside: PodGroup default/bad" in note for note in report_crashes)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        told = process.stderr.read()
        assert process.wait(timeout=60) == 0
        assert "an earlier process died" in told
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_a_gang_whose_commits_break_is_left_out_by_the_third_start(tmp_path, cluster):
    """Two processes end by a broken invariant of its commit; the third decides all others in full."""
    for _ in range(2):
        process = start(tmp_path, BROKEN)
        process.communicate(timeout=90)
        assert process.returncode == 70
    process = start(tmp_path, BROKEN)
    try:
        until(lambda: "2 processes died with it in hand" in condition(cluster))
        good = "/api/v1/namespaces/default/pods/good-0"
        until(lambda: get(cluster, good)["spec"].get("nodeName"))
        events = get(cluster, "/apis/events.k8s.io/v1/events")["items"]
        report_crashes = [each["note"] for each in events if each["reason"] == "SchedulerDied"]
        assert all("sessions go without" not in note for note in report_crashes)
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_a_planted_exception_ends_no_process(tmp_path, cluster):
    """The first start lives: it sets the gang aside at once."""
    process = start(tmp_path, RAISES)
    try:
        until(lambda: "RuntimeError: planted" in condition(cluster))
        until(
            lambda: get(cluster, "/api/v1/namespaces/default/pods/good-0")["spec"].get("nodeName")
        )
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
