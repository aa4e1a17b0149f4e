"""The view of real processes: rights by the API server's reviews, a standby, a lost process."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml

from gpusched.io.serve.announcement import announced_address
from tests.daemon.containment.test_exhausted_process import GANG, PROGRAM

pytestmark = pytest.mark.early

TRIES = 150
LEASE = "/apis/coordination.k8s.io/v1/namespaces/gpusched-system/leases/gpusched-view"


def start(*words):
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def ask(url, token, body=None):
    """Status and JSON of an answer; None while nothing listens there."""
    data = json.dumps(body).encode() if body is not None else None
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers)) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
    except (urllib.error.URLError, ConnectionError):
        return None


def until(question, true):
    """The first answer of which something is true; it is asked again for half a minute."""
    for _ in range(TRIES):
        answer = question()
        if answer is not None and true(answer):
            return answer
        time.sleep(0.2)
    raise AssertionError(f"the last answer was {answer}")


@pytest.fixture
def processes(tmp_path):
    """A cluster with a gang of eight and two daemons: its address, token, and the daemons by port."""
    announced = {**GANG[1], "spec": {**GANG[1]["spec"], "expectedDuration": "1h"}}
    objects = [GANG[0], announced, *GANG[2:]]
    objects += [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-b"}}]
    objects += [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": name, "namespace": "team-b"},
        }
        for name in ("eve",)
    ]
    group, pod = GANG[1], GANG[2]
    late = {**pod["metadata"], "name": "late-0", "labels": {"gpusched.io/pod-group": "late"}}
    objects += [
        {
            **group,
            "metadata": {"name": "late", "namespace": "default"},
            "spec": {"expectedDuration": "1h"},
        },
        {**pod, "metadata": late},
    ]
    (tmp_path / "gang.yaml").write_text(yaml.safe_dump_all(objects))
    kubeconfig = tmp_path / "kubeconfig"
    cluster = start(
        "devcluster", "--port", "0", "--kubeconfig", str(kubeconfig), "--apply", str(tmp_path / "gang.yaml")
    )  # fmt: skip
    assert cluster.stdout.readline(), cluster.stderr.read()
    known = yaml.safe_load(kubeconfig.read_text())
    daemons = []

    def daemon():
        process = start(
            "run", "--kubeconfig", str(kubeconfig), "--listen", "none", "--view", "127.0.0.1:0",
            "--state-file", "none", "--log-format", "json",
        )  # fmt: skip
        daemons.append(process)
        for line in process.stderr:
            record = json.loads(line)
            if "the view is served" in line:
                return process, record["at"]
        raise AssertionError("it ended")

    server, token = known["clusters"][0]["cluster"]["server"], known["users"][0]["user"]["token"]
    yield server, token, daemon, str(kubeconfig)
    for process in (*daemons, cluster):
        process.kill()
        process.communicate(timeout=30)


def children(process):
    """Process ids of those that a daemon started to serve its view."""
    found = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [int(pid) for pid in found if b"serve_view" in Path(f"/proc/{pid}/cmdline").read_bytes()]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes in /proc")
def test_the_view_of_two_daemons(processes):
    """Given a leader and a standby: both tell the same, to whom may see it; a lost process comes back."""
    server, token, daemon, kubeconfig = processes
    leader, url = daemon()
    everything = until(
        lambda: ask(f"{url}/v1/gangs?state=Running", token), lambda a: a[1].get("items")
    )
    (gang,) = everything[1]["items"]
    assert (gang["gangKind"], gang["metadata"]["name"], gang["placed"]) == ("PodGroup", "g", 8)

    # Then: whoever may list no pods sees no gang, and a made up token sees nothing at all.
    path = f"{server}/api/v1/namespaces/team-b/serviceaccounts/eve/token"
    eve = ask(
        path, token, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    )
    eve_token = eve[1]["status"]["token"]
    assert ask(f"{url}/v1/gangs", eve_token)[1]["total"] == 0
    assert ask(f"{url}/v1/nodes", eve_token)[0] == 403
    assert ask(f"{url}/v1/gangs", "made-up")[0] == 401

    # Then: people find it by the Lease, and a standby passes on.
    lease = until(lambda: ask(server + LEASE, token), lambda a: a[0] == 200)
    assert announced_address(lease[1]) == (url, socket.gethostname())
    _, other = daemon()
    passed_on = until(lambda: ask(f"{other}/v1/gangs?state=Running", token), lambda a: a[0] == 200)
    assert passed_on[1]["items"] == everything[1]["items"]
    assert ask(f"{other}/v1/nodes", eve_token)[0] == 403

    # Then: what would help a gang that waits is decided beside the daemon, for who may see it.
    advice = "/v1/gangs/default/podgroup/late/advice"
    until(lambda: ask(f"{url}/v1/gangs?state=Waiting", token), lambda a: a[1]["total"] == 1)
    status, told = ask(f"{other}{advice}", token)
    assert (status, told["unchanged"]["kind"]) == (200, "expected")
    assert "when default/g has ended" in [each["message"] for each in told["suggestions"]]
    assert ask(f"{url}{advice}", eve_token)[0] == 404
    assert ask(f"{url}/v1/gangs/default/podgroup/g/advice", token)[1]["message"] == (
        "podgroup g in namespace default runs: there is nothing that it waits for"
    )

    # Then: so is when something would start, by a standby, too.
    pod = {**GANG[2], "metadata": {"name": "new"}}
    status, told = ask(f"{other}/v1/when?namespace=default", token, pod)
    assert (status, told["gangs"][0]["start"]["kind"]) == (200, "expected")
    assert ask(f"{url}/v1/when?namespace=default", eve_token, pod)[0] == 403

    # Then: a question that means nothing is wrong usage, whoever answers.
    file = Path(kubeconfig).with_name("new.yaml")
    file.write_text(yaml.safe_dump(pod))
    asked = start("when", "-f", str(file), "--gpus", "v100", "--kubeconfig", kubeconfig)
    sentence = asked.communicate(timeout=30)[1]
    assert asked.returncode == 2, sentence
    assert 'refuses: gpus "v100": no node has such GPUs' in sentence

    # Then: how queues stood is told from the first minute on.
    series = until(lambda: ask(f"{other}/v1/queues/series", token), lambda a: a[1].get("times"))
    assert [each["name"] for each in series[1]["items"]] == ["default"]

    # Then: commands read it, and say so where they are to and cannot.
    listed = start("get", "jobs", "--source", "daemon", "--no-headers", "--kubeconfig", kubeconfig)
    assert listed.communicate(timeout=30)[0].split()[:4] == ["g", "PodGroup", "default", "0"]

    # Then: a process that is lost is started again, and the daemon leads on.
    (lost,) = children(leader)
    os.kill(lost, signal.SIGKILL)
    until(lambda: children(leader), lambda found: lost not in found)
    lease = until(
        lambda: ask(server + LEASE, token),
        lambda a: a[1]["metadata"]["annotations"]["gpusched.io/view"] != url,
    )
    again = lease[1]["metadata"]["annotations"]["gpusched.io/view"]
    assert until(lambda: ask(f"{again}/v1/gangs", token), lambda a: a[0] == 200)[1]["total"] == 2

    # Then: it ends with its daemon, even with one that is killed.
    (child,) = children(leader)
    leader.kill()
    until(lambda: not Path(f"/proc/{child}").exists(), lambda gone: gone)
