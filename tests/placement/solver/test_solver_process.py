"""Searches in a process of their own: what it may do to the daemon, which is nothing."""

from __future__ import annotations

import json
import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gpusched.base import limits
from gpusched.base.errors import SolverFault
from gpusched.io.solver import pipe
from gpusched.io.solver.process import SolverLosses
from gpusched.placement.cpsat.solver import SearchStopper


@pytest.fixture
def quick(monkeypatch, tmp_path):
    """Processes are given up after a second and a half; jobs are kept in a folder of the test."""
    monkeypatch.setattr(limits, "SOLVER_HARD_S", 1.4)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_an_answer_comes_from_another_process_that_stays(bench):
    """One process serves all; it has no variable of ours that it does not need."""
    os.environ["ACME_TOKEN"] = "secret"
    try:
        assert bench.solver(bench.jobs.Sum((1, 2, 3))) == 6
        environment, pid, deaf = bench.solver(bench.jobs.Surroundings())
    finally:
        del os.environ["ACME_TOKEN"]
    assert pid == bench.solver.pid != os.getpid()
    assert deaf
    assert environment["PYTHONHASHSEED"] == "0"
    assert set(environment) <= {
        "PATH", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH",
        "PYTHONHASHSEED", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "__CF_USER_TEXT_ENCODING",
    }  # fmt: skip
    assert bench.solver.error == ""


def test_a_large_job_and_a_large_answer_pass(bench):
    """More than any pipe holds, both ways."""
    bench.solver.budget_s = 60.0  # about size alone: a busy machine takes its second to pass this
    many = tuple(range(300_000))
    assert bench.solver(bench.jobs.Sum(many)) == sum(many)


@pytest.mark.parametrize(
    ("job", "kind", "why"),
    [
        ("Exits", "crash", "the solver ended with status 3"),
        ("Dies", "crash", "the solver was ended by signal 11"),
        ("Hangs", "overrun", r"the solver did not answer within 1.5 s"),
        ("Spins", "overrun", r"the solver did not answer within 1.5 s"),
        ("Stopped", "overrun", r"the solver did not answer within 1.5 s"),
        ("AnswersStrange", "garbage", "the solver answered something that cannot be read"),
        ("Scribbles", "garbage", "the solver answered something that cannot be read"),
    ],
)
def test_a_lost_process_costs_one_search(bench, quick, job, kind, why):
    """The fault is one sentence, it is counted, and the next search has another process."""
    assert bench.solver(bench.jobs.Sum((1,))) == 1
    before = bench.solver.pid
    with pytest.raises(SolverFault, match=f"^{why}$"):
        bench.solver(getattr(bench.jobs, job)())
    assert bench.solver(bench.jobs.Sum((2,))) == 2
    assert bench.solver.pid != before
    assert bench.metric(f'gpusched_solver_restarts_total{{reason="{kind}"}}') == "1.0"
    assert bench.metric('gpusched_solver_duration_seconds_count{result="fault"}') == "1.0"
    with pytest.raises(ProcessLookupError):
        os.kill(before, 0)


@pytest.mark.parametrize(
    ("job", "why"),
    [
        ("Raises", "a search failed: ZeroDivisionError: of nothing"),
        ("Faults", "the model is refused"),
        ("Quits", "a search failed: SystemExit: 4"),
        ("Strange", "a search failed: ValueError: no such thing here"),
        ("AnswersLock", "a search failed: TypeError: cannot pickle '_thread.lock' object"),
        ("Unsendable", "a search cannot be sent to the solver: cannot pickle"),
    ],
)
def test_a_job_that_fails_leaves_the_process_alone(bench, quick, job, why):
    """Nothing was lost but the answer."""
    assert bench.solver(bench.jobs.Sum((1,))) == 1
    before = bench.solver.pid
    with pytest.raises(SolverFault, match=f"^{why}"):
        bench.solver(getattr(bench.jobs, job)())
    assert bench.solver(bench.jobs.Sum((2,))) == 2
    assert bench.solver.pid == before
    assert bench.metric("gpusched_solver_restarts_total") == ""
    assert bench.metric('gpusched_solver_duration_seconds_count{result="fault"}') == "1.0"


@pytest.mark.parametrize("job", ["Prints", "Shouts"])
def test_what_a_job_prints_spoils_nothing(bench, job):
    """Not even what goes to the descriptor of standard output."""
    assert bench.solver(getattr(bench.jobs, job)()) == 1
    assert bench.solver(bench.jobs.Sum((2,))) == 2


