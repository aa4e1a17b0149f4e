"""What runs in the solver's process: one job after another, until the daemon is gone.

Frames come on standard input and go to what standard output was at the start; whatever a job
or a library prints goes to standard error instead, where it spoils nothing. A thread reads
ahead, so that the end of the daemon ends this process in the middle of a search.

``python -m gpusched.io.solver.child FILE`` runs a job that was kept after a fault.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import pickle
import resource
import signal
import struct
import sys
import threading
import traceback
from pathlib import Path
from queue import SimpleQueue
from typing import BinaryIO, Final, NamedTuple

from gpusched.base import limits
from gpusched.base.errors import SolverFault
from gpusched.placement.cpsat.solver import SEARCH_STOPPER, warm_up_solver

HEAD: Final = struct.Struct(">4scIQd")
"""Magic, kind, number of the job, bytes that follow, seconds after which its searches end."""
MAGIC: Final = b"gpus"
JOB: Final = b"J"
READY: Final = b"R"
ANSWER: Final = b"A"
FAULT: Final = b"F"
_STOP_AGAIN_S: Final = 0.05
_STORY_MAX: Final = 8_192


class _SolverJob(NamedTuple):
    number: int
    soft_s: float
    body: bytes


def serve(*, memory_max: int) -> None:
    """Serve until standard input ends.

    Args:
        memory_max: bytes that this process may hold.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable()
    _bound_memory(memory_max)
    SEARCH_STOPPER.guards_wall_time = True
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    asked: SimpleQueue[_SolverJob] = SimpleQueue()
    threading.Thread(target=_read, args=(sys.stdin.buffer, asked), daemon=True).start()
    warm_up_solver()
    _write(answers, READY, 0, b"")
    while True:
        each = asked.get()
        kind, body = _run(each)
        _write(answers, kind, each.number, body)


def _read(source: BinaryIO, asked: SimpleQueue[_SolverJob]) -> None:
    """Pass on jobs; end the process when the pipe of jobs is closed."""
    while True:
        head = source.read(HEAD.size)
        if len(head) < HEAD.size:
            os._exit(0)
        _, _, number, size, soft_s = HEAD.unpack(head)
        body = source.read(size)
        if len(body) < size:
            os._exit(0)
        asked.put(_SolverJob(number, soft_s, body))


def _write(answers: BinaryIO, kind: bytes, number: int, body: bytes) -> None:
    frame = memoryview(HEAD.pack(MAGIC, kind, number, len(body), 0.0) + body)
    try:
        while frame:
            frame = frame[answers.write(frame) :]
    except BrokenPipeError:
        os._exit(0)


def _run(asked: _SolverJob) -> tuple[bytes, bytes]:
    """Kind and body of the answer."""
    over = threading.Event()
    watch = threading.Thread(target=_stop_late, args=(over, asked.soft_s), daemon=True)
    try:
        job = pickle.loads(asked.body)  # noqa: S301 - from our own parent
        watch.start()
        return ANSWER, pickle.dumps(job.run(), protocol=pickle.HIGHEST_PROTOCOL)
    except SolverFault as fault:
        return FAULT, _fault_text(str(fault))
    except BaseException as error:  # noqa: BLE001 - told to the parent, whatever it is
        what = " ".join(f"{type(error).__name__}: {error}".split())[: limits.FOREIGN_TEXT_MAX]
        return FAULT, _fault_text(f"a search failed: {what}")
    finally:
        over.set()
        if watch.is_alive():
            watch.join()
        SEARCH_STOPPER.reset()


def _stop_late(over: threading.Event, soft_s: float) -> None:
    """Stop the searches of a job that takes too long, and again, as one call may come too early."""
    if over.wait(soft_s):
        return
    while True:
        SEARCH_STOPPER.stop()
        if over.wait(_STOP_AGAIN_S):
            return


def _fault_text(message: str) -> bytes:
    """The sentence, and below it where it came from."""
    where = traceback.format_exc()[-_STORY_MAX:]
    return f"{message}\n{where}".encode(errors="replace")


def _bound_memory(bound: int) -> None:
    """A runaway search fails here, or is the first to be killed, before it takes the daemon along.

    Neither works on every platform; where it does not, the container's limit is what there is.
    """
    with contextlib.suppress(OSError, ValueError):
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        if most == resource.RLIM_INFINITY or most > bound:
            resource.setrlimit(resource.RLIMIT_DATA, (bound, bound))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


if __name__ == "__main__":
    faulthandler.enable()
    print(pickle.loads(Path(sys.argv[1]).read_bytes()).run())  # noqa: S301, T201 - asked for by a person
