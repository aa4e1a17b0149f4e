"""The one HTTP client of the daemon: raw bytes in, raw bytes out.

A ``Response`` is returned for every HTTP answer, whatever its status. An exception means
that there was none: ``ClusterUnreachable`` if nothing can have happened (a read, or a
connection that was never made), ``OutcomeUnknown`` if a write may have been done.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Final
from urllib.parse import quote, urlencode

import aiohttp
from yarl import URL

from gpusched.base import limits
from gpusched.base.clock import Clock
from gpusched.base.errors import ClusterUnreachable, GpuschedError, OutcomeUnknown
from gpusched.io.client import credentials
from gpusched.io.client.outage import ServerOutage
from gpusched.io.client.responses import ApiResponse, api_error
from gpusched.io.client.server_clock import ServerClock
from gpusched.io.client.transport import (
    JSON,
    HttpTransport,
    Open,
    TransportResponse,
    over_http,
    set_authorization,
)
from gpusched.io.client.watch_lines import WatchLines, WatchLineTooLong
from gpusched.io.observe.logs import Logger, pin_libraries
from gpusched.io.observe.text import one_line

__all__ = ["ApiClient", "ApiResponse", "WatchLineTooLong", "WatchLines", "api_error"]

MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH: Final = "application/strategic-merge-patch+json"
_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_NEVER_ROUND_UP: Final = 1e9

_log = Logger(__name__)


class ApiClient:
    """A client with its own connection pool; ``connect`` makes one.

    Not for several event loops. Requests beyond the pool's size wait for a connection within
    their timeout.

    Attributes:
        outage: who of those that follow kinds by this client cannot reach the server.
    """

    def __init__(
        self,
        source: credentials.CredentialSource,
        access: credentials.ApiAccess,
        *,
        clock: Clock,
        connections: int,
        opened: Open = over_http,
    ) -> None:
        self._open_session = opened
        self._source = source
        self._clock = clock
        self._connections = connections
        self._access = access
        self._session = opened(access, connections)
        self._retired: list[HttpTransport] = []
        self._generation = 0
        self._reading = asyncio.Lock()
        self._reread_at = self._next_reread(access)
        self._timeouts: dict[float, aiohttp.ClientTimeout] = {}
        self._content_types: dict[str, dict[str, str]] = {}
        self.outage = ServerOutage()

    @classmethod
    async def connect(
        cls,
        kubeconfig: str | credentials.CredentialSource | None,
        *,
        clock: Clock,
        connections: int = limits.CONNECTIONS_MAX,
        opened: Open = over_http,
    ) -> ApiClient:
        """Find the way to the API server; the server itself is not asked yet.

        Args:
            kubeconfig: a file, or None for the pod's account, else KUBECONFIG, else ~/.kube; or
                what gives the credentials themselves.
            clock: ages tokens; a ``ServerClock`` is told what time the answers show.
            connections: most connections at once.
            opened: makes what carries requests and answers.

        Raises:
            ClusterUnreachable: nothing says where the cluster is.
            ConfigError: what says so cannot or must not be used.
        """
        pin_libraries()
        if kubeconfig is None or isinstance(kubeconfig, str):
            source = credentials.choose_credentials(kubeconfig, clock=clock)
        else:
            source = kubeconfig
        access = await source.load()
        credentials.report_proxy(access, os.environ)
        return cls(source, access, clock=clock, connections=connections, opened=opened)

    @property
    def host(self) -> str:
        """``scheme://host:port`` of the API server."""
        return self._access.host

    @property
    def access(self) -> credentials.ApiAccess:
        """The credentials as they were read last."""
        return self._access

    @property
    def in_cluster(self) -> bool:
        """Whether we run on the service account of a pod."""
        return self._source.in_cluster

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        timeout_s: float,
    ) -> ApiResponse:
        """One request, its answer read whole.

        Args:
            method: upper case.
            path: begins with a slash and is already quoted.
            query: parameters, not yet quoted.
            body: sent as it is.
            content_type: of the body.
            timeout_s: for everything, waiting for a connection included.

        Raises:
            ClusterUnreachable: no answer, and nothing was changed.
            OutcomeUnknown: no answer to a write that may have been done.
        """
        if self._clock.monotonic() >= self._reread_at:
            await self._reread(self._generation)
        url = self._url(path, query)
        headers = None if body is None else self._content_type(content_type)
        longest_s = self._access.request_timeout_s
        timeout = self._timeout(timeout_s if longest_s is None else min(timeout_s, longest_s))
        generation = self._generation
        asked_at = self._clock.boottime()
        answer = await self._once(method, url, body=body, headers=headers, timeout=timeout)
        if isinstance(self._clock, ServerClock):
            self._clock.observe_answer(answer, asked_at=asked_at)
        if answer.status == 401 and await self._reread(generation):
            answer = await self._once(method, url, body=body, headers=headers, timeout=timeout)
        return answer

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, str], read_timeout_s: float
    ) -> AsyncIterator[tuple[int, WatchLines]]:
        """A GET whose body is read line by line: ``(status, lines)``.

        Args:
            path: begins with a slash and is already quoted.
            query: parameters, not yet quoted.
            read_timeout_s: longest silence; every byte moves it.

        Raises:
            ClusterUnreachable: no answer; later, from the lines, the stream broke or stalled.
        """
        if self._clock.monotonic() >= self._reread_at:
            await self._reread(self._generation)
        timeout = aiohttp.ClientTimeout(
            connect=limits.POOL_WAIT_S, sock_read=read_timeout_s, ceil_threshold=_NEVER_ROUND_UP
        )
        url = self._url(path, query)
        generation = self._generation
        response = await self._open(url, timeout)
        if response.status == 401 and await self._reread(generation):
            response.close()
            response = await self._open(url, timeout)
        try:
            yield response.status, WatchLines(response, what=path, cap=limits.WATCH_LINE_MAX)
        finally:
            response.close()

    async def server_version(self) -> str:
        """The server's ``gitVersion``, for example ``v1.36.2``.

        Raises:
            ClusterUnreachable: no answer, or one that is no version.
            ApiError: the server refused.
        """
        answer = await self.request("GET", "/version", timeout_s=limits.REQUEST_TIMEOUT_S)
        if not answer.ok:
            raise api_error(answer, doing="read the server's version")
        try:
            return one_line(str(json.loads(answer.body)["gitVersion"]))
        except (ValueError, KeyError, TypeError) as error:
            raise ClusterUnreachable(f"{self.host} does not answer as an API server") from error

    async def close(self) -> None:
        """Close every connection; requests under way fail."""
        for session in (*self._retired, self._session):
            await session.close()
        self._retired.clear()

    async def _once(
        self,
        method: str,
        url: URL,
        *,
        body: bytes | None,
        headers: dict[str, str] | None,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp enforces it
    ) -> ApiResponse:
        try:
            async with self._session.request(
                method,
                url,
                data=body,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
                server_hostname=self._access.server_name,
            ) as answer:
                return ApiResponse(answer.status, answer.headers, await answer.read())
        except aiohttp.ClientConnectorError as error:
            raise self._unreachable(error) from error
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            what = f"{method} {url.path}"
            if isinstance(error, TimeoutError):
                why = f"no answer within {timeout.total:g} s"
            else:
                why = one_line(str(error)) or type(error).__name__
            if method in _READS:
                raise ClusterUnreachable(f"{what}: {why}") from error
            raise OutcomeUnknown(f"{what}: {why}, so it may or may not have been done") from error

    async def _open(
        self,
        url: URL,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp enforces it
    ) -> TransportResponse:
        try:
            return await self._session.get(
                url,
                timeout=timeout,
                allow_redirects=False,
                server_hostname=self._access.server_name,
            )
        except aiohttp.ClientConnectorError as error:
            raise self._unreachable(error) from error
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            why = one_line(str(error)) or type(error).__name__
            raise ClusterUnreachable(f"GET {url.path}: {why}") from error

    def _unreachable(self, error: aiohttp.ClientConnectorError) -> ClusterUnreachable:
        if isinstance(error, aiohttp.ClientSSLError):
            # The CA may have been replaced: read it again before the next attempt.
            self._reread_at = min(
                self._reread_at, self._clock.monotonic() + limits.CREDENTIAL_REREAD_MIN_S
            )
        cause: Exception = error
        if isinstance(error, aiohttp.ClientConnectorDNSError) or type(error) is (
            aiohttp.ClientConnectorError
        ):
            cause = error.os_error  # says why; the error itself repeats the address
        return ClusterUnreachable(
            f"cannot connect to the API server {self.host}: {one_line(str(cause))}"
        )

    async def _reread(self, generation: int) -> bool:
        """Read the credentials again unless that was done since ``generation``.

        Returns:
            Whether there are newer ones than those of ``generation``.
        """
        async with self._reading:
            if generation != self._generation:
                return True
            try:
                access = await self._source.load()
                if access.tls_id != self._access.tls_id or access.host != self._access.host:
                    await self._replace_session(access)
            except GpuschedError as error:
                self._reread_at = self._clock.monotonic() + limits.CREDENTIAL_REREAD_MIN_S
                _log.warning("credentials cannot be read again, the old ones stay", why=error)
                return False
            self._reread_at = self._next_reread(access)
            self._access = access
            self._generation += 1
            set_authorization(self._session, access)
            return True

    async def _replace_session(self, access: credentials.ApiAccess) -> None:
        """New certificates need new connections; those under way may end in peace."""
        fresh = self._open_session(access, self._connections)
        for session in self._retired:
            await session.close()
        self._retired = [self._session]
        self._session = fresh
        _log.info("certificates changed, connecting anew", server=access.host)

    def _next_reread(self, access: credentials.ApiAccess) -> float:
        if access.reread_after_s is None:
            return float("inf")
        return self._clock.monotonic() + access.reread_after_s

    def _url(self, path: str, query: Mapping[str, str] | None) -> URL:
        target = self._access.host + path
        if query:
            target += _query_string(tuple(query.items()))
        return URL(target, encoded=True)

    def _timeout(self, seconds: float) -> aiohttp.ClientTimeout:
        known = self._timeouts.get(seconds)
        if known is None:
            if len(self._timeouts) > 64:  # the lease's timeouts vary, the others do not
                self._timeouts.clear()
            known = aiohttp.ClientTimeout(total=seconds, ceil_threshold=_NEVER_ROUND_UP)
            self._timeouts[seconds] = known
        return known

    def _content_type(self, content_type: str) -> dict[str, str]:
        return self._content_types.setdefault(content_type, {"Content-Type": content_type})


@lru_cache(maxsize=256)
def _query_string(query: tuple[tuple[str, str], ...]) -> str:
    """Quoted, with its question mark; every binding of a run has the same one."""
    return "?" + urlencode(query, quote_via=quote)
