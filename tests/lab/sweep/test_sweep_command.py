"""``gpusched simulate --sweep``: points, what is resumed, what fails, and what is said of it."""

from __future__ import annotations

import csv
import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from gpusched.base.errors import ConfigError, UsageError
from gpusched.cli.lab.sweep import command
from gpusched.cli.lab.sweep.results import ResultFolder
from gpusched.cli.main import main
from gpusched.engine.run_record import RunRecord
from gpusched.engine.simulation import SimulationCase, run_simulation

JOBS = """submit_s,duration_s,gpus,queue
0,600,16,a
10,300,8,b
20,60,1,b
"""
SWEEP = """
inputs:
- {name: three, csv: jobs.csv, nodes: 2x8}
vary:
  queue.b.weight: [1, 2]
  plugins.nodeorder.strategy: [binpack, spread]
statistics: ["p95(wait) of class 1 GPU"]
"""

DAY = """
apiVersion: scenario.gpusched.io/v1alpha1
kind: Scenario
metadata: {name: day}
spec:
  teaches: What a test needs.
  nodes: [{count: 2, gpus: 8}]
  timeline:
  - every: 1s
    count: 3
    submit: {name: "a-{{ Index }}", gpus: 8, runFor: 20s}
"""


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """Four points on three jobs."""
    (tmp_path / "jobs.csv").write_text(JOBS)
    file = tmp_path / "sweep.yaml"
    file.write_text(SWEEP)
    return file


def run(file: Path, *more: str) -> int:
    """The command, one point at a time in this process."""
    out = str(file.parent / "out")
    try:
        return main(
            ["simulate", "--sweep", str(file), "--out", out, "--workers", "1", "-o", "json", *more]
        )
    except SystemExit as ended:
        return int(ended.code or 0)


def printed(capsys: pytest.CaptureFixture[str]) -> Any:
    """What was printed as JSON."""
    return json.loads(capsys.readouterr().out)


