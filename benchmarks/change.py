"""What a session costs beside what changed: many gangs run and wait, and one pod ends, or nothing happens.

Where nothing happens the time goes on, and sessions begin with the same rounds: so the daemon holds them once
it has looked at everybody (``RoundProgress``).

5,000 nodes of 10 GPUs run 50,000 gangs of one pod; 10,000 gangs of 500 shapes wait in 20 queues. Before a pod ends
everybody was looked at and the cluster is at rest, as sessions follow each other until it is. What the daemon has in another
process, or does once, is not measured: the solver is loaded, and what there is by then is never walked for garbage again.
"""

from __future__ import annotations

import gc
import json
import math
import time
from collections.abc import Callable, Iterator
from typing import Final

from benchmarks.figures import Figure, middle
from gpusched.api.pod.pod import GangAnnotations, PodPhase
from gpusched.api.serializer.codecs import CODECS
from gpusched.config.model import DEFAULT
from gpusched.io.observe.process_limits import leave_objects_alone
from gpusched.io.watch.informers import make_event_handlers
from gpusched.placement.cpsat.solver import warm_up_solver
from gpusched.session.state.order.round_progress import RoundProgress
from gpusched.session.state.plan import Plan
from gpusched.testing import entities
from gpusched.testing.given import Given

NODES: Final = 5000
PODS_A_NODE: Final = 10
WAITING: Final = 10_000
SHAPES: Final = 500
QUEUES: Final = 20
RUNS: Final = 7
ENDS: Final = 60
BETWEEN_ENDS_S: Final = 0.2
BEATS: Final = 2000
QUIET_MAX_MS: Final = 10.0
BEAT_MAX_MS: Final = 0.2
ENDED_MAX_MS: Final = 20.0
ENDED_P99_MAX_MS: Final = 60.0


def measure() -> list[Figure]:
    """Sessions in which nothing changed, and sessions after a pod ended.

    Raises:
        RuntimeError: no pod that ended let a gang start, so that something else was measured.
    """
    warm_up_solver()
    c = full_cluster()
    sessions = Sessions(c)
    sessions.until_rest()
    leave_objects_alone()  # as the daemon does when it has listed everything
    quiet = sessions.quiet_ms()
    ended, started = [], []
    for number in range(ENDS):
        first, until_start, names = sessions.after_an_end(number * 7)
        ended.append(first)
        started += [until_start] if names else []
    if not started:
        raise RuntimeError("no gang was started")
    size = f"{NODES:,} nodes, {NODES * PODS_A_NODE:,} gangs run, {WAITING:,} wait"
    return [
        _figure(f"a session in which nothing changed: {size}", quiet, QUIET_MAX_MS),
        _figure("a heartbeat of a node, decoded and taken in", _beat_ms(c), BEAT_MAX_MS),
        _figure(f"a session after a pod ended: {size}", ended, ENDED_MAX_MS),
        _p99(f"the same, the slowest of a hundred, from {ENDS} of them", ended, ENDED_P99_MAX_MS),
        _figure(
            f"until the gang starts that {len(started)} of these ends let start",
            started,
            ENDED_MAX_MS,
        ),
        _p99("the same, the slowest of a hundred", started, ENDED_P99_MAX_MS),
        *(
            Figure(
                name=f"a session after {what}: {size}",
                measured=cost,
                unit="ms of CPU",
                spread=spread,
            )
            for what, (cost, spread) in _after_others(sessions)
        ),
    ]


class Sessions:
    """Sessions of a cluster, each of which begins where the last one ended, as the daemon's do."""

    def __init__(self, c: Given) -> None:
        self.c = c
        self.changes = 0
        self._progress = RoundProgress()

    def hold(self) -> tuple[float, Plan, float | None]:
        """CPU of one snapshot and its session in milliseconds, the plan, and seconds until another follows."""
        c, now = self.c, self.c.now
        c.cache.rounds = self._progress.begin_session(self.changes, c.cache.rounds, now=now)
        c.cache.may_end_early = self._progress.may_end_early
        began = time.process_time()
        plan = c.when.one_session()
        took_ms = (time.process_time() - began) * 1e3
        found = c.decision
        assert found is not None, "a session was held"
        following = self._progress.note_session(
            self.changes, rounds=found.rounds, stays_until=found.stays_until, now=now,
            ended_early=found.ended_early,
        )  # fmt: skip
        if following.rounds is not None:
            c.cache.rounds = following.rounds
        c.cache.expected_starts = found.expected_starts
        c.cache.spare_room = found.spare_room
        if found.ended_early:
            c.cache.families.show_all_again()
        return took_ms, plan, following.after_s

    def until_rest(self) -> None:
        """Hold sessions until none follows."""
        after_s: float | None = 0.0
        while after_s is not None:
            after_s = self.hold()[2]
            self.c.now += after_s or 0

    def after_a_change(self) -> tuple[float, float, list[str]]:
        """CPU in milliseconds of the session after a change, and until a gang started; with the gangs that did.

        All that is decided is carried out, until no session follows at once.
        """
        c, after_s = self.c, 0.0
        took: list[float] = []
        until_start, names = 0.0, list[str]()
        while not after_s:
            took_ms, plan, following = self.hold()
            took.append(took_ms)
            after_s = -1.0 if following is None else following
            if plan.binds and not names:
                until_start = sum(took)
            names += [gang.gang.name for gang in plan.binds]
            if plan.binds or plan.preemptions:
                c.when.carry_out(plan)
                self.changes += 1
                after_s = 0.0
        c.now += BETWEEN_ENDS_S
        return took[0], until_start, names

    def after_an_end(self, number: int) -> tuple[float, float, list[str]]:
        """The same after the pod of a gang that ran has ended."""
        self.c.gone(f"runs-{number}")
        self.changes += 1
        gc.collect()
        return self.after_a_change()

    def quiet_ms(self) -> list[float]:
        """CPU of sessions a second apart in which nothing changed; the cluster is at rest.

        Raises:
            RuntimeError: one was not answered by an earlier one, so that something else was measured.
        """
        c, found = self.c, []
        for _ in range(3):  # until what was left of expected starts is told anew
            c.now += 1
            self.hold()
        for _ in range(RUNS):
            c.now += 1
            found.append(self.hold()[0])
            if c.decision is None or not c.decision.kept:
                raise RuntimeError("a session was held though nothing had changed")
        return found


