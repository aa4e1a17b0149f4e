"""Completion in shells and by kubectl: commands, kinds, and names of the cluster and the kubeconfig."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from argcomplete.finders import CompletionFinder

from gpusched.cli.main import main
from gpusched.cli.shell import completion
from gpusched.cli.shell.leading_options import split_options
from tests.cli.canned_objects import API

JOBS = "/apis/batch/v1/namespaces/{}/jobs"


@pytest.fixture
def named(cluster):
    """A cluster with queues, namespaces, Jobs and groups."""

    def some(*names):
        return [{"metadata": {"name": name}} for name in names]

    cluster.objects |= {
        f"{API}/queues": some("research", "production"),
        "/api/v1/namespaces": some("team-a", "team-b"),
        JOBS.format("team-a"): some("train", "trial"),
        JOBS.format("team-b"): some("other"),
        f"{API}/namespaces/team-a/podgroups": some("eval"),
    }
    return cluster


def completed(monkeypatch, capsys, *words):
    """What kubectl is told, without its directive; the words of argcomplete are forgotten afterwards."""
    monkeypatch.setattr(sys, "argv", ["kubectl_complete-gpusched", *words])
    with monkeypatch.context() as patch:
        # It takes over descriptor 9, whoever has it: good for a process of its own only.
        patch.setattr(CompletionFinder, "_init_debug_stream", lambda _: None)
        for name in ("COMP_LINE", "COMP_POINT", "_ARGCOMPLETE", "_ARGCOMPLETE_IFS"):
            patch.setenv(name, "")
        assert completion.complete_for_kubectl() == 0
    *found, directive = capsys.readouterr().out.splitlines()
    assert directive == ":4"
    return found


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("ho", ["hold"]),
        ("-n team-b ho", ["hold"]),
        ("get no", ["nodes", "node"]),
        ("get jobs -o j", ["json"]),
        ("get jobs -n ", ["team-a", "team-b"]),
        ("get jobs --context ", ["here"]),
        ("hold podg", ["podgroup"]),
        ("hold job tr", ["train", "trial"]),
        ("hold job train tri", ["trial"]),
        ("hold job/tra", ["job/train"]),
        ("hold job -n team-b ", ["other"]),
        ("-n team-b hold job ", ["other"]),
        ("move job train --queue ", ["default", "production", "research"]),
        ("explain podgroup ", ["eval"]),
        ("completion z", ["zsh"]),
        ("top --view w", ["waiting"]),
        ("top -n team-", ["team-a", "team-b"]),
    ],
)
def test_what_may_stand_at_the_cursor(named, monkeypatch, capsys, typed, offered):
    """Given words, then kubectl is told what may follow, from the cluster where it is a name."""
    assert completed(monkeypatch, capsys, *typed.split(" ")) == offered


def test_a_cluster_that_does_not_answer_offers_no_names(cluster, monkeypatch, capsys):
    """Given refusals, or no server at all, then nothing is offered, and no word said."""
    cluster.objects["/api/v1/namespaces"] = 403
    assert completed(monkeypatch, capsys, "get", "jobs", "-n", "") == []
    assert completed(monkeypatch, capsys, "hold", "job", "-s", "http://127.0.0.1:1", "") == []
    assert not capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "options", "rest"),
    [
        ("hold job -n a x", "-n a", "hold job x"),
        ("-A get jobs --context=c", "-A --context=c", "get jobs"),
        ("get jobs -n", "", "get jobs -n"),
        ("get -- -n a", "", "get -- -n a"),
    ],
)
def test_options_are_told_from_other_words(typed, options, rest):
    """Given options anywhere, then they are found with their values, but for one whose value is to come."""
    found = split_options(typed.split())
    assert (" ".join(found[0]), " ".join(found[1])) == (options, rest)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_its_script(capsys, shell):
    """Given a shell, then a script that completes both names of the program."""
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "gpusched" in script
    assert "kubectl-gpusched" in script
    path = shutil.which(shell)
    if path is not None:
        subprocess.run([path, "-n"], input=script, text=True, check=True)


@pytest.mark.long
def test_bash_completes_with_the_script(named, tmp_path):
    """Given bash that has read the script, when a name is begun, then it is completed."""
    program = tmp_path / "gpusched"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m gpusched.cli.main "$@"\n')
    program.chmod(0o755)
    line = "gpusched move job x --queue re"
    typed = (
        'source <(gpusched completion bash); COMP_LINE="$1"; COMP_POINT=${#1}; COMP_TYPE=9; '
        'COMP_WORDS=($1); COMP_CWORD=5; _python_argcomplete gpusched re --queue; echo "${COMPREPLY[@]}"'
    )
    told = subprocess.run(
        ["/bin/bash", "-c", typed, "bash", line],
        env={**os.environ, "PATH": f"{tmp_path}:{Path('/bin')}:{Path('/usr/bin')}"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert told.stdout.strip() == "research"


def test_options_between_names_are_options(live):
    """Given ``hold job -n default a``, then the name behind the option counts."""
    body = {
        "schedulerName": "gpusched",
        "restartPolicy": "Never",
        "containers": [{"name": "c", "image": "i"}],
    }
    for name in ("a", "b"):
        live.send(
            "POST",
            JOBS.format("default"),
            {"metadata": {"name": name}, "spec": {"template": {"spec": body}}},
        )
    assert main(["hold", "job", "-n", "default", "a", "--reason", "x", "b"]) == 0
    assert main(["release", "job", "--dry-run", "a", "b"]) == 0


def test_files_of_manifests_are_offered_after_f(monkeypatch, capsys, tmp_path):
    (tmp_path / "jobs").mkdir()
    for name in ("job.yaml", "jab.json", "notes.txt"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    assert completed(monkeypatch, capsys, "when", "-f", "j") == ["jab.json", "job.yaml", "jobs/"]
    (tmp_path / "jobs" / "deep.yml").touch()
    assert completed(monkeypatch, capsys, "when", "-f", "jobs/") == ["jobs/deep.yml"]


def test_queues_are_offered_to_when(monkeypatch, capsys, named):
    assert completed(monkeypatch, capsys, "when", "--queue", "p") == ["production"]
