"""The reflector: whatever the API server does, the sink ends equal to what it has."""

from __future__ import annotations

import asyncio
import itertools
import json

import pytest
from aiohttp import web

from gpusched.base import errors, limits


def test_lists_then_follows(play):
    """After the list every change arrives, with the version it brought."""

    async def scenario(world, reflector, sink, clock, server):
        assert not reflector.synced
        assert not reflector.is_fresh(clock.monotonic())
        await clock.sleep(1)
        assert reflector.synced
        assert sink.things == {"a": 99, "b": 100}
        world.put("c")
        world.delete("a")
        await clock.sleep(1)
        assert sink.things == {"b": 100, "c": 101}
        assert reflector.resource_version == "102"
        assert reflector.is_fresh(clock.monotonic())
        assert reflector.error == ""
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
        waiting = asyncio.create_task(reflector.ask_relist()())
        await clock.sleep(0.1)
        assert len(sink.things) == 2
        await waiting
        assert len(sink.things) == 600
        return reflector.counts.reasons["expired"]

    assert play(scenario) == 1


def test_a_list_that_breaks_our_own_rules_is_counted(play, monkeypatch):
    """A defect that has a name of ours is no answer of the server; the next list mends it."""

    async def scenario(world, reflector, sink, clock, server):
        faults, body = [], reflector.pages._body

        async def broken(*_):
            monkeypatch.setattr(reflector.pages, "_body", body)
            raise errors.InvariantBroken("planted")

        await clock.sleep(1)
        reflector.on_contained = lambda *fault: faults.append(fault)
        monkeypatch.setattr(reflector.pages, "_body", broken)
        world.put("c")
        await reflector.ask_relist()()
        assert sink.things == {"a": 99, "b": 100, "c": 101}
        return [(stage, str(error), kind) for stage, error, kind in faults]

    assert play(scenario) == [("following", "planted", "pods")]


@pytest.mark.parametrize(
    "gone",
    [
        {"events": [{"type": "ERROR", "code": 410, "message": "too old resource version: 1"}]},
        {"status": 410},
    ],
)
def test_410_as_event_or_status_lists_again(play, gone, says):
    """An expired version leads to a new list, in which the missed deletion shows."""

    async def scenario(world, reflector, sink, clock, server):
        world.scripts = [says(*gone.get("events", ()), status=gone.get("status"))]
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
def test_what_cannot_be_followed_lists_again(play, line, reason, says):
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


def test_unknown_event_types_are_counted_and_ignored(play, says):
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


def test_repeated_events_are_passed_on(play, says):
    """The same version twice is no disorder: the sink is idempotent."""

    async def scenario(world, reflector, sink, clock, server):
        event = {"type": "MODIFIED", "name": "b", "rv": "101"}
        world.scripts = [says(event, event, then=lambda request: clock.sleep(50))]
        await clock.sleep(3)
        return sink.applied, sink.replaced

    assert play(scenario) == ([("MODIFIED", "b")] * 2, 1)


def test_relist_waits_for_a_list_begun_later(play):
    """What ``relist`` returns after was listed after the call, even in mid-window."""

    async def scenario(world, reflector, sink, clock, server):
        await clock.sleep(5)
        world.things["unseen"] = 100
        began = clock.monotonic()
        await reflector.ask_relist()()
        assert "unseen" in sink.things
        await reflector.ask_relist()()
        return sink.replaced, clock.monotonic() - began

    replaced, took = play(scenario)
    assert replaced == 3
    assert took < 0.01


def test_too_many_objects_are_refused_not_cut(play, monkeypatch):
    """Half a list would overbook nodes: nothing is synced, and the sentence has the bound."""
    monkeypatch.setattr(limits, "OBJECTS_PER_KIND_MAX", 1)

    async def scenario(world, reflector, sink, clock, server):
        await clock.sleep(5)
        return reflector.synced, reflector.error

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
        assert "the list of pods cannot be read" in reflector.error
        await clock.sleep(2)
        return reflector.synced

    assert play(scenario)


def test_the_loop_gets_its_turn_in_a_flood(play, says):
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


@pytest.mark.parametrize("kind", [KeyError, errors.InvariantBroken])
def test_faults_of_the_sink_are_told_and_all_is_listed_again(play, caplog, kind):
    """A defect behind the sink ends no daemon: what it kept from the sink comes with the next list."""

    async def scenario(world, reflector, sink, clock, server):
        original = sink.replace

        def broken(items):
            sink.replace = original
            raise kind("a defect")

        await clock.sleep(1)
        sink.replace = broken
        await reflector.ask_relist()()
        assert not reflector.task.done()
        assert reflector.synced

    play(scenario)
    assert any("a defect" in getattr(each, "gpusched_dump", "") for each in caplog.records)
