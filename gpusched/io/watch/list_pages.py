"""The pages of a list, each asked for while the one before is read."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final, Generic, Protocol, TypeVar

from gpusched.api.meta.codec import ListedHead, ObjectPage, read_known_page
from gpusched.base import errors, limits
from gpusched.base.classes import frozen
from gpusched.io.client.api_client import ApiClient
from gpusched.io.client.responses import api_error
from gpusched.io.observe.text import one_line
from gpusched.io.watch.kind_spec import KindSpec, WatchedCodec, WatchedPage

Item = TypeVar("Item")

_READING_MAX: Final = 6
"""Pages that wait for one before them, which is decoded elsewhere."""
_CONTINUE: Final = re.compile(
    rb'[^\[]{0,500}?"metadata": ?\{[^\[{}]*"continue": ?"([\w+/=-]+)"', re.ASCII
)
"""The token of the next page, where the list's own metadata come before its items."""


@frozen
class _Reading:
    """A page that came.

    Attributes:
        ahead: the token of the page after it, as far as that was seen.
        body: as it came, while it is decoded elsewhere.
        task: by which it is decoded elsewhere; None where it is not.
        page: as it was decoded here.
    """

    ahead: str
    body: bytes = b""
    task: asyncio.Task[Any] | None = None
    page: WatchedPage[Any] | None = None

    @property
    def done(self) -> bool:
        """Whether there is nothing to wait for."""
        return self.task is None or self.task.done()


async def _drop(asked: asyncio.Task[bytes], reading: deque[_Reading]) -> None:
    """Nobody wants these any more."""
    tasks = [asked, *(each.task for each in reading if each.task is not None)]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    reading.clear()


class DecodedBeside(Protocol):
    """Decodes some pages of one list somewhere else."""

    def decode_soon(self, body: bytes) -> asyncio.Task[Any] | None:
        """Have a page decoded; None, or in the end None, where that is not done."""

    async def close(self) -> None:
        """The list has ended."""


class ListPages(Generic[Item]):
    """Lists of one kind, in pages.

    Args:
        api: shared with everything but the lease.
        kind: what to list.
        codec: bytes to items.
        beside: where pages of a long list may be decoded; None for nowhere.
    """

    def __init__(
        self,
        api: ApiClient,
        kind: KindSpec,
        codec: WatchedCodec[Item],
        beside: Callable[[], DecodedBeside] | None = None,
    ) -> None:
        self._api = api
        self._kind = kind
        self._codec = codec
        self._beside = beside

    async def all(self) -> AsyncGenerator[WatchedPage[Item], None]:
        """All pages of one consistent list; the next one is asked for before one is decoded.

        Raises:
            GpuschedError: one of them cannot be had.
        """
        beside = self._beside() if self._beside is not None else None
        asked = self._ask("")
        reading: deque[_Reading] = deque()
        try:
            while True:
                body = await asked
                found = _CONTINUE.match(body)
                ahead = found[1].decode() if found else ""
                if ahead:
                    asked = self._ask(ahead)
                    await asyncio.sleep(0)  # noqa: TID251 - a turn, no time: the request goes out
                reading.append(self._begin(body, ahead, beside))
                while reading and (reading[0].done or not ahead or len(reading) > _READING_MAX):
                    begun = reading.popleft()
                    page = await self._read(begun)
                    yield page
                    if page.continue_token != begun.ahead:
                        ahead = ""  # it stands elsewhere, as in lists of custom kinds
                        await _drop(asked, reading)
                if ahead:
                    continue
                if not page.continue_token:
                    return
                asked = self._ask(page.continue_token)
                await asyncio.sleep(0)  # noqa: TID251 - a turn, no time
        finally:
            await _drop(asked, reading)
            if beside is not None:
                await beside.close()

    def _begin(self, body: bytes, ahead: str, beside: DecodedBeside | None) -> _Reading:
        """Decode a page, or have it decoded where there is room for that."""
        task = beside.decode_soon(body) if beside is not None and ahead else None
        return _Reading(ahead, body, task) if task else _Reading(ahead, page=self._decoded(body))

    async def _read(self, begun: _Reading) -> WatchedPage[Item]:
        page = await begun.task if begun.task is not None else begun.page
        return self._decoded(begun.body) if page is None else page

    def _ask(self, token: str) -> asyncio.Task[bytes]:
        return asyncio.create_task(self._body(limits.LIST_PAGE, token), name="page")

    async def one(
        self, limit: int, token: str, *, is_known: Callable[[ListedHead], bool] | None = None
    ) -> WatchedPage[Item] | ObjectPage[ListedHead]:
        """One page of a consistent list.

        Args:
            limit: most objects of it.
            token: of the page before; empty for the first one.
            is_known: whether nothing new is to be learned of an object; of a page with such ones alone there are
                the heads. None where all are wanted.

        Raises:
            GpuschedError: there is none.
        """
        body = await self._body(limit, token)
        if is_known is not None and (heads := read_known_page(body, is_known)) is not None:
            return heads
        return self._decoded(body)

    async def _body(self, limit: int, token: str) -> bytes:
        query = {**self._kind.query, "limit": str(limit)}
        if token:
            query["continue"] = token
        answer = await self._api.request(
            "GET", self._kind.path, query=query, timeout_s=limits.LIST_TIMEOUT_S
        )
        if not answer.ok:
            raise api_error(answer, doing=f"list {self._kind.name}")
        return answer.body

    def _decoded(self, body: bytes) -> WatchedPage[Item]:
        try:
            return self._codec.decode_page(body)
        except (ValueError, RecursionError) as error:
            raise errors.UndecodableObject(
                f"the list of {self._kind.name} cannot be read: {one_line(str(error))}"
            ) from error
