"""Reads watches over bare sockets: ``python -m benchmarks.watch_reader HOST PORT WATCHES EVENTS``.

Says ``watching`` once every watch was answered, then, when each got its events, the monotonic
time. It only looks for ends of lines, so that the server and not the reader is measured.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any, Final

_ASK: Final = "GET /api/v1/pods?watch=1&resourceVersion={} HTTP/1.1\r\nHost: {}:{}\r\n\r\n"
_END: Final = b"}\n"


async def watch(host: str, port: int, *, version: int, events: int, ready: asyncio.Event) -> float:
    """Read one watch to so many events; returns when that was."""
    reader, writer = await asyncio.open_connection(host, port, limit=2**20)
    writer.write(_ASK.format(version, host, port).encode())
    head = await reader.readuntil(b"\r\n\r\n")
    if b" 200 " not in head.split(b"\r\n")[0]:
        raise RuntimeError(f"the watch was refused: {head!r}")
    ready.set()
    seen, tail = 0, b""
    while seen < events:
        data = await reader.read(2**18)
        if not data:
            raise RuntimeError(f"the watch ended after {seen} events")
        seen += (tail + data).count(_END)
        tail = data[-1:] if data[-1:] == b"}" else b""
    writer.close()
    return time.monotonic()


async def main(host: str, port: int, *, version: int, watches: int, events: int) -> None:
    """Watch so many times at once."""
    ready = [asyncio.Event() for _ in range(watches)]
    tasks = [
        asyncio.create_task(watch(host, port, version=version, events=events, ready=each))
        for each in ready
    ]
    watching = asyncio.gather(*(each.wait() for each in ready))
    either: list[asyncio.Future[Any]] = [watching, *tasks]
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if watching.done():
        print("watching", flush=True)
    print(max(await asyncio.gather(*tasks)), flush=True)  # a watch that was refused is told here


if __name__ == "__main__":
    to, at, since, count, wanted = sys.argv[1:]
    asyncio.run(main(to, int(at), version=int(since), watches=int(count), events=int(wanted)))
