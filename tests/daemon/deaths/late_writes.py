"""Writes of a process that are still on their way when it is dead: a network, or a busy server, holds them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any

import aiohttp
import attrs

from gpusched.io.client.api_client import ApiClient
from tests.daemon.conftest import Daemon, World, current_daemon


@attrs.define(eq=False)
class LateWrites:
    """Requests of one daemon that were sent and did not arrive yet.

    Attributes:
        held: method, path, body and content type of each.
    """

    world: World
    held: list[tuple[str, str, bytes, str]] = attrs.Factory(list)

    async def arrive(self) -> list[int]:
        """Carry them out now; status of each answer."""

        async def send() -> list[int]:
            codes = []
            headers = {"Authorization": f"Bearer {self.world.token}"}
            async with aiohttp.ClientSession(self.world.cluster.url, headers=headers) as session:
                for method, path, body, content_type in self.held:
                    told = {"Content-Type": content_type}
                    async with session.request(method, path, data=body, headers=told) as answer:
                        codes.append(answer.status)
            return codes

        return await asyncio.create_task(send(), context=Context())


def hold_writes(
    monkeypatch: Any,
    world: World,
    of: Callable[[], Daemon],
    matches: Callable[[str, str, bytes], bool],
) -> LateWrites:
    """Hold what a daemon writes and ``matches`` says, by method, path and body: it gets no answer."""
    late = LateWrites(world)
    original = ApiClient.request

    async def request(self: ApiClient, method: str, path: str, **how: Any) -> Any:
        body = how.get("body") or b""
        if current_daemon() is not of() or method == "GET" or not matches(method, path, body):
            return await original(self, method, path, **how)
        late.held.append((method, path, body, how.get("content_type") or "application/json"))
        return await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(ApiClient, "request", request)
    return late
