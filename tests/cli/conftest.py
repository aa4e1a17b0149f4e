"""A cluster for commands that read: canned answers over real HTTP."""

from __future__ import annotations

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from urllib.request import Request, urlopen

import attrs
import pytest

from gpusched.devcluster.cluster import ClusterOptions, start


@attrs.define
class Cluster:
    """Answers GETs from a table of paths; lists go by pages of two and select by label."""

    objects: dict = attrs.field(factory=dict)
    asked: list = attrs.field(factory=list)
    headers: list = attrs.field(factory=list)

    def answer(self, target):
        """Status and body."""
        url = urlsplit(target)
        query = dict(parse_qsl(url.query))
        self.asked.append((url.path, query))
        found = self.objects.get(url.path) or self._below(url.path)
        if found is None:
            return 404, {"kind": "Status", "message": "not found", "reason": "NotFound"}
        if isinstance(found, int):
            return found, {"kind": "Status", "message": _refusal(url.path), "reason": "Forbidden"}
        if isinstance(found, dict | str):
            return 200, found
        items = [item for item in found if _selected(item, query)]
        start = int(query.get("continue", "0"))
        more = str(start + 2) if start + 2 < len(items) else ""
        return 200, {"metadata": {"continue": more}, "items": items[start : start + 2]}

    def _below(self, path):
        """Objects of a collection that is no entry itself."""
        inside = {key: each for key, each in self.objects.items() if key.rpartition("/")[0] == path}
        found = [each for each in inside.values() if isinstance(each, dict) and "metadata" in each]
        return found or self.objects.get(path)


def _refusal(path):
    """As the API server says who may not list what; of paths that are no lists, shorter."""
    parts = path.strip("/").split("/")
    group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    if rest[0] == "namespaces" and len(rest) > 2:
        rest = rest[2:]
    return f'you may not: User "ann" cannot list resource "{rest[0]}" in API group "{group}"'


def _selected(item, query):
    for pair in filter(None, query.get("labelSelector", "").split(",")):
        key, _, value = pair.partition("=")
        if item["metadata"].get("labels", {}).get(key) != value:
            return False
    for pair in filter(None, query.get("fieldSelector", "").split(",")):
        key, _, value = pair.partition("=")
        if item["involvedObject"][key.rpartition(".")[2]] != value:
            return False
    return True


class _Server(ThreadingHTTPServer):
    """A command may open a connection for each kind at once: with five that may wait it would take seconds."""

    request_queue_size = 128


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """A cluster whose kubeconfig is the default one, with namespace team-a."""
    known = Cluster()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            """Answer."""
            known.headers.append(self.headers)
            status, body = known.answer(self.path)
            raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_):
            """Silence."""

    server = _Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [
            {"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
        ],
        "users": [{"name": "u", "user": {}}],
        "contexts": [
            {"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "team-a"}}
        ],
    }
    file = tmp_path / "kubeconfig"
    file.write_text(json.dumps(kubeconfig))
    monkeypatch.setenv("KUBECONFIG", str(file))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    yield known
    server.shutdown()
    server.server_close()
    thread.join()


@attrs.define
class LiveCluster:
    """An embedded cluster that serves HTTP from a thread of its own, without fake kubelets.

    Attributes:
        url: of its API server.
        kubeconfig: its file, which is the default one.
    """

    url: str
    kubeconfig: Path
    _loop: asyncio.AbstractEventLoop
    _cluster: Any

    def send(self, method, path, body=None, *, kind="application/json"):
        """One request, its answer as JSON; a refusal fails the test."""
        raw = None if body is None else json.dumps(body).encode()
        request = Request(
            self.url + path,
            raw,
            {"Content-Type": kind, "Accept": "application/json"},
            method=method,
        )
        with urlopen(request, timeout=10) as answer:
            return json.loads(answer.read())

    def get(self, path):
        """One object."""
        return self.send("GET", path)


@pytest.fixture
def live(tmp_path, monkeypatch):
    """A cluster that takes writes, whose kubeconfig is the default one."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    options = ClusterOptions(stages=False, controllers=False)
    cluster = asyncio.run_coroutine_threadsafe(start(options), loop).result(30)
    file = tmp_path / "live.kubeconfig"
    file.write_text(cluster.kubeconfig_text)
    monkeypatch.setenv("KUBECONFIG", str(file))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    yield LiveCluster(cluster.url, file, loop, cluster)
    asyncio.run_coroutine_threadsafe(cluster.close(), loop).result(30)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
