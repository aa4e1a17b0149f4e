"""The daemons of a run, one in each slot, and what can be done to them."""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

import attrs
import numpy as np

from gpusched.app import App, AppOptions
from gpusched.base.classes import define
from gpusched.base.clock import Clock, LoopClock
from gpusched.base.errors import SolverFault
from gpusched.config.load import ConfigFiles
from gpusched.config.model import Config
from gpusched.devcluster.cluster import DevCluster
from gpusched.io.client.credentials import ApiAccess, GivenCredentials
from gpusched.lab.chaos.faulty_connection import FaultyConnection, PlannedDeath, WatchTampering
from gpusched.lab.virtual_time.client_sessions import sessions_to
from gpusched.lab.virtual_time.process_pause import PROGRAM, PausableLoop
from gpusched.placement.model.problem import SearchJob, Solution

_BURIAL_S: Final = 30.0
_BURIALS: Final = 5


def _nothing() -> None:
    """No observer: the call is ignored."""


@define(eq=False)
class DaemonProcess:
    """One daemon.

    Attributes:
        number: counted over all that were started.
        app: None until ``start``.
        task: its life.
        frozen: nothing of it runs.
        dead: nothing of it will run again.
        stopped: it was asked to end.
        on_death: called when it dies at a write.
        tasks: those of its tasks that are not done.
    """

    number: int
    app: App | None = None
    task: asyncio.Task[None] | None = None
    frozen: bool = False
    dead: bool = False
    stopped: bool = False
    on_death: Callable[[], None] = _nothing
    tasks: dict[asyncio.Task[Any], None] = attrs.Factory(dict)

    def start(self, app: App) -> None:
        """Run the daemon as tasks of its own."""
        self.app = app
        token = PROGRAM.set(self)
        try:
            self.task = asyncio.create_task(app.run(), name=f"daemon {self.number}")
        finally:
            PROGRAM.reset(token)

    @property
    def alive(self) -> bool:
        """Whether it runs, or is paused."""
        return not self.dead and self.task is not None and not self.task.done()

    @property
    def leading(self) -> bool:
        """Whether it believes that it leads."""
        return self.alive and self.app is not None and self.app.leadership.leading

    def freeze(self) -> None:
        """Nothing of it runs until ``thaw``."""
        self.frozen = True
        _loop().freeze(self)

    def thaw(self) -> None:
        """It goes on where it was."""
        self.frozen = False
        _loop().thaw(self)

    def kill(self) -> None:
        """Nothing of it runs again."""
        self.dead = True
        self.freeze()

    async def end_tasks(self) -> None:
        """Let its tasks end, so that the loop can; its way to the server is closed before."""
        self.thaw()
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait([self.task], timeout=_BURIAL_S)
        for _ in range(_BURIALS):
            tasks = [task for task in self.tasks if not task.done()]
            if not tasks:
                return
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=_BURIAL_S)


def _loop() -> PausableLoop:
    return cast("PausableLoop", asyncio.get_running_loop())


def owning_task_factory(
    loop: asyncio.AbstractEventLoop, coro: Any, **how: Any
) -> asyncio.Task[Any]:
    """A task factory: whose code makes a task owns it."""
    task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, **how)
    context = how.get("context")
    process = PROGRAM.get() if context is None else context.get(PROGRAM)
    if isinstance(process, DaemonProcess):
        tasks = process.tasks
        tasks[task] = None
        task.add_done_callback(lambda done: tasks.pop(done, None))
    return task


_CRASH_BACK_S: Final = 2.0
_CONFIG: Final = "actions: [{actions}]\ncycle: {{maxPeriod: {period}s}}\n"
_BAD: Final = "actions: [allocate\n"


class SkewedClock(LoopClock):
    """The loop's time as one machine tells it.

    Attributes:
        wall_s: by so much its wall clock is wrong.
    """

    def __init__(self, epoch: float) -> None:
        super().__init__(epoch)
        self.wall_s = 0.0

    def now(self) -> float:
        """Wall time with the machine's error, seconds since the epoch."""
        return super().now() + self.wall_s


@define(eq=False)
class _DaemonSlot:
    """A place for one daemon; ``back_s`` is when it returns from a death that is prepared."""

    number: int
    clock: SkewedClock
    process: DaemonProcess | None = None
    wire: FaultyConnection | None = None
    back_s: float = 60.0


