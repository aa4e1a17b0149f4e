"""What carries requests to the API server and answers back: HTTP, or whatever behaves like it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol, cast

import aiohttp
from yarl import URL

from gpusched import __version__
from gpusched.base import limits
from gpusched.io.client import credentials
from gpusched.io.observe import process_limits

JSON: Final = "application/json"


class ResponseBody(Protocol):
    """A body as it comes."""

    async def readany(self) -> bytes:
        """What has come, at least one byte; empty at the end."""


class TransportResponse(Protocol):
    """An answer whose body has not been read."""

    @property
    def status(self) -> int:
        """HTTP status of the answer."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers of the answer; names are case-insensitive."""

    @property
    def content(self) -> ResponseBody:
        """The body as it comes."""

    async def read(self) -> bytes:
        """The whole body of the answer."""

    def close(self) -> None:
        """End the connection; whoever reads is told by an exception."""


class HttpTransport(Protocol):
    """The part of ``aiohttp.ClientSession`` that the daemon uses; its exceptions are the same."""

    @property
    def headers(self) -> MutableMapping[str, str]:
        """Sent with every request."""

    def request(
        self,
        method: str,
        url: URL,
        *,
        data: bytes | None,
        headers: dict[str, str] | None,
        timeout: aiohttp.ClientTimeout,
        allow_redirects: bool,
        server_hostname: str | None,
    ) -> AbstractAsyncContextManager[TransportResponse]:
        """Send one request; the context holds its answer."""

    def get(
        self,
        url: URL,
        *,
        timeout: aiohttp.ClientTimeout,
        allow_redirects: bool,
        server_hostname: str | None,
    ) -> Awaitable[TransportResponse]:
        """A GET whose body is read as it comes."""

    async def close(self) -> None:
        """Close all connections to the server."""


Open = Callable[[credentials.ApiAccess, int], HttpTransport]
"""Makes a session from credentials and the number of connections it may have at once."""


def over_http(access: credentials.ApiAccess, connections: int) -> HttpTransport:
    """A session over HTTP with its own connection pool."""
    context = access.tls()
    connector = aiohttp.TCPConnector(
        limit=process_limits.connection_limit(connections),
        ssl=True if context is None else context,
        keepalive_timeout=limits.KEEPALIVE_S,
        ttl_dns_cache=limits.DNS_AGE_S,
    )
    opened = aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        headers=(*standing_headers().items(), *access.impersonation),
        timeout=aiohttp.ClientTimeout(total=limits.REQUEST_TIMEOUT_S),
        read_bufsize=limits.READ_BUFFER_BYTES,
        proxy=access.proxy,
    )
    session = cast("HttpTransport", opened)
    set_authorization(session, access)
    return session


def standing_headers() -> dict[str, str]:
    """The headers of every request, without the one that proves who we are."""
    return {
        "Accept": JSON,
        # Compressing costs the server more than a cluster's network does.
        "Accept-Encoding": "identity",
        "User-Agent": f"gpusched/{__version__}",
    }


def set_authorization(session: HttpTransport, access: credentials.ApiAccess) -> None:
    """As a default header: nothing is then to be done for it at each request."""
    session.headers.pop("Authorization", None)
    if access.authorization:
        session.headers["Authorization"] = access.authorization
