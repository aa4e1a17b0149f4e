"""Scenarios played one after another in this process, or several at a time in processes."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final, Self, TypeAlias

import attrs

from gpusched.base.classes import frozen
from gpusched.base.clock import SystemClock
from gpusched.base.errors import ClusterUnreachable, ConfigError, GpuschedError
from gpusched.io.observe.logs import set_up_logging
from gpusched.io.workers.held_interrupts import held_interrupts
from gpusched.lab.scenario.file.read import read_paths
from gpusched.lab.scenario.judge.judge import ExpectationVerdict
from gpusched.lab.scenario.model.scenario import Scenario
from gpusched.lab.scenario.play.on_embedded import play_embedded
from gpusched.lab.scenario.play.on_real import play_real
from gpusched.lab.scenario.play.run import RunProgress, ScenarioRun

Tell: TypeAlias = Callable[[RunProgress], None]
Note: TypeAlias = Callable[[str], None]
_TELL_EVERY_S: Final = 0.1
_NAMES: Final = ("record", "skipped", "refused", "fault", "lost", "interrupted", "real_s")


class PlayProcessLost(GpuschedError):
    """A bug in the player, in another process."""


@frozen(kw_only=True)
class PlayRequest:
    """How scenarios are read and played, in every process the same.

    Attributes:
        paths, config: of their files.
        seed: instead of their own; None for those.
        logs: folder for the daemons' logs; None to drop them.
        kubeconfig: of a real cluster, on which they are played in real time; empty for embedded
            ones.
    """

    paths: tuple[Path, ...]
    config: Path | None = None
    seed: int | None = None
    logs: Path | None = None
    kubeconfig: str = ""


def play_all(
    scenarios: Sequence[Scenario], order: PlayRequest, *, jobs: int, tell: Tell, note: Note
) -> Iterator[ScenarioRun]:
    """Play scenarios and yield what came of each, in their order.

    When the user interrupts it, those that are being played end at once with what there is, and
    the others are not begun.

    Args:
        scenarios: of the order's files.
        order: see there.
        jobs: how many are played at a time.
        tell: given progress, a few times a second.
        note: given sentences on what was done in a real cluster.
    """
    if jobs == 1 or len(scenarios) == 1:
        for scenario in scenarios:
            run = play_one(scenario, order, tell=_seldom(tell), note=note)
            yield run
            if run.interrupted or run.lost:
                return
    else:
        with _PlayProcesses(order, min(jobs, len(scenarios))) as pool:
            yield from pool.play(scenarios, tell)


def play_one(scenario: Scenario, order: PlayRequest, *, tell: Tell, note: Note) -> ScenarioRun:
    """Play one scenario in this process, its daemons' log in a file of its name."""
    if order.seed is not None:
        scenario = attrs.evolve(scenario, seed=order.seed)
    clock = SystemClock()
    begun = clock.monotonic()
    with contextlib.ExitStack() as stack:
        if order.logs is None:
            _drop_logs()
        else:
            file = (order.logs / f"{scenario.name}.log").open("w", encoding="utf-8")
            set_up_logging(level=logging.INFO, stream=stack.enter_context(file))
        stack.callback(_drop_logs)
        try:
            if order.kubeconfig:
                run = play_real(scenario, order.kubeconfig, tell=tell, note=note)
            else:
                run = play_embedded(scenario, tell=tell)
        except ConfigError as refused:
            run = ScenarioRun(scenario=scenario, refused="; ".join(refused.problems))
        except ClusterUnreachable as error:
            run = ScenarioRun(scenario=scenario, refused=str(error), lost=True)
        except KeyboardInterrupt:
            run = ScenarioRun(scenario=scenario, refused="it was interrupted", interrupted=True)
    return attrs.evolve(run, real_s=clock.monotonic() - begun)


def _unheard(sentence: str) -> None:
    """Embedded clusters are gone with their runs, and so is what was done in them."""
    del sentence


def _drop_logs() -> None:
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(logging.NullHandler())


def _seldom(tell: Tell) -> Tell:
    """Tell a few times a second of real time, however fast the virtual one goes."""
    clock = SystemClock()
    last = -_TELL_EVERY_S

    def tell_seldom(progress: RunProgress) -> None:
        nonlocal last
        now = clock.monotonic()
        if now - last >= _TELL_EVERY_S:
            last = now
            tell(progress)

    return tell_seldom


