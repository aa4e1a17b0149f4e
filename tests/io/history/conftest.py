"""Runs of gangs to be written, and a clock that stands still."""

from __future__ import annotations

import attrs
import pytest

from gpusched.api.meta.identity import UID, GangKey
from gpusched.io.history.gang_run import GangRun

DAY = 86_400.0
NOW = 1_800_000_000.0


@attrs.define
class Clock:
    """A clock that is set."""

    at: float = 0.0

    def now(self) -> float:
        """Seconds since the epoch."""
        return NOW + self.at

    def monotonic(self) -> float:
        """Seconds."""
        return self.at


@pytest.fixture
def clock():
    """It stands still until ``at`` is set."""
    return Clock()


@pytest.fixture
def make_run():
    """A run of a team's gang that ended some seconds before ``NOW``, or none for an open one."""

    def make(number, *, ended_ago=None, team="a", **changes):
        run = GangRun(
            gang=GangKey("PodGroup", f"team-{team}", f"g{number}"), uid=UID(f"u{number}"),
            seen=NOW - DAY, queue=f"q-{team}", priority=0, min_member=1, members=1, gpus=1_000,
            created=NOW - DAY, since=NOW - DAY,
        )  # fmt: skip
        if ended_ago is not None:
            run.started, run.ended, run.outcome = NOW - DAY + 60, NOW - ended_ago, "Succeeded"
            run.gpu_seconds = {"H100": run.ended - run.started}
        for name, value in changes.items():
            setattr(run, name, value)
        return run

    return make
