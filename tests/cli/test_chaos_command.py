"""``gpusched chaos``: seeds, scripts, reports, exit statuses."""

from __future__ import annotations

import json
import logging

import attrs
import pytest

from gpusched.cli.main import main
from gpusched.lab.chaos import campaign
from gpusched.lab.chaos.invariant_checker import TimedFinding
from gpusched.lab.chaos.play import play_script
from gpusched.lab.chaos.scripts.generator import draw_script
from gpusched.testing.invariants import Finding


@pytest.fixture(autouse=True)
def heard():
    yield
    logging.disable(logging.NOTSET)


def test_seeds_that_hold(capsys):
    assert main(["chaos", "--seeds", "4-5"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("2 runs, ")
    assert "every invariant held" in said


@pytest.mark.long
def test_several_seeds_at_a_time_are_played_in_processes_that_are_as_silent(capfd):
    """The shipped configuration goes there, read-only mappings and all; `make chaos` needs it."""
    assert main(["chaos", "--seeds", "4-5", "--jobs", "2"]) == 0
    said, logged = capfd.readouterr()
    assert said.startswith("2 runs, ")
    assert "every invariant held" in said
    assert logged == ""


def test_a_script_is_played_again_to_the_same_digest(tmp_path, capsys):
    file = tmp_path / "script.yaml"
    file.write_text(draw_script(4).text())
    assert main(["chaos", "--script", str(file)]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert main(["chaos", "--script", str(file)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == first
    assert first.startswith("digest ")


def test_what_fails_is_told_reported_and_exits_1(tmp_path, capsys, monkeypatch):
    """A run that says so of itself stands for a defect."""

    def broken(script, **_how):
        finding = Finding(invariant="I2", kind="Node", name="n", sentence="planted")
        return attrs.evolve(play_script(script), seen=(TimedFinding(at=1.0, finding=finding),))

    monkeypatch.setattr(campaign, "play_script", broken)
    report = tmp_path / "report.jsonl"
    assert main(["chaos", "--seeds", "4", "--report", str(report)]) == 1
    said = capsys.readouterr().out
    assert "seed 4:\n  1.000 s  I2: planted" in said
    assert "1 runs failed: I2 in 1" in said
    (line,) = report.read_text().splitlines()
    assert json.loads(line)["found"] == [{"at": 1.0, "invariant": "I2", "sentence": "planted"}]
    assert "steps:" in json.loads(line)["script"]


@pytest.mark.parametrize("text", ["x", "5-4", "1-", "0-99999999"])
def test_seeds_that_are_none(text, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["chaos", "--seeds", text])
    assert ended.value.code == 2
    assert "seed" in capsys.readouterr().err


def test_a_report_that_cannot_be_written_is_told_before_anything_is_played(tmp_path, capsys):
    """Given a folder in place of its file, then that is wrong usage."""
    assert main(["chaos", "--seeds", "4", "--report", str(tmp_path)]) == 2
    told = capsys.readouterr()
    assert told.err == f"gpusched: --report: {tmp_path} cannot be written: Is a directory\n"
    assert told.out == ""
