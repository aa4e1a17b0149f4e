"""Who has much to write delays nobody else: lines by namespace, served in turn."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from gpusched.api.meta.identity import UID, ObjectKey
from gpusched.api.serializer.requests import EventNote, ObjectRef
from gpusched.base import limits
from gpusched.io.workers.work_queue import FairQueue, WorkerPool
from gpusched.io.write.events.event_recorder import EventRecorder


def taken(lines):
    """All jobs in the order in which they are served."""
    return [lines.pop() for _ in range(len(lines))]


def test_lines_are_served_in_turn():
    """Given many jobs of one tenant, then the first of another comes second."""
    lines: FairQueue[str] = FairQueue()
    for number in range(4):
        lines.add(f"a{number}", "a")
    lines.add("b0", "b")
    lines.add("b1", "b")
    lines.add_first("now")
    assert taken(lines) == ["now", "a0", "b0", "a1", "b1", "a2", "a3"]
    with pytest.raises(IndexError):
        lines.pop()


def test_a_line_that_came_back_waits_its_turn():
    """A tenant whose line ran empty gains nothing by that."""
    lines: FairQueue[str] = FairQueue()
    for job in ("a0", "b0", "b1"):
        lines.add(job, job[0])
    assert lines.pop() == "a0"
    lines.add("a1", "a")
    assert taken(lines) == ["b0", "a1", "b1"]


def test_a_pool_works_for_tenants_in_turn():
    """Given one worker and a hundred jobs of one tenant, then another's job is the second done."""
    done = []

    async def work(job):
        await asyncio.sleep(0)
        done.append(job)

    async def main():
        pool = WorkerPool(
            "p", limit=lambda: 1, work=work, on_fault=done.append, tenant=lambda job: job[0]
        )
        pool.add_all(f"a{number}" for number in range(100))
        pool.add("b0")
        await pool.wait_for_rest()

    asyncio.run(main())
    assert done.index("b0") <= 2
    assert len(done) == 101


def note(namespace, number):
    """News about a pod."""
    uid = UID(f"{namespace}-{number}")
    ref = ObjectRef("Pod", ObjectKey(namespace, f"p{number}"), uid)
    return EventNote(
        regarding=ref, type="Warning", reason="FailedScheduling", action="Scheduling",
        note=f"waits {number}",
    )  # fmt: skip


def test_events_of_others_are_not_dropped(play, monkeypatch):
    """Given more news of one tenant than there is room for, then another's are told."""
    monkeypatch.setattr(limits, "EVENT_QUEUE_MAX", 20)

    async def scenario(given):
        given.cluster.default = lambda _request, body: web.json_response(body, status=201)
        writer = EventRecorder(
            given.api, given.rate_limiter, lease=given.lease, clock=given.clock,
            telemetry=given.telemetry, instance="i", on_fault=given.faults.append,
        )  # fmt: skip
        writer.record(note("quiet", 0))
        for number in range(60):
            writer.record(note("loud", number))
        await writer.flush()
        told = [path for _, method, path, _ in given.cluster.seen if method == "POST"]
        assert sum("/namespaces/quiet/" in path for path in told) == 1
        assert sum("/namespaces/loud/" in path for path in told) == 19
        assert writer.dropped == 41
        await writer.close()

    play(scenario)


def test_pods_of_a_large_gang_take_half_of_the_queue(play, monkeypatch):
    """Given more pods that were bound than that, then news about others find room; all is forgotten."""
    monkeypatch.setattr(limits, "EVENT_QUEUE_MAX", 20)

    async def scenario(given):
        given.cluster.default = lambda _request, body: web.json_response(body, status=201)
        writer = EventRecorder(
            given.api, given.rate_limiter, lease=given.lease, clock=given.clock,
            telemetry=given.telemetry, instance="i", on_fault=given.faults.append,
        )  # fmt: skip
        for number in range(60):
            writer.record(note("large", number), once=True)
        for number in range(10):
            writer.record(note("quiet", number))
        await writer.flush()
        told = [path for _, method, path, _ in given.cluster.seen if method == "POST"]
        assert sum("/namespaces/large/" in path for path in told) == 10
        assert sum("/namespaces/quiet/" in path for path in told) == 10
        assert writer.dropped == 50
        assert all(uid.startswith("quiet") for uid in writer._objects)
        await writer.close()

    play(scenario)
