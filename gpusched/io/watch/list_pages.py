"""The pages of a list, each asked for while the one before is read."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from typing import Final, Generic, TypeVar

from gpusched.base import errors, limits
from gpusched.io.client.api_client import ApiClient
from gpusched.io.client.responses import api_error
from gpusched.io.observe.text import one_line
from gpusched.io.watch.kind_spec import KindSpec, WatchedCodec, WatchedPage

Item = TypeVar("Item")

_CONTINUE: Final = re.compile(
    rb'[^\[]{0,500}?"metadata":\{[^\[{}]*"continue":"([\w+/=-]+)"', re.ASCII
)
"""The token of the next page, where the list's own metadata come before its items."""


class ListPages(Generic[Item]):
    """Lists of one kind, in pages.

    Args:
        api: shared with everything but the lease.
        kind: what to list.
        codec: bytes to items.
    """

    def __init__(self, api: ApiClient, kind: KindSpec, codec: WatchedCodec[Item]) -> None:
        self._api = api
        self._kind = kind
        self._codec = codec

    async def all(self) -> AsyncGenerator[WatchedPage[Item], None]:
        """All pages of one consistent list; the next one is asked for before one is decoded.

        Raises:
            GpuschedError: one of them cannot be had.
        """
        asked = self._ask("")
        try:
            while True:
                body = await asked
                found = _CONTINUE.match(body)
                ahead = found[1].decode() if found else ""
                if ahead:
                    asked = self._ask(ahead)
                    await asyncio.sleep(0)  # noqa: TID251 - a turn, no time: the request goes out
                page = self._decoded(body)
                yield page
                if not page.continue_token:
                    return
                if page.continue_token != ahead:  # it stands elsewhere, as in lists of custom kinds
                    asked.cancel()
                    asked = self._ask(page.continue_token)
                    await asyncio.sleep(0)  # noqa: TID251 - a turn, no time
        finally:
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)

    def _ask(self, token: str) -> asyncio.Task[bytes]:
        return asyncio.create_task(self._body(limits.LIST_PAGE, token), name="page")

    async def one(self, limit: int, token: str) -> WatchedPage[Item]:
        """One page of a consistent list.

        Raises:
            GpuschedError: there is none.
        """
        return self._decoded(await self._body(limit, token))

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
