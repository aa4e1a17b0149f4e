"""Pace: full speed while the server is content, the important first when it is not."""

from __future__ import annotations

import asyncio
import random

import pytest

from gpusched.io.workers.rate_limiter import (
    BURST_BINDS,
    BURST_S,
    EVENT_PATIENCE_S,
    RATE_BURST_S,
    RATE_MIN,
    RateLimiter,
    TokenBucket,
    TrafficClass,
)
from gpusched.lab.virtual_time.loop import run_virtual


def test_the_rate_is_kept_over_any_second():
    """A burst, then the rate, never more."""
    limit = TokenBucket(100.0, now=0.0)
    taken = [t / 1000 for t in range(10_000) if limit.take(t / 1000)]
    assert len(taken) == pytest.approx(10 * 100 + 100 * RATE_BURST_S, abs=2)
    for start in range(9):
        assert sum(start <= t < start + 1 for t in taken) <= 100 + 100 * RATE_BURST_S + 1


def test_429_halves_once_a_second_and_the_rate_comes_back():
    """Sixty-four refusals of one moment halve once; the rate grows back linearly."""
    limit = TokenBucket(4000.0, now=0.0)
    assert [limit.throttled(0.0, 0.0) for _ in range(64)] == [True] + [False] * 63
    assert limit.rate == 2000
    assert limit.throttled(1.0, 0.0)
    assert limit.rate == pytest.approx((2000 + 80) / 2)
    limit.take(11.0)
    assert limit.rate == pytest.approx(1040 + 800)
    limit.take(100.0)
    assert limit.rate == 4000


def test_the_rate_has_a_floor():
    """However often the server complains, something still goes."""
    limit = TokenBucket(4000.0, now=0.0)
    for n in range(100):
        limit.throttled(float(n), 0.0)
    assert limit.rate >= RATE_MIN
    slow = TokenBucket(2.0, now=0.0)
    slow.throttled(0.0, 0.0)
    assert slow.rate == 2.0


@pytest.mark.parametrize(("asked", "paused"), [(3.0, 3.0), (0.0, 0.0), (10_000.0, 60.0)])
def test_retry_after_pauses_everything(asked, paused):
    """Nothing goes before the server's time, but a day is not believed."""
    limit = TokenBucket(1000.0, now=0.0)
    limit.throttled(0.0, asked)
    assert limit.wait_s(0.0) == pytest.approx(paused)
    assert not limit.take(paused - 0.01)
    assert limit.take(paused + 0.01)


def test_time_that_stands_or_goes_back_gives_nothing():
    """A clock that misbehaves cannot mint tokens."""
    limit = TokenBucket(20.0, now=10.0)
    assert limit.take(10.0)
    assert not limit.take(10.0)
    assert not limit.take(5.0)


def test_uncontended_turns_do_not_wait():
    """While there is room a turn is granted at once."""

    async def given(clock):
        rate_limiter = RateLimiter(clock)
        for traffic in TrafficClass:
            await rate_limiter.turn(traffic)
        return clock.monotonic(), rate_limiter.waiting

    assert run_virtual(given) == (0.0, 0)


def test_the_important_goes_first():
    """In a queue, bindings before evictions before status before events, each in order."""

    async def given(clock):
        rate_limiter = RateLimiter(clock, rate_max=10.0)
        went = []

        async def send(traffic, n):
            await rate_limiter.turn(traffic)
            went.append((traffic, n))

        await rate_limiter.turn(TrafficClass.EVENTS)
        asked = [(traffic, n) for n in range(5) for traffic in TrafficClass]
        random.Random(3).shuffle(asked)
        await asyncio.gather(*(send(*a) for a in asked))
        first = went.pop(0)
        return went == sorted(went, key=lambda w: w[0]), first, asked, clock.monotonic(), went

    ordered, _, asked, at, went = run_virtual(given)
    assert ordered
    assert at == pytest.approx(len(asked) / 10, abs=0.2)
    for traffic in TrafficClass:
        order = [n for t, n in asked if t is traffic]
        assert [n for t, n in went if t is traffic] == [n for n in order if (traffic, n) in went]


