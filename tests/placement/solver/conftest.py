"""Jobs that do what jobs must not, in a package that the solver's process can import too."""

from __future__ import annotations

import importlib
from types import SimpleNamespace

import attrs
import pytest

from gpusched.base.clock import SystemClock
from gpusched.io.observe.telemetry import Telemetry
from gpusched.io.solver.process import SolverProcess

JOBS = '''
import ctypes
import os
import signal
import sys
import threading

import attrs

from gpusched.base.errors import SolverFault


@attrs.frozen
class Sum:
    of: tuple = ()
    def run(self):
        return sum(self.of)


@attrs.frozen
class Exits:
    def run(self):
        os._exit(3)


@attrs.frozen
class Dies:
    signal: int = signal.SIGSEGV
    def run(self):
        os.kill(os.getpid(), self.signal)
        threading.Event().wait()


@attrs.frozen
class Hangs:
    def run(self):
        threading.Event().wait()


@attrs.frozen
class Spins:
    def run(self):
        while True:
            pass


@attrs.frozen
class Stopped:
    """The whole process stands still."""
    size: int = 0
    def run(self):
        os.kill(os.getpid(), signal.SIGSTOP)


@attrs.frozen
class Raises:
    def run(self):
        raise ZeroDivisionError("of nothing")


@attrs.frozen
class Faults:
    def run(self):
        raise SolverFault("the model is refused")


@attrs.frozen
class Quits:
    def run(self):
        sys.exit(4)


@attrs.frozen
class Unsendable:
    thing: object = attrs.field(factory=threading.Lock)
    def run(self):
        return 0


@attrs.frozen
class AnswersLock:
    def run(self):
        return threading.Lock()


class Strange:
    """Pickles, and cannot be unpickled."""
    def run(self):
        return 0
    def __reduce__(self):
        return _no, ()


def _no():
    raise ValueError("no such thing here")


class OnlyThere:
    def __reduce__(self):
        return _only_there, (os.getpid(),)


def _only_there(pid):
    if os.getpid() != pid:
        raise ValueError("no such thing here")


@attrs.frozen
class AnswersStrange:
    def run(self):
        return OnlyThere()


@attrs.frozen
class Scribbles:
    """Writes to every descriptor that it finds."""
    def run(self):
        for number in range(3, 16):
            try:
                os.write(number, b"garbage" * 10)
            except OSError:
                pass
        return 1


@attrs.frozen
class Prints:
    def run(self):
        print("to standard output")
        os.write(1, b"to descriptor 1")
        return 1


@attrs.frozen
class Shouts:
    """More on standard error than any pipe holds."""
    def run(self):
        for _ in range(1000):
            sys.stderr.write("x" * 1023 + "\\n")
        return 1


@attrs.frozen
class Eats:
    def run(self):
        held = []
        while True:
            held.append(bytearray(1 << 26))


@attrs.frozen
class Surroundings:
    def run(self):
        return dict(os.environ), os.getpid(), signal.getsignal(signal.SIGINT) == signal.SIG_IGN


@attrs.frozen
class Threads:
    def run(self):
        return threading.active_count()


@attrs.frozen
class Puzzle:
    """Random sums that are to be halved: answers come at once, proofs take days."""
    size: int = 60
    def run(self):
        import random
        from ortools.sat.python import cp_model
        from gpusched.placement.cpsat.solver import configure_solver
        rng = random.Random(1)
        model = cp_model.CpModel()
        half = [model.new_bool_var("") for _ in range(self.size)]
        rest = []
        for _ in range(8):
            row = [rng.randrange(1000) for _ in half]
            off = model.new_int_var(0, sum(row), "")
            twice = 2 * sum(a * x for a, x in zip(row, half))
            model.add(off >= sum(row) - twice)
            model.add(off >= twice - sum(row))
            rest.append(off)
        model.minimize(sum(rest))
        solver = cp_model.CpSolver()
        configure_solver(solver, budget_s=1000, workers=1, seed=1)
        status = solver.solve(model)
        return solver.status_name(status)
'''


@attrs.define
class Bench:
    """A solver's process under test.

    Attributes:
        jobs: the module with the jobs.
        ticks: seconds that the test adds to the clock.
    """

    jobs: SimpleNamespace
    telemetry: Telemetry
    solver: SolverProcess
    ticks: float = 0.0

    def metric(self, start: str) -> str:
        """The value of the first line of the metrics that starts so; empty when there is none."""
        lines = self.telemetry.render().decode().splitlines()
        return next((line.split()[-1] for line in lines if line.startswith(start)), "")


class _Clock(SystemClock):
    def __init__(self):
        self.bench = None

    def monotonic(self):
        return super().monotonic() + (self.bench.ticks if self.bench else 0.0)


@pytest.fixture
def jobs(packages):
    """The module with the jobs."""
    packages.install("acme_jobs", it=JOBS)
    return importlib.import_module("acme_jobs.it")


COLD = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "import gpusched.io.solver.child as child; child.warm_up_solver = lambda: None; "
    "child.serve(memory_max=int(sys.argv[2]))"
)


@pytest.fixture
def bench(jobs, monkeypatch):
    """A solver that allows a tenth of a second; it loads nothing ahead that these jobs never use."""
    monkeypatch.setattr("gpusched.io.solver.pipe._START", COLD)
    clock, telemetry = _Clock(), Telemetry()
    solver = SolverProcess(clock, telemetry)
    solver.budget_s = 0.1
    made = clock.bench = Bench(jobs, telemetry, solver)
    yield made
    solver.close()
    telemetry.shutdown()
