"""The daemon's ``Search``: jobs run in a process of their own, whose loss costs one decision.

A native crash, a runaway search or a wild allocation ends that process, not the daemon: the
session gets a ``SolverFault`` and goes on with the best answer it knows, and another process
is started. A job that cost a process twice is not sent again; when processes are lost again
and again, none is started for a time that doubles.

    none --warm, job--> starting --ready--> idle <--answer-- searching --lost--> none
    none --lost too often in a row--> set aside --time--> none
"""

from __future__ import annotations

import hashlib
import pickle
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

from gpusched.base import limits
from gpusched.base.classes import define
from gpusched.base.clock import Clock
from gpusched.base.errors import SolverFault
from gpusched.config.model import PlacementConfig
from gpusched.io.observe.fault_dumps import FaultDumps
from gpusched.io.observe.telemetry import Telemetry
from gpusched.io.solver.pipe import SolverLoss, SolverLost, SolverPipe, SolverReply
from gpusched.placement.model.problem import SearchJob

_FAULT: Final = "fault"


@define
class SolverLosses:
    """How often processes were lost, and until when none is started. Pure.

    Attributes:
        in_a_row: since an answer came.
        until: monotonic seconds before which none is started.
        last: the sentence of the newest loss.
    """

    in_a_row: int = 0
    until: float = 0.0
    last: str = ""

    def count_loss(self, message: str, *, now: float) -> None:
        """Count one more lost process."""
        self.in_a_row += 1
        self.last = message
        over = self.in_a_row - limits.SOLVER_LOSSES_MAX
        if over >= 0:
            pause = limits.SOLVER_PAUSE_MIN_S * 2 ** min(over, 32)
            self.until = now + min(pause, limits.SOLVER_PAUSE_MAX_S)

    def count_answer(self) -> None:
        """An answer came: losses in a row start at 0 again."""
        self.in_a_row = 0
        self.until = 0.0

    @property
    def error(self) -> str:
        """Empty while all is well, else a sentence about what does not work."""
        if self.in_a_row < limits.SOLVER_LOSSES_MAX:
            return ""
        return (
            f"{self.last}; {self.in_a_row} times in a row, so placements are made without it "
            "and it is tried again now and then"
        )


