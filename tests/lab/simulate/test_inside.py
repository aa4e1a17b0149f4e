"""Requests handed over inside the loop meet what they would meet over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gpusched.base import errors
from gpusched.base.clock import LoopClock
from gpusched.devcluster.cluster import ClusterOptions, DevCluster, start
from gpusched.devcluster.control.fault_rules import parse_rules
from gpusched.io.client.api_client import ApiClient
from gpusched.io.client.transport import over_http
from gpusched.lab.virtual_time.client_sessions import sessions_to
from gpusched.lab.virtual_time.connections import MemoryNetwork
from gpusched.lab.virtual_time.loop import run_virtual

PODS = "/api/v1/pods"
MAPS = "/api/v1/namespaces/default/configmaps"
Story = Callable[[ApiClient, DevCluster], Awaitable[Any]]


@pytest.fixture(params=["inside", "http"])
def told(request, tmp_path) -> Callable[[Story], Any]:
    """Runs a story with a client of a cluster, one way and the other."""

    async def given(clock: LoopClock, story: Story) -> Any:
        cluster = await start(ClusterOptions(clock=clock, stages=False, token="t"))
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(cluster.kubeconfig_text)
        opened = over_http if request.param == "http" else sessions_to(cluster.in_process)
        api = await ApiClient.connect(str(kubeconfig), clock=clock, connections=3, opened=opened)
        try:
            return await story(api, cluster)
        finally:
            await api.close()
            await cluster.close()

    return lambda story: run_virtual(lambda clock: given(clock, story), network=MemoryNetwork())


def harm(cluster: DevCluster, **rule: Any) -> None:
    cluster.faults.add(parse_rules([{"name": "r", **rule}]))


def config_map(name: str) -> bytes:
    return json.dumps(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    ).encode()


def names(cluster: DevCluster) -> list[str]:
    return [each["metadata"]["name"] for each in cluster.client.list("configmaps", "default")]


async def create(api: ApiClient, name: str, timeout_s: float = 10) -> int:
    return (await api.request("POST", MAPS, body=config_map(name), timeout_s=timeout_s)).status


def test_a_request_is_answered_with_its_body_and_the_server_s_time(told):
    """Status, body and Date; a refusal is a Status object."""

    async def story(api: ApiClient, _cluster: DevCluster) -> Any:
        made = await api.request("POST", MAPS, body=config_map("a"), timeout_s=5)
        again = await api.request("POST", MAPS, body=config_map("a"), timeout_s=5)
        found = await api.request("GET", MAPS, query={"limit": "5"}, timeout_s=5)
        items = [each["metadata"]["name"] for each in json.loads(found.body)["items"]]
        kind = found.headers["content-type"]
        return made.status, again.status, json.loads(again.body)["reason"], items, kind, (
            found.server_time()
        )  # fmt: skip

    status, again, reason, items, kind, date = told(story)
    assert (status, again, reason) == (201, 409, "AlreadyExists")
    assert "a" in items
    assert kind.startswith("application/json")
    assert date == 1_767_225_600.0


def test_a_token_that_nobody_knows_is_refused(told, tmp_path):
    """401, as a Status."""

    async def story(one: ApiClient, cluster: DevCluster) -> Any:
        stale = tmp_path / "kubeconfig"
        stale.write_text(cluster.kubeconfig_text.replace("token: t", "token: unknown"))
        opened = one._open_session
        api = await ApiClient.connect(str(stale), clock=cluster.core.clock, opened=opened)
        try:
            return (await api.request("GET", MAPS, timeout_s=5)).status
        finally:
            await api.close()

    assert told(story) == 401


def test_faults_strike_requests(told):
    """A made status with its wait; an answer that is lost, or late, or cut, before and after."""

    async def story(api: ApiClient, cluster: DevCluster) -> list[Any]:
        seen: list[Any] = []

        async def tried(name: str) -> Any:
            try:
                return await create(api, name)
            except errors.GpuschedError as error:
                return type(error).__name__

        match = {"verbs": ["create"], "resources": ["configmaps"]}
        for name, fault in {
            "status": {"type": "status", "code": 429, "retryAfter": 7},
            "before": {"type": "lost"},
            "after": {"type": "lost", "applied": True},
            "late": {"type": "delay", "seconds": 60},
            "soon": {"type": "delay", "seconds": 6},
        }.items():
            harm(cluster, match=match, fault=fault)
            seen.append(await tried(name))
            cluster.faults.clear()
        harm(cluster, match={"resources": ["configmaps"]}, fault={"type": "truncate", "bytes": 3})
        with pytest.raises(errors.ClusterUnreachable):
            await api.request("GET", MAPS, timeout_s=5)
        return [seen, names(cluster)]

    seen, made = told(story)
    assert seen == [429, "OutcomeUnknown", "OutcomeUnknown", "OutcomeUnknown", 201]
    assert [name for name in made if name != "kube-root-ca.crt"] == ["after", "soon"]


def test_requests_beyond_the_connections_wait_for_one(told):
    """Of seven requests that take five seconds each three are under way at a time."""

    async def story(api: ApiClient, cluster: DevCluster) -> Any:
        harm(cluster, match={"verbs": ["create"]}, fault={"type": "delay", "seconds": 5})
        began = cluster.core.clock.monotonic()
        await asyncio.gather(*(create(api, f"n{number}", 60) for number in range(7)))
        return round(cluster.core.clock.monotonic() - began)

    assert told(story) == 15


async def follow(api: ApiClient, seen: list[str], silence_s: float = 100) -> None:
    query = {"watch": "1", "resourceVersion": "0", "timeoutSeconds": "50"}
    try:
        async with api.stream(MAPS, query=query, read_timeout_s=silence_s) as (status, lines):
            seen.append(str(status))
            async for line in lines:
                event = json.loads(line)
                seen.append(f"{event['type']} {event['object']['metadata']['name']}")
        seen.append("over")
    except errors.ClusterUnreachable as error:
        seen.append("silent" if "too long" in str(error) else "broke")


@pytest.mark.parametrize(
    ("fault", "end"),
    [
        (None, ["200", "ADDED a", "ADDED b", "over"]),
        ({"type": "drop", "afterEvents": 1}, ["broke"]),
        ({"type": "drop", "afterEvents": 1, "clean": True}, ["200", "ADDED a", "over"]),
        ({"type": "stall", "afterEvents": 1}, ["200", "ADDED a", "silent"]),
        ({"type": "lag", "seconds": 3}, ["200", "ADDED a", "ADDED b", "over"]),
    ],
)
def test_a_watch_goes_on_until_its_time_is_over_or_a_fault_ends_it(told, fault, end):
    """Events come as they happen; the stream ends, breaks or falls silent."""

    async def story(api: ApiClient, cluster: DevCluster) -> list[str]:
        if fault is not None:
            harm(cluster, match={"verbs": ["watch"]}, fault=fault)
        seen: list[str] = []
        following = asyncio.create_task(follow(api, seen))
        for name in "ab":
            await cluster.core.clock.sleep(10)
            cluster.client.create("configmaps", json.loads(config_map(name)), "default")
        await following
        return [each for each in seen if "kube-root" not in each]

    # What had come when a connection is reset is lost or not: sockets promise nothing.
    assert told(story)[-len(end) :] == end


def test_a_restart_breaks_watches_and_nobody_answers_until_it_is_over(told):
    """Open streams break; requests are refused while the server is away, and served after."""

    async def story(api: ApiClient, cluster: DevCluster) -> list[Any]:
        seen: list[Any] = []
        following = asyncio.create_task(follow(api, seen))
        await cluster.core.clock.sleep(5)
        await cluster.restarts.restart("kept", down_s=20)
        await following
        for _ in range(2):
            try:
                seen.append(await create(api, "x"))
            except errors.ClusterUnreachable as error:
                seen.append("cannot connect" in str(error))
            await cluster.core.clock.sleep(30)
        return [each for each in seen if "kube-root" not in str(each)]

    assert told(story) == ["200", "broke", True, 201]


def test_a_restart_cuts_requests_that_are_under_way(told):
    """Whether a write that was cut off has been done cannot be known."""

    async def story(api: ApiClient, cluster: DevCluster) -> list[str]:
        harm(cluster, match={"verbs": ["create"]}, fault={"type": "delay", "seconds": 5})
        creating = asyncio.create_task(create(api, "x", 60))
        await cluster.core.clock.sleep(1)
        await cluster.restarts.restart("kept")
        with pytest.raises(errors.OutcomeUnknown):
            await creating
        await cluster.core.clock.sleep(10)
        return names(cluster)

    assert "x" not in told(story)


def test_closing_the_lines_ends_whoever_reads_them(told):
    """The reader is told that the stream broke, and the server forgets the watch."""

    async def story(api: ApiClient, cluster: DevCluster) -> Any:
        held: list[Any] = []

        async def read() -> str:
            async with api.stream(
                PODS, query={"watch": "1", "resourceVersion": "0"}, read_timeout_s=100
            ) as (_, lines):
                held.append(lines)
                try:
                    await anext(lines)
                except errors.ClusterUnreachable:
                    return "told"
            return "not told"

        reading = asyncio.create_task(read())
        await cluster.core.clock.sleep(1)
        held[0].close()
        said = await reading
        await cluster.core.clock.sleep(1)
        return said, len(cluster.core.store.collection("pods")._listeners)

    said, listeners = told(story)
    assert said == "told"
    assert listeners == told(lambda api, cluster: _listeners(cluster))


async def _listeners(cluster: DevCluster) -> int:
    await cluster.core.clock.sleep(2)
    return len(cluster.core.store.collection("pods")._listeners)
