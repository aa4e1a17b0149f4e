"""A cluster for commands that read: canned answers over real HTTP."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

import attrs
import pytest


@attrs.define
class Cluster:
    """Answers GETs from a table of paths; lists go by pages of two and select by label."""

    objects: dict = attrs.field(factory=dict)
    asked: list = attrs.field(factory=list)

    def answer(self, target):
        """Status and body."""
        url = urlsplit(target)
        query = dict(parse_qsl(url.query))
        self.asked.append((url.path, query))
        found = self.objects.get(url.path)
        if found is None:
            return 404, {"kind": "Status", "message": "not found", "reason": "NotFound"}
        if isinstance(found, int):
            return found, {"kind": "Status", "message": "you may not", "reason": "Forbidden"}
        if isinstance(found, dict):
            return 200, found
        items = [item for item in found if _selected(item, query)]
        start = int(query.get("continue", "0"))
        more = str(start + 2) if start + 2 < len(items) else ""
        return 200, {"metadata": {"continue": more}, "items": items[start : start + 2]}


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


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """A cluster whose kubeconfig is the default one, with namespace team-a."""
    known = Cluster()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            """Answer."""
            status, body = known.answer(self.path)
            raw = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_):
            """Silence."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
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
