"""The daemon's end of the view: what changed goes down a pipe to the process that serves it.

Nothing waits for it. While that process is busy, or a slice of a millisecond is over, sessions go
on, and of those that ended meanwhile only the last is shown. A process that is lost is started
again, later each time, and told everything anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import attrs
import msgspec

from gpusched.base.classes import frozen
from gpusched.base.clock import Clock
from gpusched.io.history.played_starts import (
    PlayedStarts,
    StartsNotPlayed,
    read_played_starts,
)
from gpusched.io.observe.logs import Logger
from gpusched.io.observe.text import one_line
from gpusched.io.serve.answers.question_process import AnsweringProgram, module_path
from gpusched.view.follower import SeenSession, ViewFollower
from gpusched.view.frames import (
    DecisionMade,
    StartsAsked,
    ViewFrame,
    ViewHead,
    ViewReset,
    encode_frame,
)
from gpusched.view.model import DecisionView
from gpusched.view.store import DECISIONS_KEPT

_START: Final = (
    "import gc, json, sys; gc.disable(); sys.path[:] = json.loads(sys.argv[1]); "
    "from gpusched.io.serve.child import serve_view; gc.freeze(); gc.enable(); serve_view(sys.argv[2])"
)
_PERIOD_S: Final = 0.2
"""Between two moments that are shown: what people see is never older than this and a session."""
_SLICE_S: Final = 0.001
_REST_S: Final = 0.004
"""The event loop belongs to others for so long between two slices: a fifth of it at most is ours."""
_HEAD_PERIOD_S: Final = 1.0
_READY_S: Final = 30.0
_END_S: Final = 2.0
_RESTART_MIN_S: Final = 1.0
_RESTART_MAX_S: Final = 300.0
_PORT_LINE_MAX: Final = 4096
_ANSWER_MAX: Final = 1 << 26
_PLAYED_S: Final = 150.0
"""Longer than a play takes."""
_FIRST_SESSION_S: Final = 3.0
"""So long the process that serves waits for a first session: its start would take a processor from the first bindings."""
_log = Logger(__name__)


@frozen(kw_only=True)
class ViewAddress:
    """Where the view is served.

    Attributes:
        addresses: hosts and ports, of which the first free one is taken.
        kubeconfig: as for the daemon, with which the process that serves asks about rights.
        host: by which others reach it; empty for the first address.
        history: the daemon's file, which is served as well; empty for none.
        answering: the program that answers questions of what would happen; None for none.
    """

    addresses: Sequence[tuple[str, int]]
    kubeconfig: str | None = None
    host: str = ""
    history: str = ""
    answering: AnsweringProgram | None = None


class ViewProcessLost(Exception):
    """The process that serves the view is gone, or was never there."""


class ViewPublisher:
    """``run`` is its life; ``session`` and ``decided`` are told what happens.

    Args:
        address: where to serve.
        clock: time.
        head: about the daemon, asked each second.
    """

    def __init__(self, address: ViewAddress, clock: Clock, head: Callable[[], ViewHead]) -> None:
        self._address = address
        self._clock = clock
        self._head = head
        self._seen: SeenSession | None = None
        self._changed = asyncio.Event()
        self._decides = asyncio.Event()
        """A session was held."""
        self._decisions: deque[DecisionView] = deque(maxlen=DECISIONS_KEPT)
        self._reset = False
        self._played: asyncio.Future[PlayedStarts] | None = None
        """Awaits what is played; ``_starts_asked`` until that is asked for."""
        self._starts_asked = False
        self.url = ""
        """Of the server, empty while there is none."""

    def session(self, seen: SeenSession) -> None:
        """A session ended."""
        self._seen = seen
        self._changed.set()
        self._decides.set()

    def decided(self, decision: DecisionView) -> None:
        """A decision was made or carried out; it is shown with the next moment."""
        self._decisions.append(decision)

    def forget(self) -> None:
        """What is known of the cluster is read anew: nothing of it is shown any more."""
        self._seen = None
        self._reset = True
        self._changed.set()

    async def play_starts(self) -> PlayedStarts:
        """When gangs that wait start, as the program that answers questions plays it.

        Raises:
            StartsNotPlayed: it does not.
        """
        if not self.url or self._address.answering is None:
            raise StartsNotPlayed("the view is not served, whose process would play them")
        self._played, self._starts_asked = asyncio.get_running_loop().create_future(), True
        self._changed.set()
        try:
            async with asyncio.timeout(_PLAYED_S):
                return await self._played
        except TimeoutError as error:
            raise StartsNotPlayed(f"no answer within {_PLAYED_S:.0f} s") from error
        finally:
            self._played, self._starts_asked = None, False

    async def run(self) -> None:
        """Serve until cancelled, from the first session on, or a little later where there is none."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_SESSION_S):
                await self._decides.wait()
        pause = _RESTART_MIN_S
        while True:
            began = self._clock.monotonic()
            try:
                await self._serve_once()
            except (ViewProcessLost, OSError) as error:
                _log.warning(
                    "the view is not served for now", why=one_line(str(error)), again_s=pause
                )
            except Exception as error:  # noqa: BLE001 - what people see must not end the scheduler
                _log.error(
                    "the view broke and is made anew", why=one_line(repr(error)), again_s=pause
                )
            self.url = ""
            if self._clock.monotonic() - began > _RESTART_MAX_S:
                pause = _RESTART_MIN_S
            await self._clock.sleep(pause)
            pause = min(2 * pause, _RESTART_MAX_S)

    async def _serve_once(self) -> None:
        process = await self._start()
        try:
            port = await self._port(process)
            host = self._address.host or self._address.addresses[0][0]
            self.url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
            _log.info("the view is served", at=self.url)
            assert process.stdin is not None
            assert process.stdout is not None
            hearing = asyncio.create_task(self._hear(process.stdout))
            try:
                await self._feed(process.stdin)
            except ConnectionError as error:
                raise ViewProcessLost("the process that serves it ended") from error
            finally:
                hearing.cancel()
        finally:
            await _end(process)

    async def _hear(self, pipe: asyncio.StreamReader) -> None:
        """What was played, a line of JSON each."""
        while line := await pipe.readline():
            awaited = self._played
            if awaited is None or awaited.done():
                continue
            try:
                awaited.set_result(read_played_starts(line))
            except StartsNotPlayed as error:
                awaited.set_exception(error)

    async def _start(self) -> asyncio.subprocess.Process:
        address = self._address
        options = {
            "addresses": list(address.addresses),
            "kubeconfig": address.kubeconfig,
            "history": address.history,
            "answering": attrs.astuple(address.answering) if address.answering else ("", ""),
        }
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            _START,
            json.dumps(module_path()),
            msgspec.json.encode(options).decode(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_ANSWER_MAX,
            start_new_session=True,  # Ctrl-C at a terminal is for the daemon
        )

    async def _port(self, process: asyncio.subprocess.Process) -> int:
        assert process.stdout is not None
        try:
            async with asyncio.timeout(_READY_S):
                line = await process.stdout.readline()
            said = json.loads(line[:_PORT_LINE_MAX] or b"{}")
        except (TimeoutError, ValueError) as error:
            raise ViewProcessLost("the process that serves it does not say where") from error
        if not isinstance(said, dict) or not said.get("port"):
            why = said.get("error") if isinstance(said, dict) else None
            raise ViewProcessLost(str(why or "the process that serves it could not be started"))
        return int(said["port"])

    # -- what goes down the pipe -----------------------------------------------------------
    async def _feed(self, pipe: asyncio.StreamWriter) -> None:
        follower, shown, head = ViewFollower(), None, None
        while True:
            if self._reset:
                self._reset = False
                follower, shown = ViewFollower(), None
                await _write(pipe, ViewReset())
            now_head = self._head()
            if now_head != head:
                head = now_head
                await _write(pipe, head)
            if self._starts_asked:
                self._starts_asked = False
                await _write(pipe, StartsAsked())
            seen = self._seen
            if seen is not None and seen is not shown:
                await self._show(pipe, follower, seen)
                shown = seen
            self._changed.clear()
            await self._clock.sleep(_PERIOD_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_HEAD_PERIOD_S):
                    await self._changed.wait()

    async def _show(
        self, pipe: asyncio.StreamWriter, follower: ViewFollower, seen: SeenSession
    ) -> None:
        """Write what changed, in slices between which the event loop does other things."""
        while self._decisions:
            pipe.write(encode_frame(DecisionMade(view=self._decisions.popleft())))
        until = self._clock.monotonic() + _SLICE_S
        for frame in follower.changes(seen):
            if frame is not None:
                pipe.write(encode_frame(frame))
            if self._clock.monotonic() >= until:
                await pipe.drain()
                await self._clock.sleep(_REST_S)
                until = self._clock.monotonic() + _SLICE_S
        for policy, why in follower.order.take_faults():
            _log.warning("a policy does not say what its keys mean", policy=policy, why=why)
        await pipe.drain()


async def _write(pipe: asyncio.StreamWriter, frame: ViewFrame | StartsAsked) -> None:
    pipe.write(encode_frame(frame))
    await pipe.drain()


async def _end(process: asyncio.subprocess.Process) -> None:
    """End the process: its input is over, and if that is not enough it is killed."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(_END_S):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