class SolverProcess:
    """A ``Search``. Called by one thread, that of sessions; it waits, the event loop goes on.

    Args:
        clock: its monotonic time is read from that thread.
        telemetry: counts faults and lost processes.
        start: starts a process.

    Attributes:
        budget_s: what the configuration in force allows for one problem, in seconds.
    """

    def __init__(
        self,
        clock: Clock,
        telemetry: Telemetry,
        *,
        start: Callable[[Callable[[], float]], SolverPipe] = SolverPipe,
    ) -> None:
        self._monotonic = clock.monotonic
        self._telemetry = telemetry
        self.budget_s = PlacementConfig().time_budget_s
        self._start = start
        self._pipe: SolverPipe | None = None
        self._losses = SolverLosses()
        self._costly: OrderedDict[str, int] = OrderedDict()
        self._dumps = FaultDumps()
        self._closed = False
        self.told: deque[str] = deque(maxlen=limits.SOLVER_MESSAGES_MAX)
        """The newest messages of faults, for the searches that met them."""

    @property
    def error(self) -> str:
        """Why placements are made without the solver, empty when they are not. From any thread."""
        return self._losses.error

    @property
    def pid(self) -> int:
        """Of the process, 0 when there is none."""
        pipe = self._pipe
        return pipe.pid if pipe is not None else 0

    def start_early(self) -> None:
        """Start the process ahead of its first use; it loads the solver while no search waits."""
        self._note_ended_process()
        if not self._closed and self._pipe is None and self._monotonic() >= self._losses.until:
            self._try_to_start()

    def start_in_a_lull(self, *, binding: object) -> None:
        """The same where no pod is being bound.

        Loading the solver takes a processor for a third of a second, and the API server needs it for bindings where there are
        few. A search that comes before starts the process itself.

        Args:
            binding: true while pods are bound, or are about to be.
        """
        if not binding:
            self.start_early()

    def __call__(self, job: SearchJob) -> object:
        """The answer of ``job.run()``, run in the process.

        Raises:
            SolverFault: there is none, within the time budget and a second.
        """
        began = self._monotonic()
        try:
            return self._ask_process(job)
        except SolverFault as fault:
            self.told.append(str(fault))
            if not self._closed:
                self._telemetry.solver(_FAULT, self._monotonic() - began)
            raise

    def kill(self) -> None:
        """End the process for good; from any thread. A search under way gets a fault."""
        self._closed = True
        pipe = self._pipe
        if pipe is not None:
            pipe.kill()

    def close(self) -> None:
        """``kill`` and tidy up; where no other thread searches."""
        self._closed = True
        self._drop_pipe()

    # -- one job ---------------------------------------------------------------------------
    def _ask_process(self, job: SearchJob) -> object:
        try:
            body = pickle.dumps(job, protocol=pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            raise SolverFault(f"a search cannot be sent to the solver: {error}") from error
        digest = hashlib.sha256(body).hexdigest()
        if self._costly.get(digest, 0) >= limits.SOLVER_LOSSES_OF_JOB_MAX:
            raise SolverFault(
                f"a search that cost the solver's process {self._costly[digest]} times is not "
                "tried again"
            )
        pipe = self._ready_pipe()
        try:
            reply = pipe.ask(
                body,
                soft_s=self.budget_s + limits.SOLVER_SOFT_S,
                hard_s=self.budget_s + limits.SOLVER_HARD_S,
            )
            answer = self._open_reply(reply)
        except SolverLost as lost:
            self._costly[digest] = self._costly.pop(digest, 0) + 1
            while len(self._costly) > limits.SOLVER_COSTLY_JOBS_MAX:
                self._costly.popitem(last=False)
            raise self._replace_process(lost, job=job, body=body) from lost
        self._losses.count_answer()
        if reply.good:
            return answer
        message, _, story = reply.body.decode(errors="replace").partition("\n")
        self._dumps.write(message, story, what=type(job).__qualname__, body=body)
        raise SolverFault(message)

    def _open_reply(self, reply: SolverReply) -> object:
        if not reply.good:
            return None
        try:
            return pickle.loads(reply.body)  # noqa: S301 - from our own child
        except Exception as error:
            raise SolverLost(
                SolverLoss.GARBAGE, "answered something that cannot be read"
            ) from error

    # -- the process -----------------------------------------------------------------------
    def _ready_pipe(self) -> SolverPipe:
        if self._closed:
            raise SolverFault("the solver was ended with the daemon")
        rest_s = self._losses.until - self._monotonic()
        if rest_s > 0:
            raise SolverFault(f"the solver is set aside for {rest_s:.0f} s: {self._losses.last}")
        self._note_ended_process()
        if self._pipe is None:
            self._try_to_start()
        pipe = self._pipe
        if pipe is None:
            raise SolverFault(self._losses.last)
        try:
            pipe.await_ready(limits.SOLVER_START_MAX_S)
        except SolverLost as lost:
            raise self._replace_process(lost) from lost
        return pipe

    def _try_to_start(self) -> None:
        try:
            self._pipe = self._start(self._monotonic)
        except OSError as error:
            self._replace_process(SolverLost(SolverLoss.START, f"could not be started: {error}"))
        if self._closed:  # meanwhile, by another thread
            self._drop_pipe()

    def _note_ended_process(self) -> None:
        """Take note of a process that ended while no search waited for it, or could not even be started."""
        pipe = self._pipe
        if pipe is None or not pipe.ended:
            return
        lost = SolverLost(SolverLoss.CRASH, "ended without being asked")
        try:
            pipe.await_ready(limits.SOLVER_START_MAX_S)  # it has ended: nobody waits
        except SolverLost as before_ready:
            lost = before_ready
        self._replace_process(lost)

    def _drop_pipe(self) -> None:
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            pipe.close()

    def _replace_process(
        self, lost: SolverLost, *, job: SearchJob | None = None, body: bytes = b""
    ) -> SolverFault:
        """Take note, and have another process ready for the next search."""
        said = self._pipe.said if self._pipe is not None else ""
        self._drop_pipe()
        if self._closed:
            return SolverFault("the solver was ended with the daemon")
        message = f"the solver {lost.why}"
        self._losses.count_loss(message, now=self._monotonic())
        self._telemetry.solver_lost(lost.loss)
        what = type(job).__qualname__ if job is not None else ""
        self._dumps.write(message, said, what=what, body=body)
        if lost.loss is not SolverLoss.START:
            self.start_early()
        return SolverFault(message)
