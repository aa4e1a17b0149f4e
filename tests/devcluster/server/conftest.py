"""A fresh embedded cluster on a free port, and a client that speaks plain HTTP to it."""

from __future__ import annotations

import asyncio
import io
import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import attrs
import pytest

from gpusched.devcluster.cluster import ClusterOptions, DevCluster, start

KUBECTL = shutil.which("kubectl")


def kubectl_minor() -> int:
    """Return 32 for kubectl 1.32, 0 when there is none on this machine."""
    if KUBECTL is None:
        return 0
    asked = [KUBECTL, "version", "--client", "-o", "json"]
    told = json.loads(subprocess.run(asked, capture_output=True, check=True).stdout)
    return int(told["clientVersion"]["gitVersion"].split(".")[1])


Obj = dict[str, Any]
PODS = "/api/v1/namespaces/default/pods"


@attrs.frozen
class Reply:
    """Status and decoded body of one answer."""

    code: int
    body: Any
    headers: Any

    @property
    def message(self) -> str:
        """The sentence of a Status."""
        return self.body["message"]


class Http:
    """The API as a client sees it."""

    def __init__(self, session: aiohttp.ClientSession, cluster: DevCluster) -> None:
        self.session = session
        self.cluster = cluster

    async def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        media: str = "application/json",
        accept: str = "application/json",
        token: str = "",
    ) -> Reply:
        """Send one request with the admin's token, or another."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        data = None if body is None else io.BytesIO(raw)
        headers = {
            "Content-Type": media,
            "Accept": accept,
            "Authorization": f"Bearer {token or self.cluster.token}",
        }
        async with self.session.request(
            method, self.cluster.url + path, data=data, headers=headers
        ) as response:
            raw = await response.read()
            text = response.content_type == "text/plain"
            return Reply(
                response.status, raw.decode() if text else json.loads(raw), response.headers
            )

    async def get(self, path: str, **how: Any) -> Reply:
        """GET."""
        return await self.send("GET", path, **how)

    async def post(self, path: str, body: Any, **how: Any) -> Reply:
        """POST."""
        return await self.send("POST", path, body, **how)

    async def put(self, path: str, body: Any) -> Reply:
        """PUT."""
        return await self.send("PUT", path, body)

    async def delete(self, path: str, body: Any = None) -> Reply:
        """DELETE, with options when given."""
        return await self.send("DELETE", path, body)

    async def patch(self, path: str, body: Any, kind: str = "merge-patch+json") -> Reply:
        """PATCH; ``kind`` is the media type behind ``application/``."""
        return await self.send("PATCH", path, body, media=f"application/{kind}")

    async def create_pod(self, name: str, **spec: Any) -> Obj:
        """Create a pod that must be accepted."""
        reply = await self.post(PODS, pod(name, **spec))
        assert reply.code == 201, reply.body
        return reply.body

    async def bind(self, name: str, node: str, **meta: Any) -> Reply:
        """Bind a pod; ``meta`` goes into the Binding."""
        body = {"metadata": {"name": name, **meta}, "target": {"kind": "Node", "name": node}}
        return await self.post(f"{PODS}/{name}/binding", body)

    async def until(self, path: str, code: int) -> None:
        """Wait until a GET answers with a code; fails by timeout when it never does."""
        async with asyncio.timeout(30):
            while (await self.get(path)).code != code:  # noqa: ASYNC110  # only HTTP can tell
                await asyncio.sleep(0.01)

    async def watch(self, path: str, count: int) -> list[Obj]:
        """The first so many events of a watch; fails by timeout when they do not come."""
        events: list[Obj] = []
        async with asyncio.timeout(30), self.session.get(self.cluster.url + path) as response:
            assert response.status == 200
            while len(events) < count:
                line = await response.content.readline()
                if not line:
                    break
                events.append(json.loads(line))
        return events


def pod(name: str, **spec: Any) -> Obj:
    labels = spec.pop("labels", {})
    container = {"name": "c", "image": "img", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [container], **spec},
    }


@pytest.fixture
async def cluster() -> AsyncIterator[DevCluster]:
    running = await start(ClusterOptions(stages=False, controllers=False))
    yield running
    await running.close()


@pytest.fixture
async def http(cluster: DevCluster) -> AsyncIterator[Http]:
    async with aiohttp.ClientSession() as session:
        yield Http(session, cluster)


@pytest.fixture
async def start_http() -> AsyncIterator[Callable[..., Awaitable[Http]]]:
    """Starts clusters with options of their own, and gives clients of them."""
    async with AsyncExitStack() as stack:

        async def one(**options: Any) -> Http:
            session = await stack.enter_async_context(aiohttp.ClientSession())
            running = await start(ClusterOptions(stages=False, controllers=False, **options))
            stack.push_async_callback(running.close)
            return Http(session, running)

        yield one
