"""Each fault as a client meets it, over HTTP and in this process."""

import asyncio
import json

import aiohttp
import pytest

from gpusched.devcluster.apimachinery.status import StatusError
from gpusched.devcluster.http.handler_chain import LostConnection

from .conftest import MAPS, event

LOST = (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError)


async def test_made_statuses_carry_reason_and_retry_after(api):
    """429 with Retry-After as header and in details; the write did not happen."""
    await api.fault(
        type="status", code=429, retryAfter=7, match={"verbs": ["create"]}, when={"first": 1}
    )
    url = api.cluster.url + MAPS
    async with api.session.post(url, json={"metadata": {"name": "a"}}) as answer:
        body = await answer.json()
        assert (answer.status, answer.headers["Retry-After"]) == (429, "7")
    assert (body["reason"], body["details"]) == ("TooManyRequests", {"retryAfterSeconds": 7})
    assert (await api.make("a"))[0] == 201


@pytest.mark.parametrize("applied", [False, True])
async def test_a_lost_connection_before_and_after_the_write(api, applied):
    """The client knows nothing in either case; only afterwards the object is there."""
    await api.fault(type="lost", applied=applied, match={"verbs": ["create"]})
    with pytest.raises(LOST):
        await api.make("a")
    assert "a" in await api.names() if applied else "a" not in await api.names()


async def test_a_delay_lasts_by_the_cluster_s_clock(api):
    """The request waits in the paused clock until it is stepped over the delay."""
    await api.fault(type="delay", seconds=30, match={"verbs": ["create"]})
    slow = asyncio.create_task(api.make("a"))
    before = (await api.control("GET", "clock"))["sleepers"]
    while (await api.control("GET", "clock"))["sleepers"] == before and not slow.done():  # noqa: ASYNC110
        await asyncio.sleep(0)
    await api.control("POST", "clock/step", {"seconds": 29})
    assert not slow.done()
    await api.control("POST", "clock/step", {"seconds": 1})
    assert (await slow)[0] == 201


async def test_a_truncated_body_is_announced_whole(api):
    """The length is that of the whole body, and the connection ends early."""
    await api.fault(type="truncate", bytes=10, match={"verbs": ["list"]})
    with pytest.raises(aiohttp.ClientPayloadError):
        await api.names()


async def test_dropped_watches(api):
    """After so many events the connection breaks, or the stream ends as if it had timed out."""
    await api.fault(type="drop", afterEvents=2, clean=True, when={"first": 1})
    await api.fault(type="drop", when={"nth": 2})
    _, made = await api.make("a")
    since = f"&resourceVersion={int(made['metadata']['resourceVersion']) - 1}"
    async with api.watch(since) as stream:
        await api.make("b")
        await api.make("c")
        lines = (await stream.content.read()).splitlines()
    assert [json.loads(line)["object"]["metadata"]["name"] for line in lines] == ["a", "b"]
    with pytest.raises((*LOST, aiohttp.ClientPayloadError)):
        async with api.watch(since) as stream:
            await stream.content.read()


async def test_a_stalled_watch_stays_open_and_silent(api):
    """It delivers what it is allowed to, then neither events nor an end."""
    await api.fault(type="stall", afterEvents=1)
    _, body = await api.send("GET", MAPS)
    async with api.watch(f"&resourceVersion={body['metadata']['resourceVersion']}") as stream:
        await api.make("a")
        assert (await event(stream))["type"] == "ADDED"
        await api.make("b")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await stream.content.readline()


async def test_lists_lag_by_versions_and_by_seconds(api):
    """A lagging list shows the past under the past's version; a version beyond it is 504."""
    await api.make("a")
    await api.make("b")
    await api.fault(type="lag", versions=1, when={"first": 1})
    await api.fault(type="lag", seconds=60, when={"from": 1000})
    assert "b" not in await api.names()
    assert "b" in await api.names()
    await api.control("POST", "clock/step", {"seconds": 1000})
    _, made = await api.make("c")
    assert "c" not in await api.names()
    newest = made["metadata"]["resourceVersion"]
    code, _ = await api.send("GET", f"{MAPS}?resourceVersion={newest}")
    assert code == 504
    await api.control("POST", "clock/step", {"seconds": 61})
    assert "c" in await api.names()


async def test_watches_lag(api):
    """By versions: the newest are held back. By seconds: each event comes so much later."""
    _, body = await api.send("GET", MAPS)
    since = f"&resourceVersion={body['metadata']['resourceVersion']}"
    await api.fault(type="lag", versions=1, match={"verbs": ["watch"]}, when={"first": 1})
    await api.fault(type="lag", seconds=5, match={"verbs": ["watch"]}, when={"nth": 2})
    async with api.watch(since) as behind, api.watch(since) as late:
        await api.make("a")
        await api.make("b")
        assert (await event(behind))["object"]["metadata"]["name"] == "a"
        await api.control("POST", "clock/step", {"seconds": 5})
        assert (await event(late))["object"]["metadata"]["name"] == "a"


async def test_forced_expiry(api):
    """A list is HTTP 410, a watch HTTP 200 with one ERROR event of code 410."""
    await api.fault(type="expired")
    assert (await api.send("GET", MAPS))[1]["reason"] == "Expired"
    async with api.watch() as stream:
        lines = (await stream.content.read()).splitlines()
        assert stream.status == 200
    assert [json.loads(line)["object"]["code"] for line in lines] == [410]


async def test_rules_are_listed_counted_and_removed(api):
    """Names are unique; a removed rule strikes no more."""
    await api.fault(type="status", code=500, name="x", match={"verbs": ["create"]})
    assert (await api.make("a"))[0] == 500
    await api.make("b")
    rules = (await api.control("GET", "faults"))["rules"]
    assert rules == [{"name": "x", "type": "status", "matched": 2, "fired": 2}]
    rule = {"name": "x", "fault": {"type": "lost"}}
    code, answer = await api.send("POST", "/devcluster/faults", rule)
    assert (code, answer["message"]) == (400, "name: 'x' is in force already")
    assert await api.control("DELETE", "faults/x") == {"rules": []}
    assert (await api.make("a"))[0] == 201
    assert (await api.send("DELETE", "/devcluster/faults/x"))[0] == 404


async def test_the_control_endpoints_are_never_struck(api):
    """A rule for everything can still be taken back."""
    await api.fault(type="lost")
    with pytest.raises(LOST):
        await api.names()
    assert await api.control("DELETE", "faults") == {"rules": []}


async def test_the_same_rules_strike_in_this_process(api, cluster):
    """LostConnection and StatusError instead of bytes; controllers and ``client`` are spared."""
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    match = {"users": ["ann"], "resources": ["configmaps"]}
    await api.fault(type="lost", applied=True, match=match, when={"nth": 1})
    await api.fault(type="status", code=409, match=match, when={"nth": 2})
    await api.fault(type="lag", versions=1, match={**match, "verbs": ["list"]})
    await api.fault(type="drop", afterEvents=1, match={"users": ["ann"]})
    ann = cluster.client_as("ann")
    with pytest.raises(LostConnection):
        ann.create("configmaps", made, "default")
    with pytest.raises(StatusError) as refusal:
        ann.delete("configmaps", "default", "a")
    assert refusal.value.code == 409
    assert cluster.client.get("configmaps", "default", "a") is not None
    assert "a" not in [c["metadata"]["name"] for c in ann.list("configmaps", "default")]
    items = ann.watch("configmaps")
    assert (await anext(items)).type == "ADDED"
    with pytest.raises(LostConnection):
        await anext(items)
