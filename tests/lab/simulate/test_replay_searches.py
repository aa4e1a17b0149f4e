"""What searches answered is kept: a decision repeats where a clock had a part in it, and says so."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import attrs
import pytest

from gpusched.api.gang.pod_group import TopologyRequest
from gpusched.base import limits
from gpusched.base.clock import SystemClock
from gpusched.base.errors import SolverFault
from gpusched.base.limits import PLUGIN_FAULTS_MAX
from gpusched.config.model import DEFAULT
from gpusched.io.decisions.decision_file import (
    DecisionFile,
    DecisionInputs,
    pack_decision,
    read_decision,
)
from gpusched.io.decisions.recorder import DecisionRecorder, RecordingOptions, SearchRecorder
from gpusched.lab.recordings.replay import replay_decision
from gpusched.placement.model.problem import SearchJob, SearchRunner, search_in_process
from gpusched.pluginhost.guard import PluginGuard
from gpusched.testing.given import Given

CLOCK = SystemClock()


def mixed_gang() -> Given:
    """A gang of two kinds of pods that wants one rack: counts alone do not place it."""
    given = Given()
    for rack in ("r1", "r2", "r3"):
        given.nodes(3, prefix=f"{rack}-n", rack=rack, gpus=8)
    given.group("mixed", min_member=6, topology=TopologyRequest(preferred="rack"))
    given.pods("big", 2, group="mixed", gpus=6)
    given.pods("small", 4, group="mixed", gpus=3)
    return given


def recorded(given: Given, search: SearchRunner, folder: Path) -> DecisionFile:
    tape = SearchRecorder(search, given.guard.failing_hooks())
    given.search = tape
    plan = given.when.one_session()
    assert given.decision is not None
    inputs = DecisionInputs(
        snapshot=given.snapshot,
        config=DEFAULT,
        failing=tape.failing,
        searches=tuple(tape.searches),
    )
    path = folder / "x.decision.gz"
    path.write_bytes(pack_decision(inputs, plan, faults=given.decision.faults))
    return read_decision(path)


def test_a_search_ends_alike_again(tmp_path: Path) -> None:
    """Its answer is in the file, and found anew."""
    file = recorded(mixed_gang(), search_in_process, tmp_path)
    assert len(file.inputs.searches) >= 1
    assert all(each.answer is not None for each in file.inputs.searches)
    again = replay_decision(file, clock=CLOCK)
    assert again.identical
    assert again.notes == ()


def test_a_lost_solver_is_lost_again(tmp_path: Path) -> None:
    """What was decided without an answer is repeated without it, and a note says why."""

    def lost(_job: SearchJob) -> object:
        raise SolverFault("the solver did not answer within 1.1 s")

    file = recorded(mixed_gang(), lost, tmp_path)
    again = replay_decision(file, clock=CLOCK)
    assert again.identical
    assert again.notes[0] == (
        "search 1 (several-job) failed: the solver did not answer within 1.1 s when this was "
        "recorded, as on a machine that is slow or loses the solver; what it came to then is used here"
    )


def test_a_search_that_was_stopped_leads_to_the_same_again(tmp_path: Path) -> None:
    """Only a part of the answer was known then; with it the rest of the decision is compared."""

    def stopped(job: SearchJob) -> object:
        answer: Any = job.run()
        return attrs.evolve(answer, bounds=tuple(0 for _ in answer.bounds), seconds=9.0)

    file = recorded(mixed_gang(), stopped, tmp_path)
    again = replay_decision(file, clock=CLOCK)
    assert again.identical
    assert len(again.notes) == len(file.inputs.searches)
    assert "was answered otherwise when this was recorded" in again.notes[0]


def test_other_searches_than_then_are_told(tmp_path: Path) -> None:
    """No answer is given to a question that was not asked."""
    file = recorded(mixed_gang(), search_in_process, tmp_path)
    none = attrs.evolve(file, inputs=attrs.evolve(file.inputs, searches=()))
    again = replay_decision(none, clock=CLOCK)
    assert again.identical
    assert again.notes == ("other searches are made than when this was recorded",)


def test_hooks_that_were_set_aside_are_so_again() -> None:
    """A decision depends on who failed before; another guard goes on where the first was."""
    calls: list[str] = []

    def broken(who: str) -> str:
        calls.append(who)
        raise ValueError("no")

    def answers(guard: PluginGuard, who: str) -> str:
        def refused(fault: Exception, _who: str) -> str:
            return str(fault)

        return guard.wrap_hook("cap", "filter", broken, refused)(who)

    first = PluginGuard(CLOCK)
    first.begin_session()
    for _ in range(PLUGIN_FAULTS_MAX):
        answers(first, "then")
    second = PluginGuard(CLOCK)
    second.resume_failing(first.failing_hooks())
    assert second.failing_hooks() == first.failing_hooks()
    first.begin_session()
    second.begin_session()
    calls.clear()
    assert [answers(first, "first") for _ in range(3)] == [
        answers(second, "second") for _ in range(3)
    ]
    # Each is asked what it was not asked before, and not every time.
    assert 0 < calls.count("first") == calls.count("second") < 3
    assert second.is_quarantined("cap", "filter")


async def test_who_decides_faster_than_files_are_written_is_told_what_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The loop never waits for a file: some wait, and of more the next file knows how many."""
    given = mixed_gang()
    tape = SearchRecorder(search_in_process, ())
    given.when.one_session()
    assert given.decision is not None
    counted: list[int] = []
    recorder = DecisionRecorder(
        RecordingOptions(folder=tmp_path), inline=False, on_skipped=lambda: counted.append(1)
    )

    def record(number: int) -> None:
        assert given.decision is not None
        snapshot = attrs.evolve(given.snapshot, revision=number)
        recorder.record(snapshot, DEFAULT, tape, decision=given.decision)

    with caplog.at_level(logging.WARNING):
        for number in range(limits.DECISIONS_WAITING_MAX + 3):
            record(number)
        assert recorder.skipped == len(counted) == 3
        await asyncio.wait(recorder._writing, timeout=60)
        record(99)
        await recorder.wait_for_rest(60)
    recorder.stop()
    files = sorted(tmp_path.iterdir())  # noqa: ASYNC240 - a test
    assert len(files) == limits.DECISIONS_WAITING_MAX + 1
    assert [read_decision(each).header.skipped for each in files[-2:]] == [0, 3]
    assert [each.getMessage() for each in caplog.records] == [
        "decisions came faster than they are written: some were not recorded",
    ]
