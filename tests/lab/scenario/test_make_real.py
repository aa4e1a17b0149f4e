"""``make real``: whose cluster it is, the same verdicts as in virtual time, nothing left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import attrs
import pytest

from benchmarks.real import __main__ as real
from benchmarks.real import contract
from benchmarks.real.compared import compared, rows
from gpusched.lab.scenario.judge.tolerance import NOTED
from gpusched.lab.scenario.play.on_embedded import play_embedded
from tests.lab.scenario.texts import scenario

pytestmark = pytest.mark.early

SHORT = """
apiVersion: scenario.gpusched.io/v1alpha1
kind: Scenario
metadata: {name: short}
spec:
  teaches: What a test needs.
  nodes: [{name: gpu, count: 2, gpus: 8}]
  timeline:
  - submit: {name: train, pods: 2, gpus: 8}
  ends: 6s
  expect:
  - {job: train, is: running}
"""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An embedded cluster in real time, which KUBECONFIG names."""
    config = tmp_path / "kubeconfig"
    with subprocess.Popen(
        [sys.executable, "-m", "gpusched.cli.main", "devcluster", "--kubeconfig", str(config)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready ")
        monkeypatch.setenv("KUBECONFIG", str(config))
        yield config
        process.terminate()


def test_without_a_cluster_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Usual places are not looked at: nothing is played by accident."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    assert real.main([]) == 2
    said = capsys.readouterr().err
    assert "KUBECONFIG names, and it names none: export KUBECONFIG=FILE" in said
    assert said.count("\n") == 1


def test_a_wrong_duration_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is asked of a cluster."""
    assert real.main(["--longest", "soon"]) == 2
    assert "LONGEST=soon is no duration" in capsys.readouterr().err


def test_somebodys_cluster_is_refused_and_ours_is_played_on(
    cluster: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A node that KWOK does not play is somebody's; without it the table says ok twice."""
    file = tmp_path / "short.yaml"
    file.write_text(dedent(SHORT), encoding="utf-8")
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "theirs"}}
    kubectl = ["kubectl", "--kubeconfig", str(cluster)]
    subprocess.run(
        [*kubectl, "create", "-f", "-"], input=json.dumps(node), text=True, check=True,
        capture_output=True,
    )  # fmt: skip
    words = [str(file), "--no-contract"]
    assert real.main(words) == 78
    refused = capsys.readouterr().err
    assert "has 1 node (theirs) that KWOK does not play: this looks like somebody's" in refused
    subprocess.run([*kubectl, "delete", "node", "theirs"], check=True, capture_output=True)

    assert real.main(words) == 0
    said = capsys.readouterr().out
    assert "nothing is left behind" in said
    (row,) = [line.split() for line in said.splitlines() if line.startswith("short ")]
    assert row[:3] == ["short", "ok", "ok"]
    left = subprocess.run(
        [*kubectl, "get", "nodes,pods,jobs,namespaces", "-A", "-o", "name"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert "gpu-" not in left
    assert "train" not in left
    assert "gpusched-system" not in left


def test_what_differs_is_told_with_both_sentences(tmp_path: Path) -> None:
    """And what held within the slack is told apart from it."""
    text = "nodes: [{gpus: 8}]\ntimeline:\n- submit: {name: a, gpus: 8}\nends: 10s\nexpect:\n"
    found = scenario(tmp_path, f"{text}- {{job: a, is: running}}\n- {{job: a, pods: 1}}\n")
    virtual = play_embedded(found)
    first, second = virtual.verdicts
    other = attrs.evolve(
        virtual,
        verdicts=(
            attrs.evolve(first, ok=False, seen="a waits"),
            attrs.evolve(second, seen=f"a is there; 1.0 s late, {NOTED}"),
        ),
    )
    both = compared(virtual, other)
    assert (both.virtual, both.real) == ("ok", "FAIL")
    assert both.differs == (f"a runs: a waits, in virtual time {first.seen}",)
    assert len(both.needed_slack) == 1
    assert rows([both])[1][-2:] == ("1", "1")
    assert compared(virtual, virtual).differs == ()


def test_a_suite_that_never_ends_is_ended_and_named(tmp_path):
    """Given a case that waits for ever: what held is counted, and the case is told with the end."""
    cases = "def test_holds(): pass\ndef test_waits():\n    import time\n    time.sleep(60)\n"
    (tmp_path / "conftest.py").write_text(
        "def pytest_addoption(parser): parser.addoption('--target')"
    )
    (tmp_path / "test_case_x.py").write_text(cases)
    held: list[str] = []
    played = contract.play("file", tell=held.append, folder=tmp_path, limit_s=10)
    assert held == ["1 cases, test_holds"]
    assert played == contract.Contract(1, ("the suite ended in test_waits with exit status -9",))
