"""A server of pages made beforehand, so that only the reader's work is measured."""

from __future__ import annotations

import asyncio
from multiprocessing.connection import Connection

from aiohttp import web

from benchmarks.inputs import listed_pods, page
from gpusched.base.limits import LIST_PAGE


def serve(tell: Connection, count: int, seed: int) -> None:
    """Make the pages, tell the port, serve until the process is ended."""
    bodies = listed_pods(count, seed=seed)
    pages = {}
    for at in range(0, count, LIST_PAGE):
        following = at + LIST_PAGE
        token = str(following) if following < count else ""
        pages[str(at)] = page(bodies[at:following], token=token)
    del bodies
    asyncio.run(_serve(tell, pages))


async def _serve(tell: Connection, pages: dict[str, bytes]) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            return web.Response(status=429, headers={"Retry-After": "60"})
        body = pages[request.query.get("continue", "0")]
        return web.Response(body=body, content_type="application/json")

    app = web.Application()
    app.router.add_get("/api/v1/pods", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    tell.send(runner.addresses[0][1])
    await asyncio.get_running_loop().create_future()
