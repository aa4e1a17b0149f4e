"""A leader that is stopped, as by SIGSTOP or a suspended machine, and wakes under a successor.

Decisions are functions of the cluster, so the successor's plan may be equal to the leader's own,
its id too: only the fence tells whose binding a pod has.
"""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from tests.populations import one_of

STEPS = 40
"""Callbacks of the leader from the gangs' creation until they are bound; then come a few more."""


@pytest.mark.parametrize("after", one_of(4, range(8, STEPS)))
def test_a_paused_leader_wakes_under_its_successor(play, after):
    """It reads nothing as its own that the successor bound, stands by and goes on running."""

    async def scenario(w):
        await w.start(nodes=4)
        w.check_journal = False
        first = w.daemon()
        await w.until(lambda: first.leading)
        second = w.daemon()
        await w.until(lambda: second.app.leadership.elector is not None)
        await w.clock.sleep(3)
        w.freeze_after(first, after, 40.0)
        w.gang("a", 2)
        w.gang("b", 1, gpus=4)
        await w.until(lambda: len(w.running()) == 3)
        await w.clock.sleep(60)
        assert not first.task.done()
        leader, standby = (first, second) if first.leading else (second, first)
        assert not standby.leading
        leader.kill()
        w.gang("c", 1)
        await w.until(lambda: len(w.running("c")) == 1)
        assert standby.leading

    play(scenario, freezing=True)


def test_what_a_paused_leader_was_about_to_say_does_not_replace_what_is_true(play):
    """It is stopped with the status of a waiting gang in its hands, which then starts."""

    async def scenario(w):
        await w.start(nodes=0)
        w.check_journal = False
        loop = asyncio.get_running_loop()
        first = w.daemon()
        await w.until(lambda: first.leading)
        second = w.daemon()
        await w.clock.sleep(3)

        def hold(method, path):
            if method == "PATCH" and path.endswith("/podgroups/a/status"):
                first.fault = lambda _method, _path: ""
                loop.freeze(first)
                return "slow"  # it waits for a moment, and is frozen in it
            return ""

        first.fault = hold
        w.gang("a", 1)
        await w.until(lambda: second.leading)
        w.node("node-0")
        await w.until(lambda: w.condition("a").get("status") == "True")
        loop.thaw(first)
        await w.clock.sleep(30)
        assert w.condition("a")["status"] == "True"
        assert not first.task.done()

    play(scenario, freezing=True)


def classes(w):
    """Two priority classes."""
    for name, value in (("low", 100), ("high", 1000)):
        w.client.create(
            "priorityclasses.scheduling.k8s.io",
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": value,
            },
        )


@pytest.mark.parametrize("after", one_of(4, range(6, 90, 6)))
def test_a_leader_that_is_paused_while_it_makes_room(play, after):
    """Promises, evictions and a Job's start are its successor's to decide: once, and to the end."""

    async def scenario(w):
        w.check_journal = False
        await w.start(nodes=3)
        classes(w)
        first = w.daemon()
        for number in range(3):
            w.pod(f"low-{number}", spec={"priorityClassName": "low"})
        await w.until(lambda: len(w.running()) == 3)
        second = w.daemon()
        await w.clock.sleep(3)
        w.freeze_after(first, after, 40.0)
        w.pod("urgent", spec={"priorityClassName": "high"})
        w.job("paused", 1, gpus=0, queue="default", suspend=True)
        await w.until(lambda: "urgent" in {p["metadata"]["name"] for p in w.running()}, within=90)
        await w.until(
            lambda: any(
                p["metadata"].get("labels", {}).get("job-name") == "paused" for p in w.running()
            ),
            within=90,
        )
        await w.clock.sleep(60)
        assert not first.task.done()
        assert not second.task.done()
        assert sum(each.leading for each in (first, second)) == 1
        names = {p["metadata"]["name"] for p in w.running()}
        assert len(names & {"low-0", "low-1", "low-2"}) == 2  # one left, and no second one

    play(scenario, freezing=True)


def test_nothing_is_left_of_a_run(play):
    """Each test has its own cluster, which is gone when it ends."""
    kept = []

    async def scenario(w):
        await w.start(nodes=1)
        kept.append(weakref.ref(asyncio.get_running_loop()))
        kept.append(weakref.ref(w.cluster))
        first = w.daemon()
        await w.until(lambda: first.leading)
        w.daemon()
        w.gang("a", 1)
        await w.until(lambda: w.running("a"))
        first.kill()
        await w.until(lambda: w.daemons[1].leading)

    play(scenario, freezing=True)
    gc.collect()
    assert [each() for each in kept] == [None, None]
