"""``gpusched console``: a page for one person, who has the key."""

from __future__ import annotations

import http.cookiejar
import json
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from gpusched.cli.main import main

PROGRAM = "import sys; from gpusched.cli.main import main; sys.exit(main(sys.argv[1:]))"
WAITING = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "p", "namespace": "team-a", "uid": "u", "resourceVersion": "1",
        "creationTimestamp": "2026-01-01T00:00:00Z",
    },
    "spec": {
        "schedulerName": "gpusched",
        "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "2"}}}],
    },
    "status": {
        "phase": "Pending",
        "conditions": [
            {
                "type": "PodScheduled", "status": "False", "reason": "InsufficientResources",
                "message": "needs 1 pod with 2 nvidia.com/gpu; none fit now",
            }
        ],
    },
}  # fmt: skip


@pytest.fixture
def console(cluster):
    """The command on a cluster without a daemon, and the address that it prints."""
    cluster.objects |= {
        "/api/v1/pods": [WAITING],
        "/api/v1/nodes": 403,
        "/apis/batch/v1/jobs": [],
        "/apis": {"groups": []},
        "/apis/scheduling.gpusched.io/v1alpha1/podgroups": [],
    }
    words = [sys.executable, "-c", PROGRAM, "console", "--no-open", "--port", "0"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    yield process.stdout.readline().strip(), process.stdout.readline()
    process.terminate()
    process.communicate(timeout=30)


def read(opener, url, **headers):
    """Status and text of an answer."""
    try:
        with opener.open(urllib.request.Request(url, headers=headers)) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_the_page_of_a_cluster_without_a_daemon(console):
    """Given no daemon: it says that the API is read, shows what waits, and answers nobody without the key."""
    address, told = console
    assert told.startswith("Read from the API: ")
    base = address.partition("?")[0]
    stranger = urllib.request.build_opener()
    for path in ("", "v1", "v1/gangs", "page/index.html", "?key=guessed"):
        assert read(stranger, base + path) == (
            403, "open the address that gpusched console printed: it has a key\n",
        )  # fmt: skip
    assert read(stranger, address, Host="rebound.example")[0] == 421

    jar = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
    person = urllib.request.build_opener(jar)
    assert "<!doctype html>" in read(person, address)[1].lower()
    for _ in range(100):
        status, text = read(person, f"{base}v1/gangs")
        if status == 200:
            break
    (gang,) = json.loads(text)["items"]
    assert (gang["gangKind"], gang["metadata"]["name"], gang["gpus"]) == ("Pod", "p", "2")
    assert gang["message"] == "needs 1 pod with 2 nvidia.com/gpu; none fit now"
    assert json.loads(read(person, f"{base}v1")[1])["source"] == "api"
    assert read(person, f"{base}v1/nodes")[0] == 403


def test_a_server_that_is_away_is_one_sentence(tmp_path, capsys):
    """Given a kubeconfig whose server does not answer: no page, status 69."""
    file = tmp_path / "away"
    file.write_text(
        json.dumps(
            {
                "apiVersion": "v1", "kind": "Config", "current-context": "x",
                "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            }
        )
    )  # fmt: skip
    assert main(["console", "--no-open", "--port", "0", "--kubeconfig", str(file)]) == 69
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert "cannot connect to the API server" in said.err
