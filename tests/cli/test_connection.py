"""How commands reach the cluster: kubectl's options, wherever they stand, over real HTTP."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from gpusched.cli.main import main
from gpusched.cli.shell.leading_options import with_leading_options_behind
from tests.cli.canned_objects import API

QUEUES = f"{API}/queues"


@pytest.fixture
def queues(cluster):
    """A cluster without queues."""
    cluster.objects[QUEUES] = []
    return cluster


def change_kubeconfig(**changes):
    """Write keys of the default kubeconfig anew."""
    file = Path(os.environ["KUBECONFIG"])
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def user(name, **fields):
    return {"name": name, "user": fields}


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("-n team-a get jobs", "get jobs -n team-a"),
        ("-nteam-a get jobs", "get jobs -nteam-a"),
        ("--namespace=team-a -A get jobs", "get jobs --namespace=team-a -A"),
        ("--kubeconfig F --as bob explain job x", "explain job x --kubeconfig F --as bob"),
        ("-n a get jobs -- x", "get jobs -n a -- x"),
        ("get jobs -n a", "get jobs -n a"),
        ("--help", "--help"),
        ("-n a --help", "-n a --help"),
        ("--loud -n a get jobs", "--loud -n a get jobs"),
        ("-n a", "-n a"),
        ("", ""),
    ],
)
def test_options_before_the_command_count_behind_it(typed, meant):
    """Given kubectl's options first, then the command has them; what is no option stays."""
    assert " ".join(with_leading_options_behind(typed.split())) == meant


def test_a_command_with_its_options_first(queues, capsys):
    """Given ``kubectl gpusched -n team-b get jobs``, then the namespace counts."""
    queues.objects |= {
        "/api/v1/namespaces/team-b/pods": [], "/apis/batch/v1/namespaces/team-b/jobs": [],
    }  # fmt: skip
    assert main(["-n", "team-b", "get", "jobs"]) == 0
    assert "in namespace team-b" in capsys.readouterr().out


def test_whom_to_act_as(queues):
    """Given ``--as`` with groups and a UID, then each request says so, as kubectl's do."""
    words = ["--as", "bob", "--as-group", "team", "--as-group", "all", "--as-uid", "7"]
    assert main(["get", "queues", *words]) == 0
    sent = queues.headers[-1]
    assert (sent["Impersonate-User"], sent["Impersonate-Uid"]) == ("bob", "7")
    assert sent.get_all("Impersonate-Group") == ["team", "all"]


def test_whom_to_act_as_by_the_kubeconfig(queues):
    """Given a user of the kubeconfig that acts as another, then requests say so; options come first."""
    change_kubeconfig(
        users=[user("u", **{"as": "bob", "as-groups": ["x"], "as-user-extra": {"Why/It": ["y"]}})]
    )
    assert main(["get", "queues"]) == 0
    sent = queues.headers[-1]
    assert (sent["Impersonate-User"], sent["Impersonate-Group"]) == ("bob", "x")
    assert sent["Impersonate-Extra-why%2Fit"] == "y"
    assert main(["get", "queues", "--as", "eve"]) == 0
    sent = queues.headers[-1]
    assert (sent["Impersonate-User"], sent["Impersonate-Group"]) == ("eve", None)


def test_another_context_with_its_user_and_namespace(queues, capsys):
    """Given ``--context``, then its cluster, user and namespace count, not those of the current one."""
    change_kubeconfig(
        users=[user("u", token="wrong"), user("v", token="right")],
        contexts=[
            {"name": "here", "context": {"cluster": "nowhere", "user": "u"}},
            {"name": "there", "context": {"cluster": "c", "user": "v", "namespace": "team-c"}},
        ],
    )
    queues.objects |= {
        "/api/v1/namespaces/team-c/pods": [], "/apis/batch/v1/namespaces/team-c/jobs": [],
    }  # fmt: skip
    assert main(["get", "jobs", "--context", "there"]) == 0
    assert "in namespace team-c" in capsys.readouterr().out
    assert queues.headers[-1]["Authorization"] == "Bearer right"
    assert main(["get", "jobs", "--context", "there", "--user", "u", "--request-timeout", "5"]) == 0
    assert queues.headers[-1]["Authorization"] == "Bearer wrong"


def test_a_token_in_place_of_the_kubeconfigs_user(queues):
    """Given ``--token``, then no other way of logging in is tried, not even a broken one."""
    broken = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/nowhere"}}
    change_kubeconfig(users=[user("u", **broken)])
    assert main(["get", "queues"]) == 78
    assert main(["get", "queues", "--token", "given"]) == 0
    assert queues.headers[-1]["Authorization"] == "Bearer given"


def test_a_server_and_nothing_else(queues, monkeypatch, tmp_path):
    """Given ``--server`` and no kubeconfig at all, then that server is asked."""
    server = json.loads(Path(os.environ["KUBECONFIG"]).read_text())["clusters"][0]["cluster"]
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    assert main(["get", "queues"]) == 69
    assert main(["get", "queues", "-s", server["server"], "--token", "t", "--as", "bob"]) == 0
    assert queues.headers[-1]["Authorization"] == "Bearer t"
    assert queues.headers[-1]["Impersonate-User"] == "bob"


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["--context", "x"], 2, "the kubeconfig has no context 'x': known are here"),
        (["--cluster", "x"], 2, "the kubeconfig has no cluster 'x': known are c"),
        (["--user", "x"], 2, "the kubeconfig has no user 'x': known are u"),
        (["--as-group", "x"], 2, "give --as USER"),
        (["--insecure-skip-tls-verify"], 2, "is refused: give --certificate-authority"),
        (["--client-key", "x"], 2, "are given together or not at all"),
        (["--request-timeout", "soon"], 2, "--request-timeout: 'soon' is not a duration"),
        (["--server", "nonsense"], 78, "is not an http or https URL"),
        (["--server", "http://127.0.0.1:1"], 69, "cannot connect to the API server"),
    ],
)
def test_what_cannot_be_honoured_is_one_sentence(queues, capsys, words, status, says):
    """Given an option that makes no sense, then one sentence and the status that tells which kind."""
    assert main(["get", "queues", *words]) == status
    told = capsys.readouterr().err
    assert says in told
    assert told.count("\n") == 1


@pytest.mark.parametrize("answer", [401, 403])
def test_no_right_is_told_from_no_answer(queues, capsys, answer):
    """Given a server that answers and says no, then 77, not the 69 of one that does not answer."""
    queues.objects |= {QUEUES: answer, "/api/v1/nodes": answer, "/api/v1/namespaces/team-a/pods": answer,
        "/apis/batch/v1/namespaces/team-a/jobs/x": answer, "/apis/batch/v1/namespaces/team-a/jobs": []}  # fmt: skip
    for words in (["get", "queues"], ["get", "nodes"], ["get", "jobs"], ["explain", "job", "x"]):
        assert main(words) == 77, words
        assert "you may not" in capsys.readouterr().err
