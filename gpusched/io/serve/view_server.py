"""``/v1``: the view as JSON, paged, with changes as server-sent events; and the page that shows it.

Read-only. A user gets what Kubernetes' rights let that user see. A slow client is sent less often,
never more at once: what it missed is told in one piece, and beyond that it reads everything again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from importlib.resources import files
from typing import Any, Final

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from gpusched.api.meta.identity import format_time
from gpusched.base.clock import Clock
from gpusched.io.serve.answers.openapi import describe_view_api
from gpusched.io.serve.answers.served_history import PARAMETERS, ServedHistory
from gpusched.io.serve.answers.served_questions import ServedQuestions
from gpusched.io.serve.reviews import AccessRefused
from gpusched.view.access import ViewAccess
from gpusched.view.gang_story import GangStory
from gpusched.view.model import AboutView, PriorityView
from gpusched.view.over_time.future import future_spans
from gpusched.view.over_time.queue_series import QueueSeries
from gpusched.view.over_time.submission_view import VARIED
from gpusched.view.store import ViewChanges, ViewStore

Authorized = Callable[[web.Request, Iterable[str]], Awaitable[ViewAccess]]
"""What a request may see of some namespaces, or of those that the view knows."""

PAGE_MAX: Final = 1000
_OF_API: Final = "api"
"""A view of the API's objects, which do not hold all that the daemon knows."""
_PAGE_DEFAULT: Final = 500
SERIES_MAX: Final = 50
"""Queues whose day is told in one answer: some 300,000 numbers."""
_EVENTS_PAUSE_S: Final = 0.25
_KEEP_ALIVE_S: Final = 15.0
_STALLED_S: Final = 30.0
_SECURITY: Final = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_TYPES: Final = {
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "mjs": "text/javascript",
    "svg": "image/svg+xml",
    "png": "image/png",
    "json": "application/json",
    "woff2": "font/woff2",
    "txt": "text/plain",
}
_encode = msgspec.json.Encoder().encode


