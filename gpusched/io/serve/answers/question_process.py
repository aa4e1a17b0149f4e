"""A process that answers questions one at a time: begun with the first one, ended when nobody asks any more.

What an answer costs is bounded here: so many questions wait at once, an answer that takes too long
costs that process its life, and the next question begins another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gpusched.base.classes import frozen
from gpusched.base.clock import Clock
from gpusched.io.serve.reviews import AccessRefused, RecentAnswers

_START: Final = (
    "import gc, importlib, json, sys; gc.disable(); sys.path[:] = json.loads(sys.argv[1]); "
    "module, _, name = sys.argv[2].partition(':'); "
    "answer = getattr(importlib.import_module(module), name); "
    "gc.freeze(); gc.enable(); answer(sys.argv[3])"
)
"""As in ``cli.main``, what imports make is not looked through: a seventh of their time."""
_KEPT_S: Final = 5.0
_WAITING_MAX: Final = 8
_ANSWER_MAX: Final = 1 << 26
_IDLE_S: Final = 300.0
_END_S: Final = 2.0
ANSWER_S: Final = 60.0
"""An answer that takes longer is none."""


@frozen
class AnsweringProgram:
    """Which program answers.

    Attributes:
        function: where its process begins, ``module:function``; called with ``options``.
        options: JSON that the function understands.
    """

    function: str
    options: str


def module_path() -> list[str]:
    """Where this process finds modules, for one that it starts."""
    return [os.path.abspath(entry) for entry in sys.path]  # noqa: PTH100 - '' is where we are


class QuestionProcess:
    """Asks a process of its own; ``close`` ends it.

    Args:
        program: that answers: a line of JSON for each that it reads.
        clock: time.
        answer_s: seconds that an answer may take.
    """

    def __init__(
        self, program: AnsweringProgram, clock: Clock, *, answer_s: float = ANSWER_S
    ) -> None:
        self._program = program
        self._clock = clock
        self._answer_s = answer_s
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._recent: RecentAnswers[dict[str, Any]] = RecentAnswers(clock, _KEPT_S)
        self._idle: asyncio.Task[None] | None = None

    async def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """The answer; who asks the same within seconds gets the same one.

        Raises:
            AccessRefused: there is none, with the reason.
        """
        line = msgspec.json.encode(question)
        said = await self._recent.find(line, lambda: self._ask_in_turn(line))
        refused = said.get("refused")
        if isinstance(refused, dict):
            raise AccessRefused(
                int(refused["status"]), str(refused["reason"]), str(refused["message"])
            )
        answer = said.get("answer")
        return answer if isinstance(answer, dict) else {}

    async def close(self) -> None:
        """End the process."""
        if self._idle is not None:
            self._idle.cancel()
        await self._end()

    async def _ask_in_turn(self, line: bytes) -> dict[str, Any]:
        if self._waiting >= _WAITING_MAX:
            raise AccessRefused(
                429, "TooManyRequests", f"{_WAITING_MAX} questions wait already: ask again soon"
            )
        self._waiting += 1
        try:
            async with self._turn:
                return await self._ask_process(line)
        finally:
            self._waiting -= 1

    async def _ask_process(self, line: bytes) -> dict[str, Any]:
        if self._idle is not None:
            self._idle.cancel()
        process = await self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            async with asyncio.timeout(self._answer_s):
                process.stdin.write(line + b"\n")
                await process.stdin.drain()
                said = json.loads(await process.stdout.readline())
        except TimeoutError as error:
            await self._end(kill=True)
            raise AccessRefused(
                504, "Timeout", f"no answer within {self._answer_s:.0f} s: the cluster is too large "
                "for this question, or this machine too busy",
            ) from error  # fmt: skip
        except (ValueError, OSError) as error:
            await self._end(kill=True)
            raise AccessRefused(
                503, "ServiceUnavailable", "the process that answers ended: ask again"
            ) from error
        self._idle = asyncio.create_task(self._end_when_idle())
        return said if isinstance(said, dict) else {}

    async def _running(self) -> asyncio.subprocess.Process:
        if self._process is not None and self._process.returncode is None:
            return self._process
        path = json.dumps(module_path())
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", _START, path, self._program.function, self._program.options,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                limit=_ANSWER_MAX, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise AccessRefused(
                503, "ServiceUnavailable", f"no process can be started to answer: {error.strerror}"
            ) from error
        return self._process

    async def _end_when_idle(self) -> None:
        await self._clock.sleep(_IDLE_S)
        async with self._turn:
            await self._end()

    async def _end(self, *, kill: bool = False) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(0 if kill else _END_S):
                await process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
