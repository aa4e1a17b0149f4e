"""The way from one daemon to the API server, on which requests are late, lost or the last ones.

A request travels outside of the daemon's process: what was sent arrives even when the sender is
killed, paused, or has given up waiting. What travels longer than the server works on a binding
is answered 504 and not done, as by a server that is told a timeout.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from typing import Any, Final, Protocol

import attrs
from multidict import CIMultiDict
from yarl import URL

from gpusched.base.classes import define, frozen
from gpusched.base.clock import Clock
from gpusched.base.limits import BIND_TIMEOUT_SERVER_S
from gpusched.devcluster.http.in_process import InProcessAnswer, InProcessTransport, WatchStream

_READS: Final = frozenset({"GET", "HEAD"})
_REPLAYED: Final = 6


@frozen
class PlannedDeath:
    """A process dies at its so-many-th write from now on, before or after it is done."""

    writes: int
    answered: bool


@define(eq=False)
class WatchTampering:
    """What becomes of watch events for a while.

    Attributes:
        how: ``duplicate`` tells each twice, ``replay`` the last few again, ``drop`` leaves some
            out, ``lag`` holds each back.
        kind: plural of the kind that is watched; empty for all.
        rate: share of the events, or seconds of a lag.
    """

    how: str
    kind: str
    rate: float

    @property
    def lag_s(self) -> float:
        """Seconds by which events are held back."""
        return self.rate if self.how == "lag" else 0.0

    def tampered_lines(
        self, lines: Sequence[bytes], past: Sequence[bytes], rng: random.Random
    ) -> Sequence[bytes]:
        """Lines of a watch as the daemon receives them.

        Args:
            lines: what happened.
            past: what was told before.
            rng: draws.
        """
        if self.how == "duplicate":
            return [line for one in lines for line in (one, one)]
        if self.how == "replay" and past and rng.random() < self.rate:
            return [*past[-_REPLAYED:], *lines]
        if self.how == "drop":
            return [line for line in lines if rng.random() >= self.rate]
        return lines


class Killable(Protocol):
    """The process that a connection belongs to."""

    number: int
    dead: bool
    on_death: Callable[[], None]

    def kill(self) -> None:
        """Nothing of it runs again."""


class FaultyConnection(InProcessTransport):
    """One daemon's connection; it stands in for the cluster's own ``InProcessTransport``.

    Args:
        inside: the cluster's.
        process: that sends requests.
        clock: time.
        rng: draws delays.
        outside: the context in which requests travel.
        latency: seconds to the server, at least and at most, and the same back.
        tampering: in force, shared by all wires.
        sends: told path and body of each write before the server has it.
        wrote: told method and path of each accepted write.
    """

    def __init__(
        self,
        inside: InProcessTransport,
        process: Killable,
        *,
        clock: Clock,
        rng: random.Random,
        outside: Context,
        latency: tuple[float, float],
        tampering: list[WatchTampering],
        sends: Callable[[str, bytes], None] = lambda _path, _body: None,
        wrote: Callable[[str, str], None] = lambda _method, _path: None,
    ) -> None:
        self._server = inside
        self._process = process
        self._clock = clock
        self._rng = rng
        self._outside = outside
        self.latency = latency
        self._tampering = tampering
        self._sends = sends
        self._wrote = wrote
        self._open_streams: dict[WatchStream, None] = {}
        self._closed = False
        self.death: PlannedDeath | None = None
        self.writes = 0

    @property
    def harmed(self) -> bool:
        """True: any request over this connection may last."""
        return True

    def close_connections(self) -> None:
        """The process is gone: its connections are closed, and nothing more is sent."""
        self._closed = True
        self.cut_watches("the process is gone")

    def cut_watches(self, why: str = "the connection was reset") -> None:
        """Watches that are open break off; the process may open others."""
        for stream in list(self._open_streams):
            stream.cut(ConnectionResetError(why))
        self._open_streams.clear()

    async def ask(
        self, method: str, url: URL, *, headers: Mapping[str, str], body: bytes = b""
    ) -> InProcessAnswer:
        """Send a request over the faulty connection and await its answer."""
        if self._closed:
            raise ConnectionRefusedError(111, "the process is gone")
        counts = method not in _READS and "/leases" not in url.path
        dies = False
        if counts:
            self.writes += 1
            if self.death is not None:
                left = self.death.writes - 1
                self.death = attrs.evolve(self.death, writes=left)
                dies = left == 0
        if dies and self.death is not None and not self.death.answered:
            self._die()
            await _never()
        named = CIMultiDict(headers)
        named["User-Agent"] = f"daemon-{self._process.number}"
        loop = asyncio.get_running_loop()
        travel = loop.create_task(
            self._travel(method, url, headers=named, body=body, counts=counts),
            context=self._outside,
        )
        travel.add_done_callback(_heard)
        if dies:
            travel.add_done_callback(lambda _done: self._die())
        said = await asyncio.shield(travel)
        if said.stream is not None:
            said.stream = _FaultyStream(said.stream, self, kind=url.path.rpartition("/")[2])
            self._open_streams[said.stream] = None
        return said

    async def _travel(
        self, method: str, url: URL, *, headers: Mapping[str, str], body: bytes, counts: bool
    ) -> InProcessAnswer:
        low, high = self.latency
        delay = self._rng.uniform(low, high) if high else 0.0
        if delay:
            await self._clock.sleep(delay)
        if delay > BIND_TIMEOUT_SERVER_S and counts:
            return InProcessAnswer(504, CIMultiDict(), b'{"message": "the server gave up"}')
        if counts:
            self._sends(url.path, body)
        said = await self._server.ask(method, url, headers=headers, body=body)
        if counts and said.status < 300:
            self._wrote(method, url.path)
        if high:
            await self._clock.sleep(self._rng.uniform(low, high))
        return said

    def _die(self) -> None:
        if not self._process.dead:
            self._process.kill()
            self.close_connections()
            self._process.on_death()

    # -- watches -----------------------------------------------------------------------------
    def forget(self, stream: WatchStream) -> None:
        """Drop a stream that has ended."""
        self._open_streams.pop(stream, None)

    def tampered(self, kind: str) -> list[WatchTampering]:
        """What is done to events of a kind now."""
        return [each for each in self._tampering if each.kind in {"", kind}]

    async def pass_on(self, chunk: bytes, past: list[bytes], kind: str) -> bytes:
        """What the daemon is given of a chunk."""
        found = self.tampered(kind)
        if not found:
            return chunk
        lines: Sequence[bytes] = chunk.splitlines(keepends=True)
        for each in found:
            if each.lag_s:
                await self._clock.sleep(each.lag_s)
            lines = each.tampered_lines(lines, past, self._rng)
        return b"".join(lines)


class _FaultyStream(WatchStream):
    """A stream whose chunks pass the wire."""

    def __init__(self, stream: WatchStream, wire: FaultyConnection, *, kind: str) -> None:
        self._stream = stream
        self._wire = wire
        self._kind = kind
        self._past: list[bytes] = []

    async def next(self) -> bytes:
        """Next chunk, after the connection has tampered with it."""
        while True:
            chunk = await self._stream.next()
            if not chunk:
                self._wire.forget(self)
                return chunk
            passed = await self._wire.pass_on(chunk, self._past, self._kind)
            self._past = [*self._past, *chunk.splitlines(keepends=True)][-_REPLAYED:]
            if passed:
                return passed

    def cut(self, fault: Exception) -> None:
        """End the stream with a fault."""
        self._stream.cut(fault)
        self._wire.forget(self)


async def _never() -> None:
    await asyncio.get_running_loop().create_future()


def _heard(task: asyncio.Task[Any]) -> None:
    """Take the exception of a request whose caller has gone, so that it is not reported as lost."""
    if not task.cancelled():
        task.exception()
