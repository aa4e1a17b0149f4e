"""A cluster with a paused clock, and a client of its API and of its ``/devcluster/`` endpoints."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from gpusched.devcluster.cluster import ClusterOptions, DevCluster, start
from gpusched.devcluster.control.adjustable_clock import AdjustableClock

Obj = dict[str, Any]
MAPS = "/api/v1/namespaces/default/configmaps"


class Api:
    """The cluster as an administrator sees it."""

    def __init__(self, session: aiohttp.ClientSession, cluster: DevCluster) -> None:
        self.session = session
        self.cluster = cluster

    async def send(
        self, method: str, path: str, body: Any = None, *, token: str = "", **headers: str
    ) -> tuple[int, Any]:
        """Send JSON, return the code and the decoded answer."""
        head = {"Authorization": f"Bearer {token or self.cluster.token}", **headers}
        data = None if body is None else json.dumps(body)
        head["Content-Type"] = "application/json"
        async with self.session.request(
            method, self.cluster.url + path, data=data, headers=head
        ) as response:
            return response.status, json.loads(await response.read() or b"null")

    async def control(self, method: str, path: str, body: Any = None) -> Any:
        """Ask ``/devcluster/`` for something that must be granted."""
        code, answer = await self.send(method, f"/devcluster/{path}", body)
        assert code in {200, 201}, answer
        return answer

    async def fault(self, **fault: Any) -> None:
        """Add a rule; keywords ``match``, ``when`` and ``name`` beside the fault's own."""
        rule = {key: fault.pop(key) for key in ("match", "when", "name") if key in fault}
        await self.control("POST", "faults", {**rule, "fault": fault})

    async def make(self, name: str) -> tuple[int, Any]:
        """Create a config map."""
        return await self.send("POST", MAPS, {"metadata": {"name": name}})

    async def names(self, query: str = "") -> list[str]:
        """Names of the listed config maps."""
        code, body = await self.send("GET", MAPS + query)
        assert code == 200, body
        return [item["metadata"]["name"] for item in body["items"]]

    def watch(self, query: str = "") -> Any:
        """Open a watch of config maps."""
        url = f"{self.cluster.url}{MAPS}?watch=1{query}"
        return self.session.get(url, timeout=aiohttp.ClientTimeout(sock_read=5))


async def event(stream: aiohttp.ClientResponse) -> Obj:
    """The next event of a watch."""
    async with asyncio.timeout(30):
        return json.loads(await stream.content.readline())


@pytest.fixture
async def cluster() -> AsyncIterator[DevCluster]:
    clock = AdjustableClock(paused=True, epoch=1_767_225_600.0)
    running = await start(ClusterOptions(stages=False, clock=clock))
    yield running
    await running.close()


@pytest.fixture
async def api(cluster: DevCluster) -> AsyncIterator[Api]:
    async with aiohttp.ClientSession() as session:
        yield Api(session, cluster)
