"""The daemon's way to a cluster in the same loop, without HTTP: ``sessions_to`` for ``Api``.

What would come as bytes comes as bytes; timeouts, lost answers, broken streams and a server that
is away are told by the exceptions that HTTP would bring.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, MutableMapping
from contextlib import asynccontextmanager

import aiohttp
from aiohttp.client_reqrep import ConnectionKey
from multidict import CIMultiDict
from yarl import URL

from gpusched.devcluster.http.in_process import InProcessAnswer, InProcessTransport, WatchStream
from gpusched.io.client.credentials import ApiAccess
from gpusched.io.client.transport import HttpTransport, Open, set_authorization, standing_headers


def sessions_to(inside: InProcessTransport) -> Open:
    """What opens sessions to a cluster."""

    def opened(access: ApiAccess, connections: int) -> HttpTransport:
        session = _InProcessSession(inside, connections)
        set_authorization(session, access)
        return session

    return opened


class _InProcessSession:
    """As much of ``aiohttp.ClientSession`` as the daemon uses, see ``io.sessions.Session``."""

    def __init__(self, inside: InProcessTransport, connections: int) -> None:
        self._inside = inside
        self._free = asyncio.Semaphore(connections)
        self._headers: CIMultiDict[str] = CIMultiDict(standing_headers())
        self._open: dict[_InProcessAnswer, None] = {}

    @property
    def headers(self) -> MutableMapping[str, str]:
        """Headers that every request carries."""
        return self._headers

    @asynccontextmanager
    async def request(
        self,
        method: str,
        url: URL,
        *,
        data: bytes | None,
        headers: dict[str, str] | None,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - as aiohttp has it
        allow_redirects: bool,  # noqa: ARG002 - nothing redirects here
        server_hostname: str | None,  # noqa: ARG002 - nor is there TLS
    ) -> AsyncIterator[_InProcessAnswer]:
        """Send a request into the cluster and await its answer."""
        all_headers = {**self._headers, **headers} if headers else self._headers
        async with self._free:
            if self._inside.harmed:  # else the answer is there in the next turn
                async with asyncio.timeout(timeout.total):
                    said = await self._ask(method, url, all_headers, data or b"")
            else:
                said = await self._ask(method, url, all_headers, data or b"")
        answer = _InProcessAnswer(said)
        try:
            yield answer
        finally:
            answer.close()

    async def get(
        self,
        url: URL,
        *,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - as aiohttp has it
        allow_redirects: bool,  # noqa: ARG002 - nothing redirects here
        server_hostname: str | None,  # noqa: ARG002 - nor is there TLS
    ) -> _InProcessAnswer:
        """Send a GET into the cluster and await its answer."""
        async with asyncio.timeout(timeout.connect):
            await self._free.acquire()
        try:
            async with asyncio.timeout(timeout.sock_read if self._inside.harmed else None):
                said = await self._ask("GET", url, self._headers, b"")
        except BaseException:
            self._free.release()
            raise
        answer = _InProcessAnswer(said, silence_s=timeout.sock_read, closed=self._closed)
        self._open[answer] = None
        return answer

    async def close(self) -> None:
        """Nothing to close: connections are inside the process."""
        for answer in list(self._open):
            answer.close()

    def _closed(self, answer: _InProcessAnswer) -> None:
        del self._open[answer]
        self._free.release()

    async def _ask(
        self, method: str, url: URL, headers: MutableMapping[str, str], body: bytes
    ) -> InProcessAnswer:
        try:
            return await self._inside.ask(method, url, headers=headers, body=body)
        except ConnectionRefusedError as error:
            key = ConnectionKey(url.host or "", url.port, False, False, None, None, None, None)
            raise aiohttp.ClientConnectorError(key, error) from error


class _InProcessAnswer:
    """An answer as aiohttp gives it; reads its own content.

    Args:
        said: what the server answered.
        silence_s: the longest a stream may say nothing.
        closed: called once, when this is.
    """

    def __init__(
        self,
        said: InProcessAnswer,
        *,
        silence_s: float | None = None,
        closed: Callable[[_InProcessAnswer], None] | None = None,
    ) -> None:
        self.status = said.status
        self.headers = said.headers
        self._said = said
        self._silence_s = silence_s
        self._closed = closed
        self._loop = asyncio.get_running_loop()
        self._heard_at = self._loop.time()
        self._left = said.body[: said.cut]
        self._alarm: asyncio.TimerHandle | None = None
        if said.stream is not None and silence_s is not None:
            self._alarm = self._loop.call_later(silence_s, self._listen, said.stream)

    @property
    def content(self) -> _InProcessAnswer:
        """The answer itself, which reads its own content."""
        return self

    async def read(self) -> bytes:
        """The whole body of an answer that is no stream."""
        if self._said.cut is not None:
            raise aiohttp.ClientPayloadError("the body of the answer is cut short")
        return self._said.body

    async def readany(self) -> bytes:
        """The next chunk; empty at the end."""
        if self._said.stream is not None:
            chunk = await self._said.stream.next()
            self._heard_at = self._loop.time()
            return chunk
        if self._said.cut is not None and not self._left:
            raise aiohttp.ClientPayloadError("the body of the answer is cut short")
        left, self._left = self._left, b""
        return left

    def close(self) -> None:
        """End the connection of a watch."""
        if self._alarm is not None:
            self._alarm.cancel()
        if self._said.stream is not None:
            self._said.stream.cut(ConnectionError("the connection was closed"))
        closed, self._closed = self._closed, None
        if closed is not None:
            closed(self)

    def _listen(self, stream: WatchStream) -> None:
        """Look whether it was silent for too long; every chunk moves that moment."""
        assert self._silence_s is not None
        due = self._heard_at + self._silence_s
        if due > self._loop.time():
            self._alarm = self._loop.call_at(due, self._listen, stream)
        else:
            stream.cut(TimeoutError())
