"""``gpusched top`` without a terminal: one frame as text; and the sentences where there is none."""

from __future__ import annotations

import socket
import sys
from contextlib import contextmanager

import pytest
from textual.app import App

from gpusched.cli.inspect.live import top, top_app
from gpusched.cli.main import main
from gpusched.view.access import EVERYTHING, ViewAccess
from tests.cli.canned_objects import API, group
from tests.cli.live.shown import frames
from tests.cli.test_get_jobs import SENTENCE, member, of_group, whole
from tests.io.serve.page.served_page import page_server


def node(name, *, rack="r1"):
    """A node with eight GPUs."""
    amounts = {"nvidia.com/gpu": "8", "cpu": "64", "memory": "256Gi", "pods": "110"}
    return {
        "metadata": {
            "name": name, "uid": f"uid-{name}", "resourceVersion": "1",
            "labels": {"gpusched.io/rack": rack, "kubernetes.io/hostname": name},
            "creationTimestamp": "2001-01-01T00:00:00Z",
        },
        "spec": {},
        "status": {
            "allocatable": amounts, "capacity": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }  # fmt: skip


@pytest.fixture
def filled(cluster, monkeypatch):
    """A cluster without a daemon: a gang that runs, one that waits, a pod with a hostile sentence."""
    monkeypatch.setenv("COLUMNS", "160")
    waits = {"type": "Scheduled", "status": "False", "reason": "NoRoom", "message": SENTENCE}
    cluster.objects |= {
        "/api/v1/namespaces": [], f"{API}/queues": [], f"{API}/topologies": [],
        "/apis/scheduling.k8s.io/v1/priorityclasses": [], "/apis/batch/v1/jobs": [],
        "/apis": {"groups": []}, "/api/v1/nodes": [node("n0"), node("n1", rack="r2")],
        f"{API}/podgroups": [
            whole(group("runs")), whole(group("waits", conditions=[waits], queuePosition=3)),
        ],
        "/api/v1/pods": [
            *(of_group("runs", number, node="n0") for number in range(4)),
            *(of_group("waits", number, said=SENTENCE) for number in range(4)),
            member("evil", said="a\x1b[31m[bold]\u202eb"),
        ],
    }  # fmt: skip
    return cluster


def test_a_pipe_gets_one_frame_as_text(filled, capsys):
    """Given no terminal: all parts once, without a control character, and why it was read from the API."""
    assert main(["top"]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    assert "\x1b" not in told.out
    lines = told.out.splitlines()
    assert lines[0].endswith(" 4 of 16 used, 12 free, 0 stranded")
    assert lines[1] == "Gangs   1 running, 2 waiting · all namespaces"
    assert lines[2].startswith("Source  the API at ")
    assert lines[2].endswith("without a token, which the daemon's view asks for")
    for title in ("Queues", "Waiting", "Running", "GPUs"):
        assert title in lines
    assert r"NoRoom: a\x1b[31m[bold]\u202eb" in told.out


def test_one_view_of_one_namespace(filled, capsys):
    """Given ``--once --view waiting -n``: its rows alone, all of them."""
    assert main(["top", "--once", "--view", "waiting", "-n", "team-a"]) == 0
    _, rows = capsys.readouterr().out.split("\n\n")
    title, first, *rest = rows.splitlines()
    assert title.split()[:2] == ["TURN", "GANG"]
    assert (first.split()[:3], len(rest)) == (["3", "waits", "research"], 1)
    assert main(["top", "--once", "--view", "waiting", "-n", "team-b"]) == 0
    assert capsys.readouterr().out.endswith("\n\nNothing waits in namespace team-b.\n")


@pytest.mark.parametrize("words", [["--once"], []])
def test_a_terminal_that_cannot_move_its_cursor_gets_one_frame(filled, capsys, monkeypatch, words):
    """Given TERM=dumb, or ``--once``: a frame and the end, without colours where they are not wanted."""
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm" if words else "dumb")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["top", *words]) == 0
    told = capsys.readouterr().out
    assert "\x1b" not in told
    lines = told.splitlines()
    assert lines[0].startswith("GPUs")
    assert max(map(len, lines)) <= 80


def test_who_may_list_nothing_is_told_so(filled, capsys):
    """Given no rights: one sentence with the role, exit status 77."""
    filled.objects |= {"/api/v1/pods": 403, "/api/v1/namespaces/team-a/pods": 403}
    filled.objects |= {"/api/v1/nodes": 403, "/apis/batch/v1/namespaces/team-a/jobs": []}
    filled.objects |= {f"{API}/namespaces/team-a/podgroups": []}
    assert main(["top", "--once"]) == 77
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert "pods" in told.err
    assert "ClusterRole view" in told.err


def test_who_may_list_one_namespace_is_told_what_is_missing(filled, capsys):
    """Given rights to one namespace: its gangs, and that others' GPUs count as free."""
    pods = filled.objects["/api/v1/pods"]
    groups = filled.objects[f"{API}/podgroups"]
    filled.objects |= {
        "/api/v1/pods": 403, "/api/v1/namespaces/team-a/pods": pods,
        "/apis/batch/v1/namespaces/team-a/jobs": [],
        f"{API}/namespaces/team-a/podgroups": groups,
    }  # fmt: skip
    assert main(["top", "--once"]) == 0
    told = capsys.readouterr().out
    assert "of namespaces that this user may see: team-a" in told
    assert "GPUs of pods that this user may not list count as free here" in told
    assert "stranded" not in told


def test_a_screen_that_fails_is_a_bug(filled, capsys, monkeypatch, tmp_path):
    """Given a drawing that raises: status 70 and a file with the story, as of every bug."""

    def broken(*_):
        raise ZeroDivisionError

    async def without_terminal(app):
        return await App.run_async(app, headless=True)

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(top, "_is_interactive", lambda: True)
    monkeypatch.setattr(top_app, "draw_header", broken)
    monkeypatch.setattr(top_app.TopApp, "run_async", without_terminal)
    assert main(["top"]) == 70
    assert "this is a bug: the screen failed" in capsys.readouterr().err


def test_a_daemon_that_is_asked_for_and_not_there_is_a_sentence(filled, capsys):
    """Given ``--source daemon`` and none: status 69."""
    assert main(["top", "--once", "--source", "daemon"]) == 69
    assert "which the daemon's view asks for" in capsys.readouterr().err


def test_a_server_that_is_away_is_one_sentence(tmp_path, capsys):
    """Given a server that does not answer: status 69, no screen."""
    assert main(["top", "-s", "http://127.0.0.1:9", "--token", "t"]) == 69
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)


@contextmanager
def daemon(cluster, access=EVERYTHING):
    """A daemon's view that the cluster's Lease tells of, and what its user may see."""
    with page_server(*frames()) as server:

        async def authorized(_request, _namespaces):
            return access

        server._server._authorized = authorized
        notes = {
            "gpusched.io/view": server.url.rstrip("/"),
            "gpusched.io/view-machine": socket.gethostname(),
        }
        place = "/apis/coordination.k8s.io/v1/namespaces/gpusched-system/leases/gpusched-view"
        cluster.objects[place] = {"metadata": {"name": "gpusched-view", "annotations": notes}}
        yield server


def test_a_daemon_is_asked_before_the_api(filled, capsys):
    """Given a daemon: its gangs, its name, its decisions, and not a word of the API."""
    with daemon(filled):
        assert main(["top", "--once", "--token", "t"]) == 0
        told = capsys.readouterr().out
        assert main(["top", "--once", "--token", "t", "--view", "decisions"]) == 0
        decisions = capsys.readouterr().out
        assert main(["top", "--once", "--token", "t", "--source", "api"]) == 0
        of_api = capsys.readouterr().out
    assert "Daemon  d: ready · live, as of its session at " in told
    assert "team-a/big" in told
    assert "team-a/runs" not in told
    assert "Job team-a/train starts" in decisions
    assert "as --source api says" in of_api
    assert "team-a/runs" in of_api


def test_who_is_shown_nothing_by_the_daemon_is_shown_what_the_api_allows(filled, capsys):
    """Given a user without rights at the daemon: the API and why; 77 where it allows nothing either."""
    nobody = ViewAccess(namespaces=frozenset(), nodes=False, queues=False)
    with daemon(filled, nobody):
        assert main(["top", "--once", "--token", "t"]) == 0
        assert "the daemon shows this user nothing" in capsys.readouterr().out
        assert main(["top", "--once", "--token", "t", "--source", "daemon"]) == 69
        assert "the daemon shows this user nothing" in capsys.readouterr().err
        for path in ("/api/v1/pods", "/api/v1/namespaces/team-a/pods", "/api/v1/nodes"):
            filled.objects[path] = 403
        assert main(["top", "--once", "--token", "t"]) == 77
        assert capsys.readouterr().out == ""


def test_a_daemon_that_does_not_answer_is_a_reason_to_read_the_api(filled, capsys):
    """Given a Lease that tells of a daemon which is gone: the API, and the address that is silent."""
    with daemon(filled) as server:
        url = server.url.rstrip("/")
    assert main(["top", "--once", "--token", "t"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert f"the daemon's view at {url} does not answer: Connection refused" in told


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--view", "wating"], 'unknown view "wating": known are overview, queues, waiting'),
        (["-n", "x", "-A"], "not allowed with argument"),
    ],
)
def test_wrong_usage_is_one_sentence(capsys, words, sentence):
    """Given what makes no sense: status 2, and what is known."""
    with pytest.raises(SystemExit) as ended:
        main(["top", *words])
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err


def test_a_namespace_that_is_no_name_is_refused(filled, capsys):
    """Given a path for a namespace: status 2."""
    assert main(["top", "-n", "../x"]) == 2
    assert "is no name of a namespace" in capsys.readouterr().err


def test_options_may_stand_before_the_command(filled, capsys):
    """Given kubectl's way: the namespace before ``top`` counts."""
    assert main(["-n", "team-a", "top", "--once", "--view", "running"]) == 0
    assert "namespace team-a is listed" in capsys.readouterr().out
