"""Processes that play seeds, one each at a time: none of them hears a Ctrl-C, and one that is lost is told."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Final

import attrs

from gpusched.base.classes import define
from gpusched.io.workers.held_interrupts import held_interrupts
from gpusched.lab.chaos.play import ChaosRun

SEEDS_OF_A_PROCESS: Final = 100
"""After so many seeds a process is replaced, so that a leak of one run does not meet the next."""
PlaySeed = Callable[[int], ChaosRun]


@define(eq=False)
class _Player:
    """A process that plays seeds, and how many it has played."""

    pipe: Connection
    process: BaseProcess
    played: int = 0

    def end(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.join()
        self.process.close()
        self.pipe.close()


@define(eq=False)
class SeedProcesses:
    """See the module.

    Attributes:
        size: how many seeds are played at a time.
        play_seed: plays one, in another process.
        lost: what is told of a seed whose process ended before it was played, by why.
    """

    size: int
    play_seed: PlaySeed
    lost: Callable[[int, str], ChaosRun]
    _idle: list[_Player] = attrs.Factory(list)
    _at: dict[Connection, tuple[int, _Player]] = attrs.Factory(dict)

    def play(self, seeds: Iterable[int]) -> Iterator[ChaosRun]:
        """What came of each, in their order."""
        waiting, order, done = iter(seeds), deque[int](), dict[int, ChaosRun]()
        while True:
            while len(self._at) < self.size and (seed := next(waiting, None)) is not None:
                order.append(seed)
                self._give(seed)
            if not order:
                return
            if order[0] in done:
                yield done.pop(order.popleft())
            else:
                self._hear(done)

    def close(self) -> None:
        """End all that are played, at once."""
        for player in (*self._idle, *(player for _, player in self._at.values())):
            player.end()
        self._idle.clear()
        self._at.clear()

    def _give(self, seed: int) -> None:
        if not self._idle:
            with held_interrupts():
                self._idle.append(self._begin())
        player = self._idle.pop()
        # One that was killed while it was idle breaks the pipe here; reading tells that.
        with contextlib.suppress(BrokenPipeError):
            player.pipe.send(seed)
        self._at[player.pipe] = (seed, player)

    def _begin(self) -> _Player:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        silence = logging.root.manager.disable  # they are as silent as this process
        process = context.Process(target=_work, args=(theirs, self.play_seed, silence), daemon=True)
        process.start()
        theirs.close()
        return _Player(ours, process)

    def _hear(self, done: dict[int, ChaosRun]) -> None:
        """Wait until at least one seed was played."""
        for ready in wait(list(self._at)):
            assert isinstance(ready, Connection)
            seed, player = self._at.pop(ready)
            try:
                done[seed] = ready.recv()
            except (EOFError, ConnectionResetError):
                player.process.join()
                done[seed] = self.lost(seed, _exit_text(player.process.exitcode or 0))
                player.end()
                continue
            player.played += 1
            if player.played < SEEDS_OF_A_PROCESS:
                self._idle.append(player)
            else:
                player.end()


def _exit_text(code: int) -> str:
    if code >= 0:
        return f"ended with status {code}"
    names = {each.value: each.name for each in signal.Signals}
    hint = ", as the kernel does where memory is short" if -code == signal.SIGKILL else ""
    return f"was ended by {names.get(-code, -code)}{hint}"


def _work(pipe: Connection, play_seed: PlaySeed, silence: int) -> None:
    """A process's life: seeds come, runs go, until nobody is there who asks."""
    logging.disable(silence)
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            pipe.send(play_seed(pipe.recv()))
