"""The HTTP client: every answer is a value, every missing answer a named fault."""

from __future__ import annotations

import asyncio
import gc
import json
import stat
import weakref

import pytest
from aiohttp import web

from gpusched.base import errors
from gpusched.base.clock import SystemClock
from gpusched.io.client.api_client import ApiClient
from gpusched.lab.virtual_time.loop import run_virtual


def status(code: int, **more) -> bytes:
    return json.dumps({"kind": "Status", "code": code, **more}).encode()


def test_a_read_returns_body_headers_and_status(fake_server):
    """Whatever the status, the answer comes back whole."""

    async def given(clock):
        server = await fake_server(clock).start()

        async def handler(request):
            assert request.rel_url.raw_query_string == "labelSelector=a%3Db%20c&limit=500"
            return web.Response(status=404, body=b'{"x":1}', headers={"X-Id": "7"})

        server.handler = handler
        api = await server.api()
        answer = await api.request(
            "GET", "/api/v1/pods", query={"labelSelector": "a=b c", "limit": "500"}, timeout_s=5
        )
        await api.close()
        await server.stop()
        return answer

    answer = run_virtual(given)
    assert answer.status == 404
    assert answer.body == b'{"x":1}'
    assert answer.headers["x-id"] == "7"
    assert not answer.ok


@pytest.mark.parametrize("method", ["GET", "POST", "PATCH", "PUT"])
def test_a_silent_server_is_given_up_in_time(fake_server, method):
    """A timeout of a read is unreachable; of a write, an unknown outcome."""

    async def given(clock):
        server = await fake_server(clock).start()

        async def handler(request):
            await clock.sleep(1000)
            raise AssertionError

        server.handler = handler
        api = await server.api()
        expected = errors.ClusterUnreachable if method == "GET" else errors.OutcomeUnknown
        with pytest.raises(expected, match=r"no answer within 5\.5 s"):
            await api.request(method, "/x", timeout_s=5.5)
        at = clock.monotonic()
        await api.close()
        await server.stop()
        return at

    assert run_virtual(given) == pytest.approx(5.5)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_reset_connection(fake_server, method):
    """A connection cut before the answer: a read may be repeated, a write is unknown."""

    async def given(clock):
        server = await fake_server(clock).start()

        async def handler(request):
            request.transport.abort()
            await clock.sleep(1000)
            raise AssertionError

        server.handler = handler
        api = await server.api()
        expected = errors.ClusterUnreachable if method == "GET" else errors.OutcomeUnknown
        with pytest.raises(expected):
            await api.request(method, "/x", body=b"{}", timeout_s=5)
        await api.close()
        await server.stop()

    run_virtual(given)


def test_nobody_listening_is_unreachable_for_writes_too(fake_server):
    """A connection that was never made changed nothing."""

    async def given(clock):
        server = await fake_server(clock).start()
        await server.stop()
        api = await server.api()
        with pytest.raises(errors.ClusterUnreachable, match="cannot connect to the API server"):
            await api.request("POST", "/x", body=b"{}", timeout_s=5)
        await api.close()

    run_virtual(given)


def test_401_reads_the_token_again_and_retries_once(fake_server, tmp_path):
    """A rotated token file is read at once; a hundred requests share one reading."""
    token = tmp_path / "token"

    async def given(clock):
        token.write_text("old\n")
        server = await fake_server(clock).start()
        accepted = {"old"}

        async def handler(request):
            if request.headers["Authorization"].removeprefix("Bearer ") not in accepted:
                return web.Response(status=401, body=status(401))
            return web.Response(text="fine")

        server.handler = handler
        server.kubeconfig.write_text(
            json.dumps(
                json.loads(server.kubeconfig.read_text())
                | {"users": [{"name": "u", "user": {"tokenFile": str(token)}}]}
            )
        )
        api = await server.api()
        first = await api.request("GET", "/a", timeout_s=5)
        token.write_text("new\n")
        accepted.clear()
        accepted.add("new")
        several = await asyncio.gather(
            *(api.request("POST", "/b", body=b"{}", timeout_s=5) for _ in range(20))
        )
        accepted.clear()
        refused = await api.request("GET", "/c", timeout_s=5)
        await api.close()
        await server.stop()
        return first.status, [a.status for a in several], refused.status, server.count("/c")

    first, several, refused, tries = run_virtual(given)
    assert first == 200
    assert several == [200] * 20
    assert (refused, tries) == (401, 2)


