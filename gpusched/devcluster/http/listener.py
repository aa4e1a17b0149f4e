"""The listening socket and its connections: opened, cut and opened again on the same port."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from gpusched.devcluster.apimachinery.limits import BODY_BYTES_MAX, HEAD_BYTES_MAX, HEADER_WAIT_S

Handle = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
asking: ContextVar[asyncio.BaseTransport | None] = ContextVar("asking", default=None)
"""The connection of the request being served: it outlives the restart that it asks for."""


class _Connections(web.Server):
    """aiohttp's server, which by itself waits for ever for the first request of a client."""

    def __init__(self, handle: Handle) -> None:
        super().__init__(
            handle,
            request_factory=self._make_request,
            handler_cancellation=True,
            access_log=None,
            max_line_size=HEAD_BYTES_MAX,
            max_field_size=HEAD_BYTES_MAX,
        )
        self._silent: dict[RequestHandler, asyncio.TimerHandle] = {}

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        """Note a connection and give its first request some time."""
        super().connection_made(handler, transport)
        loop = asyncio.get_running_loop()
        self._silent[handler] = loop.call_later(HEADER_WAIT_S, transport.abort)

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        """Remove a connection that was closed."""
        super().connection_lost(handler, exc)
        self._heard(handler)

    def _heard(self, handler: RequestHandler) -> None:
        if (timer := self._silent.pop(handler, None)) is not None:
            timer.cancel()

    def _make_request(
        self, message: Any, payload: Any, protocol: Any, writer: Any, task: Any
    ) -> web.BaseRequest:
        self._heard(protocol)
        loop = asyncio.get_running_loop()
        return web.BaseRequest(
            message, payload, protocol, writer, task, loop, client_max_size=BODY_BYTES_MAX
        )


class Listener:
    """Listens for one handler.

    Args:
        host: numeric address.
        port: 0 takes a free one, and keeps it.
    """

    def __init__(self, handle: Handle, *, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._server = _Connections(handle)
        self._runner = web.ServerRunner(self._server, shutdown_timeout=0.5)
        self._site: web.TCPSite | None = None

    async def open(self) -> tuple[str, int]:
        """Listen; return address and port. Raises OSError."""
        await self._runner.setup()
        await self.listen()
        host, port = self._runner.addresses[0][:2]
        self._port = port
        return host, port

    async def listen(self) -> None:
        """Listen again after ``drop``; does nothing while listening."""
        if self._site is None:
            self._site = web.TCPSite(self._runner, self._host, self._port, backlog=1024)
            await self._site.start()

    async def drop(self, deaf: bool) -> None:  # one caller, see Machinery
        """Cut every connection but the one that asks for it; ``deaf`` also stops listening."""
        if deaf and self._site is not None:
            await self._site.stop()
            self._site = None
        kept = asking.get()
        for handler in self._server.connections:
            if handler.transport is not None and handler.transport is not kept:
                handler.transport.abort()
        await asyncio.sleep(0)  # noqa: TID251 - handlers of what was cut are cancelled now

    async def close(self) -> None:
        """Stop listening and end every connection."""
        await self._runner.cleanup()