class ViewServer:
    """The application; ``moment`` is called with what changed at each moment.

    Args:
        store: what is served.
        clock: time.
        authorized: what a request may see.
        source: ``daemon`` or ``api``: where the view comes from.
        forward: answers in the place of this one, where another leads; returns None when it
            cannot.
        history: answers what became of gangs; None where that is not kept.
        questions: answers what would happen; None where nothing does.
        series: how queues stood before; None to begin now.
    """

    def __init__(
        self,
        store: ViewStore,
        clock: Clock,
        authorized: Authorized,
        *,
        source: str = "daemon",
        forward: Callable[[web.Request, str], Awaitable[web.StreamResponse]] | None = None,
        history: ServedHistory | None = None,
        questions: ServedQuestions | None = None,
        series: QueueSeries | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._authorized = authorized
        self._source = source
        self._forward = forward
        self._history = history if history is not None else ServedHistory("", clock)
        self._questions = questions if questions is not None else ServedQuestions(None)
        self._series = series if series is not None else QueueSeries()
        self.trouble = ""
        """Why there is nothing to be told yet; empty where that is not known."""
        self._moment = asyncio.Event()
        self._events: dict[tuple[int, int, ViewAccess], bytes] = {}

    def application(self) -> web.Application:
        """All routes."""
        app = web.Application(middlewares=[self._answer_refusals])
        get = app.router.add_get
        get("/v1", self._answer_about)
        get("/v1/gangs", self._gangs)
        get("/v1/gangs/{namespace}/{kind}/{name}", self._gang)
        get("/v1/gangs/{namespace}/{kind}/{name}/advice", self._advice)
        app.router.add_post("/v1/when", self._when)
        get("/v1/nodes", self._nodes)
        get("/v1/queues", self._queues)
        get("/v1/priority", self._priority)
        get("/v1/queues/series", self._queue_series)
        get("/v1/future", self._future)
        get("/v1/decisions", self._decisions)
        get("/v1/history", self._past)
        get("/v1/changes", self._changes)
        get("/v1/openapi.json", self._openapi)
        get("/", self._page)
        get("/page/{path:.+}", self._page)
        return app

    def moment(self, changes: ViewChanges | None) -> None:
        """Wake those who follow, after a frame that changed something."""
        if changes is None:
            return
        self._events.clear()
        moment, self._moment = self._moment, asyncio.Event()
        moment.set()

    def sample_queues(self) -> None:
        """Note how queues stand, where a minute is over since that was done and this daemon decides."""
        head = self._store.head
        if self._store.revision and head is not None and head.leading:
            self._series.take(self._clock.now(), self._store.queues)

    # -- about -----------------------------------------------------------------------------
    async def _answer_about(self, request: web.Request) -> web.StreamResponse:
        access = await self._access(request)
        head = self._store.head
        assert head is not None  # access was refused else
        namespaces = access.namespaces
        return _json(
            AboutView(
                version=head.version,
                daemon=head.daemon,
                leading=head.leading,
                ready=head.ready,
                scheduler_names=head.scheduler_names,
                source=self._source,
                revision=self._store.revision,
                now=self._now(),
                namespaces="all" if namespaces is None else tuple(sorted(namespaces)),
                nodes=access.nodes,
                queues=access.queues,
                gpu_totals=head.gpu_totals if access.nodes else None,
                gangs_evicted_again=self._store.count_evicted_again(
                    access, since=format_time(self._store.now - head.eviction_window_s)
                ),
                eviction_window_seconds=head.eviction_window_s,
            )
        )

    async def _openapi(self, _request: web.Request) -> web.StreamResponse:
        return _json(describe_view_api())

    # -- lists -----------------------------------------------------------------------------
    async def _gangs(self, request: web.Request) -> web.StreamResponse:
        query = _known_query(request, "namespace", "queue", "state", "limit", "continue")
        access = await self._access(request, query.get("namespace", ""))
        limit = _limit(query)
        wanted = {name: query.get(name, "") for name in ("namespace", "queue", "state")}
        after = query.get("continue", "")
        page, more = _take(self._store.gang_page(access, after=after, **wanted), limit)
        total = sum(1 for _ in self._store.gang_page(access, **wanted))
        return self._list("GangList", page, page[-1].key if more else "", total)

    async def _gang(self, request: web.Request) -> web.StreamResponse:
        part = request.match_info
        access = await self._access(request, part["namespace"])
        key = f"{part['namespace']}/{part['kind']}/{part['name']}"
        gang = self._store.gangs.get(key)
        if gang is None or not access.sees_gang(gang):
            raise AccessRefused(
                404,
                "NotFound",
                "no such gang waits or runs, or its namespace may not be seen",
            )
        story = GangStory(
            **msgspec.structs.asdict(gang),
            order=None if self._source == _OF_API else self._store.order(gang, access),
            room=self._store.room(key),
            members=self._store.members(key),
            story=self._store.story(key),
        )
        return _json(story)

    async def _advice(self, request: web.Request) -> web.StreamResponse:
        part = request.match_info
        access = await self._access(request, part["namespace"])
        return _json(
            await self._questions.advise(part["namespace"], part["kind"], part["name"], access)
        )

    async def _when(self, request: web.Request) -> web.StreamResponse:
        query = _known_query(request, "namespace", *VARIED)
        namespace = query.pop("namespace", "default")
        access = await self._access(request, namespace)
        options = {name: [each for each in text.split(",") if each] for name, text in query.items()}
        try:
            manifests = (await request.read()).decode()
        except UnicodeDecodeError as error:
            raise AccessRefused(400, "BadRequest", "manifests are text in UTF-8") from error
        return _json(await self._questions.when(manifests, namespace, options, access))

    async def _nodes(self, request: web.Request) -> web.StreamResponse:
        query = _known_query(request, "limit", "continue")
        access = await self._access(request)
        _need(access.nodes, "nodes")
        page, more = _take(self._store.node_page(after=query.get("continue", "")), _limit(query))
        shown = [access.node(each) for each in page]
        rest = page[-1].metadata.name if more else ""
        return self._list("NodeList", shown, rest, len(self._store.nodes))

    async def _queues(self, request: web.Request) -> web.StreamResponse:
        access = await self._access(request)
        _need(access.queues, "queues")
        queues = self._store.queues
        return self._list("QueueList", [queues[name] for name in sorted(queues)])

    async def _priority(self, request: web.Request) -> web.StreamResponse:
        query = _known_query(request, "namespace", "queue", "limit", "continue")
        access = await self._access(request, query.get("namespace", ""))
        if self._source == _OF_API:
            why = "the order of gangs is known to the daemon alone, and this is read from the API"
            raise AccessRefused(404, "NotFound", why)
        after = query.get("continue") or "0"
        if not (after.isascii() and after.isdecimal()):
            raise AccessRefused(400, "BadRequest", "continue is what the page before said")
        chosen = {name: query.get(name, "") for name in ("namespace", "queue")}
        waiting = self._store.waiting_gangs(access, **chosen)
        first = int(after[:9])
        last = first + _limit(query)
        page = [
            PriorityView(
                metadata=gang.metadata,
                gang_kind=gang.gang_kind,
                queue=gang.queue,
                order=self._store.line.order(gang, self._store.gangs, access),
            )
            for gang in waiting[first:last]
        ]
        rest = str(last) if last < len(waiting) else ""
        return self._list("PriorityList", page, rest, len(waiting))

    async def _queue_series(self, request: web.Request) -> web.StreamResponse:
        query = _known_query(request, "queue", "limit", "continue")
        access = await self._access(request)
        _need(access.queues, "queues")
        series, after = self._series, query.get("continue", "")
        asked = set(request.query.getall("queue", ()))
        names = [name for name in series.names() if not asked or name in asked]
        page, more = _take(
            (name for name in names if name > after),
            _limit(query, default=SERIES_MAX, most=SERIES_MAX),
        )
        told = list(series.series(page))
        return self._list(
            "QueueSeriesList",
            told,
            page[-1] if more else "",
            len(names),
            times=series.times(),
            periodSeconds=series.period_s,
        )

    async def _future(self, request: web.Request) -> web.StreamResponse:
        access = await self._access(request)
        kept = self._store.kept if access.nodes else ()
        spans = future_spans(self._store.gang_page(access), self._store.room, kept)
        return self._list("SpanList", spans)

    async def _decisions(self, request: web.Request) -> web.StreamResponse:
        access = await self._access(request)
        seen = [
            each for each in self._store.decisions if access.sees_namespace(each.gang.namespace)
        ]
        return self._list("DecisionList", seen)

    async def _past(self, request: web.Request) -> web.StreamResponse:
        query = _known_query(request, *PARAMETERS)
        named = query.get("namespace", "")
        past = () if named else await self._history.namespaces()
        access = await self._access(request, named, past)
        return _json(await self._history.answer(query, _limit(query), access))

    def _list(
        self,
        kind: str,
        items: Sequence[object],
        rest: str = "",
        total: int | None = None,
        **more: object,
    ) -> web.StreamResponse:
        return _json(
            {
                "kind": kind,
                "revision": self._store.revision,
                "continue": rest,
                "total": len(items) if total is None else total,
                **more,
                "items": items,
            }
        )

    # -- changes ---------------------------------------------------------------------------
    async def _changes(self, request: web.Request) -> web.StreamResponse:
        query = _known_query(request, "since")
        since = request.headers.get("Last-Event-ID") or query.get("since", "")
        if since and not since.isdecimal():
            raise AccessRefused(400, "BadRequest", "since is a revision, such as /v1 tells it")
        await self._access(request)
        response = web.StreamResponse(
            headers={**_SECURITY, "Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
        )
        await response.prepare(request)
        shown = int(since) if since else self._store.revision
        # It went away, does not read, or may not any more: it asks again and is told then.
        with contextlib.suppress(ConnectionError, TimeoutError, AccessRefused):
            async for body in self._bodies(request, shown):
                async with asyncio.timeout(_STALLED_S):
                    await response.write(body)
        return response

    async def _bodies(self, request: web.Request, shown: int) -> AsyncIterator[bytes]:
        """Events of all that changes from a revision on, and a comment when nothing does."""
        yield b": follows\n\n"
        while True:
            moment = self._moment
            if shown == self._store.revision:
                try:
                    async with asyncio.timeout(_KEEP_ALIVE_S):
                        await moment.wait()
                except TimeoutError:
                    await self._access(request)  # rights may have been taken away
                    yield b": nothing new\n\n"
                    continue
            access = await self._access(request)
            body, shown = self._events_since(shown, access), self._store.revision
            yield body
            await self._clock.sleep(_EVENTS_PAUSE_S)

    def _events_since(self, revision: int, access: ViewAccess) -> bytes:
        """The events between a revision and now, the same bytes for all who see the same."""
        asked = (revision, self._store.revision, access)
        known = self._events.get(asked)
        if known is None:
            known = self._events[asked] = b"".join(self._event_parts(revision, access))
        return known

    def _event_parts(self, revision: int, access: ViewAccess) -> Iterator[bytes]:
        store = self._store
        found = store.changes_since(revision)
        if found is None:
            yield _event("reset", store.revision, {"items": []})
            return
        gangs = sorted({key for each in found for key in each.gangs if key in store.gangs})
        shown = [store.gangs[key] for key in gangs if access.sees_gang(store.gangs[key])]
        if shown:
            yield _event("gangs", store.revision, {"items": shown})
        if access.nodes:
            names = sorted({name for each in found for name in each.nodes if name in store.nodes})
            if names:
                nodes = [access.node(store.nodes[name]) for name in names]
                yield _event("nodes", store.revision, {"items": nodes})
        if access.queues:
            names = sorted({n for each in found for n in each.queues if n in store.queues})
            if names:
                queues = [store.queues[name] for name in names]
                yield _event("queues", store.revision, {"items": queues})
        for change in found:
            for decision in change.decisions:
                if access.sees_namespace(decision.gang.namespace):
                    yield _event("decision", store.revision, decision)
        gone = _gone(found, store, access)
        yield _event("gone", store.revision, gone) if any(gone.values()) else b""
        yield _event("moment", store.revision, {"now": self._now()})

    # -- page ------------------------------------------------------------------------------
    async def _page(self, request: web.Request) -> web.StreamResponse:
        path = request.match_info.get("path", "index.html")
        parts = path.split("/")
        found = files("gpusched.io.serve").joinpath("page", *parts)
        if any(part in {"", ".", ".."} or "\0" in part for part in parts) or not found.is_file():
            raise AccessRefused(404, "NotFound", "there is no such page")
        kind = _TYPES.get(path.rpartition(".")[2])
        if kind is None:
            raise AccessRefused(404, "NotFound", "there is no such page")
        text = kind.startswith("text/") or kind.endswith("json")
        return web.Response(
            body=found.read_bytes(),
            headers=_SECURITY,
            content_type=kind,
            charset="utf-8" if text else None,
        )

    # -- rights ----------------------------------------------------------------------------
    async def _access(
        self, request: web.Request, namespace: str = "", more: Sequence[str] = ()
    ) -> ViewAccess:
        head = self._store.head
        if self._store.revision == 0 or head is None:
            why = self.trouble or "nothing was decided yet: try again soon"
            raise AccessRefused(503, "ServiceUnavailable", why)
        names = [namespace] if namespace else {g.metadata.namespace for g in _gangs_of(self._store)}
        return await self._authorized(request, {*names, *more})

    @web.middleware
    async def _answer_refusals(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Every refusal as one object; what another leads is answered by that one."""
        head = self._store.head
        try:
            if (
                self._forward is not None
                and head is not None
                and not head.leading
                and request.path.startswith("/v1")
            ):
                return await self._forward(request, head.leader)
            return await handler(request)
        except AccessRefused as refused:
            return _status(refused.status, refused.reason, str(refused))
        except web.HTTPException as error:
            return _status(error.status, error.reason.replace(" ", ""), error.reason)

    def _now(self) -> str:
        return format_time(self._store.now)


def _gangs_of(store: ViewStore) -> Iterable[Any]:
    return store.gangs.values()


def _gone(
    found: Iterable[ViewChanges], store: ViewStore, access: ViewAccess
) -> dict[str, list[str]]:
    gangs = {key for each in found for key in each.gone.gangs if key not in store.gangs}
    nodes = {name for each in found for name in each.gone.nodes if name not in store.nodes}
    queues = {name for each in found for name in each.gone.queues if name not in store.queues}
    return {
        "gangs": sorted(key for key in gangs if access.sees_namespace(key.partition("/")[0])),
        "nodes": sorted(nodes) if access.nodes else [],
        "queues": sorted(queues) if access.queues else [],
    }


def _event(name: str, revision: int, data: object) -> bytes:
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (revision, name.encode(), _encode(data))


def _json(value: object) -> web.Response:
    return web.Response(body=_encode(value), headers=_SECURITY, content_type="application/json")


def _status(code: int, reason: str, message: str) -> web.Response:
    body = _encode({"kind": "Status", "code": code, "reason": reason, "message": message})
    headers = dict(_SECURITY)
    if code == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if code in {429, 503}:
        headers["Retry-After"] = "1"
    return web.Response(body=body, status=code, headers=headers, content_type="application/json")


def _known_query(request: web.Request, *names: str) -> dict[str, str]:
    for name in request.query:
        if name not in names:
            raise AccessRefused(
                400, "BadRequest", f"unknown parameter {name[:40]!r}: known are {', '.join(names)}"
            )
    return {name: request.query[name] for name in names if name in request.query}


def _limit(query: dict[str, str], *, default: int = _PAGE_DEFAULT, most: int = PAGE_MAX) -> int:
    text = query.get("limit", str(default))
    if not text.isdecimal() or not 1 <= int(text[:9]) <= most:
        raise AccessRefused(400, "BadRequest", f"limit is a number from 1 to {most}")
    return int(text)


def _take(found: Iterator[Any], limit: int) -> tuple[list[Any], bool]:
    """So many items, and whether there are more."""
    page = [item for _, item in zip(range(limit), found, strict=False)]
    return page, len(page) == limit and next(found, None) is not None


def _need(allowed: bool, what: str) -> None:
    if not allowed:
        raise AccessRefused(403, "Forbidden", f"this user may not list {what}")
