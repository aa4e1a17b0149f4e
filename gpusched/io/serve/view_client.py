"""The way of commands to the view: found by its Lease, asked directly or through the API server.

A daemon that runs beside us, on this machine or in the same cluster, is asked directly. From elsewhere its
Service is reached through the API server's proxy, which keeps the header of the log-in for itself,
so that the token goes along in one of its own.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final, Self, TypeVar
from urllib.parse import quote

import aiohttp
import attrs
import msgspec
from yarl import URL

from gpusched import __version__
from gpusched.base.addresses import is_loopback
from gpusched.base.classes import frozen
from gpusched.base.errors import ApiError, Denied, GpuschedError
from gpusched.io.client.api_client import ApiClient
from gpusched.io.client.credentials import ApiAccess
from gpusched.io.observe.text import one_line
from gpusched.io.serve.announcement import announced_address, view_lease, view_lease_path
from gpusched.view.gang_story import GangStory
from gpusched.view.model import (
    AboutView,
    DecisionView,
    GangView,
    NodeView,
    PriorityView,
    QueueView,
)
from gpusched.view.over_time.advice_view import AdviceView
from gpusched.view.over_time.future import SpanView
from gpusched.view.over_time.submission_view import SubmissionVariantsView, SubmissionView

T = TypeVar("T")
_CONNECT_S: Final = 3.0
_READ_S: Final = 15.0
_ANSWER_S: Final = 75.0
"""Longer than an answer may take that is decided."""
_VERSION_MAX: Final = 64
_PAGE: Final = 1000
_PAGES_MAX: Final = 1000
_SILENT_S: Final = 40.0
"""The server says something every 15 s, if only that nothing is new."""
_EVENT_MAX: Final = 1 << 28
"""Bytes of one event; ten thousand gangs are a hundredth of it."""


class NoView(GpuschedError):
    """There is no view to be read; the sentence says why."""

    exit_status = 69


class NotServed(NoView):
    """The daemon's view has no such part."""


class NotUnderstood(NoView):
    """The daemon's view has another form than ours."""


@frozen(kw_only=True)
class ViewRoute:
    """How the view is reached.

    Attributes:
        base: address to which paths such as ``/v1`` are added.
        headers: that say who asks. Never logged.
        access: of the API server, where the way leads through it; None for a direct one.
        told: for people: where it is.
    """

    base: str
    headers: Mapping[str, str] = attrs.field(repr=False)
    access: ApiAccess | None
    told: str

    def session(self) -> aiohttp.ClientSession:
        """Connections on this way; to be closed."""
        context = self.access.tls() if self.access is not None else None
        connector = aiohttp.TCPConnector(ssl=True if context is None else context)
        return aiohttp.ClientSession(
            connector=connector,
            headers=dict(self.headers),
            timeout=aiohttp.ClientTimeout(total=None, connect=_CONNECT_S, sock_read=_READ_S),
            proxy=self.access.proxy if self.access is not None else None,
        )


async def find_view(api: ApiClient, *, namespace: str, lease: str) -> ViewRoute:
    """The way to the view of a cluster.

    Args:
        api: of the cluster.
        namespace: of the Lease of the daemon's leadership.
        lease: its name.

    Raises:
        NoView: no daemon tells where it serves one, or this user cannot be known to it.
    """
    access = api.access
    if not access.authorization.lower().startswith("bearer "):
        raise NoView("this user logs in without a token, which the daemon's view asks for")
    if access.impersonation:
        raise NoView("requests act as somebody else, which only the API server can judge")
    answer = await api.request("GET", view_lease_path(namespace, lease), timeout_s=_READ_S)
    if answer.status in {401, 403}:
        raise NoView(f"this user may not read Lease {namespace}/{view_lease(lease)}")
    address, machine = announced_address(json.loads(answer.body)) if answer.ok else ("", "")
    host = URL(address).host if address else None
    if host is None:
        raise NoView("no daemon serves a view")
    if is_loopback(host) and machine != socket.gethostname():
        raise NoView("the daemon serves its view on another machine, to that one alone")
    if is_loopback(host) or api.in_cluster:
        headers = {"Authorization": access.authorization}
        return ViewRoute(base=address, headers=headers, access=None, told=address)
    service = f"/api/v1/namespaces/{namespace}/services/{view_lease(lease)}:view/proxy"
    headers = {
        "Authorization": access.authorization,
        "Gpusched-Authorization": access.authorization,
    }
    return ViewRoute(
        base=f"{access.host}{service}",
        headers=headers,
        access=access,
        told=f"Service {namespace}/{view_lease(lease)}",
    )


@frozen(kw_only=True)
class ViewEvent:
    """One server-sent event.

    Attributes:
        name: empty for a comment, by which the server says that nothing is new.
        revision: after it; 0 for none.
        data: JSON.
    """

    name: str = ""
    revision: int = 0
    data: bytes = b""