def test_a_token_file_is_read_again_by_monotonic_age(fake_server, tmp_path):
    """After a minute the new token is used, before any 401."""
    token = tmp_path / "token"

    async def given(clock):
        token.write_text("one")
        server = await fake_server(clock).start()

        async def handler(request):
            return web.Response(text="fine")

        server.handler = handler
        server.kubeconfig.write_text(
            json.dumps(
                json.loads(server.kubeconfig.read_text())
                | {"users": [{"name": "u", "user": {"tokenFile": str(token)}}]}
            )
        )
        api = await server.api()
        token.write_text("two")
        for _ in range(2):
            await api.request("GET", "/a", timeout_s=5)
            await clock.sleep(61)
        await api.request("GET", "/a", timeout_s=5)
        await api.close()
        await server.stop()
        return [headers["Authorization"] for headers in server.headers]

    assert run_virtual(given) == ["Bearer one", "Bearer two", "Bearer two"]


def test_an_exec_plugin_gives_the_token(fake_server, tmp_path):
    """A kubeconfig with an exec plugin works, and 401 runs it again."""
    plugin = tmp_path / "plugin"
    plugin.write_text(
        "#!/bin/sh\necho run >> " + str(tmp_path / "runs") + "\n"
        'echo \'{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential",'
        '"status":{"token":"t-\'$(wc -l < ' + str(tmp_path / "runs") + ")'\"}}'\n"
    )
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)

    async def given():
        server = await fake_server(SystemClock()).start()

        async def handler(request):
            good = request.headers["Authorization"] == "Bearer t-2"
            return web.Response(status=200 if good else 401)

        server.handler = handler
        user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}}
        server.kubeconfig.write_text(
            json.dumps(
                json.loads(server.kubeconfig.read_text()) | {"users": [{"name": "u", "user": user}]}
            )
        )
        api = await server.api()
        answer = await api.request("GET", "/a", timeout_s=5)
        await api.close()
        await server.stop()
        return answer.status

    assert asyncio.run(given()) == 200


def test_streams_give_lines_and_name_their_end(fake_server):
    """Lines arrive whole however they were cut; silence and breakage are named."""

    async def given(clock):
        server = await fake_server(clock).start()

        async def handler(request):
            answer = web.StreamResponse()
            await answer.prepare(request)
            for piece in (b'{"a":', b"1}\n\n{", b'"b":2}\n', b"x" * 100_000 + b"\nlast"):
                await answer.write(piece)
                await clock.sleep(1)
            if request.path == "/stall":
                await clock.sleep(1000)
            if request.path == "/reset":
                request.transport.abort()
            return answer

        server.handler = handler
        api = await server.api()
        out = {}
        for path in ("/end", "/stall", "/reset"):
            got = []
            try:
                async with api.stream(path, query={"watch": "1"}, read_timeout_s=20) as (_, lines):
                    while (line := await anext(lines, None)) is not None:
                        got.append(line)
                end = "end"
            except errors.ClusterUnreachable as error:
                end = str(error)
            out[path] = (got, end)
        await api.close()
        await server.stop()
        return out

    out = run_virtual(given)
    whole = [b'{"a":1}', b'{"b":2}', b"x" * 100_000]
    assert out["/end"] == ([*whole, b"last"], "end")
    assert out["/stall"] == (whole, "/stall: nothing came for too long")
    assert out["/reset"][0] == whole
    assert "the stream broke" in out["/reset"][1]


def test_a_stream_can_be_ended_from_outside(fake_server):
    """Closing the lines wakes a pending read with a named fault, at once."""

    async def given(clock):
        server = await fake_server(clock).start()

        async def handler(request):
            answer = web.StreamResponse()
            await answer.prepare(request)
            await clock.sleep(1000)
            return answer

        server.handler = handler
        api = await server.api()
        async with api.stream("/w", query={}, read_timeout_s=100) as (code, lines):
            asyncio.get_running_loop().call_later(3, lines.close)
            with pytest.raises(errors.ClusterUnreachable):
                await anext(lines)
        at = clock.monotonic()
        await api.close()
        await server.stop()
        return code, at

    code, at = run_virtual(given)
    assert code == 200
    assert at == pytest.approx(3)


def test_nothing_is_left_of_a_stream_that_was_ended_from_outside(fake_server):
    """A watch that is closed leaves no frames behind: thousands are in a daemon's life."""

    async def given(clock):
        server = await fake_server(clock).start()

        async def handler(request):
            answer = web.StreamResponse()
            await answer.prepare(request)
            await clock.sleep(1000)
            return answer

        server.handler = handler
        api = await server.api()
        async with api.stream("/w", query={}, read_timeout_s=100) as (_, lines):
            asyncio.get_running_loop().call_later(3, lines.close)
            body = weakref.ref(lines._response)
            with pytest.raises(errors.ClusterUnreachable):
                await anext(lines)
        await api.close()
        await server.stop()
        return body

    body = run_virtual(given)
    gc.collect()
    assert body() is None


