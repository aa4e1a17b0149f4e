"""Scenarios and simulations of a cluster whose accelerators the configuration names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpusched.cli.main import main
from gpusched.lab.scenario.file.read import read_path
from gpusched.lab.scenario.play.on_embedded import play_embedded
from tests.lab.scenario.texts import whole

CONFIG = "gpuResources: [{name: example.com/npu, slicePrefix: example.com/npu-part-}]\n"
SPEC = """
nodes: [{count: 2, gpus: 8}]
queues:
- {name: team, deserved: 8, capability: 8}
timeline:
- submit: {name: first, queue: team, pods: 2, gpus: 4, runFor: 1m}
- at: 2s
  submit: {name: second, queue: team, pods: 2, gpus: 4, runFor: 1m}
expect:
- {job: first, is: running, at: 20s}
- {job: second, is: waiting, at: 20s}
- {job: second, is: complete, by: 5m}
"""


def configured(folder: Path) -> Path:
    file = folder / "gpusched.yaml"
    file.write_text(CONFIG, encoding="utf-8")
    return file


def test_a_scenario_counts_what_the_configuration_names(tmp_path: Path) -> None:
    """Given --config, when numbers of GPUs are bare, then they are of its first resource."""
    file = tmp_path / "told.yaml"
    file.write_text(whole(SPEC), encoding="utf-8")
    (scenario,) = read_path(file, config=configured(tmp_path))
    nodes = [each.obj for each in scenario.before if each.obj["kind"] == "Node"]
    assert [each["status"]["capacity"]["example.com/npu"] for each in nodes] == ["8", "8"]

    found = play_embedded(scenario)

    assert found.ok, [each.seen for each in found.verdicts]
    assert found.record is not None
    assert not found.record.broken
    pods = [pod for pod in found.record.pods if pod.bound is not None]
    assert sorted(pod.slots for pod in pods[:2]) == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert {pod.gpus for pod in pods} == {4000}


def test_a_simulation_counts_what_the_configuration_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given a configuration, then jobs of a trace ask for its first resource, and get slots."""
    jobs = tmp_path / "jobs.csv"
    rows = [f"{number},600,8,team-a" for number in range(6)]
    jobs.write_text("\n".join(["submit_s,duration_s,gpus,queue", *rows]) + "\n")
    options = ["simulate", "--csv", str(jobs), "--nodes", "2x8", "-o", "json"]
    assert main([*options, "--config", f"npus={configured(tmp_path)}"]) == 0
    npus = json.loads(capsys.readouterr().out)
    assert main(options) == 0
    gpus = json.loads(capsys.readouterr().out)
    (named,), (usual,) = npus["configurations"], gpus["configurations"]
    assert {**named, "name": "now"} == usual
    assert named["meanWaitByClass"]["5-8-GPUs"] > 0
    assert "16 GPUs" in npus["source"]


def test_configurations_of_different_accelerators_are_not_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given two first resources, then one sentence says why there is no comparison."""
    other = tmp_path / "other.yaml"
    other.write_text("{}\n")
    configs = ["--config", f"npus={configured(tmp_path)}", "--config", f"gpus={other}"]
    assert main(["simulate", "--generate", "philly", "--jobs", "2", *configs]) == 2
    assert capsys.readouterr().err == (
        "gpusched: configuration npus begins gpuResources with example.com/npu, gpus with "
        "nvidia.com/gpu: they cannot be compared on the same jobs\n"
    )
