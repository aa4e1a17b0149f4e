"""The view as somebody keeps it who follows it: read whole, then changed by its events, for ever.

What was read stays while the daemon is away; what it says when it is back replaces it in one piece.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from gpusched.base.clock import Clock
from gpusched.base.errors import GpuschedError
from gpusched.io.observe.text import one_line
from gpusched.io.serve.view_client import NoView, ViewClient, ViewEvent, ViewRoute
from gpusched.view.frames import (
    DecisionMade,
    GangPut,
    NodePut,
    PartsGone,
    QueuePut,
    ViewFrame,
    ViewMoment,
)
from gpusched.view.gang_story import GangStory
from gpusched.view.model import AboutView, DecisionView, GangView, NodeView, QueueView
from gpusched.view.store import ViewStore

T = TypeVar("T")
_PAUSE_MIN_S: Final = 0.5
_PAUSE_MAX_S: Final = 10.0
_ABOUT_S: Final = 5.0
"""Between two questions how the daemon is; by them its moment is known while nothing changes."""
_NOT_READ: Final = AboutView(version="")
FindRoute: TypeAlias = Callable[[], Awaitable[ViewRoute]]


class FollowedView:
    """``read`` once, then ``run`` is its life.

    Args:
        find: tells where the view is; asked again after each loss, as another daemon may lead by then.
        clock: time.
        changed: called after each change of what is kept.

    Attributes:
        store: what is kept. Another object after each loss.
        about: the daemon, as it said last.
        told: for people: where the view is.
        lost: why what is kept is old; empty while it is not.
        lost_at: since when, seconds since the epoch.
    """

    def __init__(
        self, find: FindRoute, clock: Clock, changed: Callable[[], None] = lambda: None
    ) -> None:
        self._find = find
        self._clock = clock
        self._changed = changed
        self._revision = 0
        self._recent: frozenset[DecisionView] = frozenset()
        self.store = ViewStore()
        self.about: AboutView = _NOT_READ
        self.told = ""
        self.lost = ""
        self.lost_at = 0.0

    async def read(self) -> None:
        """Read everything once.

        Raises:
            GpuschedError: it cannot be read; the sentence says why.
        """
        async with ViewClient(await self._find()) as client:
            await self._read(client)

    async def run(self) -> None:
        """Follow what changes until cancelled; what is lost is found again."""
        pause = _PAUSE_MIN_S
        while True:
            try:
                route = await self._find()
                async with ViewClient(route) as client:
                    if self.lost or not self._revision:
                        await self._read(client)
                    pause = _PAUSE_MIN_S
                    await self._follow(client)
            except GpuschedError as error:
                self._lose(str(error))
            await self._clock.sleep(pause)
            pause = min(2 * pause, _PAUSE_MAX_S)

    async def story(self, gang: str) -> GangStory:
        """One gang with its pods and decisions, by ``NAMESPACE/KIND/NAME``.

        Raises:
            GpuschedError: it is not there, or the daemon is not.
        """
        async with ViewClient(await self._find()) as client:
            return await client.story(gang)

    # -- reading ---------------------------------------------------------------------------
    async def _read(self, client: ViewClient) -> None:
        about = await client.read_about()
        frames: list[ViewFrame] = []
        if about.queues:
            frames += [QueuePut(view=each) for each in await client.queues()]
        if about.nodes:
            frames += [NodePut(view=each) for each in await client.nodes()]
        frames += [GangPut(view=each, members=()) for each in await client.gangs()]
        decisions = await client.decisions()
        frames += [DecisionMade(view=each) for each in decisions]
        store = ViewStore()
        for frame in (*frames, ViewMoment(now=0.0)):
            store.take(frame)
        self.store, self.about, self.told = store, about, client.told
        self._revision = about.revision
        self._recent = frozenset(decisions)
        self.lost = ""
        self._changed()

    async def _follow(self, client: ViewClient) -> None:
        """Apply events until all has to be read anew, and ask now and then how the daemon is.

        Raises:
            GpuschedError: the daemon is lost.
        """
        asking = asyncio.create_task(self._ask_about(client), name="how the daemon is")
        reading = asyncio.create_task(self._take_events(client), name="what changes")
        try:
            done, _ = await asyncio.wait({asking, reading}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            asking.cancel()
            reading.cancel()
            await asyncio.wait({asking, reading})

    async def _ask_about(self, client: ViewClient) -> None:
        while True:
            await self._clock.sleep(_ABOUT_S)
            before, self.about = self.about, await client.read_about()
            if before != self.about:
                self._changed()

    async def _take_events(self, client: ViewClient) -> None:
        async for event in client.events(self._revision):
            if event.name == "reset":
                await self._read(client)
                return
            if event.name:
                self._take(event)
        raise NoView("the daemon ended the connection")

    def _take(self, event: ViewEvent) -> None:
        try:
            frames = _frames(event)
        except msgspec.MsgspecError as error:
            raise NoView(
                f"the daemon's view is of another version: {one_line(str(error))}"
            ) from error
        for frame in frames:
            if isinstance(frame, DecisionMade) and frame.view in self._recent:
                continue  # it was read already
            self.store.take(frame)
        if event.name == "moment":
            self._revision = event.revision
            now = msgspec.json.decode(event.data).get("now", "")
            self.about = msgspec.structs.replace(self.about, now=now, revision=event.revision)
            self._changed()

    def _lose(self, why: str) -> None:
        if not self.lost:
            self.lost_at = self._clock.now()
        self.lost = why
        self._changed()


def _frames(event: ViewEvent) -> list[ViewFrame]:
    """What an event changes; nothing for one of a kind that is not known here.

    Raises:
        msgspec.MsgspecError: it cannot be read.
    """
    if event.name == "moment":
        return [ViewMoment(now=0.0)]
    if event.name == "gone":
        return [msgspec.convert(msgspec.json.decode(event.data) | {"type": "gone"}, PartsGone)]
    if event.name == "decision":
        return [DecisionMade(view=msgspec.json.decode(event.data, type=DecisionView))]
    if event.name == "gangs":
        return [GangPut(view=each, members=()) for each in _items(event, GangView)]
    if event.name == "nodes":
        return [NodePut(view=each) for each in _items(event, NodeView)]
    if event.name == "queues":
        return [QueuePut(view=each) for each in _items(event, QueueView)]
    return []


def _items(event: ViewEvent, part: type[T]) -> list[T]:
    found: dict[str, list[Any]] = msgspec.json.decode(event.data, type=dict[str, list[msgspec.Raw]])
    return [msgspec.json.decode(each, type=part) for each in found.get("items", ())]
