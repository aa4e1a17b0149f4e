"""``gpusched console``: the page of the view for one person, on this machine alone.

What the page asks for is passed on to the daemon with the user's own log-in, so that it shows what that
user may see. Where no daemon serves a view, it is made of what the API shows.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hmac
import secrets
import signal
import webbrowser
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from gpusched import __version__
from gpusched.api.meta.gpu_resources import gpu_resources_in_force
from gpusched.base.clock import Clock, SystemClock
from gpusched.base.errors import ApiError, ConfigError, GpuschedError, UsageError
from gpusched.cli.command import Subparsers, add_config, add_kubeconfig, connection_choice
from gpusched.cli.inspect import cluster_reader
from gpusched.cli.inspect.live.api_view import ApiView
from gpusched.config.model import Config
from gpusched.io.client.api_client import ApiClient
from gpusched.io.observe.endpoints import only_for_this_machine
from gpusched.io.serve.child import ViewListener
from gpusched.io.serve.forwarding import ViewForwarder
from gpusched.io.serve.reviews import AccessRefused
from gpusched.io.serve.view_client import NoView, ViewClient, find_view
from gpusched.io.serve.view_server import ViewServer
from gpusched.view.access import ViewAccess
from gpusched.view.frames import ViewHead
from gpusched.view.store import ViewStore

_COOKIE: Final = "gpusched-console"
_PORT: Final = 8082
_LOOK_S: Final = 5.0
_DAEMON: Final = "the daemon's view"


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = subparsers.add_parser(
        "console",
        description="Show what waits and runs on a page in the browser, until a signal comes. It "
        "listens on this machine alone and shows what the kubeconfig's user may see.",
    )
    parser.add_argument(
        "--port",
        metavar="N",
        type=int,
        default=None,
        help=f"of the page; 0 takes any free one (default: {_PORT}, or any free one)",
    )
    parser.add_argument(
        "--no-open", action="store_true", help="print the address and open no browser"
    )
    add_kubeconfig(parser)
    add_config(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Serve the page until a signal comes.

    Raises:
        ConfigError: the configuration is wrong, or it is not possible to listen.
        ClusterUnreachable: no cluster.
    """
    if arguments.port is not None and not 0 <= arguments.port <= 65535:
        raise UsageError(f"--port takes a number up to 65535, not {arguments.port}")
    config = cluster_reader.configuration(arguments.config)
    with gpu_resources_in_force(config.gpu_resources):
        choice = connection_choice(arguments)
        cluster_reader.with_cluster(choice, lambda api: _serve(api, config, arguments))
    return 0


async def _serve(api: ApiClient, config: Config, arguments: argparse.Namespace) -> None:
    clock = SystemClock()
    async with contextlib.AsyncExitStack() as stack:
        namespace = cluster_reader.default_namespace(connection_choice(arguments))
        app, told = await _application(api, config, ApiView(api, config, clock, namespace), stack)
        key = secrets.token_urlsafe(24)
        app.middlewares.insert(0, only_for_this_machine)
        app.middlewares.insert(1, _only_with_key(key))
        listener = ViewListener(app, clock)
        ports = (_PORT, 0) if arguments.port is None else (arguments.port,)
        port = await listener.start(("127.0.0.1", each) for each in ports)
        if not port:
            raise ConfigError(f"{listener.error}; give another --port")
        stack.push_async_callback(listener.stop)
        address = f"http://127.0.0.1:{port}/?key={key}"
        print(f"{address}\n{told}. Ctrl-C ends it.", flush=True)
        if not arguments.no_open:
            await asyncio.to_thread(webbrowser.open, address)
        await _signalled()


async def _application(
    api: ApiClient, config: Config, view: ApiView, stack: contextlib.AsyncExitStack
) -> tuple[web.Application, str]:
    """The page's server, and a sentence about where its view is from.

    Args:
        api: of the cluster.
        config: of the daemon.
        view: of the API, where there is no daemon.
        stack: ends what is begun here.
    """
    clock = SystemClock()
    election = config.leader_election
    store = ViewStore()
    try:
        route = await find_view(api, namespace=election.lease_namespace, lease=election.lease_name)
        async with ViewClient(route) as client:
            await client.read("/v1")
    except (NoView, ApiError) as error:  # the API server itself answers
        server = ViewServer(store, clock, _everything(view), source="api")
        following = asyncio.create_task(_follow(view, store, server, clock))
        stack.callback(following.cancel)
        return server.application(), f"Read from the API: {error}"
    forwarder = ViewForwarder(route.session(), headers=route.headers)
    stack.push_async_callback(forwarder.close)
    store.take(ViewHead(version=__version__, daemon="", leading=False, leader=route.base))
    server = ViewServer(store, clock, _nobody, forward=forwarder.pass_on)
    return server.application(), f"Read from {_DAEMON} at {route.told}"


def _everything(view: ApiView) -> Callable[[web.Request, Iterable[str]], Awaitable[ViewAccess]]:
    async def access(_request: web.Request, _namespaces: Iterable[str]) -> ViewAccess:
        return view.access

    return access


async def _nobody(_request: web.Request, _namespaces: Iterable[str]) -> ViewAccess:
    raise AccessRefused(503, "ServiceUnavailable", "the daemon's view cannot be reached")


async def _follow(view: ApiView, store: ViewStore, server: ViewServer, clock: Clock) -> None:
    """Read the API again and again, and show what changed."""
    while True:
        try:
            for frame in await view.changes():
                server.moment(store.take(frame))
            server.sample_queues()
        except GpuschedError as error:
            server.trouble = str(error)
        await clock.sleep(_LOOK_S)


def _only_with_key(key: str) -> Middleware:
    """Who has the address that was printed gets a cookie; nobody else is answered."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if hmac.compare_digest(request.cookies.get(_COOKIE, ""), key):
            return await handler(request)
        if hmac.compare_digest(request.query.get("key", ""), key):
            answer = web.Response(status=302, headers={"Location": "/"})
            answer.set_cookie(_COOKIE, key, httponly=True, samesite="Strict")
            return answer
        return web.Response(
            status=403, text="open the address that gpusched console printed: it has a key\n"
        )

    return check


async def _signalled() -> None:
    """Wait for Ctrl-C or SIGTERM."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    await ended.wait()
