"""Pause, step, resume, rate: by the clock itself and through the endpoints."""

import asyncio

import aiohttp
import pytest

from gpusched.devcluster.cluster import ClusterOptions, start
from gpusched.devcluster.control.adjustable_clock import AdjustableClock


class Hand:
    """Real seconds as the test moves them."""

    at = 0.0

    def __call__(self):
        """Now."""
        return self.at


async def sleeper(clock, seconds, log, name, again=0.0):
    await clock.sleep(seconds)
    log.append((name, clock.monotonic()))
    if again:
        await clock.sleep(again)
        log.append((name, clock.monotonic()))


async def test_a_step_plays_all_moments_in_order():
    """Sleepers wake by moment, equal ones by arrival, and what one begins comes in its turn."""
    clock, log = AdjustableClock(paused=True), []
    async with asyncio.TaskGroup() as group:
        for name, seconds, again in [("c", 3, 0), ("a", 1, 1.5), ("b", 3, 0), ("late", 10, 0)]:
            group.create_task(sleeper(clock, seconds, log, name, again))
        assert await clock.step(5) == 4
        assert log == [("a", 1), ("a", 2.5), ("c", 3), ("b", 3)]
        assert clock.monotonic() == 5
        assert clock.sleepers == 1
        await clock.step(5)
    assert log[-1] == ("late", 10)


async def test_a_pause_holds_every_sleep_and_a_resume_goes_on_from_there():
    """No sleep ends while the clock stands still, however much real time passes."""
    hand, log = Hand(), []
    clock = AdjustableClock(2.0, real=hand)
    task = asyncio.create_task(sleeper(clock, 1e-3, log, "a"))
    await asyncio.sleep(0)
    clock.pause()
    hand.at = 1000.0
    await asyncio.sleep(0.01)
    assert (log, clock.monotonic()) == ([], 0.0)
    clock.resume()
    hand.at = 1001.0
    await task
    assert log == [("a", 2.0)]


async def test_a_rate_counts_from_the_moment_it_is_set():
    """What has passed is not measured again at the new rate."""
    hand = Hand()
    clock = AdjustableClock(real=hand)
    hand.at = 10.0
    clock.set_rate(60.0)
    hand.at = 11.0
    assert clock.monotonic() == 70.0


async def test_sleeps_that_were_given_up_leave_no_trace():
    """A thousand cancelled sleeps hold no place."""
    clock = AdjustableClock(paused=True)
    tasks = [asyncio.create_task(clock.sleep(1e6)) for _ in range(1000)]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert len(clock._heap) <= 1


async def test_the_endpoints_move_the_cluster(api):
    """now, elapsed time and creation times follow steps; a step while running is refused."""
    before = await api.control("GET", "clock")
    assert before == {
        "now": "2026-01-01T00:00:00.000000Z",
        "elapsedSeconds": 0,
        "rate": 1,
        "paused": True,
        "sleepers": before["sleepers"],
    }
    stepped = await api.control("POST", "clock/step", {"seconds": 3600})
    assert stepped["now"] == "2026-01-01T01:00:00.000000Z"
    _, made = await api.make("a")
    assert made["metadata"]["creationTimestamp"] == "2026-01-01T01:00:00Z"
    assert (await api.control("POST", "clock/rate", {"rate": 50}))["rate"] == 50
    assert (await api.control("POST", "clock/resume"))["paused"] is False
    code, refusal = await api.send("POST", "/devcluster/clock/step", {"seconds": 1})
    assert (code, refusal["message"]) == (400, "the clock runs; pause it before stepping it")
    assert (await api.control("POST", "clock/pause"))["paused"] is True


async def test_a_step_drives_controllers_and_ends_watches(api):
    """A watch's timeout and its bookmarks are moments of the cluster's clock."""
    async with api.watch("&timeoutSeconds=150&allowWatchBookmarks=true") as stream:
        await api.control("POST", "clock/step", {"seconds": 200})
        lines = (await stream.content.read()).splitlines()
    bookmarks = [line for line in lines if b'"type":"BOOKMARK"' in line]
    assert len(bookmarks) == 2


@pytest.mark.parametrize(
    ("path", "body", "why"),
    [
        ("clock/step", {}, "seconds must be a number from 0 to 604800"),
        ("clock/step", {"seconds": "1"}, "seconds must be a number from 0 to 604800"),
        ("clock/step", {"seconds": 1, "x": 1}, "'x' is no known key; known: seconds"),
        ("clock/rate", {"rate": 0}, "rate must be above 0; pause the clock to stop it"),
        ("clock/rate", {"rate": True}, "rate must be a number from 0 to 1000"),
        ("clock/pause", [1], "the body must be a JSON object"),
        ("restart", {"memory": "some"}, "memory must be one of kept, cut, empty, snapshot"),
        ("snapshots", {"name": "a/b"}, "name must be a text of 1 to 64 characters without /"),
    ],
)
async def test_bad_input_gets_one_sentence(api, path, body, why):
    """400, and what would have been right."""
    code, answer = await api.send("POST", f"/devcluster/{path}", body)
    assert (code, answer["message"]) == (400, why)


async def test_only_an_administrator_controls(api):
    """A user without rights gets 403; unknown paths and methods are named."""
    code, _ = await api.send("GET", "/devcluster/clock", token="usertoken")
    assert code == 403
    code, answer = await api.send("GET", "/devcluster/clock/pause")
    assert (code, answer["message"]) == (405, "/devcluster/clock/pause takes POST, not GET")
    assert (await api.send("GET", "/devcluster/weather"))[0] == 404


async def test_a_clock_of_the_program_is_not_ours_to_move():
    """Virtual time belongs to the loop: the endpoints tell it and refuse to change it."""
    cluster = await start(ClusterOptions(stages=False, controllers=False))
    try:
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{cluster.url}/devcluster/clock") as answer:
                assert set(await answer.json()) == {"now", "elapsedSeconds"}
            async with session.post(f"{cluster.url}/devcluster/clock/pause") as answer:
                assert answer.status == 400
    finally:
        await cluster.close()