class DaemonFleet:
    """The daemons of a run, one in each slot.

    Args:
        cluster: to which they are connected.
        clock: the run's.
        token: that may do everything.
        epoch: wall time at the run's beginning.
        seed: of jitter and delays.
        slots: how many daemons there are.
        config: of all of them.
        latency: seconds on the way to the server, at least and at most.
        thinks: seconds of one session, at least and at most.
        reloads: whether daemons watch a configuration that changes.
        sends: told path and body of each write before the server has it; and, with the path
            ``session``, that a daemon has decided.
        wrote: told each accepted write.

    Attributes:
        crashes: how daemons ended without being told to, with the time.
        starts: how many processes there were.
        tampering: what becomes of watch events now.
    """

    def __init__(
        self,
        cluster: DevCluster,
        *,
        clock: Clock,
        epoch: float,
        token: str,
        seed: int,
        slots: int,
        config: Config,
        latency: tuple[float, float],
        thinks: tuple[float, float] = (0.0, 0.0),
        reloads: bool = False,
        sends: Callable[[str, bytes], None],
        wrote: Callable[[str, str], None],
    ) -> None:
        self.crashes: list[tuple[float, str]] = []
        self.starts = 0
        self.tampering: list[WatchTampering] = []
        self._cluster = cluster
        self._clock = clock
        self._token = token
        self._seed = seed
        self._config = config
        self._latency = latency
        self._thinks = thinks
        self._reloads = reloads
        self._config_text = ""
        self._sends = sends
        self._wrote = wrote
        self._outside = contextvars.copy_context()
        self._slots = [_DaemonSlot(number, SkewedClock(epoch)) for number in range(slots)]
        self._all: list[DaemonProcess] = []
        self._later: set[asyncio.Task[None]] = set()
        self._ended = False
        self._solver = ""
        self.configure(good=True, period=10)

    @property
    def alive(self) -> list[DaemonProcess]:
        """Those that run or are paused."""
        return [each for each in self._all if each.alive]

    @property
    def contained(self) -> list[str]:
        """What daemons have contained of late: each is a defect, though nothing else suffers."""
        return [
            said
            for process in self.alive
            if process.app is not None and process.app.cycle is not None
            for said in process.app.cycle.faults.degraded
        ]

    def configure(self, *, good: bool, period: int = 9) -> None:
        """Change the configuration that daemons watch: as it should be, or not."""
        actions = ", ".join(self._config.actions)
        self._config_text = _CONFIG.format(actions=actions, period=period) if good else _BAD

    def start(self, slot: int) -> None:
        """Start a daemon in a slot that has none."""
        place = self._slots[slot % len(self._slots)]
        if self._ended or (place.process is not None and place.process.alive):
            return
        process = DaemonProcess(self.starts)
        rng = random.Random(f"{self._seed}/daemon/{self.starts}")  # noqa: S311  # repeatable
        place.wire = FaultyConnection(
            self._cluster.in_process,
            process,
            clock=self._clock,
            rng=random.Random(f"{self._seed}/wire/{self.starts}"),  # noqa: S311  # repeatable
            outside=self._outside,
            latency=self._latency,
            tampering=self.tampering,
            sends=self._sends,
            wrote=self._wrote,
        )
        access = ApiAccess(host=self._cluster.url, authorization=f"Bearer {self._token}")
        options = AppOptions(
            config=self._config,
            clock=place.clock,
            rng=rng,
            kubeconfig=GivenCredentials(access),
            identity=f"daemon-{self.starts}",
            inline=True,
            config_file="gpusched.yaml" if self._reloads else "",
            # In memory: a path that differs would make each run another one, as events name it.
            read_config=lambda _path: ConfigFiles(self._config_text.encode()),
            opened=sessions_to(place.wire),
            search=self._search,
            session_s=lambda: self._thought(rng),
        )
        place.process = process
        self.starts += 1
        self._all.append(process)
        process.start(App(options))
        assert process.task is not None
        process.task.add_done_callback(lambda task: self._over(place, process, task))

    def _thought(self, rng: random.Random) -> float:
        """A session has been decided; so long it takes until that is carried out."""
        self._sends("session", b"")
        return rng.uniform(*self._thinks)

    def _over(self, place: _DaemonSlot, process: DaemonProcess, task: asyncio.Task[None]) -> None:
        """It ended: by itself it should not."""
        if process.dead or self._ended:
            return
        error = None if task.cancelled() else task.exception()
        if error is not None or not process.stopped:
            self.crashes.append((self._clock.monotonic(), error_message(error)))
            self._restart_later(place.number, _CRASH_BACK_S)

    def _restart_later(self, slot: int, seconds: float) -> None:
        async def later() -> None:
            await self._clock.sleep(seconds)
            self.start(slot)

        task = asyncio.get_running_loop().create_task(later(), context=self._outside)
        self._later.add(task)
        task.add_done_callback(self._later.discard, context=self._outside)

    def kill(self, slot: int) -> None:
        """End a daemon at once, as SIGKILL does."""
        place = self._slots[slot % len(self._slots)]
        if place.process is not None and place.wire is not None:
            place.process.kill()
            place.wire.close_connections()

    def kill_at_write(self, slot: int, death: PlannedDeath, back_s: float) -> None:
        """It will die at a later write, and another will be started after that."""
        place = self._slots[slot % len(self._slots)]
        if place.wire is None or place.process is None:
            return
        process = place.process
        place.wire.death = death
        process.on_death = lambda: self._restart_later(place.number, back_s)

    def stop(self, slot: int, *, back: float) -> None:
        """Like SIGTERM; another is started after its end."""
        place = self._slots[slot % len(self._slots)]
        process = place.process
        if process is None or process.app is None or process.task is None or not process.alive:
            return
        process.stopped = True
        process.app.stop()
        process.task.add_done_callback(lambda _task: self._restart_later(place.number, back))

    def freeze(self, slot: int) -> Callable[[], None]:
        """Pause a process; what is returned lets it go on."""
        place = self._slots[slot % len(self._slots)]
        process = place.process
        if process is None or process.dead:
            return lambda: None
        process.freeze()

        def thaw() -> None:
            if process.dead or not process.frozen:
                return
            process.thaw()

        return thaw

    def skew(self, slot: int, seconds: float) -> None:
        """The wall clock of its machine jumps."""
        self._slots[slot % len(self._slots)].clock.wall_s += seconds

    def harm_solver(self, how: str) -> None:
        """Searches fail, or answer what is wrong, until told otherwise."""
        self._solver = how

    def _search(self, job: SearchJob) -> object:
        if self._solver == "fails":
            raise SolverFault("the solver is made to fail")
        answer = job.run()
        if self._solver == "lies" and isinstance(answer, Solution) and answer.counts.size:
            return attrs.evolve(answer, counts=np.roll(answer.counts, 1))
        return answer

    def heal(self) -> None:
        """Faults are over: every daemon runs, and clocks are right again."""
        self.tampering.clear()
        self._solver = ""
        self._latency = self._thinks = (0.0, 0.0)
        for place in self._slots:
            place.clock.wall_s = 0.0
            if place.wire is not None:
                place.wire.death = None
                place.wire.latency = self._latency
            if place.process is not None and place.process.frozen and not place.process.dead:
                place.process.thaw()
            self.start(place.number)

    def wake(self) -> None:
        """Each daemon that leads decides at once, as it would within its period anyway."""
        for process in self.alive:
            if process.leading and process.app is not None and process.app.cycle is not None:
                process.app.cycle.wake()

    async def restart(self) -> None:
        """End all in order, and start one anew."""
        for place in self._slots:
            process = place.process
            if process is None or process.app is None or not process.alive:
                continue
            process.stopped = True
            process.app.stop()
            assert process.task is not None
            await asyncio.wait([process.task])
        self.start(0)

    async def close(self) -> None:
        """End all at once, and let what they began end."""
        self._ended = True
        for task in list(self._later):
            task.cancel()
        for place in self._slots:
            if place.wire is not None:
                place.wire.close_connections()
        for process in self._all:
            process.kill()
        for process in self._all:
            await process.end_tasks()


def error_message(error: BaseException | None) -> str:
    """What went wrong; of a group that of its first member, and where."""
    if error is None:
        return "it ended by itself"
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    where = error.__traceback__
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    place = ""
    if where is not None:
        code = where.tb_frame.f_code
        place = f" at {Path(code.co_filename).name}:{where.tb_lineno}"
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}{place}"
