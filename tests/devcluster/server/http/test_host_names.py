"""Whom the server answers: by the Host that a request names, and whether a page sent it."""

from __future__ import annotations

import asyncio
import json

import pytest

from gpusched.devcluster.apimachinery.status import StatusError
from gpusched.devcluster.cluster import ClusterOptions, start
from gpusched.devcluster.http.server import HostNames

POD_LIST = "/api/v1/pods"


def verdict(host: str | None, *told: str, listening: str = "127.0.0.1") -> int:
    """The code with which a Host is refused, 200 for none."""
    try:
        HostNames.from_options(listening, told).check([] if host is None else [host])
    except StatusError as refusal:
        return refusal.code
    return 200


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:8080",
        "localhost.:80",
        "127.0.0.1",
        "127.0.0.1:6443",
        "127.8.8.8:1",
        "[::1]",
        "[::1]:6443",
        "[::ffff:127.0.0.1]:80",
        "127.0.0.1:",
    ],
)
def test_loopback_names_are_taken(host):
    """With any port: tunnels change it."""
    assert verdict(host) == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8080",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "evil.example#localhost",
        "evil.example@localhost",
        "localhost:80@evil.example",
        "localhost:http",
        "192.168.1.7",
        "0.0.0.0:80",
        "[::]:80",
        "[::1",
        "[::1]evil.example",
        "[fe80::1]:80",
        "2130706433",
        "kubernetes.default.svc",
        "\t\x7f",
    ],
)
def test_other_names_are_misdirected(host):
    """What a page's own name could be, in any disguise."""
    assert verdict(host) == 421


def test_a_request_names_one_host():
    """None, an empty one or two of them are no name."""
    assert verdict(None) == 400
    assert verdict("") == 400
    with pytest.raises(StatusError) as refused:
        HostNames.from_options("127.0.0.1", ()).check(["localhost", "evil.example"])
    assert refused.value.code == 400


def test_names_that_were_told_are_taken():
    """In any case, with or without a port or a dot at the end."""
    told = ("Host.Docker.Internal", "kubernetes.default.svc.")
    assert verdict("host.docker.internal:6443", *told) == 200
    assert verdict("KUBERNETES.default.svc", *told) == 200
    assert verdict("docker.internal", *told) == 421


def test_where_a_token_is_needed_any_name_will_do():
    """A page has no token, so its name does not matter on another than a loopback address."""
    assert verdict("evil.example", listening="0.0.0.0") == 200
    assert verdict("evil.example", listening="::1") == 421
    assert verdict("[::1]:80", listening="::1") == 200


async def ask(cluster, *lines: str, method: str = "GET", path: str = POD_LIST) -> tuple[int, str]:
    """Send a request as bytes; return the code and the message of a Status."""
    port = int(cluster.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = [f"{method} {path} HTTP/1.1", *lines, "Connection: close", "Content-Length: 0"]
    writer.write("\r\n".join([*head, "", ""]).encode())
    answer = (await reader.read()).decode()
    writer.close()
    head_text, _, body = answer.partition("\r\n\r\n")
    code = int(head_text.split(" ", 2)[1])
    return code, json.loads(body).get("message", "") if body.startswith("{") else body


@pytest.fixture
async def cluster():
    """A cluster without nodes."""
    made = await start(ClusterOptions(stages=False, controllers=False, host_names=["told.example"]))
    yield made
    await made.close()


@pytest.mark.parametrize("path", [POD_LIST, "/devcluster/clock", "/version", "/healthz", "/nope"])
async def test_a_page_by_dns_rebinding_gets_nothing(cluster, path):
    """Whatever it asks, with one sentence; the same request by a loopback name is answered."""
    code, told = await ask(cluster, "Host: evil.example:8080", path=path)
    assert code == 421
    assert told == (
        "the Host 'evil.example:8080' is not this server: use localhost or 127.0.0.1, or start it "
        "with --host-names and that name"
    )
    assert (await ask(cluster, "Host: localhost:8080", path=path))[0] != 421
    assert (await ask(cluster, "Host: told.example", path=path))[0] != 421


async def test_a_request_without_a_host_is_refused(cluster):
    """As HTTP/1.1 has it."""
    assert (await ask(cluster))[0] == 400


@pytest.mark.parametrize(
    "header",
    [
        "Origin: http://evil.example",
        "Origin: null",
        "Sec-Fetch-Site: cross-site",
        "Sec-Fetch-Site: same-site",
    ],
)
@pytest.mark.parametrize(
    ("method", "path"), [("GET", POD_LIST), ("POST", "/devcluster/clock/step")]
)
async def test_a_page_is_not_the_administrator(cluster, header, method, path):
    """What a page sends to a loopback name carries where it is from, and needs a token."""
    assert (await ask(cluster, "Host: localhost", header, method=method, path=path))[0] == 401


async def test_the_address_bar_is_the_administrators(cluster):
    """A person may look at an answer in a browser."""
    code, _ = await ask(cluster, "Host: localhost", "Sec-Fetch-Site: none")
    assert code == 200
