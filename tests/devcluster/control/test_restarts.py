"""Restarts: what connections, versions, watches and controllers see of each kind."""

import asyncio
import json

import aiohttp
import pytest

from .conftest import MAPS, event

GONE = (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, aiohttp.ClientPayloadError)


async def version(api):
    _, body = await api.send("GET", MAPS)
    return int(body["metadata"]["resourceVersion"])


async def test_memory_kept(api):
    """Connections drop; a watch goes on from its last version and misses nothing."""
    at = await version(api)
    async with api.watch(f"&resourceVersion={at}") as stream:
        await api.make("a")
        await event(stream)
        await api.control("POST", "restart", {"memory": "kept"})
        with pytest.raises(GONE):
            await stream.content.read()
    await api.make("b")
    async with api.watch(f"&resourceVersion={at}") as stream:
        names = [(await event(stream))["object"]["metadata"]["name"] for _ in range(2)]
    assert names == ["a", "b"]


async def test_watch_window_cut(api):
    """An old version is Expired for a watch, as after the start of a real server."""
    at = await version(api)
    await api.make("a")
    await api.control("POST", "restart", {"memory": "cut"})
    async with api.watch(f"&resourceVersion={at}") as stream:
        assert (await event(stream))["object"]["reason"] == "Expired"
    assert "a" in await api.names()


async def test_the_window_is_cut_under_open_watches(api):
    """``expire`` cuts no connection: what is open goes on, what begins at an old version fails."""
    at = await version(api)
    async with api.watch(f"&resourceVersion={at}") as stream:
        await api.make("a")
        await api.control("POST", "expire")
        assert (await event(stream))["type"] == "ADDED"
    async with api.watch(f"&resourceVersion={at}") as stream:
        assert (await event(stream))["object"]["code"] == 410


async def test_memory_lost(api):
    """As a new cluster: versions begin again, uids are new, own definitions are there."""
    await api.make("a")
    _, old = await api.send("GET", "/api/v1/namespaces/kube-system")
    high = await version(api)
    await api.control("POST", "restart", {"memory": "empty"})
    assert "a" not in await api.names()
    assert await version(api) < high
    _, new = await api.send("GET", "/api/v1/namespaces/kube-system")
    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    _, crds = await api.send("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
    kinds = [c["spec"]["names"]["plural"] for c in crds["items"]]
    assert kinds
    group = crds["items"][0]["spec"]["group"]
    assert (await api.send("GET", f"/apis/{group}"))[0] == 200
    async with api.watch(f"&resourceVersion={high}") as stream:  # a version of the future
        await api.make("b")
        assert stream.status == 200


async def test_an_older_state_restored(api):
    """Objects, versions and the served custom kinds are those of the snapshot."""
    await api.make("a")
    taken = await api.control("POST", "snapshots", {"name": "before"})
    assert taken == {"snapshots": [{"name": "before", "resourceVersion": str(await version(api))}]}
    await api.make("b")
    await api.send("DELETE", f"{MAPS}/a")
    again = await api.control("POST", "restart", {"memory": "snapshot", "snapshot": "before"})
    assert again["resourceVersion"] == taken["snapshots"][0]["resourceVersion"]
    names = await api.names()
    assert "a" in names
    assert "b" not in names
    _, made = await api.make("c")
    assert int(made["metadata"]["resourceVersion"]) == int(again["resourceVersion"]) + 1
    code, answer = await api.send(
        "POST", "/devcluster/restart", {"memory": "snapshot", "snapshot": "no"}
    )
    assert (code, answer["message"]) == (404, "there is no snapshot 'no'")
    assert await api.control("DELETE", "snapshots/before") == {"snapshots": []}


async def test_controllers_work_after_a_restored_state(api, cluster):
    """They begin anew with what is stored: a namespace that goes takes its objects with it."""
    await api.control("POST", "snapshots", {"name": "s"})
    await api.control("POST", "restart", {"memory": "snapshot", "snapshot": "s"})
    await api.send("POST", "/api/v1/namespaces", {"metadata": {"name": "n"}})
    path = "/api/v1/namespaces/n/configmaps"
    await api.send("POST", path, {"metadata": {"name": "a"}})
    await api.send("DELETE", "/api/v1/namespaces/n")
    async with asyncio.timeout(30):
        while (await api.send("GET", "/api/v1/namespaces/n"))[0] != 404:
            await api.control("POST", "clock/step", {"seconds": 1})
    assert (await api.send("GET", f"{path}/a"))[0] == 404


async def test_down_for_a_while(api):
    """Nobody listens meanwhile, then the same port answers again, paused clock or not."""
    answer = await api.control("POST", "restart", {"downSeconds": 0.2})
    assert json.dumps(answer)
    with pytest.raises(aiohttp.ClientConnectorError):
        await api.names()
    async with asyncio.timeout(30):
        while True:
            try:
                await api.names()
                break
            except aiohttp.ClientConnectorError:
                await asyncio.sleep(0.02)
