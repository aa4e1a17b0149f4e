"""The numbers of a run as CSV: equal to those of its record."""

import csv
import io
import re
from pathlib import Path

import attrs
import pytest

from benchmarks.report_inputs import mixed_day
from gpusched.engine.run_record import ActDone, RunRecord
from gpusched.lab.report.csv_files import csv_files
from gpusched.lab.report.statistics import over_time

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def day():
    return mixed_day(120)


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


def moment(text):
    return None if text == "" else float(text)


def test_pods_are_those_of_the_record(day):
    read = rows(csv_files(day)["pods.csv"])
    assert len(read) == len(day.pods)
    for row, pod in zip(read, day.pods, strict=True):
        assert (row["name"], row["job"], row["node"], row["end"]) == (
            pod.name,
            pod.job,
            pod.node,
            pod.end,
        )
        assert int(row["gpu_thousandths"]) == pod.gpus
        assert [moment(row[f"{each}_s"]) for each in ("created", "bound", "running", "told", "ended")] == [
            pod.created, pod.bound, pod.running, pod.told, pod.ended,
        ]  # fmt: skip
        assert tuple(map(int, row["slots"].split())) == pod.slots


def test_jobs_are_those_of_the_record(day):
    for row, job in zip(rows(csv_files(day)["jobs.csv"]), day.jobs, strict=True):
        assert f"{row['namespace']}/{row['name']}" == job.key
        assert (int(row["pods"]), int(row["gpu_thousandths"])) == (job.size, job.gpus)
        assert moment(row["started_s"]) == job.started
        assert float(row["wait_s"]) == pytest.approx((job.started or 0) - job.created)


def test_queues_nodes_and_evictions_are_those_of_the_record(day):
    files = {name: rows(text) for name, text in csv_files(day).items()}
    assert len(files["queues.csv"]) == sum(len(queue.marks) for queue in day.queues)
    assert [int(row["lost_gpu_seconds_thousandths"]) for row in files["evictions.csv"]] == [
        each.lost for each in day.evictions
    ]
    spans = [span for node in day.nodes for span in node.spans]
    assert [(float(row["since_s"]), row["usable"]) for row in files["nodes.csv"]] == [
        (span.since, str(span.usable).lower()) for span in spans
    ]


def test_steps_of_use_add_up_to_what_was_held(day):
    read = rows(csv_files(day)["use.csv"])
    at = [float(row["at_s"]) for row in read] + [day.seconds]
    area = sum(float(row["gpus_held"]) * (at[turn + 1] - at[turn]) for turn, row in enumerate(read))
    assert area == pytest.approx(over_time.used_amounts(day).integral)
    by_queue = [name for name in read[0] if name.startswith("gpus_held by ")]
    for row in read:
        assert sum(float(row[name]) for name in by_queue) == pytest.approx(float(row["gpus_held"]))


def test_an_empty_run_has_heads_only():
    record = RunRecord(name="empty", ground="embedded", seed=1, seconds=1.0, epoch=0.0)
    files = csv_files(record)
    assert set(files) == {
        "jobs.csv", "pods.csv", "queues.csv", "nodes.csv", "evictions.csv", "acts.csv", "use.csv",
    }  # fmt: skip
    assert files["pods.csv"].count("\n") == 1


def test_texts_that_spreadsheets_would_run_are_kept_from_it(day):
    record = attrs.evolve(day, acts=(ActDone(at=0.0, sentence='=cmd("x"), "quoted"\nline'),))
    assert rows(csv_files(record)["acts.csv"]) == [
        {"at_s": "0.0", "did": '\'=cmd("x"), "quoted"\nline', "trouble": ""}
    ]


def test_every_column_is_told_in_the_docs(day):
    """docs/report.md names the columns of each file, and no others."""
    told = {
        cells[1].strip("` "): re.findall(r"`([^`]+)`", cells[3])
        for line in (ROOT / "docs/report.md").read_text().splitlines()
        if len(cells := line.split("|")) == 5 and cells[1].strip("` ").endswith(".csv")
    }
    for name, text in csv_files(day).items():
        columns = next(csv.reader(io.StringIO(text)))
        assert [each for each in columns if not each.startswith("gpus_held by")] == [
            each for each in told[name] if not each.startswith("gpus_held by")
        ]
