"""Pages of a long list of pods, decoded by processes beside the daemon while it takes in those before.

They are started when a list turns out to be long, and ended with it. A page that they cannot decode, or
do not answer for, is decoded by the daemon itself, as all are where there is one processor.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import mmap
import os
import pickle
import sys
from typing import Any, Final

from gpusched.api.meta.gpu_resources import GpuResources, gpu_resources
from gpusched.api.pod.columns import PodsReader
from gpusched.base import limits
from gpusched.io.observe.logs import Logger
from gpusched.io.observe.process_limits import usable_processors
from gpusched.io.observe.text import one_line
from gpusched.io.watch.kind_spec import WatchedPage
from gpusched.io.watch.page_child import ANSWERED, ASKED, PLACE_BYTES, PLACES

_START: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from gpusched.io.watch.page_child import serve; serve(int(sys.argv[2]), sys.argv[3])"
)
_Page = WatchedPage[Any] | None
_log = Logger(__name__)


class PageProcesses:
    """The processes of one list; ``close`` ends them.

    Args:
        processors: that the daemon and its processes may use.
    """

    def __init__(self, processors: int | None = None) -> None:
        self._pages = 0
        count = usable_processors() if processors is None else processors
        self._most = min(count - 1, limits.PAGE_PROCESSES_MAX)
        self._processes: list[_PageProcess] = []

    def decode_soon(self, body: bytes) -> asyncio.Task[_Page] | None:
        """Have a page decoded; None where the daemon does that itself, and in the end where it has to."""
        self._pages += 1
        if self._pages < limits.PAGES_BEFORE_PROCESSES or len(body) > PLACE_BYTES:
            return None
        if len(self._processes) < self._most and hasattr(os, "memfd_create"):
            self._processes.append(_PageProcess())
        for each in self._processes:
            if each.has_place:
                return each.decode_soon(body)
        return None

    async def close(self) -> None:
        """End all."""
        for each in self._processes:
            await each.close()
        self._processes.clear()


class _PageProcess:
    """One of them: told by a pipe of each page that is in a place of a file, where what was decoded comes, too."""

    def __init__(self) -> None:
        self._resources = gpu_resources()
        self._file = os.memfd_create("gpusched-pages")
        os.truncate(self._file, PLACES * PLACE_BYTES)
        self._places = mmap.mmap(self._file, PLACES * PLACE_BYTES)
        self._free: list[int] = []
        self._asked: dict[int, asyncio.Future[_Page]] = {}
        self._reader = PodsReader()
        self._process: asyncio.subprocess.Process | None = None
        self._following = asyncio.create_task(self._follow(), name="pages beside")

    @property
    def has_place(self) -> bool:
        """Whether it can be given one page more."""
        return bool(self._free) and gpu_resources() is self._resources

    def decode_soon(self, body: bytes) -> asyncio.Task[_Page]:
        """Have a page decoded there; None in the end where that is left to the daemon."""
        place = self._free.pop()
        at = place * PLACE_BYTES
        self._places[at : at + len(body)] = body
        self._asked[place] = answer = asyncio.get_running_loop().create_future()
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(ASKED.pack(place, len(body)))
        return asyncio.create_task(self._answered(answer), name="page beside")

    async def _answered(self, answer: asyncio.Future[_Page]) -> _Page:
        try:
            async with asyncio.timeout(limits.PAGE_ANSWER_MAX_S):
                return await answer
        except TimeoutError:
            self._lose("did not answer in time")
            return None

    async def _follow(self) -> None:
        """Start the process, and take in what it decodes until it ends."""
        try:
            self._process = await _started(self._file, self._resources)
            self._free.extend(range(PLACES))
            assert self._process.stdout is not None
            while True:
                head = await self._process.stdout.readexactly(ANSWERED.size)
                place, size = ANSWERED.unpack(head)
                at = place * PLACE_BYTES
                page = self._reader.read(self._places[at : at + size]) if size else None
                self._free.append(place)
                answer = self._asked.pop(place)
                if not answer.done():
                    answer.set_result(page)
        except asyncio.IncompleteReadError:
            self._lose("ended")
        except Exception as error:  # noqa: BLE001 - the daemon decodes what comes back from no process
            self._lose(f"failed: {type(error).__name__}: {one_line(str(error))}")

    def _lose(self, why: str) -> None:
        _log.warning(f"a process that decodes pages of pods {why}: the daemon decodes them itself")
        self._free.clear()
        self._kill()
        for answer in self._asked.values():
            if not answer.done():
                answer.set_result(None)
        self._asked.clear()

    def _kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def close(self) -> None:
        """End it."""
        self._free.clear()
        self._following.cancel()
        await asyncio.gather(self._following, return_exceptions=True)
        self._kill()
        if self._process is not None:
            await self._process.wait()
        self._places.close()
        os.close(self._file)


async def _started(file: int, resources: GpuResources) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", _START, json.dumps(module_path()), str(file), pickle.dumps(resources).hex(),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, pass_fds=(file,),
        start_new_session=True,
    )  # fmt: skip


def module_path() -> list[str]:
    """Where this process finds modules, for one that it starts."""
    return [os.path.abspath(entry) for entry in sys.path]  # noqa: PTH100 - '' is where we are
