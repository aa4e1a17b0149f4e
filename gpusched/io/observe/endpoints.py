"""The daemon's own endpoints: ``/livez``, ``/readyz`` and ``/metrics``, nothing else."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler
from yarl import URL

from gpusched.base.addresses import is_loopback
from gpusched.base.errors import ConfigError
from gpusched.io.observe.logs import Logger
from gpusched.io.observe.text import one_line

_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""Of the Prometheus text."""
_HEADERS_MAX: Final = 8190
_SHUTDOWN_S: Final = 1.0
_log = Logger(__name__)

Ready = Callable[[], tuple[bool, str]]


class HttpEndpoints:
    """A small HTTP server; ``start`` listens, ``stop`` ends.

    ``/livez`` answers 200 while the event loop turns. ``/readyz`` answers 200 or 503 with one
    sentence. Both are open and say nothing about the cluster's content. On a loopback address it
    answers to loopback names only: a page in a browser can let its own name point there and would
    read the metrics, which name queues.

    Args:
        ready: whether the daemon can do its work, and why not.
        metrics: the Prometheus text.
    """

    def __init__(self, *, ready: Ready, metrics: Callable[[], bytes]) -> None:
        self._ready = ready
        self._metrics = metrics
        self._runner: web.AppRunner | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; port 0 takes any free one.

        Returns:
            The port.

        Raises:
            ConfigError: it is not possible to listen there.
        """
        app = web.Application(middlewares=[only_for_this_machine] if is_loopback(host) else ())
        app.router.add_get("/livez", self._livez)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._render)
        runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=_SHUTDOWN_S, max_field_size=_HEADERS_MAX
        )
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port).start()
        except (OSError, OverflowError) as error:
            await runner.cleanup()
            why = getattr(error, "strerror", None) or str(error)
            raise ConfigError(
                f"cannot listen on {host}:{port} for /livez, /readyz and /metrics:"
                f" {one_line(why)}; give another address"
            ) from error
        self._runner = runner
        address = runner.addresses[0]
        return int(address[1])

    async def start_on_first(self, addresses: Sequence[tuple[str, int]]) -> int:
        """Listen on the first of some hosts and ports that is free.

        Returns:
            The port.

        Raises:
            ConfigError: none is.
        """
        *others, (last_host, last_port) = addresses
        for host, port in others:
            with contextlib.suppress(ConfigError):
                return _plain_response(host, await self.start(host, port))
        return _plain_response(last_host, await self.start(last_host, last_port))

    async def stop(self) -> None:
        """Stop listening and close what is open."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def _livez(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _request: web.Request) -> web.Response:
        ready, why = self._ready()
        return web.Response(text=one_line(why or "ok") + "\n", status=200 if ready else 503)

    async def _render(self, _request: web.Request) -> web.Response:
        return web.Response(body=self._metrics(), headers={"Content-Type": _CONTENT_TYPE})


@web.middleware
async def only_for_this_machine(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse a request by a name that is not this machine's."""
    sent = request.headers.getall("Host", ())
    try:
        name = URL(f"http://{sent[0]}").host if len(sent) == 1 else None
    except ValueError:
        name = None
    if name is None or not is_loopback(name):
        why = "this address answers to localhost only: ask for it by that name\n"
        return web.Response(text=why, status=421)
    return await handler(request)


def _plain_response(host: str, port: int) -> int:
    _log.info("listening", livez=f"http://{host}:{port}/livez")
    return port
