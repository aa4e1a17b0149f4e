"""An API server of a large cluster, made beforehand: it lists, it never changes, it takes bindings.

``python -m benchmarks.busy_server KUBECONFIG NODES PODS WAITING`` prints ``ready``, and then one
line when the first binding arrives: the monotonic time, the same for all processes of a machine.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Final

from aiohttp import web

from benchmarks.inputs import NAMESPACE, Obj, gang_pod, listed_pods, node, page
from gpusched.base.limits import LIST_PAGE

GANG: Final = 8
GROUPS: Final = "/apis/scheduling.gpusched.io/v1alpha1/podgroups"
_SEED: Final = 7
_KINDS: Final = {
    "nodes": "Node", "pods": "Pod", "namespaces": "Namespace", "jobs": "Job", "queues": "Queue",
    "resourcequotas": "ResourceQuota", "reservations": "Reservation", "podgroups": "PodGroup", "topologies": "Topology", "priorityclasses": "PriorityClass",
    "poddisruptionbudgets": "PodDisruptionBudget", "storageclasses": "StorageClass",
    "persistentvolumes": "PersistentVolume", "csinodes": "CSINode",
    "persistentvolumeclaims": "PersistentVolumeClaim",
}  # fmt: skip
_STAMP: Final = "2026-01-01T10:00:00Z"


def contents(nodes: int, pods: int, waiting: int) -> dict[str, list[bytes]]:
    """Objects by path of their collection."""
    listed = listed_pods(pods - waiting, seed=_SEED, nodes=nodes * 9 // 10, waiting=False)
    groups = [_group(number) for number in range(waiting // GANG)]
    return {
        "/api/v1/nodes": [_whole(node(index), index) for index in range(nodes)],
        "/api/v1/pods": listed
        + [_whole(gang_pod(index, members=GANG), 10**6 + index) for index in range(waiting)],
        "/api/v1/namespaces": [_whole({"metadata": {"name": NAMESPACE}}, 0)],
        GROUPS: groups,
    }


def _group(number: int) -> bytes:
    group: Obj = {
        "metadata": {"name": f"gang-{number:05d}", "namespace": NAMESPACE, "generation": 1},
        "spec": {"queue": "default", "minMember": GANG},
    }
    return _whole(group, 2 * 10**6 + number)


def _whole(obj: Obj, serial: int) -> bytes:
    obj["metadata"] |= {
        "uid": f"00000000-0000-4000-8000-{serial:012d}", "resourceVersion": str(serial + 1),
        "creationTimestamp": _STAMP,
    }  # fmt: skip
    return json.dumps(obj, separators=(",", ":")).encode()


class Server:
    """See the module."""

    def __init__(self, objects: dict[str, list[bytes]]) -> None:
        self._pages = {
            (path, str(at)): page(
                bodies[at : at + LIST_PAGE],
                token=str(at + LIST_PAGE) if at + LIST_PAGE < len(bodies) else "",
                kind=_kind(path),
            )
            for path, bodies in objects.items()
            for at in range(0, len(bodies), LIST_PAGE)
        }
        self._groups = {json.loads(body)["metadata"]["name"]: body for body in objects[GROUPS]}
        self._lease: Obj | None = None
        self._told = False

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Any request."""
        if "watch" in request.query:
            return await self._watch(request)
        if "/leases" in request.path:
            return await self._leases(request)
        if request.method == "GET":
            return self._get(request)
        await request.read()
        if request.path.endswith("/binding") and not self._told:
            self._told = True
            print(time.monotonic(), flush=True)
        return _json({}, status=201 if request.method == "POST" else 200)

    def _get(self, request: web.Request) -> web.Response:
        at = request.query.get("continue", "0")
        body = self._pages.get((request.path, at))
        if body is not None:
            return web.Response(body=body, content_type="application/json")
        if _kind(request.path):
            body = page([], token="", kind=_kind(request.path))
            return web.Response(body=body, content_type="application/json")
        group = self._groups.get(request.path.rpartition("/")[2])
        if group is not None and "/podgroups/" in request.path:
            return web.Response(body=group, content_type="application/json")
        return _json({"kind": "Status", "code": 404, "message": "not found"}, status=404)

    async def _leases(self, request: web.Request) -> web.Response:
        if request.method == "GET":
            if self._lease is None:
                return _json({"kind": "Status", "code": 404, "message": "not found"}, status=404)
            return _json(self._lease)
        lease: Obj = await request.json()
        version = 1 if self._lease is None else int(self._lease["metadata"]["resourceVersion"]) + 1
        lease["metadata"] |= {"resourceVersion": str(version), "uid": "lease"}
        self._lease = lease
        return _json(lease, status=201 if request.method == "POST" else 200)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        await asyncio.sleep(float(request.query.get("timeoutSeconds", "60")))
        return response


def _kind(path: str) -> str:
    """Of the collection at a path; empty when it is none that a scheduler reads."""
    return _KINDS.get(path.rpartition("/")[2], "")


def _json(body: Obj, *, status: int = 200) -> web.Response:
    return web.json_response(body, status=status)


async def serve(kubeconfig: str, objects: dict[str, list[bytes]]) -> None:
    """Serve until the process is ended."""
    app = web.Application(client_max_size=2**24)
    app.router.add_route("*", "/{path:.*}", Server(objects).answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    _write(Path(kubeconfig), _kubeconfig(f"http://127.0.0.1:{port}"))
    print("ready", flush=True)
    await asyncio.get_running_loop().create_future()


def _write(path: Path, kubeconfig: Obj) -> None:
    path.write_text(json.dumps(kubeconfig))
    path.chmod(0o600)


def _kubeconfig(url: str) -> Obj:
    return {
        "apiVersion": "v1", "kind": "Config", "current-context": "busy",
        "clusters": [{"name": "busy", "cluster": {"server": url}}],
        "users": [{"name": "busy", "user": {"token": "none"}}],
        "contexts": [{"name": "busy", "context": {"cluster": "busy", "user": "busy"}}],
    }  # fmt: skip


if __name__ == "__main__":
    counts = [int(each) for each in sys.argv[2:5]]
    asyncio.run(serve(sys.argv[1], contents(*counts)))
