"""How many watch events a second leave the embedded cluster, to one reader and to several."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from typing import IO, Final

from benchmarks.figures import Figure, middle

PODS: Final = 1_000
EVENTS: Final = 120_000
"""Delivered in one round, over all watches."""
ROUNDS: Final = 3
RATE_MIN: Final = 50_000


def measure() -> list[Figure]:
    """Live changes, to one watch and to four, the readers in a process of their own."""
    return [_figure(watches) for watches in (1, 4, 16)]


def _figure(watches: int) -> Figure:
    rate, spread = middle([_round(watches) for _ in range(ROUNDS)])
    plural = "watch" if watches == 1 else "watches"
    return Figure(
        name=f"events to {watches} {plural} of pods",
        measured=rate,
        unit="events/s",
        spread=spread,
        target=f">= {RATE_MIN:,}",
        met=rate >= RATE_MIN,
    )


def _round(watches: int) -> float:
    with ExitStack() as stack:
        server = stack.enter_context(_process("benchmarks.fanout_server", str(PODS)))
        stack.callback(server.terminate)
        host, port, version = _line(server.stdout).split()
        events = EVENTS // watches
        reader = stack.enter_context(
            _process("benchmarks.watch_reader", host, port, version, str(watches), str(events))
        )
        stack.callback(reader.terminate)
        if _line(reader.stdout) != "watching":
            raise RuntimeError("the reader did not come to watch")
        assert server.stdin is not None
        print(events, file=server.stdin, flush=True)
        began = float(_line(server.stdout))
        ended = float(_line(reader.stdout))
        return watches * events / (ended - began)


def _process(module: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _line(pipe: IO[str] | None) -> str:
    assert pipe is not None
    line = pipe.readline().strip()
    if not line:
        raise RuntimeError("a process of the measurement ended early")
    return line
