"""docs/experiments.md: made of runs, with pictures that stand alone, and nothing forgotten."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import attrs
import pytest

from benchmarks.experiments.page import Cost, Part, missed, page, scene_of, write
from benchmarks.experiments.pictures import pictures, waits_of
from benchmarks.experiments.scenes import ROOT, experiment_of
from benchmarks.experiments.traces import fill_picture, fill_scene
from benchmarks.experiments.words import words_of
from gpusched.engine.run_record import JobLife, LifeEnd, NodeLife, NodeSpan, PodLife, RunRecord
from gpusched.lab.experiments.openb_fill import CHECKPOINTS, FillResult
from gpusched.lab.report.run_report import JudgedExpectation, RunReport
from gpusched.lab.report.statistics.tables import FilledTable, TableCell

EXPERIMENTS = ("M1", "M2", "M3", "M4", "M5", "M7")
NETWORK = re.compile(r"(href|src|url)\s*[=(]|<script|@import")


def record(name: str = "m1-tiny") -> RunRecord:
    """Two jobs that want the same node, one after the other, and one that gets none of it."""
    span = NodeSpan(since=0.0, until=60.0, gpus=8000, cpu=8000, memory=8192, usable=True)
    jobs, pods = [], []
    for turn, started in enumerate((0.5, 20.5)):
        key, ended = f"default/job-{turn}", started + 20.0
        jobs.append(
            JobLife(key=key, kind="Job", uid=f"u{turn}", queue="a & <b>", klass="job", priority=0,
                    size=1, min_member=1, gpus=8000, created=0.0, started=started, ready=started,
                    ended=ended, end=LifeEnd.SUCCEEDED)
        )  # fmt: skip
        pods.append(
            PodLife(name=f"job-{turn}-0", namespace="default", uid=f"p{turn}", job=key,
                    queue="a & <b>", gpus=8000, cpu=1000, memory=1, created=0.0, bound=started,
                    running=started, ended=ended, node="n", slots=tuple(range(8)),
                    end=LifeEnd.SUCCEEDED)
        )  # fmt: skip
    node = NodeLife(name="n", labels={}, spans=(span,))
    return RunRecord(
        name=name, ground="embedded", seed=7, seconds=60.0, epoch=0.0, nodes=(node,),
        pods=tuple(pods), jobs=tuple(jobs),
    )  # fmt: skip


def reported(name: str = "m1-tiny") -> RunReport:
    """The record, with a table that has a published row and one expectation that does not hold."""
    rows = (
        tuple(TableCell(text=text) for text in ("other (published)", "332.26 s", "188.40 s", "-")),
        tuple(TableCell(text=text) for text in ("gpusched", "20.0 s", "0.5 s", "0.00 s")),
    )
    heads = ("", "completion", "scheduling latency", "dispatch")
    return RunReport(
        record=record(name),
        teaches="Two jobs share a node.",
        verdicts=(
            JudgedExpectation(sentence="completed is 2", ok=True, seen="2"),
            JudgedExpectation(sentence="max(wait) is at most 1 s", ok=False, seen="20.5 s"),
        ),
        tables=(FilledTable(title="M1: tiny", heads=heads, rows=rows),),
    )


def fills() -> dict[tuple[str, str], list[FillResult]]:
    """One list under two policies: one reaches what is published, the other does not."""
    return {
        ("default", policy): [
            FillResult(allocated={at: min(at, most) for at in CHECKPOINTS}, placed=1, dropped=0)
        ]
        for policy, most in (("binpack (best fit)", 90.0), ("fragmentation", 95.38))
    }


def is_picture(text: str) -> None:
    """Well-formed SVG that needs nothing else, in both schemes, below 100 kB."""
    root = ET.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert root.find("{http://www.w3.org/2000/svg}title") is not None
    assert "prefers-color-scheme:dark" in text
    assert NETWORK.search(text) is None
    assert len(text.encode()) < 100_000


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_pictures_of_every_experiment_stand_alone(experiment: str) -> None:
    """Whatever names hold, a picture is well-formed, small, needs no network and is repeatable."""
    drawn = pictures(experiment, [reported(f"{experiment.lower()}-tiny")])

    assert drawn
    assert drawn == pictures(experiment, [reported(f"{experiment.lower()}-tiny")])
    for each in drawn:
        assert each.alt
        is_picture(each.svg)


def test_the_picture_of_gangs_shows_what_is_published_where_the_table_says_it() -> None:
    """Published seconds come from the scenario's table, not from anywhere else."""
    (drawn,) = pictures("M3", [reported("m3-gangs-1x8")])

    assert "other (published)" in drawn.svg
    assert "gpusched, 1 x 8" in drawn.svg
    assert "bound, 1 x 8" in drawn.svg


