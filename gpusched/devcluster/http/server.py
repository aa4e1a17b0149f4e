"""HTTP: authentication, negotiation, health checks and errors around the verbs.

On a loopback address a request without credentials is the administrator's. A page of any site can
let its own name point there (DNS rebinding) and then reaches this server; the ``Host`` header that
the browser sends has that name, so that only known names are accepted.
"""

from __future__ import annotations

import asyncio
import gzip
import ipaddress
import logging
import random
import re
import uuid
from collections.abc import AsyncGenerator, Iterable, Sequence
from email.utils import formatdate
from functools import lru_cache
from typing import Any, Final

from aiohttp import ClientConnectionResetError, HttpVersion11, web

from gpusched.base.classes import frozen
from gpusched.base.clock import Clock
from gpusched.devcluster.apimachinery import status
from gpusched.devcluster.apimachinery.limits import BODY_BYTES_MAX, BODY_WAIT_S, GZIP_FROM_BYTES
from gpusched.devcluster.apimachinery.status import StatusError
from gpusched.devcluster.apiserver.endpoints.access import RequestAccess
from gpusched.devcluster.apiserver.endpoints.messages import ApiAnswer, ApiRequest
from gpusched.devcluster.apiserver.rbac.rules import User
from gpusched.devcluster.apiserver.reading.representations import encode
from gpusched.devcluster.http.control_endpoints import ControlEndpoints
from gpusched.devcluster.http.handler_chain import HandlerChain, LostConnection
from gpusched.devcluster.http.listener import asking

_HOOKS: Final = (
    "poststarthook/rbac/bootstrap-roles",
    "poststarthook/scheduling/bootstrap-system-priority-classes",
)
_CHECKS: Final = {
    "healthz": ("ping", "log", "etcd", *_HOOKS),
    "livez": ("ping", "log", "etcd", *_HOOKS),
    "readyz": ("ping", "log", "etcd", "informer-sync", *_HOOKS, "shutdown"),
}
"""Those checks of a real server that have a counterpart here; all of them hold while it answers."""


def answer_health(parts: list[str], *, verbose: bool, excluded: list[str]) -> tuple[int, str]:
    """Answer a health path.

    Args:
        parts: of the path: ``["readyz"]``, or with the name of one check behind it.
        verbose: whether the single checks are listed.
        excluded: names of checks that do not count.

    Returns:
        HTTP status and text.
    """
    checks = _CHECKS[parts[0]]
    one = "/".join(parts[1:])
    if one:
        return (200, "ok") if one in checks else (404, "404 page not found\n")
    if not verbose:
        return 200, "ok"
    lines = [
        f"[+]{check} excluded: ok" if check in excluded else f"[+]{check} ok" for check in checks
    ]
    unknown = sorted({name for name in excluded if name not in checks})
    if unknown:
        names = ", ".join(f'"{name}"' for name in unknown)
        lines.append(f"warn: some health checks cannot be excluded: no matches for {names}")
    return 200, "\n".join([*lines, f"{parts[0]} check passed", ""])


_PORT = re.compile(r":\d{0,5}")


@frozen
class HostNames:
    """The names that count.

    Attributes:
        listening: the address that is listened on; on another than a loopback one every request
            needs a token, so that a page has nothing to gain, and any name will do.
        configured: further names, as of a container's host or a tunnel; without ports.
    """

    listening: str
    configured: frozenset[str] = frozenset()

    @classmethod
    def from_options(cls, listening: str, configured: Iterable[str]) -> HostNames:
        """Return those of an address and names in any case."""
        return cls(listening, frozenset(name.lower().rstrip(".") for name in configured))

    def check(self, sent: Sequence[str]) -> None:
        """Refuse a request by its ``Host`` headers; raises StatusError 400 or 421."""
        if not _loopback(self.listening):
            return
        if len(sent) != 1 or not sent[0].strip():
            raise status.bad_request("the request must have one Host header, with a name in it")
        name = _name(sent[0].strip())
        if name and (_loopback(name) or name == "localhost" or name in self.configured):
            return
        why = (
            f"the Host {sent[0][:80]!r} is not this server: use localhost or {self.listening}, "
            "or start it with --host-names and that name"
        )
        raise status.failure(421, "MisdirectedRequest", why)


def _name(host: str) -> str:
    """The name or address of a Host header, without its port; empty when it makes no sense."""
    if host.startswith("["):
        address, bracket, port = host[1:].partition("]")
        return address.lower() if bracket and (not port or _PORT.fullmatch(port)) else ""
    name, colon, port = host.partition(":")
    if colon and not _PORT.fullmatch(f":{port}"):
        return ""
    return name.lower().rstrip(".")


@lru_cache(maxsize=64)  # each request brings the same two
def _loopback(name: str) -> bool:
    address: Any
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


_LOG: Final = logging.getLogger("gpusched.devcluster")
_JSON: Final = "application/json"
_HEX: Final = frozenset("0123456789abcdefABCDEF")
_NO_CACHE: Final = "no-cache, private"
_CONTROL: Final = "devcluster"
_FEATURES: Final = "/devcluster/features"
_HEALTH: Final = frozenset({"healthz", "livez", "readyz"})


class HttpServer:
    """Requests from bytes to an ``ApiAnswer`` and back, one at a time on each connection.

    Args:
        handlers: serves the requests, unless a fault rule strikes them.
        access: authentication and authorization.
        clock: dates the answers, so that they agree with the times in objects.
        names: under which it may be addressed.

    Attributes:
        control: serves what controls this cluster, and restarts it; set once, before the first
            request.
    """

    control: ControlEndpoints

    def __init__(
        self, handlers: HandlerChain, *, access: RequestAccess, clock: Clock, names: HostNames
    ) -> None:
        self._handlers = handlers
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
            code, text = answer_health(
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
        response = _StreamReply(
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
        reply = await self.control.serve(request.method, path, raw)
        response = web.Response(body=encode(reply.body), status=reply.code, content_type=_JSON)
        if reply.last:
            response.force_close()
        return response

    async def _answer(self, request: web.BaseRequest, user: User) -> ApiAnswer:
        raw = await _body(request)
        query: dict[str, str] = dict(request.query)
        return await self._handlers.serve(
            ApiRequest(
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


class _StreamReply(web.Response):
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


async def _stream(request: web.BaseRequest, answer: ApiAnswer) -> web.StreamResponse:
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
        # Clients end their watches by disconnecting: no answer is due, and nothing is wrong.
        if isinstance(answer.stream, AsyncGenerator):
            await answer.stream.aclose()
    return response


async def _cut_short(request: web.BaseRequest, answer: ApiAnswer, size: int) -> web.StreamResponse:
    """Announce the whole body, send the beginning of it, and go."""
    headers = {"Content-Type": answer.content_type, "Content-Length": str(len(answer.body))}
    response = web.StreamResponse(status=answer.code, headers=headers)
    await response.prepare(request)
    await response.write(answer.body[:size])
    if request.transport is not None:
        request.transport.close()
    raise LostConnection("a body is cut short")


def _pack(request: web.BaseRequest, response: web.Response, answer: ApiAnswer) -> None:
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
