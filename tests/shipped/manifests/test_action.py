"""The GitHub Action: its play step, run as GitHub runs it, and what its file declares."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
FIRST = (ROOT / "kwok-scenarios" / "first.yaml").read_text(encoding="utf-8")
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
GPUSCHED = Path(sys.executable).with_name("gpusched")
STEPS = {step["id"]: step for step in ACTION["runs"]["steps"] if "id" in step}


@pytest.fixture
def play(tmp_path):
    """Runs the play step with inputs; its exit status, outputs, summary and what it printed."""

    def run(gpusched: Path = GPUSCHED, **inputs: str) -> tuple[int, dict[str, str], str, str]:
        step = STEPS["play"]
        given = {name: declared["default"] for name, declared in ACTION["inputs"].items()} | inputs
        filled = {
            name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda m: given[m[1]], text)
            for name, text in step["env"].items()
        }
        temp, output, summary = (tmp_path / name for name in ("temp", "output", "summary"))
        temp.mkdir(exist_ok=True)
        for file in (output, summary):
            file.write_text("", encoding="utf-8")
        runner = {
            "RUNNER_TEMP": str(temp),
            "GITHUB_OUTPUT": str(output),
            "GITHUB_STEP_SUMMARY": str(summary),
            "GPUSCHED": str(gpusched),
        }
        script = tmp_path / "play.sh"
        script.write_text(step["run"], encoding="utf-8")
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            cwd=tmp_path, env={**os.environ, **filled, **runner}, text=True, capture_output=True,
            check=False,
        )  # fmt: skip
        pairs = (line.split("=", 1) for line in output.read_text(encoding="utf-8").splitlines())
        told = summary.read_text(encoding="utf-8")
        return done.returncode, dict(pairs), told, done.stdout + done.stderr

    return run


def test_a_scenario_that_holds_and_one_that_does_not_in_two_lines_of_paths(play, tmp_path):
    """Exit status 1, and everything is there: verdicts, summary, outputs, report, JUnit."""
    (tmp_path / "a folder").mkdir()
    (tmp_path / "a folder" / "first.yaml").write_text(FIRST, encoding="utf-8")
    wrong = FIRST.replace("name: first", "name: second").replace("is: complete", "is: failed")
    (tmp_path / "wrong $(id).yaml").write_text(wrong, encoding="utf-8")

    status, outputs, summary, printed = play(
        path="a folder\n\nwrong $(id).yaml\n", report="re port"
    )

    assert status == 1, printed
    assert outputs == {"report": "re port", "status": "1"}
    assert "ok   first: A gang starts as a whole." in summary
    assert "FAIL train has failed by 2m: train is complete" in summary
    assert "2 scenarios, 2 expectations: 1 FAILED: second" in printed
    for name in ("index.html", "junit.xml", "results.json"):
        assert (tmp_path / "re port" / name).stat().st_size > 0, name


@pytest.fixture
def refusing(tmp_path):
    """A program in gpusched's place: says its arguments on stderr and that a file is wrong."""
    program = tmp_path / "refusing"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@" >&2\nexit 78\n', encoding="utf-8")
    program.chmod(0o755)
    return program


def test_every_input_is_passed_on_and_an_error_is_told_in_the_summary(play, refusing):
    """Each as one argument, whatever is in it; a sentence on stderr is part of the summary."""
    status, outputs, summary, printed = play(
        refusing, path="a b\nc", config="my conf", kubeconfig="k", only="x y", seed="7"
    )
    assert (status, outputs) == (78, {"report": "scenario-report", "status": "78"})
    options = ["--report", "scenario-report", "--config", "my conf", "--kubeconfig", "k"]
    told = ["scenario", "run", "a b", "c", *options, "--only", "x y", "--seed", "7"]
    assert printed.splitlines() == told
    assert summary.splitlines() == ["```", *told, "```"]


def test_inputs_that_are_empty_are_not_passed_on(play, refusing):
    """What is left out is gpusched's default, not an empty name."""
    *_, printed = play(refusing)
    assert printed.splitlines() == ["scenario", "run", "scenarios", "--report", "scenario-report"]


def test_inputs_are_declared_and_never_part_of_a_script():
    """Whoever names a folder `$(rm -rf .)` gets a folder of that name."""
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    used = set(re.findall(r"inputs\.([\w-]+)", text))
    assert used == set(ACTION["inputs"])
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step.get("run", ""), step["id"]
    documented = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    assert set(re.findall(r"(?m)^\| `([\w-]+)` \|", documented)) == set(ACTION["inputs"])


def test_outputs_are_written_by_the_step_that_they_name():
    """An output of a step that does not write it would be empty for ever."""
    for name, declared in ACTION["outputs"].items():
        step, key = re.fullmatch(
            r"\$\{\{ steps\.([\w-]+)\.outputs\.([\w-]+) \}\}", declared["value"]
        ).groups()
        assert f'echo "{key}=' in STEPS[step]["run"], name