# -- processes ---------------------------------------------------------------------------------
class _PlayProcesses:
    """Worker processes, each with one scenario at a time."""

    def __init__(self, order: PlayRequest, size: int) -> None:
        context = worker_context(__name__)
        self._workers: dict[Connection, BaseProcess] = {}
        self._at: dict[Connection, Scenario] = {}
        # A Ctrl-C of the terminal is for this process, which tells the others.
        with held_interrupts():
            for _ in range(size):
                ours, theirs = context.Pipe()
                process = context.Process(target=_work, args=(theirs, order), daemon=True)
                process.start()
                theirs.close()
                self._workers[ours] = process

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe, process in self._workers.items():
            pipe.close()
            process.terminate()
            process.join()

    def play(self, scenarios: Sequence[Scenario], tell: Tell) -> Iterator[ScenarioRun]:
        """What came of each, in their order."""
        waiting = list(scenarios)
        done: dict[str, ScenarioRun] = {}
        order = [each.name for each in scenarios]
        for pipe in self._workers:
            self._give(pipe, waiting)
        while self._at:
            try:
                self._hear(waiting, done, tell)
            except KeyboardInterrupt:
                waiting.clear()
                self._interrupt()
            while order and order[0] in done:
                yield done.pop(order.pop(0))
        yield from (done[name] for name in order if name in done)

    def _hear(self, waiting: list[Scenario], done: dict[str, ScenarioRun], tell: Tell) -> None:
        """Wait for the next message of any worker."""
        for ready in wait(list(self._at)):
            assert isinstance(ready, Connection)
            try:
                kind, what = ready.recv()
            except EOFError:
                name = self._at[ready].name
                raise PlayProcessLost(f"the process that played {name} died") from None
            if kind == "at":
                tell(what)
            elif kind == "bug":
                raise PlayProcessLost(f"{self._at[ready].name}: {what[0]}") from RuntimeError(
                    what[1]
                )
            else:
                scenario = self._at.pop(ready)
                done[scenario.name] = unpacked(scenario, what)
                self._give(ready, waiting)

    def _give(self, pipe: Connection, waiting: list[Scenario]) -> None:
        if waiting:
            self._at[pipe] = scenario = waiting.pop(0)
            pipe.send(scenario.name)

    def _interrupt(self) -> None:
        for pipe in self._at:
            pid = self._workers[pipe].pid
            if pid is not None:
                os.kill(pid, signal.SIGINT)


def worker_context(preload: str) -> Any:
    """How processes are begun: out of one that has imported a module, where there is such."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([preload])
    return context


def packed(run: ScenarioRun) -> dict[str, Any]:
    """A run without its scenario, which other processes have."""
    told = {name: getattr(run, name) for name in _NAMES}
    verdicts = [(each.ok, each.at, each.seen) for each in run.verdicts]
    return {**told, "verdicts": verdicts}


def unpacked(scenario: Scenario, told: dict[str, Any]) -> ScenarioRun:
    """The run again; every expectation has its verdict."""
    pairs = zip(scenario.expect, told.pop("verdicts"), strict=False)
    verdicts = tuple(
        ExpectationVerdict(expectation=each, ok=ok, at=at, seen=seen)
        for each, (ok, at, seen) in pairs
    )
    return ScenarioRun(scenario=scenario, verdicts=verdicts, **told)


def _work(pipe: Connection, order: PlayRequest) -> None:
    """A worker's life: names come, runs go."""
    os.setpgid(0, 0)  # the terminal's Ctrl-C is the parent's
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # what came meanwhile is forgotten
    signal.signal(signal.SIGINT, signal.default_int_handler)
    known = {each.name: each for each in read_paths(order.paths, config=order.config)}
    tell = _seldom(lambda progress: pipe.send(("at", progress)))
    while True:
        try:
            name = pipe.recv()
        except EOFError:
            return
        try:
            run = _interruptible(known[name], order, tell)
            pipe.send(("done", packed(run)))
        except Exception as bug:  # noqa: BLE001 - told to the parent, which ends with it
            pipe.send(("bug", (f"{type(bug).__name__}: {bug}", traceback.format_exc())))


def _interruptible(scenario: Scenario, order: PlayRequest, tell: Tell) -> ScenarioRun:
    """Play one; only here the signal is heard, which may have come before."""
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        return play_one(scenario, order, tell=tell, note=_unheard)
    except KeyboardInterrupt:  # as the signal was unblocked
        return ScenarioRun(scenario=scenario, refused="it was interrupted", interrupted=True)
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
