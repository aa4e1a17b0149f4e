"""A server of the view with a made-up cluster, in a thread of its own, for a browser to read."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from gpusched.api.meta.identity import format_time
from gpusched.base.clock import SystemClock
from gpusched.io.serve.child import ViewListener
from gpusched.io.serve.reviews import AccessRefused
from gpusched.io.serve.view_server import ViewServer
from gpusched.view.access import EVERYTHING
from gpusched.view.frames import (
    DecisionMade,
    GangPut,
    NodePut,
    QueuePut,
    ViewFrame,
    ViewHead,
    ViewMoment,
)
from gpusched.view.model import (
    DecisionView,
    DomainView,
    FreeView,
    GangOfEvent,
    GangView,
    HolderView,
    MemberView,
    NodeView,
    QueueGpus,
    QueueView,
    SlotView,
    ViewName,
)
from gpusched.view.over_time.future import RoomView
from gpusched.view.over_time.queue_series import QueueSeries
from gpusched.view.store import ViewStore

GPUS = 8
QUEUES = ("research", "vision", "speech", "robotics", "batch", "interactive")
SIZES = (1, 1, 2, 4, 8, 8, 16, 32, 64)
MINUTE = 60.0


def gang_put(
    name: str,
    *,
    namespace: str = "team-a",
    queue: str = "research",
    state: str = "Waiting",
    room: RoomView | None = None,
    **more: object,
) -> GangPut:
    """A gang of one pod."""
    fields = {
        "metadata": ViewName(namespace=namespace, name=name), "gang_kind": "Job", "queue": queue,
        "priority": 0, "state": state, "placed": 0, "waiting": 1, "min_member": 1, "gpus": "8",
        **more,
    }  # fmt: skip
    phase = "Waiting" if state == "Waiting" else "Running"
    members = (MemberView(name=f"{name}-0", phase=phase),)
    return GangPut(view=GangView(**fields), members=members, room=room)


def node_put(
    name: str, slots: tuple[SlotView, ...], *, place: tuple[str, str], state: str = "Ready"
) -> NodePut:
    """A node with these GPUs, in a zone and a rack."""
    holders = {f"{h.namespace}/{h.kind}/{h.name}" for slot in slots for h in slot.holders}
    free = sum(slot.free == "1" for slot in slots)
    return NodePut(
        view=NodeView(
            metadata=ViewName(name=name),
            state=state,
            gpu_type="H200",
            gpus=str(len(slots)),
            free_gpus=str(free),
            slots=slots,
            domains=(
                DomainView(level="zone", name=place[0]),
                DomainView(level="rack", name=place[1]),
            ),
            free=FreeView(cpu="16", memory="64Gi"),
            pods=len(holders),
            gangs=tuple(sorted(holders - {"//"})),
        )
    )


def queue_put(name: str, held: int, **more: object) -> QueuePut:
    """A queue that holds so many GPUs."""
    gpus = QueueGpus(allocated=str(held), requested=str(held * 2), fair_share="96", borrowed="4")
    fields = {"metadata": ViewName(name=name), "state": "Open", "gpus": gpus, "running": held}
    return QueuePut(view=QueueView(**{**fields, **more}))


def sample_past(
    series: QueueSeries, held: dict[str, list[int]], *, until: float, period_s: float = MINUTE
) -> None:
    """Samples of queues that held so many GPUs, the last of them a period before a time."""
    for number, row in enumerate(zip(*held.values(), strict=True)):
        queues = {name: queue_put(name, gpus).view for name, gpus in zip(held, row, strict=True)}
        series.take(until - (len(next(iter(held.values()))) - number) * period_s, queues)


def decision_made(name: str, *, event: str, message: str, now: float) -> DecisionMade:
    """A decision about a Job of team-a."""
    about = GangOfEvent(namespace="team-a", kind="Job", name=name)
    return DecisionMade(
        view=DecisionView(time=format_time(now), event=event, message=message, gang=about)
    )


def slot_view(index: int, holder: HolderView | None = None) -> SlotView:
    """A GPU that one gang has, or nobody."""
    holders = (holder,) if holder is not None else ()
    return SlotView(index=index, island=index // 4, free="0" if holders else "1", holders=holders)


def populate(nodes: int, gangs: int, *, now: float, seed: int = 1) -> Iterator[ViewFrame]:
    """Frames of a cluster: about nine in ten GPUs held, the other gangs wait."""
    draw = random.Random(seed)
    room = [(node, index) for node in range(nodes) for index in range(GPUS)]
    held: dict[tuple[int, int], HolderView] = {}
    by_queue = dict.fromkeys(QUEUES, 0)
    waiting = dict.fromkeys(QUEUES, 0)
    taken = 0
    for number in range(gangs):
        size, queue = draw.choice(SIZES), draw.choice(QUEUES)
        name, namespace = f"train-{number:05d}", f"team-{'abc'[number % 3]}"
        if taken + size <= 0.88 * len(room):
            places = room[taken : taken + size]
            holder = HolderView(namespace=namespace, kind="Job", name=name)
            held.update(dict.fromkeys(places, holder))
            taken += size
            by_queue[queue] += size
            on = sorted({f"node-{node:04d}" for node, _ in places})
            started = now - draw.randrange(60, 86_400)
            yield gang_put(
                name, namespace=namespace, queue=queue, state="Running", placed=size, waiting=0,
                min_member=size, gpus=str(size), gpu_type="H200", nodes=tuple(on),
                since=format_time(started), created=format_time(started - MINUTE),
                expected_end_time=format_time(now + draw.randrange(600, 30_000)) if number % 2 else "",
            )  # fmt: skip
            continue
        waiting[queue] += 1
        short = draw.randrange(1, max(2, size))
        start = now + waiting[queue] * 900
        kept = RoomView(
            nodes=tuple(f"node-{node:04d}" for node in range(max(1, size // GPUS))),
            begins=format_time(start), ends=format_time(start + size * 1000),
        )  # fmt: skip
        yield gang_put(
            name, namespace=namespace, queue=queue, placed=0, waiting=size, min_member=size,
            gpus=str(size), position=waiting[queue], reason="NotEnoughResources",
            message=f"{size} pods fit nowhere together: rack r07 has most room, for {short} of {size}",
            since=format_time(now - draw.randrange(60, 9000)), created=format_time(now - 9000),
            estimated_start_time=format_time(start) if number % 3 else "",
            room=kept if waiting[queue] < 4 else None,
        )  # fmt: skip
    for node in range(nodes):
        slots = tuple(slot_view(index, held.get((node, index))) for index in range(GPUS))
        place = (f"z{node * 3 // max(1, nodes)}", f"r{node // 16:02d}")
        state = "NotReady" if node % 97 == 41 else "Ready"
        yield node_put(f"node-{node:04d}", slots, place=place, state=state)
    due = len(room) // len(QUEUES)
    for name in QUEUES:
        held_gpus = by_queue[name]
        gpus = QueueGpus(
            allocated=str(held_gpus), requested=str(held_gpus * 2), fair_share=str(due),
            borrowed=str(max(0, held_gpus - due)),
        )  # fmt: skip
        yield queue_put(name, held_gpus, pending=waiting[name], gpus=gpus)
    for number in range(40):
        event = ("starts", "waits", "loses", "grows")[number % 4]
        yield decision_made(
            f"train-{number:05d}", event=event, now=now - 40 * MINUTE + number * MINUTE,
            message=f"Job team-a/train-{number:05d} {event}: 8 pods in queue research",
        )  # fmt: skip


class GivenAdvice:
    """Answers what would help with what is given, or refuses."""

    def __init__(self) -> None:
        self.answer: dict[str, object] | AccessRefused = AccessRefused(404, "NotFound", "none here")

    async def advise(self, *_: object) -> dict[str, object]:
        """That answer."""
        if isinstance(self.answer, AccessRefused):
            raise self.answer
        return self.answer


class PageServer:
    """The server; frames are given to it from any thread.

    Attributes:
        url: where the page is.
        token: that requests must carry, empty for none.
        series: how queues stood before.
        advice: what would help, as it is answered.
    """

    def __init__(self, port: int = 0) -> None:
        self.series = QueueSeries()
        self.advice = GivenAdvice()
        self.url, self.token, self.port = "", "", port
        self._store = ViewStore()
        self._loop = asyncio.new_event_loop()
        self._began = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="page server")

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._began.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Go away, as a daemon does that ends; its port is free again."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._ended.set)
            self._thread.join(20)
        assert not self._thread.is_alive()

    def take(self, *frames: ViewFrame) -> None:
        """Frames, and the moment that ends them."""
        taken = threading.Event()

        def take() -> None:
            for frame in (*frames, ViewMoment(now=time.time())):
                self._server.moment(self._store.take(frame))
            taken.set()

        self._loop.call_soon_threadsafe(take)
        assert taken.wait(20)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._main())
        self._loop.close()

    async def _main(self) -> None:
        async def authorized(request, _namespaces):
            if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
                raise AccessRefused(401, "Unauthorized", "no token that is known")
            return EVERYTHING

        clock = SystemClock()
        self._ended = asyncio.Event()
        self._server = ViewServer(
            self._store, clock, authorized, series=self.series, questions=self.advice
        )
        listener = ViewListener(self._server.application(), clock)
        self.port = await listener.start([("127.0.0.1", self.port)])
        self.url = f"http://127.0.0.1:{self.port}/"
        self._began.set()
        await self._ended.wait()
        await listener.stop()


@contextmanager
def page_server(*frames: ViewFrame, port: int = 0) -> Iterator[PageServer]:
    """A server that was told these frames."""
    with PageServer(port) as server:
        server.take(ViewHead(version="0.2.0", daemon="d", leading=True, ready="ready"), *frames)
        yield server
