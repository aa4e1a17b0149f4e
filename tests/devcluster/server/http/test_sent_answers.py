"""Answers that were sent are gone: long lists must not pile up in memory."""

from __future__ import annotations

import asyncio
import tracemalloc
from urllib.parse import urlsplit

PATH = "/api/v1/namespaces/default/configmaps"
ASKED = 12


async def ask(host, port):
    """Read one list over a connection that stays open; return the connection and the length."""
    reader, writer = await asyncio.open_connection(host, port, limit=2**24)
    writer.write(f"GET {PATH} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = int(head.partition("content-length: ")[2].partition("\r")[0])
    left = length
    while left:
        left -= len(await reader.read(min(left, 2**16)))
    return writer, length


async def test_sent_lists_do_not_pile_up(http):
    """A dozen lists of two megabytes over open connections leave less than two of them behind."""
    for number in range(20):
        body = {"metadata": {"name": f"m{number}"}, "data": {"x": "y" * 100_000}}
        assert (await http.post(PATH, body)).code == 201
    where = urlsplit(http.cluster.url)
    writer, length = await ask(where.hostname, where.port)
    writer.close()
    assert length > 2_000_000
    tracemalloc.start()
    try:
        asked = [await ask(where.hostname, where.port) for _ in range(ASKED)]
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    for writer, _ in asked:
        writer.close()
    assert left < 2 * length
