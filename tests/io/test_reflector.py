"""The reflector: whatever the API server does, the sink ends equal to what it has."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import random
from collections import Counter

import attrs
import pytest
from aiohttp import web

from gpusched import errors, limits
from gpusched.io.reflector import KindSpec, Reflector
from gpusched.simulate.loop import run_virtual

PATH = "/api/v1/pods"


@attrs.frozen
class Thing:
    """An item."""

    name: str
    version: int


@attrs.frozen
class Page:
    """One page."""

    items: tuple[Thing, ...]
    resource_version: str
    continue_token: str


@attrs.frozen
class Event:
    """One event."""

    type: str
    item: Thing | None = None
    resource_version: str = ""
    code: int = 0
    message: str = ""


class JsonCodec:
    """The least that a codec does."""

    def decode_page(self, body):
        """See ``Codec``."""
        page = json.loads(body)
        return Page(tuple(Thing(*item) for item in page["items"]), page["rv"], page["continue"])

    def decode_event(self, line):
        """See ``Codec``."""
        event = json.loads(line)
        if "name" in event:
            event["item"] = Thing(event.pop("name"), int(event["rv"]))
        event["resource_version"] = str(event.pop("rv", ""))
        return Event(**event)


class DictSink:
    """Holds what the reflector said."""

    def __init__(self):
        self.things: dict[str, int] = {}
        self.replaced = 0
        self.applied: list[tuple[str, str]] = []

    def replace(self, items):
        """See ``Sink``."""
        self.things = {item.name: item.version for item in items}
        self.replaced += 1

    def apply(self, event_type, item):
        """See ``Sink``."""
        self.applied.append((event_type, item.name))
        if event_type == "DELETED":
            self.things.pop(item.name, None)
        else:
            self.things[item.name] = item.version


class Counts:
    """Telemetry of a test."""

    def __init__(self):
        self.relists = 0
        self.reasons: Counter[str] = Counter()

    def relisted(self, resource):
        """See ``WatchTelemetry``."""
        self.relists += 1

    def watch_transition(self, resource, reason):
        """See ``WatchTelemetry``."""
        self.reasons[reason] += 1


class World:
    """A collection with a version and a history; watches are played as scripted.

    ``scripts`` holds one async function a watch, in order; when they run out a watch follows
    the history until its window is over.
    """

    def __init__(self, clock):
        self.clock = clock
        self.version = 100
        self.things: dict[str, int] = {}
        self.history: list[dict] = []
        self.scripts: list = []
        self.list_scripts: list = []
        self.changed = asyncio.Event()
        self.bookmark_every: float | None = None

    def put(self, name):
        """Create or change."""
        self.version += 1
        kind = "MODIFIED" if name in self.things else "ADDED"
        self.things[name] = self.version
        self._log({"type": kind, "name": name, "rv": self.version})

    def delete(self, name):
        """Remove."""
        self.version += 1
        del self.things[name]
        self._log({"type": "DELETED", "name": name, "rv": self.version})

    def _log(self, event):
        self.history.append(event)
        self.changed.set()
        self.changed = asyncio.Event()

    async def handler(self, request):
        """Answer a list or a watch."""
        assert request.path == PATH
        assert request.query["labelSelector"] == "x"
        if "watch" in request.query:
            answer = web.StreamResponse()
            script = self.scripts.pop(0) if self.scripts else self.follow
            return await script(request, answer) or answer
        if self.list_scripts:
            answer = await self.list_scripts.pop(0)(request)
            if answer is not None:
                return answer
        assert "resourceVersion" not in request.query
        return self.page(request)

    def page(self, request):
        """One page of what there is."""
        start = int(request.query.get("continue", 0))
        limit = int(request.query["limit"])
        names = sorted(self.things)
        more = str(start + limit) if start + limit < len(names) else ""
        items = [[n, self.things[n]] for n in names[start : start + limit]]
        return web.json_response({"items": items, "rv": str(self.version), "continue": more})

    async def follow(self, request, answer):
        """An honest watch."""
        assert request.query["allowWatchBookmarks"] == "true"
        window = float(request.query["timeoutSeconds"])
        assert limits.WATCH_WINDOW_MIN_S <= window <= limits.WATCH_WINDOW_MAX_S
        until = self.clock.monotonic() + window
        sent = int(request.query["resourceVersion"])
        await answer.prepare(request)
        while (left := until - self.clock.monotonic()) > 0:
            news = [e for e in self.history if e["rv"] > sent]
            for event in news:
                await answer.write(json.dumps(event).encode() + b"\n")
                sent = event["rv"]
            try:
                async with asyncio.timeout(min(left, self.bookmark_every or left)):
                    await self.changed.wait()
            except TimeoutError:
                if self.bookmark_every:
                    await answer.write(
                        json.dumps({"type": "BOOKMARK", "rv": sent}).encode() + b"\n"
                    )
        return answer


def says(*events, then=None, status=None):
    """A watch that sends these events and ends, or goes on as ``then`` says."""

    async def script(request, answer):
        if status is not None:
            return web.Response(status=status, body=b'{"message":"no","code":%d}' % status)
        await answer.prepare(request)
        for event in events:
            line = event if isinstance(event, bytes) else json.dumps(event).encode()
            await answer.write(line + b"\n")
        if then is not None:
            await then(request)
        return answer

    return script


@pytest.fixture
def play(fake_server):
    """Run a scenario ``async def scenario(world, reflector, sink, clock, server)``."""

    def run(scenario, *, path=PATH, name="pods"):
        async def main(clock):
            server = await fake_server(clock).start()
            world = World(clock)
            server.handler = world.handler
            api = await server.api()
            sink, counts = DictSink(), Counts()
            reflector = Reflector(
                api,
                KindSpec(name, path, {"labelSelector": "x"}),
                codec=JsonCodec(),
                sink=sink,
                clock=clock,
                rng=random.Random(7),
                telemetry=counts,
            )
            reflector.counts = counts
            world.things = {"a": 99, "b": 100}
            task = asyncio.create_task(reflector.run())
            try:
                return await scenario(world, reflector, sink, clock, server)
            finally:
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                await api.close()
                await server.stop()

        return run_virtual(main)

    return run


def watches(server):
    return [(at, path) for at, _, path in server.seen if "watch=" in path]


def test_lists_then_follows(play):
    """After the list every change arrives, with the version it brought."""

    async def scenario(world, reflector, sink, clock, server):
        assert not reflector.synced
        assert not reflector.fresh(clock.monotonic())
        await clock.sleep(1)
        assert reflector.synced
        assert sink.things == {"a": 99, "b": 100}
        world.put("c")
        world.delete("a")
        await clock.sleep(1)
        assert sink.things == {"b": 100, "c": 101}
        assert reflector.resource_version == "102"
        assert reflector.fresh(clock.monotonic())
        assert reflector.trouble == ""
        return sink.replaced

    assert play(scenario) == 1


def test_pages_are_one_replacement(play):
    """A list of several pages reaches the sink once, complete."""

    async def scenario(world, reflector, sink, clock, server):
        world.things = {f"p{n:05}": n for n in range(1201)}
        await clock.sleep(1)
        assert sink.replaced == 1
        assert len(sink.things) == 1201
        return server.count("limit=500"), server.count("continue=")

    assert play(scenario) == (3, 2)


def test_a_list_broken_off_changes_nothing(play):
    """When a later page fails, for whatever reason, the sink keeps what it had."""

    async def scenario(world, reflector, sink, clock, server):
        async def none(request):
            return None

        async def expired(request):
            return web.Response(status=410, body=b'{"code":410,"reason":"Expired"}')

        await clock.sleep(1)
        world.things = {f"p{n:05}": n for n in range(600)}
        world.list_scripts = [none, expired]
        world.scripts = []
        waiting = asyncio.create_task(reflector.relist())
        await clock.sleep(0.1)
        assert len(sink.things) == 2
        await waiting
        assert len(sink.things) == 600
        return reflector.counts.reasons["expired"]

    assert play(scenario) == 1


@pytest.mark.parametrize(
    "gone",
    [
        says({"type": "ERROR", "code": 410, "message": "too old resource version: 1 (507)"}),
        says(status=410),
    ],
)
def test_410_as_event_or_status_lists_again(play, gone):
    """An expired version leads to a new list, in which the missed deletion shows."""

    async def scenario(world, reflector, sink, clock, server):
        world.scripts = [gone]
        await asyncio.sleep(0.05)
        world.delete("a")
        world.put("z")
        await clock.sleep(5)
        assert sink.things == {"b": 100, "z": 102}
        return sink.replaced, reflector.counts.reasons["expired"], reflector.counts.relists

    assert play(scenario) == (2, 1, 1)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"type":', "bad-line"),
        (b"\xff\xfe", "bad-line"),
        ({"type": "ADDED", "rv": "105"}, "bad-line"),
        ({"type": "ADDED", "name": "q", "rv": "7"}, "disorder"),
        ({"type": "BOOKMARK", "rv": "7"}, "disorder"),
        ({"type": "BOOKMARK"}, "disorder"),
        ({"type": "ERROR", "code": 500, "message": "PrevKv=nil"}, "error-event"),
        (b"x" * (limits.WATCH_LINE_MAX + 1), "line-too-long"),
    ],
)
def test_what_cannot_be_followed_lists_again(play, line, reason):
    """A bad, disordered or oversized event is never skipped: the kind is listed again."""

    async def scenario(world, reflector, sink, clock, server):
        async def script(request, answer):
            world.things["c"] = 101
            world.version = 104
            return await says({"type": "ADDED", "name": "c", "rv": "101"}, line)(request, answer)

        world.scripts = [script]
        await clock.sleep(3)
        assert sink.things == {"a": 99, "b": 100, "c": 101}
        assert sink.applied == [("ADDED", "c")]
        return sink.replaced, reflector.counts.reasons[reason]

    assert play(scenario) == (2, 1)


def test_unknown_event_types_are_counted_and_ignored(play):
    """A word of the future does not end the stream."""

    async def scenario(world, reflector, sink, clock, server):
        world.scripts = [
            says(
                {"type": "NOVELTY", "rv": "101"},
                {"type": "ADDED", "name": "c", "rv": "102"},
                then=lambda request: clock.sleep(50),
            )
        ]
        await clock.sleep(3)
        assert sink.things["c"] == 102
        return sink.replaced, reflector.counts.reasons["unknown-event"]

    assert play(scenario) == (1, 1)


def test_repeated_events_are_passed_on(play):
    """The same version twice is no disorder: the sink is idempotent."""

    async def scenario(world, reflector, sink, clock, server):
        event = {"type": "MODIFIED", "name": "b", "rv": "101"}
        world.scripts = [says(event, event, then=lambda request: clock.sleep(50))]
        await clock.sleep(3)
        return sink.applied, sink.replaced

    assert play(scenario) == ([("MODIFIED", "b")] * 2, 1)


def test_the_window_ends_and_the_watch_goes_on(play):
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
        return reflector.fresh(clock.monotonic())

    assert play(scenario)


def test_a_silent_stall_is_given_up(play):
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


def test_each_event_moves_the_client_limit(play):
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


def test_a_stream_that_closes_at_once_is_reopened_ever_more_slowly(play, caplog):
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


def test_only_a_long_stream_resets_the_back_off(play):
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


def test_a_quiet_cluster_is_not_listed_again(play):
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
        await clock.sleep(limits.STALENESS_MAX_S - 1)
        assert reflector.fresh(clock.monotonic())
        await clock.sleep(2)
        assert not reflector.fresh(clock.monotonic())
        assert "cannot connect" in reflector.trouble
        assert reflector.synced
        await clock.sleep(60)
        world.put("c")
        await server.start()
        await clock.sleep(limits.BACKOFF_MAX_S + 6)
        assert reflector.fresh(clock.monotonic())
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


def test_missing_crd_says_what_to_do_once(play, caplog):
    """A 404 on a kind of ours names the command; after that command it works."""
    path = "/apis/scheduling.gpusched.io/v1alpha1/queues"
    name = "queues.scheduling.gpusched.io"

    async def scenario(world, reflector, sink, clock, server):
        async def handler(request):
            return web.Response(status=404, text="404 page not found")

        server.handler = handler
        await clock.sleep(300)
        assert not reflector.synced
        return len(server.seen)

    with caplog.at_level(logging.INFO, logger="gpusched"):
        tries = play(scenario, path=path, name=name)
    assert 10 <= tries <= 30
    told = [r.getMessage() for r in caplog.records]
    assert told == [f"{name} is not installed in this cluster: run kubectl apply -k manifests/"]


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


def test_denied_once_is_no_verdict(play):
    """403 right after a server's restart: tried again, and fine."""

    async def scenario(world, reflector, sink, clock, server):
        async def denied(request):
            return web.Response(status=403, body=b'{"reason":"Forbidden"}')

        world.list_scripts = [denied]
        world.scripts = [says(status=403)]
        await clock.sleep(10)
        return reflector.fresh(clock.monotonic()), sink.replaced

    assert play(scenario) == (True, 1)