def test_a_process_that_is_killed_in_the_middle_of_a_search_is_replaced(bench):
    """As the kernel does when memory runs out."""
    bench.solver.budget_s = 60.0
    assert bench.solver(bench.jobs.Sum((1,))) == 1
    killer = threading.Timer(0.2, os.kill, (bench.solver.pid, signal.SIGKILL))
    killer.start()
    with pytest.raises(SolverFault, match=r"^the solver was ended by signal 9$"):
        bench.solver(bench.jobs.Hangs())
    killer.join()
    assert bench.solver(bench.jobs.Sum((2,))) == 2


def test_an_idle_process_that_was_killed_is_replaced(bench):
    """No search is lost with it."""
    assert bench.solver(bench.jobs.Sum((1,))) == 1
    before = bench.solver.pid
    os.kill(before, signal.SIGKILL)
    while not bench.solver._pipe.ended:
        threading.Event().wait(0.01)
    bench.solver.start_early()
    assert bench.solver.pid not in (0, before)
    assert bench.solver(bench.jobs.Sum((2,))) == 2
    assert bench.metric('gpusched_solver_restarts_total{reason="crash"}') == "1.0"


def test_a_search_beside_bindings_starts_the_process_itself(bench):
    """It is loaded ahead only where nothing is bound, and nobody waits for that."""
    bench.solver.start_in_a_lull(binding=64)
    assert bench.solver.pid == 0
    assert bench.solver(bench.jobs.Sum((1, 2))) == 3
    before = bench.solver.pid
    bench.solver.start_in_a_lull(binding=0)
    assert bench.solver.pid == before


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="no such bound elsewhere")
def test_a_search_that_eats_memory_ends_itself(bench, monkeypatch):
    """Long before the machine has none left."""
    monkeypatch.setattr(limits, "SOLVER_MEMORY_MAX", 1 << 29)
    bench.solver.budget_s = 60.0
    with pytest.raises(SolverFault, match="MemoryError"):
        bench.solver(bench.jobs.Eats())
    assert bench.solver(bench.jobs.Sum((2,))) == 2


def test_a_search_beyond_its_time_ends_with_what_it_has(bench, monkeypatch):
    """The solver is stopped softly first; the process lives on."""
    monkeypatch.setattr(limits, "SOLVER_SOFT_S", 0.1)
    monkeypatch.setattr(limits, "SOLVER_HARD_S", 60.0)
    assert bench.solver(bench.jobs.Puzzle()) in ("FEASIBLE", "UNKNOWN")
    assert bench.solver(bench.jobs.Threads()) == 2 + 1  # the main one, the reader, the next watch


def test_a_stopped_process_of_searches_gives_later_solvers_no_time():
    """A job of several searches ends too."""

    class Parameters:
        max_time_in_seconds = 10.0

    class Solver:
        def __init__(self):
            self.parameters, self.stops = Parameters(), 0

        def stop_search(self):
            self.stops += 1

    stopping, first, second, third = SearchStopper(), Solver(), Solver(), Solver()
    stopping.enter_search(first)
    stopping.stop()
    stopping.enter_search(second)
    assert (first.stops, second.parameters.max_time_in_seconds) == (1, 0.001)
    stopping.reset()
    stopping.enter_search(third)
    assert third.parameters.max_time_in_seconds == 10.0


def test_a_job_that_cost_two_processes_is_not_tried_again(bench, quick):
    """Others are."""
    for _ in range(2):
        with pytest.raises(SolverFault, match="status 3"):
            bench.solver(bench.jobs.Exits())
        assert bench.solver(bench.jobs.Sum((1,))) == 1
    before = bench.solver.pid
    with pytest.raises(SolverFault, match="cost the solver's process 2 times is not tried again"):
        bench.solver(bench.jobs.Exits())
    assert bench.solver.pid == before


def test_losses_in_a_row_set_it_aside_for_a_time(bench, quick, caplog):
    """Nothing is started meanwhile; then one more try, and an answer ends the trouble."""
    with caplog.at_level(logging.ERROR, logger="gpusched"):
        for signal_number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL):
            assert bench.solver.error == ""
            with pytest.raises(SolverFault, match=f"ended by signal {int(signal_number)}"):
                bench.solver(bench.jobs.Dies(signal_number))
        assert bench.solver.error.startswith("the solver was ended by signal 9; 3 times in a row")
        bench.solver.start_early()
        assert bench.solver.pid == 0
        with pytest.raises(SolverFault, match="set aside for 5 s: the solver was ended by"):
            bench.solver(bench.jobs.Sum((1,)))
    bench.ticks = limits.SOLVER_PAUSE_MIN_S
    assert bench.solver(bench.jobs.Sum((1,))) == 1
    assert bench.solver.error == ""
    assert len([r for r in caplog.records if "ended by signal" in r.message]) == 3


