"""Processes that play points: the same bytes as here, and none that is waited for when it is gone."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpusched.cli.lab.sweep.command import LoadedInputs
from gpusched.cli.lab.sweep.settings_drawn import plan_points
from gpusched.cli.lab.sweep.sweep_file import read_sweep
from gpusched.cli.lab.sweep.sweep_inputs import pack
from gpusched.cli.lab.sweep.workers import (
    TRIES_MAX,
    InThisProcess,
    LocalProcesses,
    PointEnd,
    run_points,
)

from .test_sweep_command import JOBS, SWEEP

pytestmark = [pytest.mark.long, pytest.mark.early]


class Deadly:
    """Kills the process that unpacks it, as one that needs too much memory."""

    def __reduce__(self) -> object:
        return exec, ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)",)


@pytest.fixture
def works(tmp_path: Path) -> list[bytes]:
    """Four packed points."""
    (tmp_path / "jobs.csv").write_text(JOBS)
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    inputs = LoadedInputs()
    return [inputs.pack(each) for each in plan_points(read_sweep(tmp_path / "sweep.yaml"))]


@pytest.fixture
def processes() -> Iterator[LocalProcesses]:
    """Two, ended with the test."""
    found = LocalProcesses(2)
    yield found
    found.close()


def by_number(ends: Iterator[PointEnd]) -> dict[int, PointEnd]:
    """What came of each point; each ends once."""
    every = list(ends)
    found = {each.number: each for each in every}
    assert len(found) == len(every)
    return found


def test_a_killed_worker_is_told_and_its_point_played_again(
    works: list[bytes], processes: LocalProcesses
) -> None:
    """Nothing waits for it, and the results are those of one process, to the byte."""
    here = by_number(run_points(range(4), works.__getitem__, InThisProcess(), note=pytest.fail))
    # Given that whoever plays the first point is killed as the second is begun
    killed, notes = [], []

    def work_of(number: int) -> bytes:
        if number == 1 and not killed:
            killed.extend(processes.processes)
            os.kill(killed[0], signal.SIGKILL)
        return works[number]

    # When all are played
    ends = by_number(run_points(range(4), work_of, processes, note=notes.append))
    # Then each has its result
    assert len(killed) == 1
    assert len(notes) == 1
    assert "ended by SIGKILL" in notes[0]
    assert {number: end.result for number, end in ends.items()} == {
        number: end.result for number, end in here.items()
    }


def test_a_point_that_kills_its_workers_fails_and_the_others_are_played(
    works: list[bytes], processes: LocalProcesses
) -> None:
    """After so many tries it is told as failed."""
    deadly, notes = pack(Deadly()), []
    given = [works[0], deadly, works[2]]
    ends = by_number(run_points(range(3), given.__getitem__, processes, note=notes.append))
    assert [ends[number].result is not None for number in range(3)] == [True, False, True]
    assert f"lost {TRIES_MAX} times: ended by SIGKILL, as the kernel does" in ends[1].error
    assert len(notes) == TRIES_MAX - 1


def test_a_bug_in_one_point_is_told_with_its_place(works: list[bytes]) -> None:
    """The others are played."""
    given = [pack("no point"), works[0]]
    ends = by_number(run_points(range(2), given.__getitem__, InThisProcess(), note=pytest.fail))
    assert ends[0].error.startswith("bug: ValueError at points.py:")
    assert ends[1].result is not None


def test_closing_ends_points_that_are_played(works: list[bytes]) -> None:
    """A cut sweep leaves no process behind."""
    found = LocalProcesses(2)
    found.start_point(0, works[0])
    (pid,) = found.processes
    found.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
