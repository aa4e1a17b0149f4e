"""HTTP: authentication, negotiation and errors around the verbs; no behaviour of kinds."""

from __future__ import annotations

import asyncio
import gzip
import logging
import random
import uuid
from collections.abc import AsyncGenerator
from email.utils import formatdate
from typing import Any, Final

from aiohttp import ClientConnectionResetError, HttpVersion11, web

from gpusched.clock import Clock
from gpusched.devcluster import status
from gpusched.devcluster.control.desk import Desk
from gpusched.devcluster.control.front import Front, LostConnection
from gpusched.devcluster.control.host import asking
from gpusched.devcluster.http.access import Access
from gpusched.devcluster.http.health import health
from gpusched.devcluster.http.host_names import HostNames
from gpusched.devcluster.http.messages import Answer, Request
from gpusched.devcluster.rbac.rules import User
from gpusched.devcluster.status import StatusError
from gpusched.devcluster.views import encode
from gpusched.limits import BODY_BYTES_MAX, BODY_WAIT_S, GZIP_FROM_BYTES

_LOG: Final = logging.getLogger("gpusched.devcluster")
_JSON: Final = "application/json"
_HEX: Final = frozenset("0123456789abcdefABCDEF")
_NO_CACHE: Final = "no-cache, private"
_CONTROL: Final = "devcluster"
_FEATURES: Final = "/devcluster/features"
_HEALTH: Final = frozenset({"healthz", "livez", "readyz"})