def test_fills_are_judged_by_the_published_figure_with_its_one_digit() -> None:
    """95.38 % reaches 95.4 %; what a picture needs is drawn for each list."""
    scene = fill_scene(fills())
    worse = {key: [attrs.evolve(runs[0], allocated=dict.fromkeys(CHECKPOINTS, 95.34))]
             for key, runs in fills().items()}  # fmt: skip

    assert [each.ok for each in scene.verdicts] == [True]
    assert [each.ok for each in fill_scene(worse).verdicts] == [False]
    is_picture(fill_picture(fills()).svg)
    is_picture(waits_of({"fifo": record(), "solver": record()}, name="w.svg", alt="waits").svg)


def test_the_page_says_what_was_measured_and_what_misses(tmp_path: Path) -> None:
    """Tables, verdicts and misses are there, links lead somewhere, CPU stands in one table only."""
    run = reported()
    part = Part(
        experiment="M1",
        scenes=(scene_of(run, "kwok-scenarios/experiments/m1-tiny.yaml"),),
        pictures=tuple(pictures("M1", [run])),
    )
    lost = Part(experiment="M6", missing="the trace is not there")
    cost = Cost(name="m1-tiny", cpu_s=123.4, memory=99, simulated_s=60.0, limit_s=100.0)
    old = tmp_path / "experiments" / "old.svg"
    old.parent.mkdir()
    old.write_text("<svg/>")

    text = write(tmp_path, [part, lost], [cost]).read_text()

    assert missed([part, lost]) == ["m1-tiny: max(wait) is at most 1 s: 20.5 s"]
    assert "- m1-tiny: max(wait) is at most 1 s: 20.5 s" in text
    assert "M6: traces: not run, the trace is not there" in text
    assert "| other (published) | 332.26 s | 188.40 s | - |" in text
    assert "gpusched scenario run kwok-scenarios/experiments/m1-tiny.yaml --kubeconfig" in text
    assert "seed 7" in text
    assert text.count("123.4 s") == 2  # of the run, and the sum
    assert text.index("123.4 s") > text.index("## Cost")
    assert "**missed**" in text
    links = re.findall(r"\]\(([^)#]+)\)", text)
    assert links
    for link in links:
        assert (tmp_path / link).is_file()
    assert not old.exists()
    assert page([part, lost], [cost]) == text


def test_every_experiment_is_introduced() -> None:
    """A title and where the published numbers come from; nobody's own words fail the page."""
    for experiment in ("M1", "M2", "M3", "M4", "M5", "M6"):
        assert words_of(experiment).title
        assert words_of(experiment).paragraphs
    assert words_of("M99").paragraphs == ()


def test_the_page_of_this_repository_forgets_no_experiment() -> None:
    """Every scenario of the folder has its place there, every picture it shows exists."""
    text = (ROOT / "docs" / "experiments.md").read_text()
    files = sorted((ROOT / "kwok-scenarios" / "experiments").glob("*.yaml"))

    assert files
    for file in files:
        assert f"{file.name}" in text
        assert experiment_of(file.stem) in text
    assert "## M6: traces" in text
    for link in re.findall(r"\]\((experiments/[^)]+)\)", text):
        is_picture((ROOT / "docs" / link).read_text())
