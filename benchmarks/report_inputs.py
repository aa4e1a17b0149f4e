"""Made-up runs for reports of any size: a toy gang scheduler, first in first out, with evictions.

It decides nothing that matters; it only fills a ``Record`` with what a run looks like: gangs that
wait, pods that are evicted for a job of higher priority, and nodes that fail and return.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, Final

import attrs

from gpusched.engine.run_record import (
    ActDone,
    EvictionRecord,
    JobLife,
    LifeEnd,
    NodeLife,
    NodeSpan,
    PodLife,
    QueueLife,
    QueueMark,
    RunRecord,
    WaitReason,
)  # fmt: skip

STARTUP_S: Final = 2.0
"""From a pod's binding to its running."""


@attrs.frozen(kw_only=True)
class Ask:
    """One job to be: ``gpus`` and ``cpu`` in thousandths, of each pod."""

    name: str
    queue: str = "a"
    klass: str = "training"
    priority: int = 0
    created: float = 0.0
    pods: int = 1
    gpus: int = 0
    cpu: int = 1000
    run_s: float = 60.0


@attrs.define(kw_only=True, eq=False)
class _Live:
    """A job on its way."""

    ask: Ask
    pods: list[PodLife] = attrs.Factory(list)
    done: list[PodLife] = attrs.Factory(list)
    reasons: list[WaitReason] = attrs.Factory(list)
    started: float | None = None
    ended: float | None = None
    turn: int = 0


