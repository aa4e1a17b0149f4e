"""Commands beside a daemon of another version: they go on, and name that version where something is missing."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest
import yaml

from gpusched import __version__
from gpusched.cli.main import main

ANSWERS = Path(__file__).parent / "answers"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/gpusched-system/leases/gpusched-view"


@pytest.fixture
def daemon_of(cluster):
    """The recorded answers of a daemon's view, found by its Lease as a real one is."""

    def serve(version):
        file = Path(os.environ["KUBECONFIG"])
        kubeconfig = json.loads(file.read_text())
        kubeconfig["users"] = [{"name": "u", "user": {"token": "t"}}]
        file.write_text(json.dumps(kubeconfig))
        url = kubeconfig["clusters"][0]["cluster"]["server"]
        notes = {"gpusched.io/view": url, "gpusched.io/view-machine": socket.gethostname()}
        cluster.objects |= {
            LEASE: {"metadata": {"name": "gpusched-view", "annotations": notes}},
            **yaml.safe_load((ANSWERS / f"{version}.yaml").read_text()),
        }
        return cluster

    return serve


def test_an_older_daemon_is_named_by_its_version(daemon_of, capsys):
    """Given a view without the order: one sentence with both versions, and 69; its gangs are listed all the same."""
    daemon_of("older-view")
    assert main(["get", "priority", "-A"]) == 69
    (sentence,) = capsys.readouterr().err.splitlines()
    assert sentence.startswith(
        "gpusched: the order of gangs is known to the daemon alone: the daemon at http://"
    )
    assert sentence.endswith(f"is of version 0.1.4, which does not tell it; this is {__version__}")
    assert main(["get", "jobs", "-A"]) == 0
    told = capsys.readouterr()
    assert told.out.split()[-5:] != []
    assert "train" in told.out
    assert told.err == ""


def test_what_a_newer_daemon_tells_beyond_that_is_passed_over(daemon_of, capsys):
    """Given fields, policies and parts that nobody knows yet: what is known is printed."""
    daemon_of("newer-view")
    assert main(["get", "priority", "-A", "-o", "wide"]) == 0
    told = capsys.readouterr()
    header, first, second = told.out.splitlines()
    assert header.split() == [
        "NAMESPACE", "NAME", "KIND", "QUEUE", "POSITION", "INQUEUE", "KARMA", "SINCE", "BY", "WHY",
    ]  # fmt: skip
    assert first.split()[:7] == ["team-a", "train", "Job", "research", "1", "1", "good"]
    assert second.endswith("karma   is after Job team-a/train because its karma is bad")
    assert told.err == ""
    assert main(["get", "jobs", "-A"]) == 0
    assert "train" in capsys.readouterr().out


def test_answers_that_are_none_end_in_one_sentence(daemon_of, capsys):
    """Given a daemon that tells the order in a form of its own: that is said, with 69."""
    cluster = daemon_of("newer-view")
    cluster.objects["/v1/priority"] = {"kind": "PriorityList", "items": [{"place": 1}]}
    assert main(["get", "priority", "-A"]) == 69
    (sentence,) = capsys.readouterr().err.splitlines()
    assert "is of version 9.0.0, which tells it in another form" in sentence


def test_options_may_stand_before_the_names(daemon_of, capsys):
    """Given flags anywhere, as kubectl takes them: one gang is told, with each term."""
    daemon_of("newer-view")
    assert main(["-n", "team-a", "get", "priority", "--no-headers", "job", "train"]) == 0
    assert capsys.readouterr().out.split()[:3] == ["train", "Job", "research"]
    assert main(["get", "priority", "-n", "team-a", "job/train"]) == 0
    out = capsys.readouterr().out
    assert "Job team-a/train is the first in line." in out
    assert "  1. karma: its karma is good" in out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["priority", "job"], "priority is of all gangs that wait, or of one: KIND NAME, or KIND/NAME"),
        (["priority", "a", "b", "c"], "KIND NAME, or KIND/NAME"),
        (["priority", "--sort-by", "gpus"], "the order is sorted by position, name, queue, age, not by gpus"),
        (["priority", "--start"], "--start is for jobs"),
        (["priority", "--source", "api"], "--source is for jobs, nodes, queues"),
        (["jobs", "train"], "one of jobs is not listed by its name: gpusched explain KIND NAME"),
        (["jobs", "--sort-by", "position"], "not by position"),
    ],
)  # fmt: skip
def test_what_means_nothing_is_refused(words, sentence, capsys):
    """Given words or options of another list: one sentence, and 2."""
    assert main(["get", *words]) == 2
    assert sentence in capsys.readouterr().err
