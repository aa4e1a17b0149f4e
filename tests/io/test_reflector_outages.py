"""The reflector through stalls, outages and restores."""

from __future__ import annotations

import itertools
import json
import logging

import pytest
from aiohttp import web

from gpusched.base import limits


def test_the_window_ends_and_the_watch_goes_on(play, watches):
    """At the end of a window the watch is reopened at once from the last version, no list."""

    async def scenario(world, reflector, sink, clock, server):
        world.bookmark_every = 30
        await clock.sleep(20)
        world.put("c")
        await clock.sleep(300)
        opened = watches(server)
        assert 3 <= len(opened) <= 6
        assert "resourceVersion=101" in opened[1][1]
        assert sink.replaced == 1
        assert reflector.counts.reasons["window-over"] == len(opened) - 1
        assert not any(path.endswith("limit=1") for _, _, path in server.seen)
        return reflector.is_fresh(clock.monotonic())

    assert play(scenario)


def test_a_silent_stall_is_given_up(play, says, watches):
    """A stream that neither speaks nor ends is left shortly after its window, and resumed."""

    async def scenario(world, reflector, sink, clock, server):
        world.scripts = [says(then=lambda request: clock.sleep(100_000))]
        await clock.sleep(2)
        world.put("c")
        most = limits.WATCH_WINDOW_MAX_S + limits.WATCH_GRACE_S
        await clock.sleep(most + 2)
        assert sink.things["c"] == 101
        return len(watches(server)), sink.replaced

    assert play(scenario) == (2, 1)


def test_each_event_moves_the_client_limit(play, watches):
    """A stream that outlives its window but goes on speaking is not cut."""

    async def scenario(world, reflector, sink, clock, server):
        async def chatter(request, answer):
            await answer.prepare(request)
            for n in range(10):
                await clock.sleep(50)
                line = json.dumps({"type": "BOOKMARK", "rv": 101 + n})
                await answer.write(line.encode() + b"\n")
            return answer

        world.scripts = [chatter]
        await clock.sleep(490)
        return len(watches(server))

    assert play(scenario) == 1


def test_a_stream_that_closes_at_once_is_reopened_ever_more_slowly(play, caplog, says, watches):
    """No storm of requests; one log line, not one a try; recovery is said."""

    async def scenario(world, reflector, sink, clock, server):
        world.scripts = [says() for _ in range(200)]
        await clock.sleep(600)
        tries = len(watches(server))
        world.scripts = []
        await clock.sleep(60)
        world.put("c")
        await clock.sleep(1)
        assert sink.things["c"] == 101
        return tries

    with caplog.at_level(logging.INFO, logger="gpusched"):
        tries = play(scenario)
    assert 20 <= tries <= 60
    assert [r.getMessage() for r in caplog.records].count("the watch of pods ended at once") == 1
    assert [r.getMessage() for r in caplog.records].count("watch works again") == 1


def test_only_a_long_stream_resets_the_back_off(play, says, watches):
    """Waits grow over short streams and begin anew after a long one."""

    async def scenario(world, reflector, sink, clock, server):
        short = says({"type": "BOOKMARK", "rv": "100"}, then=lambda request: clock.sleep(1))
        long = says({"type": "BOOKMARK", "rv": "100"}, then=lambda request: clock.sleep(6))
        world.scripts = [short, short, short, short, long, short]
        await clock.sleep(200)
        opened = [at for at, _ in watches(server)]
        return [b - a for a, b in itertools.pairwise(opened)]

    gaps = play(scenario)
    growing = [gap - 1 for gap in gaps[:4]]
    assert all(
        limits.BACKOFF_MIN_S * 2**n / 2 <= wait <= limits.BACKOFF_MIN_S * 2**n + 0.01
        for n, wait in enumerate(growing)
    )
    assert gaps[4] == pytest.approx(6, abs=0.01)
    assert gaps[5] <= 1 + limits.BACKOFF_MIN_S + 0.01


def test_a_restored_etcd_is_noticed(play):
    """After a window of silence a lower version at the server means: start over."""

    async def scenario(world, reflector, sink, clock, server):
        await clock.sleep(2)
        world.version = 40
        world.things = {"old": 40}
        world.history = []
        await clock.sleep(limits.WATCH_WINDOW_MAX_S + 2)
        assert sink.things == {"old": 40}
        return reflector.resource_version, reflector.counts.reasons["restored"]

    assert play(scenario) == ("40", 1)


