"""Answers of another server of the view, passed on: of the daemon that leads, or of a cluster's own."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Final

import aiohttp
from aiohttp import web
from yarl import URL

from gpusched.io.serve.reviews import AccessRefused

_CONNECT_S: Final = 5.0
_SILENT_S: Final = 75.0
_TIMEOUT: Final = aiohttp.ClientTimeout(total=None, connect=_CONNECT_S, sock_read=_SILENT_S)
_OTHERS: Final = ("Last-Event-ID", "Accept", "Content-Type")
_PASSED_ON: Final = ("Authorization", "Gpusched-Authorization", *_OTHERS)
_PASSED: Final = "Gpusched-Passed-On"
"""Marks what a daemon that stands by passes on: the next one answers it or refuses."""
_PASSED_BACK: Final = (
    "Content-Type",
    "Retry-After",
    "WWW-Authenticate",
    "Cache-Control",
    "X-Content-Type-Options",
)


class ViewForwarder:
    """Passes requests on; ``close`` ends its connections.

    Args:
        session: connections; closed with it.
        headers: sent in place of what a request has; none to pass its log-in on.
    """

    def __init__(
        self, session: aiohttp.ClientSession, *, headers: Mapping[str, str] | None = None
    ) -> None:
        self._session = session
        self._headers = headers

    async def close(self) -> None:
        """End what is under way."""
        await self._session.close()

    async def pass_on(self, request: web.Request, address: str) -> web.StreamResponse:
        """The other's answer to this request.

        Args:
            request: of the same path.
            address: ``scheme://host:port`` of the other; empty where it is not known.

        Raises:
            AccessRefused: it cannot be reached, or the request was passed on to us.
        """
        stands_by = self._headers is None
        if stands_by and _PASSED in request.headers:
            raise _unavailable(
                "this daemon stands by, and so does the one that asked it: try again soon"
            )
        if not address:
            raise _unavailable(
                "this daemon stands by, and knows no other one that leads and serves a view: "
                "try again soon"
            )
        names = _PASSED_ON if stands_by else _OTHERS
        headers = {name: request.headers[name] for name in names if name in request.headers}
        headers |= {_PASSED: "1"} if stands_by else {}
        url = URL(address.rstrip("/") + request.raw_path, encoded=True)
        try:
            async with self._session.request(
                request.method,
                url,
                data=await request.read() if request.can_read_body else None,
                headers={**headers, **(self._headers or {})},
                allow_redirects=False,
                timeout=_TIMEOUT,
            ) as answer:
                kept = {n: answer.headers[n] for n in _PASSED_BACK if n in answer.headers}
                response = web.StreamResponse(status=answer.status, headers=kept)
                await response.prepare(request)
                # Either of the two may go away in the middle: what was sent is all there is.
                with contextlib.suppress(ConnectionError, TimeoutError, aiohttp.ClientError):
                    async for chunk in answer.content.iter_any():
                        await response.write(chunk)
                return response
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _unavailable("the daemon that leads cannot be reached: try again soon") from error


def _unavailable(why: str) -> AccessRefused:
    return AccessRefused(503, "ServiceUnavailable", why)