def _p99(name: str, times_ms: list[float], most_ms: float) -> Figure:
    cost = sorted(times_ms)[math.ceil(0.99 * len(times_ms)) - 1]
    return Figure(
        name=name, measured=cost, unit="ms of CPU", target=f"< {most_ms:g} ms", met=cost < most_ms
    )


def _figure(name: str, times_ms: list[float], most_ms: float) -> Figure:
    cost, spread = middle(times_ms)
    return Figure(
        name=name, measured=cost, unit="ms of CPU", spread=spread, target=f"< {most_ms:g} ms",
        met=cost < most_ms,
    )  # fmt: skip


def _after_others(sessions: Sessions) -> Iterator[tuple[str, tuple[float, str]]]:
    """What else changes in a cluster, and the CPU of the session that follows, milliseconds."""
    c = sessions.c
    node = {"cpu": 64_000, "memory": 256 * entities.GIB, "gpus": PODS_A_NODE}
    others: dict[str, Callable[[int], object]] = {
        "a gang came": lambda n: c.gang(f"comes-{n}", pods=2, gpus=8, queue="q-1"),
        "a node was cordoned": lambda n: c.node(f"node-{n}", unschedulable=True, **node),
        "a node without GPUs came": lambda n: c.node(f"comes-{n}", **node | {"gpus": 0}),
        "a queue was made": lambda n: c.queue(f"made-{n}"),
    }
    for what, change in others.items():
        took = []
        for number in range(RUNS):
            change(number)
            sessions.changes += 1
            gc.collect()
            took.append(sessions.after_a_change()[0])
        yield what, middle(took)


def _beat_ms(c: Given) -> list[float]:
    """CPU of one heartbeat, from the line of the watch to the cache.

    Raises:
        RuntimeError: it would have begun a session.
    """
    woken: list[None] = []
    c.cache.on_change.append(lambda: woken.append(None))
    codec = CODECS["nodes"]
    sink = make_event_handlers(c.cache, lambda _kind, _rejected: None)["nodes"]

    def take_in(line: bytes) -> None:
        shown = codec.decode_event(line)
        sink.apply(shown.type, shown.item)

    take_in(_node_event(0))
    woken.clear()
    found = []
    for run in range(RUNS):
        lines = [_node_event(1 + run * BEATS + number) for number in range(BEATS)]
        began = time.process_time()
        for line in lines:
            take_in(line)
        found.append((time.process_time() - began) / BEATS * 1e3)
    if woken:
        raise RuntimeError("a heartbeat would have begun a session")
    return found


def _node_event(version: int) -> bytes:
    """A node as the watch shows it, with the conditions and images of a usual one."""
    beat = f"2027-01-01T00:00:{version % 60:02d}Z"
    kinds = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", entities.GPU: str(PODS_A_NODE)}
    node = {
        "metadata": {
            "name": "beats", "uid": "beats", "resourceVersion": str(version + 1),
            "creationTimestamp": "2027-01-01T00:00:00Z", "labels": {f"l{n}": "v" for n in range(20)},
        },
        "spec": {},
        "status": {
            "allocatable": amounts, "capacity": amounts,
            "conditions": [
                {"type": kind, "status": str(kind == "Ready"), "lastHeartbeatTime": beat}
                for kind in kinds
            ],
            "images": [{"names": [f"registry/image-{n}:1"], "sizeBytes": n} for n in range(50)],
        },
    }  # fmt: skip
    return json.dumps({"type": "MODIFIED", "object": node}).encode()


def full_cluster(
    *,
    nodes: int = NODES,
    pods_a_node: int = PODS_A_NODE,
    waiting: int = WAITING,
    shapes: int = SHAPES,
    queues: int = QUEUES,
) -> Given:
    """Every GPU runs a gang of its own, whose end is known."""
    c = Given(config=DEFAULT)
    c.nodes(nodes, cpu=64_000, memory=256 * entities.GIB, gpus=pods_a_node)
    for queue in range(queues):
        c.queue(f"q-{queue}")
    for number in range(nodes * pods_a_node):
        node, slot = divmod(number, pods_a_node)
        c.pod(
            f"runs-{number}", queue=f"q-{number % queues}", node=f"node-{node}", slots=1 << slot,
            gpus=1, cpu=1000, memory=entities.GIB, phase=PodPhase.RUNNING, plan="p",
            scheduled=c.now - 10 - number % 3600, hints=_lasting(36_000),
        )  # fmt: skip
    for number in range(waiting):
        shape = number % shapes
        gpus = 1 if number < queues else 1 + (shape // 8) % 8
        c.gang(
            f"waits-{number}", pods=1 if number < queues else 1 + shape % 8, gpus=gpus, cpu=1000 + shape,
            memory=entities.GIB, queue=f"q-{number % queues}", hints=_lasting(3600 + shape),
            unschedulable_reason="InsufficientResources",
        )  # fmt: skip
    return c


def _lasting(seconds: int) -> GangAnnotations:
    return GangAnnotations(expected_duration_ns=seconds * 10**9)
