"""Virtual time: it jumps when all is idle, and only then."""

from __future__ import annotations

import asyncio
import time

import pytest
from aiohttp import ClientSession, ClientTimeout, web

from gpusched.base.clock import EPOCH, LoopClock
from gpusched.lab.virtual_time.loop import Deadlock, TimeLimitExceeded, run_virtual


def test_an_idle_hour_takes_no_time():
    """Sleeping advances both clocks by exactly what was asked."""

    async def given(clock: LoopClock) -> tuple[float, float]:
        await clock.sleep(3600)
        return clock.monotonic(), clock.now()

    assert run_virtual(given) == (3600.0, EPOCH + 3600)


def test_equal_deadlines_fire_in_order_of_scheduling():
    """A hundred timers with one deadline keep their order."""
    fired: list[int] = []

    async def given(clock: LoopClock) -> None:
        loop = asyncio.get_running_loop()
        for number in range(100):
            loop.call_at(5.0, fired.append, number)
        loop.call_at(4.0, fired.append, -1)
        await clock.sleep(6)

    run_virtual(given)
    assert [-1, *range(100)] == fired


def test_cancelled_timers_do_not_fire():
    """A cancelled timer leaves time to the next one."""
    fired: list[str] = []

    async def given(clock: LoopClock) -> float:
        loop = asyncio.get_running_loop()
        loop.call_later(1.0, fired.append, "cancelled").cancel()
        await clock.sleep(2)
        return clock.monotonic()

    assert run_virtual(given) == 2.0
    assert fired == []


def test_a_wait_beyond_a_day_arrives():
    """Asyncio clamps one wait to 24 hours; three days still end after three days."""

    async def given(clock: LoopClock) -> float:
        await clock.sleep(3 * 86_400)
        return clock.monotonic()

    assert run_virtual(given, limit_s=1e9) == 3 * 86_400


def test_nobody_to_wake_anyone_is_a_deadlock():
    """When all wait and no timer is set, the run fails and names the tasks."""

    async def stuck(clock: LoopClock) -> None:
        task = asyncio.create_task(asyncio.Event().wait(), name="waits-for-godot")
        await task

    with pytest.raises(Deadlock, match="waits-for-godot"):
        run_virtual(stuck)


def test_a_run_that_never_ends_is_reported():
    """A heartbeat alone does not keep a test alive for ever."""

    async def beats(clock: LoopClock) -> None:
        while True:
            await clock.sleep(10)

    with pytest.raises(TimeLimitExceeded, match="virtual seconds"):
        run_virtual(beats, limit_s=100)


def test_time_stands_still_while_an_executor_works():
    """A thread's work takes no virtual time, whatever timers wait."""

    async def given(clock: LoopClock) -> tuple[str, float]:
        timer = asyncio.create_task(clock.sleep(1000))
        answer = await asyncio.get_running_loop().run_in_executor(None, _slow)
        at = clock.monotonic()
        timer.cancel()
        return answer, at

    assert run_virtual(given) == ("done", 0.0)


def _slow() -> str:
    time.sleep(0.12)
    return "done"


async def _serve(handler) -> tuple[web.AppRunner, str]:
    app = web.Application()
    app.router.add_get("/", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}/"


def test_server_and_client_share_virtual_time():
    """Over loopback the answer arrives at the very moment at which the server gave it."""

    async def given(clock: LoopClock) -> list[tuple[str, float]]:
        async def handler(_request: web.Request) -> web.StreamResponse:
            await clock.sleep(30)
            return web.Response(text="x" * 500_000)

        runner, url = await _serve(handler)
        seen = []
        async with ClientSession() as session:
            for _ in range(5):
                async with session.get(url) as answer:
                    seen.append((len(await answer.text()), clock.monotonic()))
        await runner.cleanup()
        return seen

    assert [(500_000, 30.0 * n) for n in range(1, 6)] == run_virtual(given)


def test_a_client_timeout_is_virtual():
    """A server that never answers is given up after the virtual timeout."""

    async def given(clock: LoopClock) -> float:
        async def handler(_request: web.Request) -> web.StreamResponse:
            await clock.sleep(10_000)
            raise AssertionError

        runner, url = await _serve(handler)
        async with ClientSession() as session:
            with pytest.raises(TimeoutError):
                await session.get(url, timeout=ClientTimeout(total=4.0))
        at = clock.monotonic()
        await runner.cleanup()
        return at

    assert run_virtual(given) == pytest.approx(4.0)


def test_two_runs_are_identical():
    """The same program gives the same trace, request by request."""

    async def given(clock: LoopClock) -> list[tuple[int, float]]:
        async def handler(request: web.Request) -> web.StreamResponse:
            await clock.sleep(float(request.query["s"]))
            return web.Response(text=request.query["n"])

        runner, url = await _serve(handler)
        trace = []
        async with ClientSession() as session:

            async def ask(n: int) -> None:
                async with session.get(url, params={"n": str(n), "s": str(n % 3)}) as answer:
                    trace.append((int(await answer.text()), clock.monotonic()))

            await asyncio.gather(*(ask(n) for n in range(20)))
        await runner.cleanup()
        return trace

    first = run_virtual(given)
    assert len(first) == 20
    assert first == run_virtual(given)