def test_insecure_tls_is_refused(write_kubeconfig):
    """A kubeconfig that turns verification off gives one sentence and no client."""
    path = write_kubeconfig(cluster={"insecure-skip-tls-verify": True})
    with pytest.raises(
        errors.ConfigError, match="insecure-skip-tls-verify, which gpusched refuses"
    ):
        run_virtual(lambda clock: ApiClient.connect(path, clock=clock))


@pytest.mark.parametrize(
    ("proxy", "shown"),
    [
        ("socks5://user:secret@10.0.0.9:1080", '"10.0.0.9:1080"'),
        ("::nonsense::", '"::nonsense::"'),
        ("http://", '"http://"'),
        ("http://h:port", '"http://h:port"'),
        (5, '"5"'),
    ],
)
def test_a_proxy_that_is_none(write_kubeconfig, proxy, shown):
    """One sentence, without the password."""
    path = write_kubeconfig(cluster={"proxy-url": proxy})
    with pytest.raises(errors.ConfigError, match="HTTP proxies only") as caught:
        run_virtual(lambda clock: ApiClient.connect(path, clock=clock))
    assert shown in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("user", "says"),
    [
        ({"as": ["x"]}, "as is no name"),
        ({"as": "x", "as-groups": "y"}, "hold no lists"),
        ({"as-groups": ["x"]}, "count only beside as"),
    ],
)
def test_impersonation_that_cannot_be_understood_is_refused(write_kubeconfig, user, says):
    """Left out without a word, it would act with more rights than the user meant."""
    path = write_kubeconfig(user=user)
    with pytest.raises(errors.ConfigError, match=says):
        run_virtual(lambda clock: ApiClient.connect(path, clock=clock))


@pytest.mark.parametrize(
    ("content", "kind", "says"),
    [
        (None, errors.ClusterUnreachable, "there is no kubeconfig file"),
        ("{", errors.ConfigError, "cannot be used"),
        ("[1]", errors.ConfigError, "incomplete"),
        (
            (
                '{"current-context":"x","contexts":[{"name":"x","context":{"cluster":"c"}}],'
                '"clusters":[{"name":"c","cluster":{"server":"https://h"}}]}'
            ),
            errors.ConfigError,
            "user that it names, is incomplete",
        ),
        (
            (
                '{"current-context":"x","contexts":[{"name":"x","context":{"cluster":"c","user":"u"}}],'
                '"users":[{"name":"u","user":{}}],'
                '"clusters":[{"name":"c","cluster":{"server":"ftp://h"}}]}'
            ),
            errors.ConfigError,
            "is not an http or https URL",
        ),
        ("{}", errors.ConfigError, "cannot be used"),
        ("a: b: c\n", errors.ConfigError, "values are not allowed here in .*, line 1, column 5"),
        ("current-context: nope\ncontexts: []\nclusters: []\n", errors.ConfigError, "nope"),
    ],
)
def test_useless_kubeconfigs(tmp_path, content, kind, says):
    """Missing, unreadable or incomplete files each give one sentence."""
    path = tmp_path / "k"
    if content is not None:
        path.write_text(content)
    with pytest.raises(kind, match=says) as caught:
        run_virtual(lambda clock: ApiClient.connect(str(path), clock=clock))
    assert "\n" not in str(caught.value)


def test_no_cluster_at_all():
    """Without pod, KUBECONFIG or default file the sentence says what to do."""
    with pytest.raises(errors.ClusterUnreachable, match="gpusched devcluster"):
        run_virtual(lambda clock: ApiClient.connect(None, clock=clock))


def test_not_an_api_server(fake_server):
    """Something else on the port is named as such; a version is a version."""

    async def given(clock):
        server = await fake_server(clock).start()
        answers = [web.Response(text="<html>"), web.json_response({"gitVersion": "v1.36.2"})]

        async def handler(request):
            return answers.pop(0)

        server.handler = handler
        api = await server.api()
        with pytest.raises(errors.ClusterUnreachable, match="does not answer as an API server"):
            await api.server_version()
        version = await api.server_version()
        await api.close()
        await server.stop()
        return version

    assert run_virtual(given) == "v1.36.2"
