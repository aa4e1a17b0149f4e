"""The history: questions to a million runs, a run written, and what a session with nothing new pays."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks.figures import Figure
from gpusched.api.meta.identity import UID, GangKey
from gpusched.base.clock import SystemClock
from gpusched.cache.cache import Cache
from gpusched.io.history.gang_run import GangRun, run_as_row
from gpusched.io.history.history_keeper import HistoryKeeper
from gpusched.io.history.history_query import HistoryQuery, query_history, sum_history
from gpusched.io.history.history_store import HistoryStore
from gpusched.io.history.history_writer import HistoryOptions
from gpusched.io.observe.telemetry import Telemetry
from gpusched.session.state.plan import Plan
from gpusched.testing.given import Given

RUNS: Final = 1_000_000
_BATCH: Final = 10_000
_BEGAN: Final = 1_790_000_000.0
_EVERY_S: Final = 2.5
_MOST_S: Final = 1.0
_SESSION_MOST_MS: Final = 0.2
_SESSIONS: Final = 1_000
_GANGS: Final = 2_000
_MEMBERS: Final = 4


def measure() -> list[Figure]:
    """CPU seconds of questions, of writing, and of sessions."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "history.db"
        per_run = _fill(file) / RUNS
        now = _BEGAN + RUNS * _EVERY_S
        day = HistoryQuery(since=now - 86_400)
        questions: dict[str, Callable[[], object]] = {
            "the latest 500": lambda: query_history(file, HistoryQuery()),
            "500 of one namespace": lambda: query_history(
                file, HistoryQuery(namespaces=("team-3",))
            ),
            "a state that none has": lambda: query_history(file, HistoryQuery(state="None")),
            "sums by queue": lambda: sum_history(file, HistoryQuery(), "queue", now),
            "sums by GPU type": lambda: sum_history(file, HistoryQuery(), "gpu-type", now),
            "sums by user of 24 hours": lambda: sum_history(file, day, "user", now),
        }
        asked = {name: _cpu_s(question) for name, question in questions.items()}
    slowest = max(asked, key=lambda name: asked[name])
    session_ms, counted_us = _session_costs()
    return [
        Figure(
            name=f"history of {RUNS:,} runs: slowest of {len(asked)} questions ({slowest})",
            measured=asked[slowest],
            unit="s of CPU",
            spread=", ".join(f"{name} {took:.3f}" for name, took in asked.items()),
            target=f"< {_MOST_S:g}",
            met=asked[slowest] < _MOST_S,
        ),
        Figure(
            name="history: a run that has ended, written",
            measured=per_run * 1e6,
            unit="us of CPU",
            spread="in the writer's thread",
        ),
        Figure(
            name="history: a session with nothing new",
            measured=session_ms,
            unit="ms of CPU",
            spread=f"in the event loop, {_GANGS:,} gangs run",
            target=f"< {_SESSION_MOST_MS:g}",
            met=session_ms < _SESSION_MOST_MS,
        ),
        Figure(
            name=f"history: a gang of {_MEMBERS} that is counted anew",
            measured=counted_us,
            unit="us of CPU",
            spread="in the event loop, beside the counting itself",
        ),
    ]


def _fill(file: Path) -> float:
    """CPU seconds of writing all runs."""
    store, draw = HistoryStore(file), random.Random(1)
    took = 0.0
    for first in range(0, RUNS, _BATCH):
        rows = [run_as_row(_run(draw, number)) for number in range(first, first + _BATCH)]
        began = time.process_time()
        store.put(rows)
        took += time.process_time() - began
    store.close()
    return took


def _run(draw: random.Random, number: int) -> GangRun:
    since = _BEGAN + number * _EVERY_S
    started = since + draw.expovariate(1 / 600)
    ran = draw.expovariate(1 / 7_200)
    return GangRun(
        gang=GangKey("PodGroup", f"team-{number % 40}", f"train-{number}"),
        uid=UID(f"{number:08x}-1111-4222-8333-{number:012x}"),
        seen=since,
        queue=f"queue-{number % 50}",
        priority=0,
        min_member=8,
        members=8,
        gpus=64_000,
        created=since,
        since=since,
        started=started,
        ended=started + ran,
        outcome="Succeeded",
        evictions=int(number % 20 == 0),
        gpu_seconds={f"NVIDIA-{number % 3}": ran * 64},
        counted_until=started + ran,
    )


def _session_costs() -> tuple[float, float]:
    """Milliseconds of a session with nothing new, and microseconds of a gang that is counted anew."""
    with tempfile.TemporaryDirectory() as folder:
        options = HistoryOptions(file=Path(folder) / "h.db", keep_s=86_400.0, rows_max=RUNS)
        clock = SystemClock()
        keeper = HistoryKeeper(options, clock=clock, telemetry=Telemetry(), inline=False)
        here = Given(now=clock.now()).nodes(_GANGS)
        for number in range(_GANGS):
            here.gang(f"gang-{number}", pods=_MEMBERS, gpus=1)
            for member in range(_MEMBERS):
                here.pod(
                    f"gang-{number}-{member}", gpus=1, group=f"gang-{number}",
                    node=f"node-{number}", scheduled=clock.now(),
                )  # fmt: skip
        keeper.begin_term(here.cache)
        plan = Plan(revision=1)
        followed = _recounted_s(here.cache)
        here.cache.families.on_counted.clear()
        bare = _recounted_s(here.cache)
        keeper.decided(plan)
        began = time.thread_time()
        for _ in range(_SESSIONS):
            keeper.decided(plan)
        took = time.thread_time() - began
        keeper.stop()
    return took / _SESSIONS * 1e3, (followed - bare) / _GANGS * 1e6


def _recounted_s(cache: Cache) -> float:
    """CPU seconds in which all gangs are counted anew, the second time."""
    for _ in range(2):
        cache.families.mark_all_changed()
        began = time.thread_time()
        cache.families.rebuild_touched()
        took = time.thread_time() - began
    return took


def _cpu_s(question: Callable[[], object]) -> float:
    began = time.process_time()
    question()
    return time.process_time() - began
