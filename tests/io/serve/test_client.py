"""``gpusched.client`` as notebooks call it, against a server that answers what the test says."""

from __future__ import annotations

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from gpusched.base.errors import ApiError, Denied, UsageError
from gpusched.client import Client, manifest_bytes
from gpusched.io.serve.view_client import NoView

SUBMISSION = {"asOf": "2027-01-15T08:00:00Z", "starts": True}


@pytest.fixture
def served():
    """A server: the requests that came, and the answers by path."""
    asked, answers = [], {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self._answer(b"")

        def do_POST(self):
            self._answer(self.rfile.read(int(self.headers["Content-Length"])))

        def _answer(self, body):
            asked.append((self.command, self.path, self.headers["Authorization"], body))
            status, said = answers.get(
                self.path.partition("?")[0], (404, {"message": "no such part"})
            )
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(said).encode())

        def log_message(self, *_):
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    client = Client(url=f"http://127.0.0.1:{server.server_port}/", token="secret", namespace="team")
    yield client, asked, answers
    server.shutdown()
    server.server_close()


def test_manifests_are_asked_about_and_the_answer_is_typed(served):
    client, asked, answers = served
    answers["/v1/when"] = (200, SUBMISSION)
    assert client.when({"kind": "Pod"}).starts
    assert asked == [("POST", "/v1/when?namespace=team", "Bearer secret", b'{"kind": "Pod"}')]


def test_variants_are_asked_with_values_in_commas(served):
    client, asked, answers = served
    variant = {"options": {"members": "1"}, "answer": SUBMISSION, "best": True}
    answers["/v1/when"] = (200, {"asOf": "x", "variants": [variant]})
    answer = client.when_variants("a: 1\n", namespace="b", members=[1, 2], queue=["x"])
    assert answer.variants[0].best
    assert asked[0][1] == "/v1/when?namespace=b&queue=x&members=1,2"


def test_a_call_inside_of_a_running_loop_returns_the_answer(served):
    """Given a notebook, whose cells run in an event loop, then the call is a plain one."""
    client, _, answers = served
    answers["/v1/queues"] = (200, {"items": [], "continue": ""})

    async def cell():
        return client.queues()

    assert asyncio.run(cell()) == []


@pytest.mark.parametrize(
    ("status", "kind", "why"),
    [
        (400, ApiError, "holds no manifest"),
        (403, Denied, "holds no manifest"),
        (404, NoView, "this daemon answers no such questions"),
        (503, NoView, "holds no manifest"),
    ],
)
def test_a_refusal_is_one_sentence(served, status, kind, why):
    client, _, answers = served
    answers["/v1/when"] = (status, {"message": "holds no manifest"})
    with pytest.raises(kind, match=why):
        client.when("a: 1\n")


def test_arguments_that_contradict_each_other_are_told():
    with pytest.raises(UsageError, match="not both"):
        Client(url="http://x", token="t", kubeconfig="file")
    with pytest.raises(UsageError, match="asks for a token"):
        Client(url="http://x")
    with pytest.raises(UsageError, match="name what is varied"):
        Client(url="http://x", token="t").when_variants({"kind": "Pod"})


def test_manifests_are_a_file_a_text_or_values(tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text("kind: Job\n")
    assert manifest_bytes(file) == manifest_bytes(str(file)) == manifest_bytes("kind: Job\n")
    assert manifest_bytes([{"a": 1}, {"b": 2}]) == b'{"a": 1}\n---\n{"b": 2}'
    assert manifest_bytes('{"kind": "Job"}') == b'{"kind": "Job"}'
    with pytest.raises(UsageError, match="No such file or directory"):
        manifest_bytes("gone.yaml")


@pytest.mark.parametrize("nothing", ["", " \n", None, 5, {"at": object()}, [{"at": {1, 2}}]])
def test_what_are_no_manifests_is_refused_with_what_they_are(nothing):
    with pytest.raises(UsageError, match="manifests are the name of a file, YAML or JSON as text"):
        manifest_bytes(nothing)


def test_one_value_of_an_option_needs_no_list(served):
    client, asked, answers = served
    answers["/v1/when"] = (200, {"asOf": "2027-01-15T08:00:00Z", "variants": []})
    client.when_variants({"kind": "Pod"}, queue="prod", members=0)
    assert asked[0][1] == "/v1/when?namespace=team&queue=prod&members=0"
