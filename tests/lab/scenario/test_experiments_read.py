"""The published experiments are scenarios that are read, and print their tables."""

from __future__ import annotations

import pytest

from gpusched.base import installed_files
from gpusched.engine.run_record import RunRecord
from gpusched.lab.report.statistics.tables import fill_table, table_as_text
from gpusched.lab.scenario.file.read import read_path
from gpusched.lab.scenario.model.scenario import Statistic

QUEUES = ["m1-below-capacity", "m2-high-load", "m3-gangs-2x4", "m3-gangs-2x8", "m3-gangs-8x1",
          "m4-thousand-jobs"]  # fmt: skip
NOTHING = RunRecord(name="none", ground="embedded", seed=1, seconds=1.0, epoch=0.0)


@pytest.mark.parametrize("name", QUEUES)
def test_an_experiment_expects_that_its_jobs_are_complete_and_at_the_bound(name: str) -> None:
    """All complete, none failed, and held against an ideal first-in-first-out scheduler."""
    (scenario,) = read_path(installed_files.path("kwok-scenarios") / "experiments" / f"{name}.yaml")
    asked = {each.subject.name for each in scenario.expect if isinstance(each.subject, Statistic)}
    assert {"completed", "failed", "evictions"} <= asked
    assert asked & {"worstWaitOverFifo", "makespanOverBound"}
    assert not scenario.embedded_only
    for table in scenario.tables:
        assert table.title in table_as_text(fill_table(table, NOTHING))
