"""Requests of a program in the same loop: no bytes of HTTP, no sockets, all else as over HTTP.

A client here is known by a token, held up by fault rules, refused while the server is away and
cut off by a restart as on a connection. A request takes one turn of the loop to arrive.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from email.utils import formatdate
from typing import Final

from multidict import CIMultiDict
from yarl import URL

from gpusched.base.classes import define
from gpusched.base.clock import Clock
from gpusched.devcluster.apimachinery import status
from gpusched.devcluster.apimachinery.status import StatusError
from gpusched.devcluster.apiserver.endpoints.access import RequestAccess
from gpusched.devcluster.apiserver.endpoints.messages import ApiAnswer, ApiRequest
from gpusched.devcluster.apiserver.reading.representations import encode
from gpusched.devcluster.http.handler_chain import HandlerChain, LostConnection

_LOG: Final = logging.getLogger("gpusched.devcluster")
_JSON: Final = "application/json"


@define(slots=True, eq=False)
class InProcessAnswer:
    """An answer: its body, or a stream whose chunks a ``WatchStream`` gives.

    Attributes:
        cut: bytes of the body after which it breaks off; None for the whole body.
    """

    status: int
    headers: CIMultiDict[str]
    body: bytes = b""
    cut: int | None = None
    stream: WatchStream | None = None


class WatchStream:
    """The chunks of a watch, made when they are asked for."""

    def __init__(self, chunks: AsyncIterator[bytes], inside: InProcessTransport) -> None:
        self._chunks = chunks
        self._inside = inside
        self._reading: asyncio.Timeout | None = None
        self._fault: Exception | None = None

    async def next(self) -> bytes:
        """The next chunk; empty at the end. One caller at a time.

        Raises:
            OSError: the connection broke; whatever ``cut`` was given.
        """
        if self._fault is not None:
            raise self._fault
        try:
            # Without a moment until ``cut`` sets one: that ends a wait from outside.
            async with asyncio.timeout(None) as self._reading:
                chunk = await anext(self._chunks, b"")
        except TimeoutError:
            if self._fault is None:
                raise
            raise self._fault from None
        finally:
            self._reading = None
        if not chunk:
            self._inside.forget(self)
        return chunk

    def cut(self, fault: Exception) -> None:
        """Raise this for the reader now or later; the server's side ends."""
        if self._fault is not None:
            return
        self._fault = fault
        self._inside.forget(self)
        if self._reading is not None:
            self._reading.reschedule(asyncio.get_running_loop().time())
        elif isinstance(self._chunks, AsyncGenerator):
            self._inside.end(self._chunks)


class InProcessTransport:
    """Serves ``ask`` while it is open.

    Args:
        handlers: serves the requests, unless a fault rule strikes them.
        access: authentication and authorization.
        clock: dates the answers.
    """

    def __init__(self, handlers: HandlerChain, *, access: RequestAccess, clock: Clock) -> None:
        self._handlers = handlers
        self._access = access
        self._clock = clock
        self._open = True
        self._dated = (0, "")
        self._calls: dict[asyncio.Task[InProcessAnswer], None] = {}
        self._streams: dict[WatchStream, None] = {}
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def harmed(self) -> bool:
        """Whether rules are in force, by which a request may last or be lost."""
        return len(self._handlers.faults) > 0

    async def ask(
        self, method: str, url: URL, *, headers: Mapping[str, str], body: bytes = b""
    ) -> InProcessAnswer:
        """Answer one request.

        Args:
            method: upper case.
            url: of which path and query count.
            headers: Accept, Authorization, Content-Type and User-Agent are read.
            body: raw.

        Raises:
            ConnectionRefusedError: the server is away.
            ConnectionResetError: the connection broke before there was an answer.
        """
        if not self._open:
            raise ConnectionRefusedError(111, f"nobody listens at {url.host}:{url.port}")
        if not self.harmed:
            await asyncio.sleep(0)  # noqa: TID251 - a turn, no time
            if not self._open:
                raise ConnectionResetError("the server went away")
            return await self._serve(method, url, headers, body)
        call = asyncio.ensure_future(self._serve(method, url, headers, body))
        self._calls[call] = None
        try:
            return await call
        except asyncio.CancelledError:
            if call not in self._calls:
                raise ConnectionResetError("the server went away") from None
            call.cancel()
            raise
        finally:
            self._calls.pop(call, None)

    def cut(self, *, deaf: bool) -> None:
        """Break every connection; ``deaf`` also refuses new ones until ``listen``."""
        self._open = self._open and not deaf
        calls, self._calls = self._calls, {}
        for call in calls:
            call.cancel()
        for stream in list(self._streams):
            stream.cut(ConnectionResetError("the server went away"))

    def listen(self) -> None:
        """Accept requests again after a cut."""
        self._open = True

    async def close(self) -> None:
        """Serve no more, and wait until everything has ended."""
        self.cut(deaf=True)
        await asyncio.gather(*self._ending, return_exceptions=True)

    def forget(self, stream: WatchStream) -> None:
        """Drop a stream that has ended."""
        self._streams.pop(stream, None)

    def end(self, chunks: AsyncGenerator[bytes]) -> None:
        """Let a generator without a reader clean up."""
        task = asyncio.ensure_future(chunks.aclose())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _serve(
        self, method: str, url: URL, headers: Mapping[str, str], body: bytes
    ) -> InProcessAnswer:  # fmt: skip
        try:
            answer = await self._handlers.serve(
                ApiRequest(
                    method=method,
                    path=url.path,
                    query=dict(url.query),
                    accept=headers.get("Accept", ""),
                    content_type=headers.get("Content-Type", ""),
                    agent=headers.get("User-Agent", ""),
                    body=body,
                    user=self._access.user(headers.get("Authorization", "")),
                    access=self._access,
                )
            )
        except StatusError as e:
            return self._failed(e)
        except LostConnection:
            raise
        except Exception as e:  # noqa: BLE001  # as over HTTP: a Status for the client
            _LOG.exception("request failed: %s %s", method, url)
            why = f"Internal error occurred: {type(e).__name__}: {e}"
            return self._failed(status.failure(500, "InternalError", why))
        return self._in_process_answer(answer)

    def _in_process_answer(self, answer: ApiAnswer) -> InProcessAnswer:
        answered = InProcessAnswer(
            answer.code, self._headers(answer.content_type), answer.body, answer.cut
        )
        if answer.stream is not None:
            answered.stream = WatchStream(answer.stream, self)
            self._streams[answered.stream] = None
        return answered

    def _failed(self, error: StatusError) -> InProcessAnswer:
        headers = self._headers(_JSON)
        seconds = (error.body.get("details") or {}).get("retryAfterSeconds")
        if seconds:
            headers["Retry-After"] = str(seconds)
        return InProcessAnswer(error.code, headers, encode(error.body))

    def _headers(self, content_type: str) -> CIMultiDict[str]:
        second = int(self._clock.now())
        if second != self._dated[0]:
            self._dated = (second, formatdate(second, usegmt=True))
        return CIMultiDict({"Content-Type": content_type, "Date": self._dated[1]})
