"""Tables show published numbers as they are and measured ones with their units."""

from __future__ import annotations

from gpusched.engine.run_record import JobLife, LifeEnd, RunRecord
from gpusched.lab.report.statistics.tables import (
    fill_table,
    html_rows,
    table_as_markdown,
    table_as_text,
)
from gpusched.lab.scenario.model.scenario import PrintedRow, PrintedTable

TABLE = PrintedTable(
    title="M1",
    columns=("completion", "wait"),
    rows=(
        PrintedRow(name="A & B | C", cells=("71.9", "0")),
        PrintedRow(name="gpusched", cells=("mean(completion)", "mean(wait)"), measured=True),
        PrintedRow(name="none", cells=("p95(startup)",), measured=True),
    ),
)
JOB = JobLife(
    key="default/a", kind="Job", uid="a", queue="q", klass="job", priority=0, size=1,
    min_member=1, gpus=0, created=1.0, started=None, ended=73.0, end=LifeEnd.FAILED,
)  # fmt: skip
RECORD = RunRecord(name="a", ground="embedded", seed=1, seconds=80, epoch=0.0, jobs=(JOB,))


def test_a_table_on_a_terminal() -> None:
    """Names left, cells right, a dash for what there is none of."""
    assert table_as_text(fill_table(TABLE, RECORD)).splitlines() == [
        "M1",
        "           completion    wait",
        "A & B | C        71.9       0",
        "gpusched       72.0 s  72.0 s",
        "none                -       -",
    ]


def test_a_table_in_a_document() -> None:
    """Bars in texts are no borders."""
    lines = table_as_markdown(fill_table(TABLE, RECORD)).splitlines()
    assert lines[0] == "**M1**"
    assert lines[2:5] == [
        "|  | completion | wait |", "| --- | ---: | ---: |", "| A & B \\| C | 71.9 | 0 |",
    ]  # fmt: skip


def test_a_table_on_a_page() -> None:
    """Every cell can be put into HTML as it is."""
    assert html_rows(fill_table(TABLE, RECORD))[1] == ["A &amp; B | C", "71.9", "0"]
