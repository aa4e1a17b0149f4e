"""HTTP as strangers speak it: old, odd, cut short, too large, too deep, too many."""

import asyncio
import gzip

import pytest

from gpusched.devcluster.apimachinery import yaml_text
from gpusched.devcluster.apimachinery.limits import BODY_BYTES_MAX, GZIP_FROM_BYTES

MAPS = "/api/v1/namespaces/default/configmaps"


async def exchange(cluster, *parts, until=b"\r\n\r\n"):
    """Send bytes, return what came up to a mark or the end."""
    host, port = cluster.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        async with asyncio.timeout(30):
            for part in parts:
                writer.write(part)
            if until is None:
                return await reader.read()
            return await reader.readuntil(until)
    finally:
        writer.close()


def head(line, *fields):
    return "\r\n".join([line, "Host: localhost", *fields, "", ""]).encode()


async def test_http_1_0_gets_a_watch_that_ends_with_the_connection(cluster):
    """No chunks for a client that cannot know them."""
    line = "GET /api/v1/namespaces?watch=1&timeoutSeconds=1&resourceVersion=0 HTTP/1.0"
    answer = await exchange(cluster, head(line), until=b'"ADDED"')
    assert answer.startswith(b"HTTP/1.0 200 OK")
    assert b"chunked" not in answer.lower()


async def test_a_body_is_asked_for_when_the_client_waits_for_that(cluster):
    """100 Continue for ``Expect: 100-continue``; 417 for any other expectation."""
    fields = ["Content-Type: application/json", "Content-Length: 25"]
    first = head(f"POST {MAPS} HTTP/1.1", *fields, "Expect: 100-continue")
    answer = await exchange(cluster, first, b'{"metadata":{"name":"e"}}', until=b"201 Created")
    assert answer.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201")
    other = head(f"POST {MAPS} HTTP/1.1", *fields, "Expect: the-best")
    assert b" 417 " in await exchange(cluster, other)


async def test_pipelined_requests_are_answered_in_order(cluster):
    """Three at once, three answers."""
    lines = [head(f"GET /api/v1/namespaces/{n} HTTP/1.1") for n in ("default", "no", "kube-system")]
    last = head("GET /version HTTP/1.1", "Connection: close")
    answers = await exchange(cluster, *lines, last, until=None)
    codes = [part[:3] for part in answers.split(b"HTTP/1.1 ")[1:]]
    assert codes == [b"200", b"404", b"200", b"200"]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("HEAD /api/v1/namespaces/default HTTP/1.1", 405),
        ("OPTIONS /api/v1/namespaces/default HTTP/1.1", 405),
        ("GET /api/v1/namespaces/%zz HTTP/1.1", 400),
        ("GET /api/v1/namespaces/a%2 HTTP/1.1", 400),
        ("GET /api/v1/namespaces/a%00b HTTP/1.1", 404),
        ("GET /api/v1/namespaces?labelSelector=%zz HTTP/1.1", 400),
        (f"GET /api/v1/namespaces?labelSelector={'a' * 100_000} HTTP/1.1", 400),
        (f"GET /{'a/' * 5000} HTTP/1.1", 404),
        ("BREW /api/v1/pods HTTP/1.1", 400),
    ],
)
async def test_odd_requests_are_answered(cluster, line, code):
    """Never a 5xx, never silence."""
    answer = await exchange(cluster, head(line))
    assert answer.split(b" ", 2)[1] == str(code).encode()


async def test_bodies_that_are_too_large_or_too_deep(http):
    """413 in the server's words; depth is refused in JSON and in YAML before it is built."""
    big = await http.post(MAPS, b'{"data":{"a":"%b"}}' % (b"x" * BODY_BYTES_MAX))
    assert (big.code, big.message) == (413, "Request entity too large: limit is 3145728")
    deep = await http.post(MAPS, b'{"data":' + b'{"a":' * 10_001 + b"1" + b"}" * 10_001 + b"}")
    assert deep.code == 400
    assert "exceeded max depth" in deep.message
    for opener, closer in ((b"[", b"]"), (b"- ", b"")):
        body = b"a:\n " + opener * 100_000 + closer * 100_000
        yaml = await http.post(MAPS, body, media="application/yaml")
        assert yaml.code == 400
        assert "exceeded max depth" in yaml.message


