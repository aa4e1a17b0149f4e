"""Playing a conversation to a server, and what of its answers is compared."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

from .exchanges import Ask, Conversation

Obj = dict[str, Any]
_SUFFIX = re.compile(r"made-[a-z0-9]{5}")


async def play(
    session: aiohttp.ClientSession,
    server: str,
    one: Conversation,
    *,
    settle: Callable[[], Awaitable[None]],
) -> list[Obj]:
    """Return what is compared of each answer.

    Raises:
        AssertionError: an object that must be there before is refused.
    """
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": one.namespace}}
    for path, obj in [("/api/v1/namespaces", namespace), *one.before]:
        async with session.post(server + path, json=obj) as answer:
            assert answer.status == 201, (path, await answer.text())
    await settle()
    said = []
    for ask in one.asks:
        said.append(await _said(session, server, ask))
        if "/leases/" in ask.path or ask.path.startswith("/api/v1/namespaces/vap-queues?"):
            await settle()  # what policies read of it is a moment old on a real server
    return said


async def _said(session: aiohttp.ClientSession, server: str, ask: Ask) -> Obj:
    headers = {"Content-Type": ask.media, "Accept": "application/json"}
    if ask.user:
        headers["Impersonate-User"] = ask.user
    body = None if ask.body is None else json.dumps(ask.body)
    async with session.request(ask.method, server + ask.path, data=body, headers=headers) as got:
        told = await got.json(content_type=None)
        said: Obj = {"code": got.status, "warnings": got.headers.getall("Warning", [])}
    if told.get("kind") == "Status" and told.get("status") == "Failure":
        said |= {key: told.get(key) for key in ("message", "reason", "details")}
        (said["details"] or {}).pop("uid", None)
    return json.loads(_SUFFIX.sub("made-xxxxx", json.dumps(said)))
