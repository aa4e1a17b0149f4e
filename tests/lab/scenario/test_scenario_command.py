"""``gpusched scenario``: verdicts for people, exit statuses and files for CI."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent
from xml.etree import ElementTree as ET

import pytest

from gpusched.base import installed_files
from gpusched.cli import main as cli
from gpusched.cli.lab.scenario import worker_processes

FIRST = str(installed_files.path("kwok-scenarios") / "first.yaml")
WRONG = """\
    apiVersion: scenario.gpusched.io/v1alpha1
    kind: Scenario
    metadata: {name: hopeless}
    spec:
      teaches: That a gang waits for ever.
      nodes: [{count: 1, gpus: 8}]
      timeline:
      - submit: {name: wide, pods: 2, gpus: 8, runFor: 10s}
      - {at: 30s, every: 1s, count: 2, delete: {kind: Job, name: wide}}
      expect:
      - {job: wide, is: running, at: 20s}
      - {job: wide, is: waiting, at: 20s}
"""


@pytest.fixture
def hopeless(tmp_path: Path) -> str:
    file = tmp_path / "hopeless.yaml"
    file.write_text(dedent(WRONG), encoding="utf-8")
    return str(file)


def test_a_scenario_that_is_as_expected_exits_0(tmp_path, capsys):
    """A line for the scenario, one for each expectation, one for the invariants, a total."""
    report = tmp_path / "report"

    status = cli.main(["scenario", "run", FIRST, "--report", str(report)])

    assert status == 0
    first, second, third, last = capsys.readouterr().out.splitlines()
    assert first.startswith("ok   first: A gang starts as a whole. (1m")
    assert second == "  ok   train is complete by 2m"
    assert third.startswith("  ok   invariants: no gang in part")
    assert last == "1 scenario, 1 expectation: all ok"
    assert "leading" in (report / "logs" / "first.log").read_text(encoding="utf-8")
    told = json.loads((report / "results.json").read_text(encoding="utf-8"))
    assert told["scenarios"][0]["statistics"]["completed"] == 1


@pytest.mark.parametrize("file", ["", "nowhere/junit.xml"])
def test_a_file_for_junit_that_cannot_be_is_told_before_anything_is_played(
    hopeless, tmp_path, capsys, file
):
    """Given a folder in place of the file, or one that is not there, then that is wrong usage."""
    assert cli.main(["scenario", "run", hopeless, "--junit", str(tmp_path / file)]) == 2
    told = capsys.readouterr()
    assert told.err.startswith("gpusched: --junit: ")
    assert told.out == ""


def test_what_is_not_as_expected_exits_1_and_says_what_was_seen(hopeless, tmp_path, capsys):
    """Also an act that could not be done; each with its place, in JUnit too."""
    junit = tmp_path / "junit.xml"

    status = cli.main(["scenario", "run", hopeless, "--junit", str(junit)])

    assert status == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("FAIL hopeless: ")
    assert lines[1].startswith("  FAIL wide runs at 20s: wide is waiting, 0 of 2 pods bound")
    assert lines[1].endswith("hopeless.yaml:11)")
    assert lines[2] == "  ok   wide waits at 20s"
    assert "there is no Job wide" in "\n".join(lines)
    assert lines[-1] == "1 scenario, 2 expectations: 1 FAILED: hopeless"
    (suite,) = ET.parse(junit).getroot()
    failed = [case.get("name") for case in suite if case.find("failure") is not None]
    assert failed == ["wide runs at 20s", "it is played to its end"]
    assert (suite.get("tests"), suite.get("failures")) == ("4", "2")


def test_several_are_played_at_a_time_and_told_in_their_order(hopeless, capsys):
    """In processes of their own, with the results of one process."""
    alone = cli.main(["scenario", "run", hopeless, FIRST, "-o", "json", "--jobs", "1"])
    first = json.loads(capsys.readouterr().out)
    together = cli.main(["scenario", "run", hopeless, FIRST, "-o", "json", "--jobs", "2"])
    second = json.loads(capsys.readouterr().out)

    assert alone == together == 1
    assert [each["name"] for each in first["scenarios"]] == ["hopeless", "first"]
    assert first == second


def test_one_is_chosen_by_its_name(hopeless, capsys):
    """A wrong name tells which there are, with status 2."""
    assert cli.main(["scenario", "run", hopeless, FIRST, "--only", "first", "--seed", "7"]) == 0
    assert capsys.readouterr().out.count("first:") == 1
    assert cli.main(["scenario", "run", hopeless, FIRST, "--only", "frist"]) == 2
    assert capsys.readouterr().err == (
        'gpusched: there is no scenario "frist": known are hopeless, first; did you mean "first"\n'
    )


def test_files_are_checked_and_listed(hopeless, tmp_path, capsys):
    """A wrong file exits 78 with file and line; nothing is played."""
    assert cli.main(["scenario", "check", FIRST, hopeless]) == 0
    assert capsys.readouterr().out == "2 scenarios are right\n"
    assert cli.main(["scenario", "list", FIRST]) == 0
    assert capsys.readouterr().out == "first   A gang starts as a whole.\n"
    bad = tmp_path / "bad.yaml"
    bad.write_text(Path(FIRST).read_text(encoding="utf-8").replace("runFor", "runfor"))
    for what in ("check", "run"):
        assert cli.main(["scenario", what, str(bad)]) == 78
        assert "bad.yaml:8" in capsys.readouterr().err


@pytest.mark.parametrize("signalled", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_keeps_what_happened_until_then(signalled, tmp_path):
    """Results are judged and written as things are then; exit status 130. CI sends SIGTERM."""
    endless = WRONG.replace("nodes:", "ends: 8000h\n      limit: 8001h\n      nodes:")
    (tmp_path / "endless.yaml").write_text(dedent(endless), encoding="utf-8")
    report = tmp_path / "report"
    words = ["scenario", "run", str(tmp_path / "endless.yaml"), "--report", str(report)]
    call = [sys.executable, "-m", "gpusched.cli.main", *words]

    with subprocess.Popen(call, stdout=subprocess.PIPE, text=True) as process:
        log = report / "logs" / "hopeless.log"
        while not (log.exists() and "leading" in log.read_text(encoding="utf-8")):
            assert process.poll() is None, "it ended by itself"
            time.sleep(0.1)
        process.send_signal(signalled)
        said, _ = process.communicate()

    assert process.returncode == 130
    assert "FAIL it was interrupted" in said
    assert "it was interrupted" in (report / "junit.xml").read_text(encoding="utf-8")
    assert (report / "index.html").exists()


def test_ctrl_c_before_a_run_has_begun_is_no_bug(monkeypatch, capsys):
    """It comes while the cluster is made: told as interrupted, exit status 130, no traceback."""

    def interrupted(scenario, *, tell):
        raise KeyboardInterrupt

    monkeypatch.setattr(worker_processes, "play_embedded", interrupted)
    assert cli.main(["scenario", "run", FIRST]) == 130
    assert capsys.readouterr().out.startswith("FAIL first: it was interrupted\n")


@pytest.mark.parametrize("seed", ["-1", "2147483648"])
def test_a_seed_that_no_file_could_name_is_wrong_usage(seed, capsys):
    """As in a file: 0 to 2147483647."""
    assert cli.main(["scenario", "run", FIRST, "--seed", seed]) == 2
    assert capsys.readouterr().err == "gpusched: --seed takes a number from 0 to 2147483647\n"


def test_a_report_into_a_file_is_wrong_usage(capsys):
    """Told before anything is played."""
    for report in (FIRST, f"{FIRST}/inside"):
        assert cli.main(["scenario", "run", FIRST, "--report", report]) == 2
        assert "is a file, or in one: name a folder" in capsys.readouterr().err
