"""The process that serves the view: frames come on standard input, answers go out over HTTP.

Whatever its clients do, the daemon only writes to a pipe. It ends with the daemon, whose end
closes that pipe.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import signal
import sys
from collections.abc import Iterable
from typing import Final

import aiohttp
import msgspec
from aiohttp import web

from gpusched.base.clock import Clock, SystemClock
from gpusched.base.errors import ClusterUnreachable, ConfigError
from gpusched.io.client.api_client import ApiClient
from gpusched.io.serve.answers.advice_writer import AdviceWriter
from gpusched.io.serve.answers.question_process import AnsweringProgram, QuestionProcess
from gpusched.io.serve.answers.served_history import ServedHistory
from gpusched.io.serve.answers.served_questions import ServedQuestions
from gpusched.io.serve.forwarding import ViewForwarder
from gpusched.io.serve.reviews import AccessRefused, AccessReviewer
from gpusched.io.serve.view_server import ViewServer
from gpusched.view.access import ViewAccess
from gpusched.view.frames import StartsAsked, decode_frame
from gpusched.view.store import ViewStore

_FRAME_MAX: Final = 64 * 2**20
_FILES_MAX: Final = 4096
_NICE: Final = 10
_REVIEW_CONNECTIONS: Final = 8
_HEADERS_MAX: Final = 16_384
_KEEP_ALIVE_S: Final = 30.0
_SHUTDOWN_S: Final = 1.0
_IDLE_LOOK_S: Final = 5.0
_SAMPLE_LOOK_S: Final = 5.0
"""How late a minute's sample of queues may be."""
_PLAY_S: Final = 120.0
"""A play that takes longer is none: it ends by itself a minute after the cluster was read, and a session."""
_SILENT_S: Final = 40.0
"""Longer than kept-alive connections last: what is silent for so long never asked anything."""
CONNECTIONS_MAX: Final = 3000
"""Connections at once; what comes beyond is closed, the newest first."""


class ServeOptions(msgspec.Struct, kw_only=True):
    """How the view is served.

    Attributes:
        addresses: hosts and ports, of which the first free one is taken.
        kubeconfig: as for the daemon.
        history: the daemon's file; empty where it keeps none.
        answering: function and options of the program that answers questions; empty for none.
    """

    addresses: list[tuple[str, int]]
    kubeconfig: str | None = None
    history: str = ""
    answering: tuple[str, str] = ("", "")