class Server:
    """One request at a time from bytes to an Answer and back.

    Args:
        front: serves the requests, unless a fault rule strikes them.
        access: who may ask.
        clock: dates the answers, so that they agree with the times in objects.
        names: under which it may be addressed.

    Attributes:
        desk: serves what controls this cluster, and restarts it; set once, before the first
            request.
    """

    desk: Desk

    def __init__(self, front: Front, *, access: Access, clock: Clock, names: HostNames) -> None:
        self._front = front
        self._access = access
        self._names = names
        self._clock = clock
        self._dated = (0, "")
        self._audits = random.Random("audits")  # noqa: S311  # names of answers, no secrets

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Serve one request; never raises but for a lost connection."""
        response = await self._outcome(request)
        if not response.prepared:
            response.headers["Date"] = self._date()
            response.headers["Cache-Control"] = _NO_CACHE
            response.headers["Audit-Id"] = request.headers.get("Audit-Id") or self._audit_id()
        return response

    def _audit_id(self) -> str:
        return str(uuid.UUID(int=self._audits.getrandbits(128), version=4))

    def _date(self) -> str:
        second = int(self._clock.now())
        if second != self._dated[0]:
            self._dated = (second, formatdate(second, usegmt=True))
        return self._dated[1]

    async def _outcome(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await self._respond(request)
        except StatusError as e:
            return _failed(e)
        except web.HTTPRequestEntityTooLarge:
            why = f"Request entity too large: limit is {BODY_BYTES_MAX}"
            return _failed(status.failure(413, "RequestEntityTooLarge", why))
        except LostConnection:
            if request.transport is not None:
                request.transport.abort()
            raise
        except (ConnectionError, web.HTTPException):
            raise
        except Exception as e:  # noqa: BLE001  # see the comment below
            # The boundary of the process: the client gets a Status, the log the whole story.
            _LOG.exception("request failed: %s %s", request.method, request.path_qs)
            why = f"Internal error occurred: {type(e).__name__}: {e}"
            return _failed(status.failure(500, "InternalError", why))

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        if "%" in request.raw_path and _bad_escape(request.raw_path.partition("?")[0]):
            return web.Response(text="400 Bad Request", status=400)
        self._names.check(request.headers.getall("Host", ()))
        first = request.path.strip("/").partition("/")[0]
        if first in _HEALTH:
            code, text = health(
                request.path.strip("/").split("/"),
                verbose="verbose" in request.query,
                excluded=request.query.getall("exclude", []),
            )
            headers = {"X-Content-Type-Options": "nosniff"}
            return web.Response(text=text, status=code, headers=headers)
        user = self._access.user(
            request.headers.get("Authorization", ""), browser=_from_a_page(request)
        )
        groups = request.headers.getall("Impersonate-Group", ())
        user = self._access.acting_as(user, request.headers, groups)
        if first == _CONTROL and request.path.rstrip("/") != _FEATURES:
            return await self._control(request, user)
        answer = await self._answer(request, user)
        if answer.stream is not None:
            return await _stream(request, answer)
        if answer.cut is not None:
            return await _cut_short(request, answer, answer.cut)
        response = _Reply(
            body=answer.body, status=answer.code, headers={"Content-Type": answer.content_type}
        )
        _pack(request, response, answer)
        for warning in answer.warnings:
            response.headers.add("Warning", f'299 - "{_quoted(warning)}"')
        return response

    async def _control(self, request: web.BaseRequest, user: User) -> web.Response:
        self._access.check_path(user, request.path, request.method)
        raw = await _body(request)
        path = request.path.strip("/").partition("/")[2]
        asking.set(request.transport)
        reply = await self.desk.serve(request.method, path, raw)
        response = web.Response(body=encode(reply.body), status=reply.code, content_type=_JSON)
        if reply.last:
            response.force_close()
        return response

    async def _answer(self, request: web.BaseRequest, user: User) -> Answer:
        raw = await _body(request)
        query: dict[str, str] = dict(request.query)
        return await self._front.serve(
            Request(
                method=request.method,
                path=request.path,
                query=query,
                accept=request.headers.get("Accept", ""),
                content_type=request.headers.get("Content-Type", ""),
                agent=request.headers.get("User-Agent", ""),
                body=raw,
                user=user,
                access=self._access,
            )
        )


def _from_a_page(request: web.BaseRequest) -> bool:
    """Whether a page sent a request, and not a program or a person by the address bar.

    Browsers say where a page comes from in Origin, or in Sec-Fetch-Site where they send no Origin:
    with images, scripts and forms that read.
    """
    headers = request.headers
    return "Origin" in headers or headers.get("Sec-Fetch-Site", "none").lower() != "none"


class _Reply(web.Response):
    """Forgets its body once it is sent.

    A connection that is kept open holds on to its last answer: long lists would pile up, one for
    each connection of a client.
    """

    async def write_eof(self, data: bytes = b"") -> None:
        """Send what is left, and let go of it."""
        await super().write_eof(data)
        self.body = None


async def _body(request: web.BaseRequest) -> bytes:
    """Read the body; a client that stops in the middle of it is cut off after a while."""
    if not request.can_read_body:
        return b""
    expected = request.headers.get("Expect", "")
    if expected and request.version >= HttpVersion11:
        if expected.lower() != "100-continue":
            raise web.HTTPExpectationFailed
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # this was no answer yet
    assert request.transport is not None
    loop = asyncio.get_running_loop()
    alarm = loop.call_later(BODY_WAIT_S, request.transport.abort)
    try:
        return await request.read()
    finally:
        alarm.cancel()


def _bad_escape(path: str) -> bool:
    """Tell whether a raw path has a percent sign that starts no escape."""
    return any(not _HEX.issuperset(part[:2]) or len(part) < 2 for part in path.split("%")[1:])


async def _stream(request: web.BaseRequest, answer: Answer) -> web.StreamResponse:
    assert answer.stream is not None
    response = web.StreamResponse(headers={"Cache-Control": _NO_CACHE, "Content-Type": _JSON})
    if request.version >= HttpVersion11:
        response.enable_chunked_encoding()
    else:
        response.force_close()  # an older client reads until the end
    try:
        await response.prepare(request)
        async for chunk in answer.stream:
            await response.write(chunk)
        await response.write_eof()
    except ClientConnectionResetError:
        # Clients end their watches by going away: nobody is left to be told, and nothing is wrong.
        if isinstance(answer.stream, AsyncGenerator):
            await answer.stream.aclose()
    return response


async def _cut_short(request: web.BaseRequest, answer: Answer, size: int) -> web.StreamResponse:
    """Announce the whole body, send the beginning of it, and go."""
    headers = {"Content-Type": answer.content_type, "Content-Length": str(len(answer.body))}
    response = web.StreamResponse(status=answer.code, headers=headers)
    await response.prepare(request)
    await response.write(answer.body[:size])
    if request.transport is not None:
        request.transport.close()
    raise LostConnection("a body is cut short")


def _pack(request: web.BaseRequest, response: web.Response, answer: Answer) -> None:
    """Compress a long answer to a read for clients that take it."""
    if len(answer.body) < GZIP_FROM_BYTES or request.method != "GET":
        return
    taken = [
        part.partition(";")[0].strip()
        for part in request.headers.get("Accept-Encoding", "").split(",")
    ]
    if "gzip" in taken:
        response.body = gzip.compress(answer.body, 1, mtime=0)
        response.headers["Content-Encoding"] = "gzip"
        response.headers["Vary"] = "Accept-Encoding"


def _failed(error: StatusError) -> web.Response:
    response = web.Response(body=encode(error.body), status=error.code, content_type=_JSON)
    seconds: Any = (error.body.get("details") or {}).get("retryAfterSeconds")
    if seconds:
        response.headers["Retry-After"] = str(seconds)
    return response


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