def test_a_solver_that_cannot_be_loaded_is_said_with_its_last_words(
    bench, quick, monkeypatch, caplog
):
    """It is no worse than one that crashes."""
    works = pipe._START
    monkeypatch.setattr(pipe, "_START", "import sys; sys.exit('no such thing')")
    with (
        caplog.at_level(logging.ERROR, logger="gpusched"),
        pytest.raises(SolverFault, match="could not be started: it ended with status 1"),
    ):
        bench.solver(bench.jobs.Sum((1,)))
    assert "no such thing" in caplog.records[0].gpusched_dump
    monkeypatch.setattr(pipe, "_START", works)
    assert bench.solver(bench.jobs.Sum((1,))) == 1


def test_who_keeps_the_process_warm_says_that_it_could_not_be_started(
    bench, quick, monkeypatch, caplog
):
    """No search need meet it: given a process that ended before it was ready, then the next session says so."""
    monkeypatch.setattr(pipe, "_START", "import sys; sys.exit('no such thing')")
    with caplog.at_level(logging.ERROR, logger="gpusched"):
        bench.solver.start_early()
        while not bench.solver._pipe.ended:
            threading.Event().wait(0.01)
        bench.solver.start_early()
    assert "could not be started: it ended with status 1" in caplog.text
    assert "without being asked" not in caplog.text


def test_pauses_double_up_to_a_limit():
    """Three losses cost 5 s, each further one twice as much, at most five minutes."""
    losses, pauses = SolverLosses(), []
    for _ in range(40):
        losses.count_loss("it broke", now=1000.0)
        pauses.append(max(0.0, losses.until - 1000.0))
    assert pauses[:9] == [0, 0, 5, 10, 20, 40, 80, 160, 300]
    assert set(pauses[9:]) == {300}
    losses.count_answer()
    assert (losses.until, losses.error) == (0.0, "")


def test_the_story_of_a_fault_names_a_file_that_can_be_run_again(bench, quick, caplog):
    """Its hash and size are told; only the first few are written."""
    with caplog.at_level(logging.ERROR, logger="gpusched"):
        for _ in range(limits.SOLVER_DUMPS_MAX + 2):
            with pytest.raises(SolverFault):
                bench.solver(bench.jobs.Raises())
    assert len(caplog.records) == limits.SOLVER_DUMPS_MAX
    record = caplog.records[0]
    assert 'raise ZeroDivisionError("of nothing")' in record.gpusched_dump
    assert record.gpusched_facts["asked"] == "Raises"
    file = record.gpusched_facts["kept"]
    assert pickle.loads(Path(file).read_bytes()) == bench.jobs.Raises()
    again = subprocess.run(
        [sys.executable, "-m", "gpusched.io.solver.child", file],
        env={"PYTHONPATH": os.pathsep.join(sys.path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "ZeroDivisionError: of nothing" in again.stderr


def test_ended_from_another_thread_a_search_is_over(bench):
    """The daemon ends in the middle of it; no other process is started, nothing is counted."""
    bench.solver.budget_s = 60.0
    assert bench.solver(bench.jobs.Sum((1,))) == 1
    threading.Timer(0.1, bench.solver.kill).start()
    with pytest.raises(SolverFault, match="ended with the daemon"):
        bench.solver(bench.jobs.Hangs())
    with pytest.raises(SolverFault, match="ended with the daemon"):
        bench.solver(bench.jobs.Sum((1,)))
    bench.solver.start_early()
    assert bench.solver.pid == 0
    assert bench.metric("gpusched_solver_restarts_total") == ""


def _lives(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")  # a zombie has ended too, if nobody collects it
    return not (status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z")


OWNER = """
import sys, json
sys.path[:] = json.loads(sys.argv[1])
from gpusched.base.clock import SystemClock
from gpusched.io.solver.process import SolverProcess
from gpusched.io.observe.telemetry import Telemetry
from acme_jobs.it import Hangs, Spins, Sum
solver = SolverProcess(SystemClock(), Telemetry())
solver.budget_s = 600.0
solver(Sum())
print(solver.pid, flush=True)
solver(Spins())
"""


def test_the_process_ends_when_its_daemon_is_killed(jobs):
    """Even in the middle of a search."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, json.dumps(sys.path)], stdout=subprocess.PIPE, text=True
    ) as owner:
        pid = int(owner.stdout.readline())
        owner.kill()
    tries = iter(range(1000))
    while _lives(pid):
        next(tries)
        threading.Event().wait(0.02)