def test_relist_waits_for_a_list_begun_later(play):
    """What ``relist`` returns after was listed after the call, even in mid-window."""

    async def scenario(world, reflector, sink, clock, server):
        await clock.sleep(5)
        world.things["unseen"] = 100
        began = clock.monotonic()
        await reflector.relist()
        assert "unseen" in sink.things
        await reflector.relist()
        return sink.replaced, clock.monotonic() - began

    replaced, took = play(scenario)
    assert replaced == 3
    assert took < 0.01


def test_too_many_objects_are_refused_not_cut(play, monkeypatch):
    """Half a list would overbook nodes: nothing is synced, and the sentence has the bound."""
    monkeypatch.setattr(limits, "OBJECTS_PER_KIND_MAX", 1)

    async def scenario(world, reflector, sink, clock, server):
        await clock.sleep(5)
        return reflector.synced, reflector.trouble

    synced, trouble = play(scenario)
    assert not synced
    assert trouble == "there are more than 1 pods, which is as many as gpusched holds"


def test_a_bad_list_is_named(play):
    """A list body that is no list keeps the kind unsynced, with a reason."""

    async def scenario(world, reflector, sink, clock, server):
        async def garbage(request):
            return web.Response(text="<html>")

        world.list_scripts = [garbage]
        await clock.sleep(0.1)
        assert not reflector.synced
        assert "the list of pods cannot be read" in reflector.trouble
        await clock.sleep(2)
        return reflector.synced

    assert play(scenario)


