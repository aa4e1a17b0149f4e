"""Splitting a watch stream into lines, with a cap of our own.

aiohttp's own line reader gives up the whole connection with a bare ValueError at a limit
that depends on its buffer; here an oversized line is a named fault.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import aiohttp

from gpusched.base import limits
from gpusched.base.errors import ClusterUnreachable, GpuschedError
from gpusched.io.client.transport import TransportResponse
from gpusched.io.observe.text import one_line


class WatchLineTooLong(GpuschedError):
    """One watch event is larger than any object the API server stores: list again."""


class LineSplitter:
    """Bytes in, whole lines out; never holds more than ``cap`` bytes of an unfinished line."""

    def __init__(self, cap: int = limits.WATCH_LINE_MAX) -> None:
        self._cap = cap
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that ``chunk`` completes, without their newline; empty lines are dropped.

        Raises:
            WatchLineTooLong: a line exceeds the cap.
        """
        pieces = chunk.split(b"\n")
        tail = pieces.pop()
        if pieces and self._parts:
            self._parts.append(pieces[0])
            pieces[0] = b"".join(self._parts)
        if pieces:
            self._parts.clear()
            self._size = 0
        if tail:
            self._parts.append(tail)
            self._size += len(tail)
        if self._size > self._cap or any(len(line) > self._cap for line in pieces):
            raise WatchLineTooLong(f"a watch event exceeds {self._cap} bytes")
        return [line for line in pieces if line]

    def take_rest(self) -> bytes:
        """What stood after the last newline; the splitter is empty afterwards."""
        rest = b"".join(self._parts)
        self._parts.clear()
        self._size = 0
        return rest


class WatchLines:
    """An async iterator over the lines of one response.

    Args:
        response: already begun, body not yet read.
        what: the path, for sentences.
        cap: bytes of the longest line that is accepted.
    """

    def __init__(self, response: TransportResponse, *, what: str, cap: int) -> None:
        self._response = response
        self._what = what
        self._splitter = LineSplitter(cap)
        self._ready: deque[bytes] = deque()
        self._ended = False

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers of the answer, case-insensitive."""
        return self._response.headers

    def __aiter__(self) -> WatchLines:
        return self

    async def __anext__(self) -> bytes:
        """The next line.

        Raises:
            ClusterUnreachable: the stream broke, or was silent beyond its timeout.
            WatchLineTooLong: a line exceeds the cap.
        """
        while not self._ready:
            if self._ended:
                raise StopAsyncIteration
            try:
                chunk = await self._response.content.readany()
            except TimeoutError as error:
                raise ClusterUnreachable(f"{self._what}: nothing came for too long") from error
            except (aiohttp.ClientError, OSError) as error:
                why = one_line(str(error)) or type(error).__name__
                # aiohttp raises one and the same object for every response that was closed: the
                # frames of all of them would stay in it for as long as the process lives.
                error.__traceback__ = error.__context__ = None
                raise ClusterUnreachable(f"{self._what}: the stream broke: {why}") from error
            if chunk:
                self._ready.extend(self._splitter.feed(chunk))
                continue
            self._ended = True
            if rest := self._splitter.take_rest():
                self._ready.append(rest)
        return self._ready.popleft()

    def close(self) -> None:
        """End the stream from outside: a pending read raises ClusterUnreachable."""
        self._response.close()