class ViewClient:
    """Reads the view; an async context manager.

    Args:
        route: to it.
    """

    def __init__(self, route: ViewRoute) -> None:
        self._route = route
        self.told = route.told
        """For people: where the view is."""
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Open connections when they are needed."""
        self._session = self._route.session()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close them."""
        if self._session is not None:
            await self._session.close()

    async def read_about(self) -> AboutView:
        """What this server is, and what the user may see."""
        return self._decode(AboutView, await self._body("/v1", {}))

    async def decisions(self) -> list[DecisionView]:
        """The last decisions, oldest first."""
        return await self._list("decisions", DecisionView, {}, paged=False)

    async def story(self, gang: str) -> GangStory:
        """One gang.

        Args:
            gang: ``NAMESPACE/KIND/NAME``.
        """
        return self._decode(GangStory, await self._body(f"/v1/gangs/{gang}", {}))

    async def events(self, since: int) -> AsyncIterator[ViewEvent]:
        """What changes after a revision, until the server ends it.

        Raises:
            NoView: the daemon cannot be reached, or went away.
            Denied: this user may not see it.
            ApiError: it refuses for another reason.
        """
        assert self._session is not None
        url = URL(f"{self._route.base}/v1/changes").with_query(since=str(since))
        timeout = aiohttp.ClientTimeout(total=None, connect=_CONNECT_S, sock_read=_SILENT_S)
        try:
            async with self._session.get(url, allow_redirects=False, timeout=timeout) as answer:
                if answer.status != 200:
                    raise self._refusal(answer.status, await answer.read())
                rest = b""
                async for chunk in answer.content.iter_any():
                    *whole, rest = (rest + chunk).split(b"\n\n")
                    for block in whole:
                        yield _event(block)
                    if len(rest) > _EVENT_MAX:
                        raise NoView(
                            f"the daemon's view at {self._route.told} tells too much at once"
                        )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._silence(error) from error

    async def gangs(self, *, namespace: str = "", queue: str = "") -> list[GangView]:
        """Gangs that the user may see, by namespace, kind and name."""
        query = {"namespace": namespace, "queue": queue}
        return await self._list("gangs", GangView, {k: v for k, v in query.items() if v})

    async def gang(self, namespace: str, kind: str, name: str) -> GangStory | None:
        """One gang with its pods and what was decided about it; None where it is not, or may not be seen."""
        path = f"/v1/gangs/{namespace}/{kind}/{quote(name, safe='')}"
        body = await self._body(path, {}, missing=b"")
        return self._decode(GangStory, body) if body else None

    async def advice(self, namespace: str, kind: str, name: str) -> AdviceView | None:
        """What would let a gang start, decided on a copy of the cluster.

        Args:
            namespace: of the gang, or of what made it.
            kind: of the same, in any form that kubectl takes.
            name: of the same.

        Returns:
            None where no such gang waits, or where such questions are not answered.
        """
        path = f"/v1/gangs/{namespace}/{quote(kind, safe='')}/{quote(name, safe='')}/advice"
        body = await self._body(path, {}, missing=b"", silent_s=_ANSWER_S)
        return self._decode(AdviceView, body) if body else None

    async def when(self, manifests: bytes, namespace: str) -> SubmissionView | None:
        """When manifests would start if they were submitted now, decided on a copy of the cluster.

        Args:
            manifests: YAML or JSON, several documents.
            namespace: of those that name none.

        Returns:
            None where such questions are not answered.
        """
        body = await self._when(manifests, namespace, {})
        return self._decode(SubmissionView, body) if body else None

    async def when_variants(
        self, manifests: bytes, namespace: str, options: Mapping[str, str]
    ) -> SubmissionVariantsView | None:
        """The same of all combinations of options, the best first.

        Args:
            manifests: YAML or JSON, several documents.
            namespace: of those that name none.
            options: values with commas by name of the option.

        Returns:
            None where such questions are not answered.
        """
        body = await self._when(manifests, namespace, options)
        return self._decode(SubmissionVariantsView, body) if body else None

    async def _when(self, manifests: bytes, namespace: str, options: Mapping[str, str]) -> bytes:
        query = {"namespace": namespace, **options}
        return await self._body("/v1/when", query, missing=b"", silent_s=_ANSWER_S, sent=manifests)

    async def future(self) -> list[SpanView]:
        """Known ends, reserved room, estimated starts and Reservations, by time."""
        return await self._list("future", SpanView, {}, paged=False)

    async def nodes(self) -> list[NodeView]:
        """Nodes by name."""
        return await self._list("nodes", NodeView, {})

    async def queues(self) -> list[QueueView]:
        """Queues by name."""
        return await self._list("queues", QueueView, {}, paged=False)

    async def priority(self, *, namespace: str = "") -> list[PriorityView]:
        """Gangs that wait, in the order of their turns.

        Raises:
            NoView: the daemon is of a version that does not tell it.
        """
        try:
            query = {"namespace": namespace} if namespace else {}
            return await self._list("priority", PriorityView, query)
        except NotServed as error:
            raise await self._other_version("does not tell it") from error
        except NotUnderstood as error:
            raise await self._other_version("tells it in another form") from error

    async def _other_version(self, what: str) -> NoView:
        """The daemon does something that it would not, were it of our version."""
        version = await self.version()
        return NoView(
            f"the daemon at {self._route.told} is of version {version}, which {what}; this is {__version__}"
        )

    async def version(self) -> str:
        """Version of the daemon; ``unknown`` where it does not say."""
        about = await self.read("/v1")
        said = about.get("version") if isinstance(about, dict) else None
        return one_line(str(said or "unknown"))[:_VERSION_MAX]

    async def read(self, path: str, query: Mapping[str, str] | None = None) -> Any:
        """The JSON at a path, such as ``/v1/future``.

        Raises:
            NoView: the daemon cannot be reached, or has nothing to tell yet.
            Denied: this user may not see it.
            ApiError: it refuses for another reason.
        """
        return json.loads(await self._body(path, query or {}))

    async def _list(
        self, what: str, part: type[T], query: Mapping[str, str], *, paged: bool = True
    ) -> list[T]:
        found: list[T] = []
        page = _page_type(part)
        asked = {**query, **({"limit": str(_PAGE)} if paged else {})}
        for _ in range(_PAGES_MAX):
            items, rest = _items(self._decode(page, await self._body(f"/v1/{what}", asked)))
            found += items
            if not rest:
                return found
            asked["continue"] = rest
        return found

    async def _body(
        self,
        path: str,
        query: Mapping[str, str],
        *,
        missing: bytes | None = None,
        silent_s: float = _READ_S,
        sent: bytes | None = None,
    ) -> bytes:
        """The body of an answer; ``missing`` in its place where there is no such part.

        With something ``sent`` it is posted.
        """
        assert self._session is not None
        try:
            async with self._session.request(
                "GET" if sent is None else "POST",
                URL(self._route.base + path).with_query(dict(query)),
                data=sent,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=None, connect=_CONNECT_S, sock_read=silent_s),
            ) as answer:
                body = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._silence(error) from error
        if answer.status == 200:
            return body
        if answer.status == 404 and missing is not None:
            return missing
        raise self._refusal(answer.status, body)

    def _silence(self, error: Exception) -> NoView:
        told = str(error)
        if isinstance(error, aiohttp.ClientConnectorError):
            told = os.strerror(error.os_error.errno or 0)
        why = one_line(told) or "no answer in time"
        return NoView(f"the daemon's view at {self._route.told} does not answer: {why}")

    def _refusal(self, status: int, body: bytes) -> GpuschedError:
        message = _message(body) or f"it answers {status}"
        if status == 403 and _message(body):
            return Denied(message)
        if status == 404:
            return NotServed(f"the daemon's view at {self._route.told} cannot be read: {message}")
        if status in {401, 403, 429, 500, 502, 503, 504}:
            return NoView(f"the daemon's view at {self._route.told} cannot be read: {message}")
        return ApiError(
            f"the daemon's view at {self._route.told} refuses: {message}", status=status
        )

    def _decode(self, part: type[T], body: bytes) -> T:
        try:
            return msgspec.json.decode(body, type=part)
        except msgspec.MsgspecError as error:
            raise NotUnderstood(
                f"the daemon's view at {self._route.told} is of another version: {one_line(str(error))}"
            ) from error


def _page_type(part: type[T]) -> Any:
    return msgspec.defstruct(
        f"PageOf{part.__name__}",
        [("items", list[part]), ("rest", str, "")],  # type: ignore[valid-type]
        rename={"rest": "continue"},
    )


def _items(page: Any) -> tuple[Sequence[Any], str]:
    return page.items, page.rest


def _event(block: bytes) -> ViewEvent:
    """One event of the stream, whose server writes each field on a line of its own."""
    fields: dict[bytes, bytes] = {}
    for line in block.split(b"\n"):
        name, _, value = line.rstrip(b"\r").partition(b":")
        fields[name] = value.removeprefix(b" ")
    number = fields.get(b"id", b"")
    return ViewEvent(
        name=fields.get(b"event", b"").decode("utf-8", "replace"),
        revision=int(number) if number.isdigit() else 0,
        data=fields.get(b"data", b""),
    )


def _message(body: bytes) -> str:
    try:
        told = json.loads(body)
    except ValueError:
        return ""
    return one_line(str(told.get("message") or "")) if isinstance(told, dict) else ""