def test_events_wait_while_bindings_are_open():
    """Even with room to spare an event does not overtake a decided binding, nor delay its answer."""

    async def given(clock):
        rate_limiter = RateLimiter(clock)
        rate_limiter.binds_open(3)
        event = asyncio.create_task(rate_limiter.turn(TrafficClass.EVENTS))
        await clock.sleep(5)
        assert not event.done()
        await rate_limiter.turn(TrafficClass.STATUS)
        await rate_limiter.turn(TrafficClass.BIND)
        assert not event.done()
        rate_limiter.binds_open(0)
        await event
        return clock.monotonic()

    assert run_virtual(given) == pytest.approx(5.0, abs=0.01)


@pytest.mark.parametrize(("every_s", "told_at"), [(0.005, 2.0 + BURST_S / 2), (0.02, 0.0)])
def test_an_event_waits_for_the_end_of_a_burst(every_s, told_at):
    """Each event among 200 bindings a second would delay some; among 50 a second it does not wait."""

    async def given(clock):
        rate_limiter = RateLimiter(clock)
        for _ in range(BURST_BINDS):
            await rate_limiter.turn(TrafficClass.BIND)
            await clock.sleep(every_s)
        begun = clock.monotonic()
        told = asyncio.create_task(rate_limiter.turn(TrafficClass.EVENTS))
        at = []
        told.add_done_callback(lambda _task: at.append(clock.monotonic() - begun))
        while clock.monotonic() < begun + 2.0:
            await rate_limiter.turn(TrafficClass.BIND)
            await clock.sleep(every_s)
        await told
        await clock.sleep(0)
        return at

    assert run_virtual(given) == [pytest.approx(told_at, abs=BURST_S / 2)]


@pytest.mark.parametrize("open_binds", [0, 1])
def test_an_event_does_not_wait_for_bindings_that_never_end(open_binds):
    """After its patience it goes between two bindings, though another follows at once."""

    async def given(clock):
        rate_limiter = RateLimiter(clock)
        for _ in range(BURST_BINDS):
            await rate_limiter.turn(TrafficClass.BIND)
        rate_limiter.binds_open(open_binds)
        event = asyncio.create_task(rate_limiter.turn(TrafficClass.EVENTS))
        told_at = []
        event.add_done_callback(lambda _task: told_at.append(clock.monotonic()))
        while not told_at and clock.monotonic() < 2 * EVENT_PATIENCE_S:
            await clock.sleep(0.005)
            await rate_limiter.turn(TrafficClass.BIND)
        return told_at

    (told_at,) = run_virtual(given)
    assert told_at == pytest.approx(EVENT_PATIENCE_S, abs=0.01)


def test_a_binding_overtakes_events_that_wait():
    """It takes its turn at once, as if nothing waited."""

    async def given(clock):
        rate_limiter = RateLimiter(clock)
        rate_limiter.binds_open(1)
        event = asyncio.create_task(rate_limiter.turn(TrafficClass.EVENTS))
        await clock.sleep(1)
        await rate_limiter.turn(TrafficClass.BIND)
        at = clock.monotonic()
        event.cancel()
        return at

    assert run_virtual(given) == 1.0


def test_a_cancelled_request_gives_up_its_place():
    """Those behind it are not held up, and no token is lost on it."""

    async def given(clock):
        rate_limiter = RateLimiter(clock, rate_max=1.0)
        await rate_limiter.turn(TrafficClass.BIND)
        tasks = [asyncio.create_task(rate_limiter.turn(TrafficClass.BIND)) for _ in range(3)]
        await clock.sleep(0.1)
        tasks[0].cancel()
        tasks[1].cancel()
        await tasks[2]
        return clock.monotonic(), rate_limiter.waiting

    at, waiting = run_virtual(given)
    assert at == pytest.approx(1.0, abs=0.01)
    assert waiting == 0


def test_throttling_slows_what_waits():
    """After a 429 with Retry-After nothing goes for that long, then at half speed."""

    async def given(clock):
        rate_limiter = RateLimiter(clock, rate_max=100.0)
        for _ in range(5):
            await rate_limiter.turn(TrafficClass.BIND)
        rate_limiter.throttled(2.0)
        times = []
        for _ in range(20):
            await rate_limiter.turn(TrafficClass.BIND)
            times.append(clock.monotonic())
        return times

    times = run_virtual(given)
    assert times[0] >= 2.0
    assert 0.2 < times[-1] - times[0] < 0.5
