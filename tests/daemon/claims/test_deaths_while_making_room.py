"""The daemon dies at any write while room is made: the same victims, nobody else, and bound."""

from __future__ import annotations

import pytest

from tests.populations import one_of

WRITES = 16
"""Promises, conditions, evictions, bindings and what is said about them; then nothing is left."""
DEATHS = [(at, at % 2 == way) for at in range(1, WRITES + 1) for way in (0, 1)]
"""Each write, and whether it is done when the daemon dies; every second of these alternates."""


@pytest.mark.parametrize(("kill_at", "answered"), one_of(5, DEATHS))
def test_death_at_any_write_of_a_claim(play, scene, kill_at, answered):
    """The successor completes what was begun: two victims in all, and the gang runs.

    A third node is full of pods as cheap, and a small gang waits for whatever becomes free.
    """

    async def scenario(w):
        w.check_journal = False  # status may be said again by who does not know it was said
        first = await scene.low_and_high(w)
        w.node("node-2")
        scene.gang(w, "other", 1)
        await w.until(lambda: len(w.running("other")) == 1)
        await w.clock.sleep(5)
        before = scene.uids(w.pods("low"))
        kept = scene.uids(w.pods("other"))
        first.kill_at, first.answered = first.writes + kill_at, answered
        scene.gang(w, "high", 2, high=True)
        scene.gang(w, "small", 1)
        await w.until(lambda: first.dead or len(w.running("high")) == 2)
        await w.clock.sleep(2)
        if not first.dead:
            first.kill()
        second = w.daemon()
        await w.until(lambda: second.leading)
        await w.until(lambda: len(w.running("high")) == 2, within=120)
        await w.clock.sleep(30)
        assert scene.uids(w.bound("other")) == kept
        assert w.bound("small") == []
        assert w.bound("low") == []
        assert not before & scene.uids(w.pods("low"))
        assert len(set(scene.evictions(w))) == 2

    play(scenario)


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("kill_at", range(1, 5))
def test_death_while_a_job_is_paused(play, scene, kill_at, answered):
    """The Job is suspended once, nobody is evicted, and the gang runs."""

    async def scenario(w):
        w.check_journal = False
        await w.start(nodes=2)
        scene.priority(w, "high", 1000)
        w.client.create(
            "queues.scheduling.gpusched.io",
            {
                "apiVersion": "scheduling.gpusched.io/v1alpha1",
                "kind": "Queue",
                "metadata": {"name": "default"},
                "spec": {},
            },
        )
        first = w.daemon()
        w.job("low", 2)
        label = {"metadata": {"labels": {"gpusched.io/queue": "default"}}}
        w.client.patch("jobs.batch", "default", "low", label)
        await w.until(lambda: len(w.running()) == 2)
        await w.clock.sleep(5)
        first.kill_at, first.answered = first.writes + kill_at, answered
        scene.gang(w, "high", 2, high=True)
        await w.until(lambda: first.dead)
        await w.clock.sleep(2)
        second = w.daemon()
        await w.until(lambda: second.leading)
        await w.until(lambda: len(w.running("high")) == 2, within=120)
        assert scene.evictions(w) == []
        assert w.client.get("jobs.batch", "default", "low")["spec"]["suspend"] is True

    play(scenario)