async def test_aliases_that_multiply_are_refused(http):
    """Nine to the twelfth values in a few hundred bytes are never built."""
    lines = ["a: &a0 [x,x,x,x,x,x,x,x,x]"]
    lines += [f"b{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    reply = await http.post(MAPS, "\n".join(lines).encode(), media="application/yaml")
    assert (reply.code, "excessive aliasing" in reply.message) == (400, True)


def test_yaml_becomes_json_values():
    """Keys become texts, sets and bytes their JSON forms; aliases are followed."""
    text = "{7: a, true: &x [b], c: *x, d: !!binary aGk=, e: !!set {z, y}, t: 2020-01-01}"
    assert yaml_text.load_document(text) == {
        "7": "a", "true": ["b"], "c": ["b"], "d": "aGk=", "e": {"y": None, "z": None},
        "t": "2020-01-01",
    }  # fmt: skip


async def test_long_answers_are_packed_for_those_who_take_it(http):
    """Gzip from 128 KiB on, for reads only, and never for clients that did not ask."""
    text = "x" * GZIP_FROM_BYTES
    made = await http.post(MAPS, {"metadata": {"name": "big"}, "data": {"a": text}})
    assert "Content-Encoding" not in made.headers
    url = http.cluster.url + MAPS
    async with http.session.get(url, headers={"Accept-Encoding": "identity"}) as plain:
        assert "Content-Encoding" not in plain.headers
        whole = await plain.read()
    auto = http.session._auto_decompress
    http.session._auto_decompress = False
    async with http.session.get(url, headers={"Accept-Encoding": "deflate, gzip"}) as packed:
        assert packed.headers["Content-Encoding"] == "gzip"
        assert packed.headers["Vary"] == "Accept-Encoding"
        assert gzip.decompress(await packed.read()) == whole
    http.session._auto_decompress = auto


async def test_opened_and_closed_connections_leave_nothing(cluster, http):
    """Hundreds of connections, half of them in the middle of a request: no task stays."""
    await http.get("/version")
    before = len(asyncio.all_tasks())
    host, port = cluster.url.removeprefix("http://").split(":")
    for number in range(300):
        _, writer = await asyncio.open_connection(host, int(port))
        if number % 2:
            writer.write(
                b"POST /api/v1/namespaces HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"
            )
        writer.close()
        await writer.wait_closed()
    async with asyncio.timeout(30):
        while len(asyncio.all_tasks()) > before or len(cluster._listener._server._silent) > 1:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert (await http.get("/version")).code == 200


@pytest.mark.parametrize(
    ("sent", "bound"),
    [
        (b"GET /version HT", "HEADER_WAIT_S"),
        (head("POST /api/v1/namespaces HTTP/1.1", "Content-Length: 99") + b"{", "BODY_WAIT_S"),
    ],
)
async def test_half_a_request_is_not_waited_for_without_end(cluster, monkeypatch, sent, bound):
    """A head or a body that never ends costs the client its connection."""
    module = "http.listener" if bound == "HEADER_WAIT_S" else "http.server"
    monkeypatch.setattr(f"gpusched.devcluster.{module}.{bound}", 0.05)
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await exchange(cluster, sent)


async def test_a_slow_reader_of_a_watch_costs_bounded_memory(cluster, http):
    """Its socket fills and the server stops encoding for it; writers never wait."""
    host, port = cluster.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port), limit=1024)
    writer.write(head(f"GET {MAPS}?watch=1 HTTP/1.1"))
    text = "x" * 100_000
    for number in range(150):
        name = {"metadata": {"name": f"m{number}"}, "data": {"a": text}}
        cluster.client.create("configmaps", {"apiVersion": "v1", "kind": "ConfigMap", **name},
                              "default")  # fmt: skip
        await asyncio.sleep(0)
    await asyncio.sleep(0.2)
    queued = [c.transport.get_write_buffer_size() for c in cluster._listener._server.connections
              if c.transport is not None]  # fmt: skip
    assert max(queued) < 12 * 2**20
    assert (await http.get("/version")).code == 200
    writer.close()