def test_a_quiet_cluster_is_not_listed_again(play, watches):
    """A window of silence costs one list of one object, no more."""

    async def scenario(world, reflector, sink, clock, server):
        await clock.sleep(400)
        lists = [path for _, _, path in server.seen if "watch=" not in path]
        singles = [path for path in lists if path.endswith("limit=1")]
        return sink.replaced, len(lists) - len(singles), len(singles) == len(watches(server)) - 1

    assert play(scenario) == (1, 1, True)


def test_server_gone_and_back(play, caplog):
    """While the server is away: stale after 30 s, one log line; back: resumed by version."""

    async def scenario(world, reflector, sink, clock, server):
        await clock.sleep(10)
        await server.stop()
        gone_at = clock.monotonic()
        await clock.sleep(limits.CACHE_STALENESS_MAX_S - 1)
        assert reflector.is_fresh(clock.monotonic())
        await clock.sleep(2)
        assert not reflector.is_fresh(clock.monotonic())
        assert "cannot connect" in reflector.error
        assert reflector.synced
        await clock.sleep(60)
        world.put("c")
        await server.start()
        await clock.sleep(limits.BACKOFF_MAX_S + 6)
        assert reflector.is_fresh(clock.monotonic())
        assert sink.things == {"a": 99, "b": 100, "c": 101}
        return sink.replaced, clock.monotonic() - gone_at

    with caplog.at_level(logging.INFO, logger="gpusched"):
        replaced, _ = play(scenario)
    assert replaced == 1
    told = [r.getMessage() for r in caplog.records]
    assert sum("cannot connect to the API server" in line for line in told) == 1
    assert told.count("watch works again") == 1


def test_server_absent_at_start(play, caplog):
    """Said once, tried for ever, ready when it comes."""

    async def scenario(world, reflector, sink, clock, server):
        await server.stop()
        await clock.sleep(120)
        assert not reflector.synced
        await server.start()
        await clock.sleep(limits.BACKOFF_MAX_S + 1)
        return reflector.synced, sink.things

    with caplog.at_level(logging.INFO, logger="gpusched"):
        assert play(scenario) == (True, {"a": 99, "b": 100})
    told = [r.getMessage() for r in caplog.records]
    assert sum("cannot connect to the API server" in line for line in told) == 1


@pytest.mark.parametrize("served", [["queues"], ["podgroups"], None])
def test_missing_crd_says_what_to_do_once(play, caplog, served):
    """A 404 on a kind of ours names the command; where discovery has none either, all goes on."""
    path = "/apis/scheduling.gpusched.io/v1alpha1/queues"
    name = "queues.scheduling.gpusched.io"

    async def scenario(world, reflector, sink, clock, server):
        async def handler(request):
            if served and request.path == "/apis/scheduling.gpusched.io/v1alpha1":
                return web.json_response({"resources": [{"name": each} for each in served]})
            return web.Response(status=404, text="404 page not found")

        server.handler = handler
        await clock.sleep(300)
        assert not reflector.synced
        assert reflector.refused == (served != ["queues"])
        return sum(f"{path}?" in seen for _, _, seen in server.seen)

    with caplog.at_level(logging.INFO, logger="gpusched"):
        tries = play(scenario, path=path, name=name)
    assert 10 <= tries <= 30
    told = [r.getMessage() for r in caplog.records]
    assert told[0] == f"{name} is not installed in this cluster: run kubectl apply -k manifests/"
    assert len(told) == (1 if served == ["queues"] else 2)
    assert all("going on without; kubectl apply -k manifests/" in each for each in told[1:])


def test_throttled_lists_wait_as_long_as_asked(play):
    """Retry-After counts when it is longer than our own wait."""

    async def scenario(world, reflector, sink, clock, server):
        async def busy(request):
            return web.Response(status=429, headers={"Retry-After": "20"}, body=b"{}")

        world.list_scripts = [busy]
        await clock.sleep(19)
        assert not reflector.synced
        await clock.sleep(2)
        return reflector.synced

    assert play(scenario)


def test_denied_once_is_no_verdict(play, says):
    """403 right after a server's restart: tried again, and fine."""

    async def scenario(world, reflector, sink, clock, server):
        async def denied(request):
            return web.Response(status=403, body=b'{"reason":"Forbidden"}')

        world.list_scripts = [denied]
        world.scripts = [says(status=403)]
        await clock.sleep(10)
        return reflector.is_fresh(clock.monotonic()), sink.replaced

    assert play(scenario) == (True, 1)
