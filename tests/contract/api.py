"""A plain client of any API server, with credentials from a kubeconfig, and small bodies."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import attrs
from yarl import URL

if TYPE_CHECKING:
    from kubernetes_asyncio.client import Configuration

Obj = dict[str, Any]

TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
_LIMIT_S: Final = 15.0
_POLL_S: Final = 0.03
_LINE_BYTES_MAX: Final = 2**21  # watch events are lines


@attrs.frozen
class Reply:
    """One answer; ``body`` is text where it is no JSON."""

    code: int
    body: Any
    headers: Any

    @property
    def message(self) -> str:
        """The sentence of a Status."""
        return str(self.body["message"])

    @property
    def meta(self) -> Obj:
        """Metadata of an object."""
        meta: Obj = self.body["metadata"]
        return meta


@attrs.frozen
class Api:
    """Requests to one cluster, with short paths for one namespace.

    Attributes:
        session: carries TLS and credentials.
        host: URL of the server.
        ns: namespace of the case.
    """

    session: aiohttp.ClientSession
    host: str
    ns: str = ""

    def within(self, namespace: str) -> Api:
        """Return the same client for a namespace."""
        return attrs.evolve(self, ns=namespace)

    def path(self, plural: str, name: str = "", *, group: str = "") -> str:
        """``path("jobs", "a", group="batch/v1")``: the address of a namespaced resource."""
        head = f"/apis/{group}" if group else "/api/v1"
        return f"{head}/namespaces/{self.ns}/{plural}" + (f"/{name}" if name else "")

    @property
    def pods(self) -> str:
        """The pods of the namespace."""
        return self.path("pods")

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        media: str = "application/json",
        accept: str = "application/json",
        headers: dict[str, str] | None = None,
    ) -> Any:
        """Open a request; bytes and text go out as they are."""
        sent = {"Accept": accept, **(headers or {})}
        data = None
        if body is not None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            sent["Content-Type"] = media
        url = URL(self.host + path.replace(" ", "%20"), encoded=True)
        return self.session.request(method, url, data=data, headers=sent)

    async def send(self, method: str, path: str, body: Any = None, **how: Any) -> Reply:
        """Send one request."""
        async with self.request(method, path, body, **how) as response:
            raw = await response.read()
            try:
                decoded = json.loads(raw)
            except ValueError:
                decoded = raw.decode()
            return Reply(response.status, decoded, response.headers)

    async def get(self, path: str, **how: Any) -> Reply:
        """GET."""
        return await self.send("GET", path, **how)

    async def post(self, path: str, body: Any, **how: Any) -> Reply:
        """POST."""
        return await self.send("POST", path, body, **how)

    async def put(self, path: str, body: Any, **how: Any) -> Reply:
        """PUT."""
        return await self.send("PUT", path, body, **how)

    async def delete(self, path: str, body: Any = None) -> Reply:
        """DELETE, with options when given."""
        return await self.send("DELETE", path, body)

    async def patch(self, path: str, body: Any, kind: str = "merge-patch+json") -> Reply:
        """PATCH; ``kind`` is the media type behind ``application/``."""
        return await self.send("PATCH", path, body, media=f"application/{kind}")

    async def create_pod(self, name: str, **parts: Any) -> Obj:
        """Create a pod that must be accepted."""
        reply = await self.post(self.pods, pod(name, **parts))
        assert reply.code == 201, reply.body
        created: Obj = reply.body
        return created

    async def bind(self, name: str, node: str, **meta: Any) -> Reply:
        """Bind a pod; ``meta`` goes into the Binding."""
        body = {"metadata": {"name": name, **meta}, "target": {"kind": "Node", "name": node}}
        return await self.post(f"{self.pods}/{name}/binding", body)

    async def set_phase(self, name: str, phase: str, *, ready: bool = False) -> None:
        """Write a pod's status as a kubelet would."""
        conditions = [{"type": "Ready", "status": "True"}] if ready else []
        status = {"status": {"phase": phase, "conditions": conditions}}
        done = await self.patch(f"{self.pods}/{name}/status", status, "strategic-merge-patch+json")
        assert done.code == 200, done.body

    async def evict(self, name: str) -> Reply:
        """Evict a pod."""
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        return await self.post(f"{self.pods}/{name}/eviction", body)

    async def until(self, path: str, holds: Callable[[Reply], Any]) -> Reply:
        """GET until the answer is as wanted; fails when it never is."""
        return await until(lambda: self.get(path), holds)

    async def until_ready_for_pods(self) -> None:
        """Wait for the default service account, without which pods may be refused."""
        path = self.path("serviceaccounts", "default")
        await self.until(path, lambda reply: reply.code == 200)

    async def watch(self, path: str, count: int = 0, *, limit_s: float = 5.0) -> list[Obj]:
        """Return the first so many events, or all until the server ends the watch."""
        events: list[Obj] = []
        async with asyncio.timeout(limit_s), self.request("GET", path) as response:
            assert response.status == 200
            async for line in response.content:
                events.append(json.loads(line))
                if len(events) == count:
                    break
        return events


async def until(ask: Callable[[], Awaitable[Reply]], holds: Callable[[Reply], Any]) -> Reply:
    """Repeat a request until its answer is as wanted; fails when it never is."""
    async with asyncio.timeout(_LIMIT_S):
        while True:
            reply = await ask()
            if holds(reply):
                return reply
            await asyncio.sleep(_POLL_S)


@asynccontextmanager
async def connect(target: str) -> AsyncIterator[Api]:
    """Yield a client for ``KUBECONFIG`` or ``KUBECONFIG#CONTEXT``: CA, client certificates, tokens."""
    path, _, context = target.partition("#")
    # Here: half a second and 60 MiB in each worker of the suite that collects these cases.
    from kubernetes_asyncio.client import Configuration  # noqa: PLC0415
    from kubernetes_asyncio.config import load_kube_config  # noqa: PLC0415

    configuration = Configuration()
    await load_kube_config(
        config_file=path, context=context or None, client_configuration=configuration
    )
    token = configuration.api_key.get("BearerToken", "").strip()
    headers = {"Authorization": token} if token else {}
    host = str(configuration.host).rstrip("/")
    tls = _tls(configuration) if host.startswith("https:") else True
    connector = aiohttp.TCPConnector(ssl=tls)
    async with aiohttp.ClientSession(
        connector=connector, headers=headers, read_bufsize=_LINE_BYTES_MAX
    ) as session:
        yield Api(session, host)


def _tls(configuration: Configuration) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def pod(name: str, *, labels: Obj | None = None, meta: Obj | None = None, **spec: Any) -> Obj:
    """A pod that no scheduler takes."""
    container = {"name": "c", "image": "img", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    return {
        "metadata": {"name": name, "labels": labels or {}, **(meta or {})},
        "spec": {"schedulerName": "nobody", "containers": [container], **spec},
    }


def config_map(name: str, **values: str) -> Obj:
    """A config map."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": values,
    }


def names(reply: Reply) -> list[str]:
    """Names of a list, in order."""
    return [item["metadata"]["name"] for item in reply.body["items"]]


def condition(obj: Obj, kind: str) -> Obj:
    """One condition of an object, empty when it has none."""
    found: list[Obj] = obj.get("status", {}).get("conditions") or []
    return next((c for c in found if c["type"] == kind), {})
