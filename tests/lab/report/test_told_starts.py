"""Statistics of starts beside what was told of them."""

from __future__ import annotations

import pytest

from gpusched.api.meta.identity import UID, GangKey
from gpusched.engine.run_record import JobLife, RunRecord, StartRecord, ToldStartRecord
from gpusched.io.history.told_starts import ComparedStart, ToldStart
from gpusched.lab.report.statistics.named import statistic
from gpusched.lab.scenario.recorder.told_starts import start_records


def told(start, *, known_by="Announced", within=None):
    """An estimate, perhaps with a range."""
    earliest, latest = within or (None, None)
    return ToldStartRecord(at=0.0, start=start, known_by=known_by, earliest=earliest, latest=latest)


def job(name, queue="a"):
    return JobLife(
        key=f"default/{name}", kind="Job", uid=name, queue=queue, klass="job", priority=0, size=1,
        min_member=1, gpus=1000, created=0.0,
    )  # fmt: skip


RECORD = RunRecord(
    name="r", ground="embedded", seed=1, seconds=1000.0, epoch=0.0,
    jobs=(job("as-told"), job("late"), job("untold", "b")),
    starts=(
        StartRecord(
            job="default/as-told", queue="a", since=0.0, started=100.0,
            first=told(50.0), half=told(99.0, within=(90.0, 120.0)), last=told(100.0),
        ),
        StartRecord(
            job="default/late", queue="a", since=100.0, started=300.0, first=told(200.0),
            half=told(260.0, known_by="Waiting", within=(200.0, 280.0)), last=told(290.0),
        ),
        StartRecord(job="default/untold", queue="b", since=0.0, started=500.0),
    ),
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "of", "value"),
    [
        ("startsCompared", {}, 3),
        ("startsCompared", {"queue": "b"}, 1),
        ("startErrorFirst", {}, 0.5),
        ("startErrorHalf", {}, 0.105),
        ("startErrorHalf", {"job": "late"}, 0.2),
        ("startErrorLast", {}, 0.025),
        ("startErrorHalfAnnounced", {}, 0.01),
        ("startErrorHalfWaiting", {}, 0.2),
        ("startsWithRange", {}, 2),
        ("startsInRange", {}, 0.5),
    ],
)
def test_statistics_count_what_was_told(name, of, value):
    assert statistic(RECORD, name, of=of).value == pytest.approx(value)


@pytest.mark.parametrize("name", ["startErrorHalf", "startsInRange", "startErrorHalfQuota"])
def test_what_nothing_can_be_said_about_says_so(name):
    found = statistic(RECORD, name, of={"queue": "b"})
    assert found.value is None
    assert str(found).startswith("not known: ")


def test_starts_of_daemons_become_records_in_the_time_of_the_run():
    """Given a start that a daemon compared, then its times count from the run's beginning."""
    compared = ComparedStart(
        gang=GangKey("Job", "default", "j"), uid=UID("u"), queue="a", since=1_010.0,
        started=1_100.0, half=ToldStart(at=1_011.0, start=1_090.0, known_by="Announced"), moves=2,
    )  # fmt: skip
    (record,) = start_records([compared], epoch=1_000.0)
    assert (record.job, record.since, record.started, record.moves) == ("default/j", 10, 100, 2)
    assert record.half == ToldStartRecord(at=11.0, start=90.0, known_by="Announced")
    assert record.first is None
