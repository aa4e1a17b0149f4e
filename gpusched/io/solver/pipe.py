"""One solver process and the pipes to it: asked one job at a time, and killed when it is late."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
from collections.abc import Callable
from enum import StrEnum
from typing import IO, Final, NamedTuple

from gpusched.base import limits
from gpusched.io.solver.child import ANSWER, FAULT, HEAD, JOB, MAGIC, READY

_START: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from gpusched.io.solver.child import serve; serve(memory_max=int(sys.argv[2]))"
)
_KEPT_VARIABLES: Final = (
    "PATH", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH",
)  # fmt: skip
"""Of our environment: credentials and everything else that a search has no use for stays here."""
_CHUNK: Final = 1 << 20
_SAID_MAX: Final = 4_096
_REAP_S: Final = 2.0


class SolverLoss(StrEnum):
    """How a process was lost."""

    CRASH = "crash"
    OVERRUN = "overrun"
    GARBAGE = "garbage"
    START = "start"


class SolverLost(Exception):
    """The process is of no use any more.

    Attributes:
        loss: how.
        why: half a sentence that goes on after ``the solver``.
    """

    def __init__(self, loss: SolverLoss, why: str) -> None:
        super().__init__(why)
        self.loss = loss
        self.why = why


class SolverReply(NamedTuple):
    """What came back: an answer, else a sentence with its story."""

    good: bool
    body: bytes


def solver_environment() -> dict[str, str]:
    """Of the child: one thread for numpy, orders that do not depend on a random hash seed."""
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    return {
        **kept,
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


class SolverPipe:
    """A process that was started; it says that it is ready in its own time.

    Used by one thread at a time, except ``kill``.

    Args:
        monotonic: seconds, for limits of time.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        path = [os.path.abspath(entry) for entry in sys.path]  # noqa: PTH100 - '' is where we are
        self._process = subprocess.Popen(  # noqa: S603 - ourselves
            [sys.executable, "-c", _START, json.dumps(path), str(limits.SOLVER_MEMORY_MAX)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=solver_environment(),
            start_new_session=True,  # Ctrl-C at a terminal is for the daemon
        )
        self._to, self._come, self._says = map(_unblocked, self._open_pipes())
        self._read = bytearray()
        self._said = bytearray()
        self._ready = False
        self._number = 0

    @property
    def pid(self) -> int:
        """Process id of the solver's process."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether it is gone."""
        return self._process.poll() is not None

    @property
    def said(self) -> str:
        """The end of what it wrote to standard error."""
        return self._said.decode(errors="replace")

    def await_ready(self, within_s: float) -> None:
        """Wait until it can be asked.

        Raises:
            Lost: it ended, or takes too long.
        """
        if self._ready:
            return
        try:
            kind, number, _ = self._exchange(b"", self._monotonic() + within_s)
        except SolverLost as lost:
            why = (
                f"was not ready within {within_s:g} s"
                if lost.loss is SolverLoss.OVERRUN
                else f"could not be started: it {lost.why}"
            )
            raise SolverLost(SolverLoss.START, why) from lost
        if kind != READY or number:
            raise SolverLost(SolverLoss.GARBAGE, "said something else than that it is ready")
        self._ready = True

    def ask(self, job: bytes, *, soft_s: float, hard_s: float) -> SolverReply:
        """Have a job done.

        Args:
            job: pickled.
            soft_s: seconds after which its searches are ended with what they have.
            hard_s: seconds after which it is too late for any answer.

        Raises:
            Lost: no answer came, or none that can be read.
        """
        self._number += 1
        frame = HEAD.pack(MAGIC, JOB, self._number, len(job), soft_s) + job
        try:
            kind, number, body = self._exchange(frame, self._monotonic() + hard_s)
        except SolverLost as lost:
            if lost.loss is SolverLoss.OVERRUN:
                raise SolverLost(
                    SolverLoss.OVERRUN, f"did not answer within {hard_s:.3g} s"
                ) from lost
            raise
        if number != self._number or kind not in (ANSWER, FAULT):
            raise SolverLost(SolverLoss.GARBAGE, "answered something that was not asked")
        return SolverReply(kind == ANSWER, body)

    def kill(self) -> None:
        """End it at once. May be called from any thread; one that waits for an answer gets none."""
        self._process.kill()

    def close(self) -> None:
        """End it, wait for its end and forget it; by the thread that asks."""
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_REAP_S)
        for pipe in self._open_pipes():
            with contextlib.suppress(OSError):
                pipe.close()

    def _open_pipes(self) -> tuple[IO[bytes], IO[bytes], IO[bytes]]:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        return process.stdin, process.stdout, process.stderr

    # -- bytes -----------------------------------------------------------------------------
    def _exchange(self, frame: bytes, until: float) -> tuple[bytes, int, bytes]:
        """Send a frame and wait for one: its kind, number and body."""
        rest = memoryview(frame)
        with selectors.DefaultSelector() as selector:
            selector.register(self._come, selectors.EVENT_READ)
            selector.register(self._says, selectors.EVENT_READ)
            if rest:
                selector.register(self._to, selectors.EVENT_WRITE)
            while True:
                left = until - self._monotonic()
                if left <= 0:
                    raise SolverLost(SolverLoss.OVERRUN, "did not answer in time")
                for key, _ in selector.select(left):
                    if key.fd == self._to:
                        rest = self._send(rest)
                        if not rest:
                            selector.unregister(self._to)
                    elif key.fd == self._says:
                        if not self._read_last_words():
                            selector.unregister(self._says)
                    else:
                        self._receive()
                        got = self._take_frame()
                        if got is not None:
                            return got

    def _send(self, rest: memoryview) -> memoryview:
        try:
            return rest[os.write(self._to, rest[:_CHUNK]) :]
        except BlockingIOError:
            return rest
        except BrokenPipeError:
            return rest[:0]  # it has ended: that shows where its answers are read

    def _read_last_words(self) -> bool:
        """Keep the end of what it says; whether it may say more."""
        try:
            some = os.read(self._says, _CHUNK)
        except BlockingIOError:
            return True
        self._said += some
        del self._said[:-_SAID_MAX]
        return bool(some)

    def _receive(self) -> None:
        try:
            some = os.read(self._come, _CHUNK)
        except BlockingIOError:
            return
        if not some:
            raise SolverLost(SolverLoss.CRASH, self._end_message())
        self._read += some

    def _take_frame(self) -> tuple[bytes, int, bytes] | None:
        """The frame that has come whole, None until then."""
        if len(self._read) < HEAD.size:
            return None
        magic, kind, number, size, _ = HEAD.unpack_from(self._read)
        if magic != MAGIC or size > limits.SOLVER_ANSWER_MAX:
            raise SolverLost(SolverLoss.GARBAGE, "answered something that cannot be read")
        if len(self._read) < HEAD.size + size:
            return None
        body = bytes(self._read[HEAD.size : HEAD.size + size])
        del self._read[: HEAD.size + size]
        if self._read:
            raise SolverLost(SolverLoss.GARBAGE, "answered more than was asked")
        return kind, number, body

    def _end_message(self) -> str:
        """How its process ended, after its last words."""
        try:
            status = self._process.wait(_REAP_S)
        except subprocess.TimeoutExpired:
            return "closed its pipe without an answer"
        while self._hear_left():
            pass
        if status < 0:
            return f"was ended by signal {-status}"
        return f"ended with status {status}"

    def _hear_left(self) -> bool:
        before = len(self._said)
        return self._read_last_words() and len(self._said) > before


def _unblocked(pipe: IO[bytes]) -> int:
    os.set_blocking(pipe.fileno(), False)
    return pipe.fileno()