def test_every_point_says_what_simulate_says(
    sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same figures as of one simulation, in JSON, CSV and the page."""
    # Given what one configuration gives by itself
    jobs = str(sweep.parent / "jobs.csv")
    alone = ["simulate", "--csv", jobs, "--nodes", "2x8", "-o", "json"]
    assert main([*alone, "--set", "x:queue.b.weight=2", "--set", "x:plugins.nodeorder.strategy=spread"]) == 0  # fmt: skip
    figures = {each["name"]: each["values"]["x"] for each in printed(capsys)["statistics"]}
    # When the sweep is played
    assert run(sweep) == 0
    # Then its last point says the same
    told = printed(capsys)
    assert (told["complete"], told["played"], told["points"]) == (True, 4, 4)
    last = told["results"][-1]
    assert last["values"] == {"queue.b.weight": "2", "plugins.nodeorder.strategy": "spread"}
    assert last["statistics"]["p95(wait)"] == figures["wait, 95 % no longer"]
    assert last["statistics"]["gpuUse"] == figures["GPUs in use"]
    assert last["statistics"]["p95(wait) of class 1-GPU"] is not None
    out = sweep.parent / "out"
    rows = list(csv.DictReader((out / "results.csv").read_text().splitlines()))
    assert [row["queue.b.weight"] for row in rows] == ["1", "1", "2", "2"]
    assert float(rows[3]["p95(wait)"]) == figures["wait, 95 % no longer"]
    page = (out / "index.html").read_text()
    assert "all 4 points" in page
    assert page.count('class="dots ') == 4


def test_the_table_names_the_front_and_how_much_was_played(
    sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """For people."""
    assert main(["simulate", "--sweep", str(sweep), "--out", str(sweep.parent / "o"), "--workers", "1"]) == 0  # fmt: skip
    told = capsys.readouterr()
    assert "sweep.yaml: all 4 points" in told.out
    assert "1 of 1" in told.out
    assert "wait, 95 % no longer" in told.out
    assert "1*" in told.out
    assert "points: 4 of 4" in told.err


def test_that_many_configurations_are_checked_is_told(
    sweep: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given more settings than are checked within a moment, then how far that has come is told."""
    monkeypatch.setattr("gpusched.cli.lab.sweep.command._CHECKED_SILENTLY", 1)
    assert main(["simulate", "--sweep", str(sweep), "--out", str(sweep.parent / "o"), "--workers", "1"]) == 0  # fmt: skip
    told = capsys.readouterr().err
    assert told.index("points checked: 4 of 4") < told.index("points: 4 of 4")


def test_a_cut_run_goes_on_where_it_was(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Results stay under the hash of what they are of; only what is missing is played again."""
    # Given a sweep that was played and then lost two results, one of them in part
    assert run(sweep) == 0
    whole = printed(capsys)
    points = sorted((sweep.parent / "out" / "points").iterdir())
    before = {each.name: each.read_bytes() for each in points}
    points[0].unlink()
    points[1].write_bytes(before[points[1].name][:40])
    stamps = {each.name: each.stat().st_mtime_ns for each in points[2:]}
    # When it is asked for again, without and with --resume
    assert run(sweep) == 2
    assert "holds 3 results: go on with them by --resume" in capsys.readouterr().err
    assert run(sweep, "--resume") == 0
    told = capsys.readouterr()
    # Then the two are played, the others are not, and all is as before
    assert "resumed: 2 of 4 points are there" in told.err
    assert json.loads(told.out) == whole
    points = sorted((sweep.parent / "out" / "points").iterdir())
    assert {each.name: each.read_bytes() for each in points} == before
    assert {each.name: each.stat().st_mtime_ns for each in points[2:]} == stamps


def test_another_input_or_configuration_is_another_result(
    sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A changed trace is not answered from what an older one gave."""
    assert run(sweep) == 0
    capsys.readouterr()
    (sweep.parent / "jobs.csv").write_text(JOBS.replace("600", "601"))
    assert run(sweep, "--resume") == 0
    assert "resumed: 0 of 4" in capsys.readouterr().err
    sweep.write_text(SWEEP.replace("[1, 2]", "[2, 3]"))
    assert run(sweep, "--resume") == 0
    assert "resumed: 2 of 4" in capsys.readouterr().err


def test_an_interrupted_sweep_is_told_as_partial(
    sweep: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """130, n of m in the table, the page and JSON; the rest is played by --resume."""
    pack, calls = command.LoadedInputs.pack, []

    def interrupted(self: Any, point: Any) -> bytes:
        calls.append(point)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return pack(self, point)

    monkeypatch.setattr(command.LoadedInputs, "pack", interrupted)
    assert run(sweep) == 130
    told = capsys.readouterr()
    assert json.loads(told.out)["complete"] is False
    assert "--resume goes on: partial: 2 of 4 points (2 not played)" in told.err
    page = (sweep.parent / "out" / "index.html").read_text()
    assert "partial: 2 of 4 points (2 not played)" in page
    assert "all 4 points" not in page
    monkeypatch.undo()
    assert run(sweep, "--resume") == 0
    assert "resumed: 2 of 4" in capsys.readouterr().err


def test_points_that_fail_are_told_and_the_others_played(
    sweep: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """1, a sentence for each, and no result that a resume would take for done."""
    fails = {"odd"}

    def play(case: SimulationCase) -> RunRecord:
        if case.name in fails:
            raise ConfigError("it does not go with that")
        return run_simulation(case)

    monkeypatch.setattr("gpusched.cli.lab.sweep.points.run_simulation", play)
    sweep.write_text(SWEEP + "configurations: [{name: now}, {name: odd, set: {queue.a.weight: 7}}]")
    assert run(sweep) == 1
    told = capsys.readouterr()
    answer = json.loads(told.out)
    assert (answer["played"], len(answer["failed"])) == (4, 4)
    assert "it does not go with that" in answer["failed"][0]["error"]
    assert "points: 8 of 8, 4 failed" in told.err
    assert len(list((sweep.parent / "out" / "points").iterdir())) == 4
    shutil.rmtree(sweep.parent / "out")
    fails.add("now")
    assert run(sweep) == 1
    assert printed(capsys)["played"] == 0


def test_scenarios_and_seeds_are_points_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A scenario is played by daemons with the point's configuration and seed."""
    (tmp_path / "day.yaml").write_text(DAY)
    sweep = tmp_path / "sweep.yaml"
    sweep.write_text("""
inputs: [{name: day, scenario: day.yaml}]
seeds: {from: 1, to: 2, step: 1}
vary: {placement.solver: [cpsat]}
""")
    assert run(sweep) == 0, capsys.readouterr().err
    told = printed(capsys)
    assert [each["seed"] for each in told["results"]] == [1, 2]
    assert {each["jobs"] for each in told["results"]} == {3}
    assert told["rows"][0]["points"] == 2


@pytest.mark.parametrize(
    ("text", "status", "says"),
    [
        ("{}", 78, "sweep.yaml:1: the sweep needs inputs: a list of"),
        ("", 78, "sweep.yaml:1: is empty: a sweep needs inputs"),
        ("inputs: []", 78, "sweep.yaml:1: inputs must be a list of at least one"),
        ("vary: {a: [1]}", 78, "the sweep needs inputs"),
        ("input: 1", 78, 'unknown key "input" in the sweep'),
        ("inputs: [{name: a, csv: jobs.csv, generate: philly}]", 78, "an input is one of generate, csv"),
        ("inputs: [{name: a, csv: jobs.csv}]", 78, "sweep.yaml:1: --csv needs --nodes"),
        ("inputs: [{name: a, csv: jobs.csv, nodes: 2x8, days: 3}]", 78, "sweep.yaml:1: --days goes with --generate"),
        ("inputs: [{name: a, csv: none.csv, nodes: 2x8}]", 78, "none.csv cannot be read"),
        ("inputs: [{name: a, csv: jobs.csv, nodes: 2x8}, {name: a, csv: jobs.csv, nodes: 2x8}]", 78,
         'there are two inputs named "a"'),
        (SWEEP + "seeds: [1, 1]", 78, "a seed is there twice"),
        (SWEEP + "search: {seed: 1}", 78, "search needs settings"),
        (SWEEP.replace("[1, 2]", "{from: 1, to: 9}"), 78, "is a range without step"),
        (SWEEP.replace("[1, 2]", "{from: 9, to: 1, step: 1}"), 78,
         "sweep.yaml:5: queue.b.weight is from 9 to 1: nothing is in that range"),
        (SWEEP.replace("[1, 2]", "[1, 1]"), 78, "queue.b.weight has a value twice"),
        (SWEEP.replace("strategy", "stratgy"), 78, 'unknown argument "stratgy"'),
        (SWEEP.replace("spread", "sparse"), 78, "sweep.yaml:6: now: plugins.nodeorder.strategy=sparse: argument strategy"),
        (SWEEP.replace("queue.b.weight", "colour"), 78, "sweep.yaml:5: now: colour=1: there is no 'colour'"),
        (SWEEP.replace("p95(wait)", "p95(weight)"), 78, "jobs have no value 'weight'"),
        (SWEEP + "configurations: [{name: a, file: none.yaml}]", 78, "sweep.yaml:8: a: "),
        (SWEEP + "configurations:\n- name: a\n  file: none.yaml", 78, "none.yaml: cannot be read"),
        (SWEEP + "configurations:\n- name: a\n  set:\n    queue.c.deserved: 3", 78,
         "sweep.yaml:11: a: queue.c.deserved=3: there is no such queue; there are a, b"),
        (SWEEP + "configurations:\n- name: a\n  set:\n    placement.solver: best", 78,
         "sweep.yaml:11: a: placement.solver=best: solver must be one of"),
        (SWEEP.replace("queue.b.weight: [1, 2]", "topology.required: [host, rack]"), 78,
         "sweep.yaml:5: now: topology.required=rack: the nodes have no such level; there are host"),
        (SWEEP.replace("queue.b.weight: [1, 2]", "queue.z.weight: {from: 1, to: 2, step: 1}"), 78,
         "sweep.yaml:5: now: queue.z.weight=1: there is no such queue; there are a, b"),
        (SWEEP.replace("1 GPU", "nope"), 78, "p95(wait) of class nope: no job is of class 'nope', only of 1-GPU, 5-8-GPUs, 9-32-GPUs"),
    ],
)  # fmt: skip
def test_a_bad_file_is_refused_before_anything_runs(
    sweep: Path, text: str, status: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With one sentence."""
    sweep.write_text(text)
    assert run(sweep) == status
    assert says in capsys.readouterr().err
    assert not (sweep.parent / "out").exists()


def test_a_step_that_is_no_step_is_told_alone(
    sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not that there is none, as well."""
    sweep.write_text(SWEEP.replace("[1, 2]", "{from: 1, to: 9, step: 0}"))
    assert run(sweep) == 78
    said = capsys.readouterr().err
    assert said.count("sweep.yaml") == 1
    assert "step must be a whole number from 1" in said


def test_a_full_disk_keeps_nothing_that_is_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would take the room of what is written next."""

    def full(_file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    folder = ResultFolder(tmp_path)
    folder.make()
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UsageError, match="No space left on device"):
        folder.write("index.html", b"page")
    assert [each.name for each in tmp_path.iterdir()] == ["points"]


def test_rows_that_are_passed_over_are_told_once(
    sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in one simulation, and so are queues that are renamed; two inputs of one file have the same ones."""
    jobs = sweep.parent / "jobs.csv"
    jobs.write_text(JOBS + "30,60,0,a\n40,60,1,B\n")
    half = "- {name: half, csv: jobs.csv, nodes: 2x8, half: first}\nvary:"
    sweep.write_text(SWEEP.replace("vary:", half))
    assert run(sweep) == 0
    said = capsys.readouterr().err
    assert said.count(f"passed over: {jobs}:5: gpus is 0: a job has at least one\n") == 1
    assert said.count('queue "B" is b-2\n') == 1


def test_a_scenario_says_its_own_queues(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What varies on it are keys of the configuration; told before anything runs."""
    (tmp_path / "day.yaml").write_text(DAY)
    sweep = tmp_path / "sweep.yaml"
    sweep.write_text("inputs: [{name: day, scenario: day.yaml}]\nvary: {queue.a.weight: [1, 2]}\n")
    assert run(sweep) == 78
    assert "a scenario says its own queues" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_take_results_is_told_with_its_path(
    sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is played."""
    assert run(sweep) == 0
    key = printed(capsys)["results"][0]["key"]
    file = sweep.parent / "out" / "points" / f"{key}.json"
    file.unlink()
    file.mkdir()
    assert run(sweep, "--resume") == 2
    assert f"gpusched: {file} is no file: a result belongs there" in capsys.readouterr().err
    shutil.rmtree(sweep.parent / "out")
    (sweep.parent / "out").touch()
    assert run(sweep) == 2
    assert (
        f"results cannot be written to {sweep.parent / 'out' / 'points'}: "
        in capsys.readouterr().err
    )


def test_what_no_job_of_a_scenario_tells_is_told(
    sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its jobs are known when it was played."""
    (sweep.parent / "day.yaml").write_text(DAY)
    sweep.write_text(
        'inputs: [{name: day, scenario: day.yaml}]\nstatistics: ["p95(wait) of class nope"]'
    )
    assert run(sweep) == 0
    assert "no job tells p95(wait) of class nope\n" in capsys.readouterr().err


def test_a_class_of_one_trace_may_be_asked_for_in_all(
    sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given two traces of which the second alone has jobs of one GPU, then its figure is told."""
    lines = [line for line in JOBS.splitlines() if ",1,b" not in line]
    (sweep.parent / "large.csv").write_text("\n".join(lines) + "\n")
    both = "- {name: large, csv: large.csv, nodes: 2x8}\n- {name: three, csv: jobs.csv, nodes: 2x8}"
    sweep.write_text(
        f'inputs:\n{both}\nstatistics: ["p95(wait) of class 1-gpu", "max(wait) of queue B"]'
    )
    assert run(sweep) == 0
    large, three = (each["statistics"] for each in printed(capsys)["results"])
    assert large["p95(wait) of class 1-gpu"] is None
    assert three["p95(wait) of class 1-gpu"] is not None
    assert large["max(wait) of queue B"] is not None


def test_a_sweep_of_a_million_points_is_refused_at_once(
    sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unless it is asked for; a search draws from it, the same settings for the same seed."""
    thousand = "{from: 1, to: 1000, step: 1}"
    sweep.write_text(SWEEP.replace("[1, 2]", thousand).replace("[binpack, spread]", "[binpack]") +
                     "seeds: [1]\n")  # fmt: skip
    assert run(sweep, "--points-max", "999") == 78
    assert "1,000 points (1000 x 1 settings, 1 configurations, 1 inputs and seeds)" in capsys.readouterr().err  # fmt: skip
    million = SWEEP.replace("[1, 2]", thousand).replace(
        "plugins.nodeorder.strategy: [binpack, spread]", f"queue.a.weight: {thousand}"
    )
    sweep.write_text(million)
    assert run(sweep) == 78
    assert "1,000,000 points" in capsys.readouterr().err
    assert not (sweep.parent / "out").exists()
    sweep.write_text(million + "search: {settings: 3, seed: 7}")
    assert run(sweep) == 0
    drawn = [each["values"] for each in printed(capsys)["results"]]
    assert len({tuple(each.items()) for each in drawn}) == 3
    sweep.write_text(million + "search: {settings: 4, seed: 7}")
    assert run(sweep, "--resume") == 0
    told = capsys.readouterr()
    assert [each["values"] for each in json.loads(told.out)["results"]][:3] == drawn
    assert "resumed: 3 of 4" in told.err


def test_a_trace_of_a_terabyte_is_not_read(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its size is looked at first, in a sweep and in a simulation; one that unpacks to more is cut off."""
    with (sweep.parent / "jobs.csv").open("wb") as file:
        file.truncate(2**40)  # sparse
    assert run(sweep) == 78
    assert "a trace may have 512 MiB, this one has 1,048,576 MiB" in capsys.readouterr().err
    jobs = str(sweep.parent / "jobs.csv")
    assert main(["simulate", "--csv", jobs, "--nodes", "2x8"]) == 78
    assert "a trace may have 512 MiB" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--jobs", "2"], "processes are --workers"),
        (["--set", "a:fifo=true"], "--set does not go with --sweep"),
        (["--for", "1h"], "--for does not go with --sweep"),
        (["--out", ""], "an empty text names no file or folder"),
        (["--workers", "0"], "--workers takes 1 to 256"),
        (["--points-max", "0"], "--points-max takes numbers above 0"),
    ],
)
def test_options_that_do_not_go_together(
    sweep: Path, args: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """2, and what to write instead."""
    assert run(sweep, *args) == 2
    assert says in capsys.readouterr().err
    assert main(["simulate", "--sweep", str(sweep)]) == 2
    assert "--sweep needs --out" in capsys.readouterr().err
    assert main(["simulate", "--generate", "philly", "--resume"]) == 2
    assert "--resume goes with --sweep" in capsys.readouterr().err


def test_a_trace_without_an_end_is_refused(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A device, or a pipe that nobody writes to, would be read for ever: 78, before anything is made."""
    os.mkfifo(sweep.parent / "pipe.csv")
    for name in ("/dev/zero", "pipe.csv"):
        sweep.write_text(SWEEP.replace("jobs.csv", name))
        assert run(sweep) == 78
        assert f"{name} is a pipe or a device: name a file" in capsys.readouterr().err
    assert not (sweep.parent / "out").exists()
