"""Clients of a view: pages that follow it, and requests at a rate. A process of its own: ``URL TOKEN PAGES RATE SECONDS``."""

from __future__ import annotations

import asyncio
import json
import sys
import time

import aiohttp

_PATHS = ("/v1", "/v1/queues", "/v1/gangs?limit=20", "/v1/decisions")


async def _follow(session: aiohttp.ClientSession, url: str, seen: list[int]) -> None:
    async with session.get(f"{url}/v1/changes") as answer:
        async for line in answer.content:
            seen[0] += line.startswith(b"id:")


async def _ask(
    session: aiohttp.ClientSession, url: str, until: float, pause_s: float, times: list[float]
) -> None:
    number = 0
    while time.monotonic() < until:
        began = time.monotonic()
        async with session.get(url + _PATHS[number % len(_PATHS)]) as answer:
            await answer.read()
            if answer.status != 200:
                raise RuntimeError(f"{answer.status}: {await answer.text()}")
        number += 1
        times.append(time.monotonic() - began)
        await asyncio.sleep(max(0.0, pause_s - (time.monotonic() - began)))


async def _main(url: str, token: str, pages: int, rate: int, seconds: float) -> None:
    headers = {"Authorization": f"Bearer {token}"}
    workers = 32
    async with aiohttp.ClientSession(
        headers=headers, connector=aiohttp.TCPConnector(limit=0)
    ) as session:
        seen, times = [0], list[float]()
        following = [asyncio.create_task(_follow(session, url, seen)) for _ in range(pages)]
        began = time.monotonic()
        await asyncio.gather(
            *(_ask(session, url, began + seconds, workers / rate, times) for _ in range(workers))
        )
        took = time.monotonic() - began
        for task in following:
            task.cancel()
        times.sort()
        print(
            json.dumps(
                {
                    "requests_s": len(times) / took,
                    "median_s": times[len(times) // 2],
                    "p99_s": times[len(times) * 99 // 100],
                    "events": seen[0],
                }
            )
        )


if __name__ == "__main__":
    asyncio.run(
        _main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
    )
