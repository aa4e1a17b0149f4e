"""A watch that its reader leaves unread for too long ends with 410, as on a real server."""

from __future__ import annotations

import asyncio
import json

from gpusched.devcluster.storage import store

MAPS = "/api/v1/namespaces/default/configmaps"
WRITES = 400
KEPT = 20


async def test_a_reader_that_fell_behind_is_told_to_list_again(cluster, http, monkeypatch):
    """What it gets has no gap: the events in order up to some version, then one ERROR, the end."""
    monkeypatch.setattr(store, "HISTORY_PER_KIND_MAX", KEPT)
    host, port = cluster.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=2**16)
    writer.write(
        f"GET {MAPS}?watch=1&resourceVersion=0 HTTP/1.0\r\nHost: localhost\r\n\r\n".encode()
    )
    await reader.readuntil(b"\r\n\r\n")
    body = {"metadata": {"name": "m"}, "data": {"a": "x" * 100_000}}
    made = (await http.post(MAPS, body)).body
    for number in range(WRITES):
        cluster.client.patch("configmaps", "default", "m", {"data": {"n": str(number)}})
        await asyncio.sleep(0)  # the watch may write until its reader's buffers are full
    text = b""
    while data := await reader.read(2**16):
        text += data
    writer.close()
    events = [json.loads(line) for line in text.splitlines()]
    assert (events[-1]["type"], events[-1]["object"]["code"]) == ("ERROR", 410)
    assert "too old resource version" in events[-1]["object"]["message"]
    versions = [int(e["object"]["metadata"]["resourceVersion"]) for e in events[:-1]]
    first = int(made["metadata"]["resourceVersion"])
    assert versions == list(range(first, first + len(versions)))
    assert len(versions) < WRITES