def test_the_loop_gets_its_turn_in_a_flood(play):
    """Thousands of queued events do not keep other tasks from running."""

    async def scenario(world, reflector, sink, clock, server):
        flood = [{"type": "ADDED", "name": f"n{n}", "rv": 101 + n} for n in range(4000)]
        lines = b"\n".join(json.dumps(e).encode() for e in flood)
        world.scripts = [says(lines, then=lambda request: clock.sleep(50))]
        seen = [0]
        while len(sink.applied) < 4000:
            seen.append(len(sink.applied))
            await asyncio.sleep(0)
        seen.append(len(sink.applied))
        return max(b - a for a, b in itertools.pairwise(seen))

    assert play(scenario) <= limits.WATCH_EVENTS_PER_TURN


def test_faults_of_the_sink_are_not_swallowed(fake_server):
    """A bug behind the sink ends the task with its story; it is no stream failure."""

    class Broken(DictSink):
        def replace(self, items):
            raise errors.InvariantBroken("told so")

    async def main(clock):
        server = await fake_server(clock).start()
        world = World(clock)
        server.handler = world.handler
        api = await server.api()
        reflector = Reflector(
            api,
            KindSpec("pods", PATH, {"labelSelector": "x"}),
            codec=JsonCodec(),
            sink=Broken(),
            clock=clock,
            rng=random.Random(7),
            telemetry=Counts(),
        )
        with pytest.raises(errors.InvariantBroken, match="told so"):
            await reflector.run()
        await api.close()
        await server.stop()

    run_virtual(main)