@attrs.define
class Toy:
    """The cluster: ``nodes`` of ``gpus`` GPUs and ``cpu`` thousandths of cores each."""

    nodes: int
    gpus: int
    cpu: int
    fails: dict[int, tuple[float, float]] = attrs.Factory(dict)
    free: list[set[int]] = attrs.Factory(list)
    free_cpu: list[int] = attrs.Factory(list)
    evictions: list[EvictionRecord] = attrs.Factory(list)

    def play(self, asks: Sequence[Ask], *, name: str, seconds: float, seed: int = 1) -> RunRecord:
        """The run of these jobs, ended at ``seconds``."""
        self.free = [set(range(self.gpus)) for _ in range(self.nodes)]
        self.free_cpu = [self.cpu] * self.nodes
        self.evictions = []
        lives = [_Live(ask=ask) for ask in sorted(asks, key=lambda each: each.created)]
        waiting: list[_Live] = []
        ends: list[tuple[float, int, int, int]] = [
            (live.ask.created, 0, index, 0) for index, live in enumerate(lives)
        ]
        heapq.heapify(ends)
        while ends and ends[0][0] <= seconds:
            now, kind, index, turn = heapq.heappop(ends)
            live = lives[index]
            if kind == 0:
                waiting.append(live)
                live.reasons.append(
                    _reason(now, "NotEnoughRoom", f"{live.ask.pods} pods do not fit")
                )
                self._make_room(live, lives, waiting, now)
            elif turn == live.turn and live.pods:
                self._end(live, now, LifeEnd.SUCCEEDED)
                live.ended = now
            waiting.sort(key=lambda each: (-each.ask.priority, each.ask.created))
            for each in self._start(waiting, now):
                at = now + STARTUP_S + each.ask.run_s
                heapq.heappush(ends, (at, 1, lives.index(each), each.turn))
        return self._record(lives, name=name, seconds=seconds, seed=seed)

    def _usable(self, node: int, now: float) -> bool:
        since, until = self.fails.get(node, (-1.0, -1.0))
        return not since <= now < until

    def _start(self, waiting: list[_Live], now: float) -> Iterator[_Live]:
        while waiting and self._place(waiting[0], now):
            yield waiting.pop(0)

    def _place(self, live: _Live, now: float) -> bool:
        ask = live.ask
        slots, places = -(-ask.gpus // 1000), list[Any]()
        for node in range(self.nodes):
            if not self._usable(node, now):
                continue
            room = self.free_cpu[node] // ask.cpu if ask.cpu else ask.pods
            if slots:
                room = min(room, len(self.free[node]) // slots)
            places += [node] * min(room, ask.pods - len(places))
        if len(places) < ask.pods:
            return False
        live.turn += 1
        live.started = now if live.started is None else live.started
        live.reasons.append(_reason(now, "", ""))
        for index, node in enumerate(places):
            taken = tuple(sorted(self.free[node])[:slots])
            self.free[node] -= set(taken)
            self.free_cpu[node] -= ask.cpu
            name = f"{ask.name}-{index}" + ("" if live.turn == 1 else f"-r{live.turn}")
            live.pods.append(PodLife(
                name=name, namespace="default", uid=name, job=f"default/{ask.name}",
                queue=ask.queue, gpus=ask.gpus, cpu=ask.cpu, memory=1024, created=ask.created,
                bound=now, running=now + STARTUP_S, node=f"node-{node:03d}", slots=taken,
            ))  # fmt: skip
        return True

    def _end(self, live: _Live, now: float, end: LifeEnd) -> None:
        for pod in live.pods:
            node = int(pod.node[5:])
            self.free[node] |= set(pod.slots)
            self.free_cpu[node] += pod.cpu
            told = now if end is LifeEnd.EVICTED else None
            live.done.append(attrs.evolve(pod, ended=now, gone=now, end=end, told=told))
        live.pods = []

    def _make_room(
        self, live: _Live, lives: Sequence[_Live], waiting: list[_Live], now: float
    ) -> None:
        """Evict younger jobs of lower priority until it fits, for jobs with a priority."""
        if not live.ask.priority:
            return
        lower = [each for each in lives if each.pods and each.ask.priority < live.ask.priority]
        need = live.ask.pods * live.ask.gpus // 1000
        for victim in reversed(lower):
            if sum(len(free) for free in self.free) >= need:
                return
            for pod in victim.pods:
                ran = now - (pod.running if pod.running is not None else now)
                self.evictions.append(EvictionRecord(
                    at=now, pod=pod.name, job=pod.job, queue=pod.queue,
                    why="Preempted" if victim.ask.queue == live.ask.queue else "Reclaimed",
                    sentence=f"for default/{live.ask.name}", lost=max(0, int(ran * pod.gpus)),
                ))  # fmt: skip
            self._end(victim, now, LifeEnd.EVICTED)
            waiting.append(victim)
            victim.reasons.append(_reason(now, "Evicted", f"gave room to default/{live.ask.name}"))

    def _record(self, lives: Sequence[_Live], *, name: str, seconds: float, seed: int) -> RunRecord:
        jobs = [
            JobLife(
                key=f"default/{live.ask.name}", kind="Job", uid=live.ask.name, queue=live.ask.queue,
                klass=live.ask.klass, priority=live.ask.priority, size=live.ask.pods,
                min_member=live.ask.pods, gpus=live.ask.pods * live.ask.gpus,
                created=live.ask.created, admitted=live.started, started=live.started,
                ready=None if live.started is None else live.started + STARTUP_S, ended=live.ended,
                end=LifeEnd.NONE if live.ended is None else LifeEnd.SUCCEEDED, reasons=tuple(live.reasons),
            )
            for live in lives
        ]  # fmt: skip
        pods = [pod for live in lives for pod in (*live.done, *live.pods)]
        missing = [pod for live in lives if not live.pods and live.ended is None
                   for pod in _pending(live)]  # fmt: skip
        queues = sorted({live.ask.queue for live in lives})
        total = self.nodes * self.gpus * 1000
        return RunRecord(
            name=name, ground="simulated", seed=seed, seconds=seconds, epoch=1_700_000_000.0,
            nodes=tuple(self._node(index, seconds) for index in range(self.nodes)),
            pods=tuple(sorted(pods + missing, key=lambda pod: (pod.created, pod.name))),
            jobs=tuple(jobs),
            queues=tuple(_queue(each, pods, total // max(1, len(queues))) for each in queues),
            evictions=tuple(self.evictions),
            acts=tuple(ActDone(at=ask.created, sentence=f"submit {ask.name}")
                       for ask in sorted((live.ask for live in lives), key=lambda a: a.created)),
            digest="0" * 12, counters={"sessions": len(lives) * 2.0},
        )  # fmt: skip

    def _node(self, index: int, seconds: float) -> NodeLife:
        since, until = self.fails.get(index, (0.0, 0.0))
        cuts = [0.0, min(since, seconds), min(until, seconds), seconds]
        spans = [
            NodeSpan(since=a, until=b, gpus=self.gpus * 1000, cpu=self.cpu, memory=1 << 20,
                     usable=turn != 1)
            for turn, (a, b) in enumerate(itertools.pairwise(cuts)) if b > a
        ]  # fmt: skip
        return NodeLife(name=f"node-{index:03d}", labels={}, spans=tuple(spans))


def _reason(at: float, reason: str, sentence: str) -> WaitReason:
    return WaitReason(at=at, reason=reason, sentence=sentence)


def _pending(live: _Live) -> list[PodLife]:
    ask = live.ask
    return [
        PodLife(
            name=f"{ask.name}-{index}-p", namespace="default", uid=f"{ask.name}-{index}-p",
            job=f"default/{ask.name}", queue=ask.queue, gpus=ask.gpus, cpu=ask.cpu, memory=1024,
            created=ask.created,
        )
        for index in range(ask.pods)
    ]  # fmt: skip


def _queue(name: str, pods: Sequence[PodLife], share: int) -> QueueLife:
    changes: dict[float, int] = {0.0: 0}
    for pod in pods:
        if pod.queue == name and pod.bound is not None:
            changes[pod.bound] = changes.get(pod.bound, 0) + pod.gpus
            if pod.ended is not None:
                changes[pod.ended] = changes.get(pod.ended, 0) - pod.gpus
    marks, held = [], 0
    for at in sorted(changes):
        held += changes[at]
        marks.append(QueueMark(at=at, weight=1, deserved=share, capability=None, guarantee=None,
                               allocated=held, fair_share=share))  # fmt: skip
    return QueueLife(name=name, parent="", marks=tuple(marks))


def thousand_jobs(jobs: int = 1000) -> RunRecord:
    """The shape of M4: jobs of ten pods with two cores, on 100 nodes of ten cores each."""
    draw = Random(4)
    asks = [
        Ask(name=f"job-{index:04d}", queue="batch", klass="job", pods=10, cpu=2000,
            run_s=180.0 + draw.randrange(91))
        for index in range(jobs)
    ]  # fmt: skip
    return Toy(100, 0, 10_000).play(asks, name="M4", seconds=4500.0, seed=4)


def mixed_day(jobs: int = 160, *, seed: int = 5, name: str = "mixed-day") -> RunRecord:
    """The shape of M5: gangs, small and urgent jobs of three teams, evictions, a node that fails."""
    draw = Random(seed)
    asks = []
    for index in range(jobs):
        klass = draw.choices(("training", "interactive", "batch", "urgent"), (6, 8, 6, 1))[0]
        pods, gpus = {"training": (draw.choice((2, 4, 8)), 8000), "interactive": (1, 1000), "urgent": (6, 8000),
                      "batch": (draw.choice((1, 2, 4)), draw.choice((1000, 2000, 4000)))}[klass]  # fmt: skip
        asks.append(Ask(
            name=f"{klass}-{index:03d}", queue=draw.choice(("research", "product", "vision")),
            klass=klass, priority={"interactive": 10, "urgent": 20}.get(klass, 0),
            created=round(draw.uniform(0, 21_000), 1), pods=pods, gpus=gpus, cpu=1000,
            run_s=round(draw.lognormvariate(6.2, 0.8), 1),
        ))  # fmt: skip
    toy = Toy(12, 8, 96_000, fails={3: (9000.0, 12_600.0)})
    return toy.play(asks, name=name, seconds=28_800.0, seed=seed)
