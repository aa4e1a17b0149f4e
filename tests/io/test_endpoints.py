"""The daemon's endpoints."""

from __future__ import annotations

import aiohttp
import pytest

from gpusched.base.errors import ConfigError
from gpusched.io.observe.endpoints import HttpEndpoints
from gpusched.lab.virtual_time.loop import run_virtual


async def get(port: int, path: str) -> tuple[int, str, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}{path}") as answer,
    ):
        return answer.status, await answer.text(), answer.headers["Content-Type"]


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/livez", (200, "ok\n", "text/plain; charset=utf-8")),
        ("/readyz", (503, "pods are not listed yet\n", "text/plain; charset=utf-8")),
        ("/metrics", (200, "# text\n", "text/plain; version=0.0.4; charset=utf-8")),
        ("/", (404, "404: Not Found", "text/plain; charset=utf-8")),
    ],
)
def test_each_path(path, answer):
    """Three paths with their types, everything else is not there."""

    async def given(_clock):
        endpoints = HttpEndpoints(
            ready=lambda: (False, "pods are not listed yet"), metrics=lambda: b"# text\n"
        )
        port = await endpoints.start("127.0.0.1", 0)
        got = await get(port, path)
        await endpoints.stop()
        return got

    assert run_virtual(given) == answer


def test_readiness_follows_the_callback():
    """Not ready, then ready, with the sentence of the moment."""
    state = [(False, "two\nlines"), (True, "")]

    async def given(_clock):
        endpoints = HttpEndpoints(ready=lambda: state.pop(0), metrics=lambda: b"")
        port = await endpoints.start("127.0.0.1", 0)
        got = [await get(port, "/readyz") for _ in range(2)]
        await endpoints.stop()
        return [(status, text) for status, text, _ in got]

    assert run_virtual(given) == [(503, "two\\nlines\n"), (200, "ok\n")]


@pytest.mark.parametrize("port", ["taken", 70_000])
def test_a_port_that_cannot_be_had_is_one_sentence(port):
    """Port in use or impossible: a start-up error that names the address."""

    async def given(_clock):
        first = HttpEndpoints(ready=lambda: (True, ""), metrics=lambda: b"")
        taken = await first.start("127.0.0.1", 0)
        wanted = taken if port == "taken" else port
        second = HttpEndpoints(ready=lambda: (True, ""), metrics=lambda: b"")
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{wanted} for /livez"):
            await second.start("127.0.0.1", wanted)
        await first.stop()

    run_virtual(given)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:1", 200),
        ("127.0.0.1:8080", 200),
        ("[::1]:8080", 200),
        ("evil.example:8080", 421),
        ("127.0.0.1.evil.example", 421),
        ("evil.example@localhost:99999", 421),
        ("10.0.0.1", 421),
        ("[fe80::1]", 421),
        ("[", 421),
        ("", 421),
    ],
)
def test_on_loopback_only_loopback_names_are_answered(host, status):
    """A page whose name points here reads nothing."""

    async def given(_clock):
        endpoints = HttpEndpoints(ready=lambda: (True, ""), metrics=lambda: b"queues")
        port = await endpoints.start("127.0.0.1", 0)
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}/metrics", headers={"Host": host}) as answer,
        ):
            got = answer.status, await answer.text()
        await endpoints.stop()
        return got

    code, text = run_virtual(given)
    assert code == status
    assert ("queues" in text) == (status == 200)


def test_elsewhere_every_name_is_answered():
    """In a cluster probes and scrapers use whatever name they have."""

    async def given(_clock):
        endpoints = HttpEndpoints(ready=lambda: (True, ""), metrics=lambda: b"queues")
        port = await endpoints.start("0.0.0.0", 0)
        async with (
            aiohttp.ClientSession() as session,
            session.get(
                f"http://127.0.0.1:{port}/metrics", headers={"Host": "metrics.example"}
            ) as answer,
        ):
            got = answer.status
        await endpoints.stop()
        return got

    assert run_virtual(given) == 200