def serve_view(text: str) -> None:
    """Serve until standard input ends; the first line on standard output is the port, or why not.

    Args:
        text: JSON of ``ServeOptions``.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _bound_process()
    options = msgspec.json.decode(text, type=ServeOptions)
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(_serve(options))


def _bound_process() -> None:
    """Below the daemon in everything: time of the processor, and open files."""
    with contextlib.suppress(OSError):
        os.nice(_NICE)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _FILES_MAX if hard == resource.RLIM_INFINITY else min(_FILES_MAX, hard)
    if soft == resource.RLIM_INFINITY or soft != most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


async def _serve(options: ServeOptions) -> None:
    clock = SystemClock()
    try:
        api = await ApiClient.connect(
            options.kubeconfig, clock=clock, connections=_REVIEW_CONNECTIONS
        )
    except (ClusterUnreachable, ConfigError) as error:
        _say({"error": str(error)})
        return
    store, forwarder = ViewStore(), ViewForwarder(aiohttp.ClientSession())
    reviewer = AccessReviewer(api, clock)

    async def authorized(request: web.Request, namespaces: Iterable[str]) -> ViewAccess:
        viewer = await reviewer.viewer(bearer_token(request))
        return await reviewer.access(viewer, lambda: namespaces)

    function, of_program = options.answering
    program = AnsweringProgram(function, of_program)
    process = QuestionProcess(program, clock) if function else None
    plays = QuestionProcess(program, clock, answer_s=_PLAY_S) if function else None
    questions = ServedQuestions(process, plays)
    server = ViewServer(
        store,
        clock,
        authorized,
        forward=forwarder.pass_on,
        history=ServedHistory(options.history, clock),
        questions=questions,
    )
    listener = ViewListener(server.application(), clock)
    try:
        port = await listener.start(options.addresses)
        _say({"port": port} if port else {"error": listener.error})
        if port:
            beside = [asyncio.create_task(_sample_queues(server, clock))]
            if process is not None:
                writer = AdviceWriter(api, questions, store, clock)
                beside.append(asyncio.create_task(writer.run()))
            await _follow(store, server, questions)
            for task in beside:
                task.cancel()
    finally:
        await listener.stop()
        await forwarder.close()
        for each in filter(None, (process, plays)):
            await each.close()
        await api.close()


def bearer_token(request: web.Request) -> str:
    """The token of a request.

    Raises:
        AccessRefused: it has none.
    """
    # The API server's proxy keeps the usual header for itself.
    headers = request.headers
    sent = headers.get("Gpusched-Authorization") or headers.get("Authorization") or ""
    scheme, _, token = sent.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise AccessRefused(
            401,
            "Unauthorized",
            "say who you are: Authorization: Bearer TOKEN, as for the API server",
        )
    return token.strip()


async def _follow(store: ViewStore, server: ViewServer, questions: ServedQuestions) -> None:
    """Take frames until standard input ends."""
    playing: asyncio.Task[None] | None = None
    reader = asyncio.StreamReader(limit=_FRAME_MAX)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        frame = decode_frame(line)
        if not isinstance(frame, StartsAsked):
            server.moment(store.take(frame))
        elif playing is None or playing.done():
            playing = asyncio.create_task(_play_starts(questions))
    if playing is not None:
        playing.cancel()


async def _play_starts(questions: ServedQuestions) -> None:
    """Say when gangs that wait start, or why that cannot be told."""
    try:
        _say(await questions.play_starts())
    except AccessRefused as error:
        _say({"refused": str(error)})


async def _sample_queues(server: ViewServer, clock: Clock) -> None:
    """Note how queues stand each minute, until cancelled."""
    while True:
        server.sample_queues()
        await clock.sleep(_SAMPLE_LOOK_S)


def _say(what: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


class ViewListener:
    """Listens, with a bound on connections and on how long one may be silent before its first request.

    Attributes:
        error: why it does not listen.
    """

    def __init__(self, app: web.Application, clock: Clock) -> None:
        self._runner = web.AppRunner(
            app,
            access_log=None,
            shutdown_timeout=_SHUTDOWN_S,
            max_field_size=_HEADERS_MAX,
            keepalive_timeout=_KEEP_ALIVE_S,
        )
        self._clock = clock
        self._seen: dict[int, float] = {}
        self._looking: asyncio.Task[None] | None = None
        self.error = ""

    async def start(self, addresses: Iterable[tuple[str, int]]) -> int:
        """The port, of the first address that is free; 0 for none, see ``error``."""
        await self._runner.setup()
        for host, port in addresses:
            try:
                await web.TCPSite(self._runner, host, port).start()
            except (OSError, OverflowError) as error:
                why = getattr(error, "strerror", None) or str(error)
                self.error = f"cannot listen on {host}:{port}: {why}"
                continue
            self._looking = asyncio.create_task(self._close_silent_ones())
            return int(self._runner.addresses[-1][1])
        return 0

    async def stop(self) -> None:
        """Stop listening and close what is open."""
        if self._looking is not None:
            self._looking.cancel()
        await self._runner.cleanup()

    async def _close_silent_ones(self) -> None:
        """Close connections that never ask for anything, and the newest ones beyond the bound."""
        while True:
            await self._clock.sleep(_IDLE_LOOK_S)
            server = self._runner.server
            assert server is not None
            now, seen = self._clock.monotonic(), {}
            for number, each in enumerate(list(server.connections)):
                busy = each._current_request is not None  # noqa: SLF001 - nothing public tells it
                since = seen[id(each)] = now if busy else self._seen.get(id(each), now)
                if now - since > _SILENT_S or number >= CONNECTIONS_MAX:
                    each.force_close()
                    if each.transport is not None:
                        each.transport.abort()
            self._seen = seen
