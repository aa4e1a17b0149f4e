"""Queues that are no objects: the built-in one, and one that was deleted while gangs run in it."""

from __future__ import annotations

import re

import pytest

from tests.daemon.inputs.test_bad_queues import queue
from tests.daemon.sentences.explained import explained, facts

QUEUES = "queues.scheduling.gpusched.io"


def held(daemon):
    """GPUs that each queue holds, as the metric tells."""
    text = daemon.app.telemetry.render().decode()
    row = r'^gpusched_queue_allocated\{queue="(.*)",resource="nvidia.com/gpu"\} (\S+)$'
    return {name: float(count) for name, count in re.findall(row, text, re.MULTILINE)}


@pytest.mark.parametrize("as_object", [False, True])
def test_the_default_queue_is_measured(play, as_object):
    """Given a pod without a queue, then what it holds is told of queue default, object or not."""

    async def scenario(w):
        await w.start(nodes=1)
        daemon = w.daemon()
        if as_object:
            queue(w, "default")
        w.pod("p", gpus=3)
        await w.until(lambda: held(daemon).get("default") == 3.0, within=20)

    play(scenario)


def test_a_gang_whose_queue_is_deleted_is_told(play):
    """Given a gang that runs and one that waits, then both say what became of their queue."""

    async def scenario(w):
        await w.start(nodes=2)
        w.daemon()
        queue(w, "team")
        w.group("runs", queue="team", minMember=2)
        w.job("runs", 2, group="runs")
        await w.until(lambda: len(w.running("runs")) == 2)
        w.group("waits", queue="team", minMember=1)
        w.job("waits", 1, group="waits")
        await w.until(lambda: w.condition("waits").get("message"))
        w.client.delete(QUEUES, None, "team")
        await w.until(
            lambda: all(
                "does not exist" in w.condition(name, "Admitted").get("message", "")
                for name in ("runs", "waits")
            ),
            within=20,
        )
        assert w.condition("runs", "Admitted")["message"].startswith(
            "it runs, but its queue team does not exist any more, so that no queue is charged"
        )
        assert w.condition("waits")["message"] == (
            "queue 'team' does not exist; create it or name one of: default"
        )
        lines = await explained(w, "podgroup", "waits")
        assert facts(lines, "why") == ["QueueNotFound: " + w.condition("waits")["message"]]
        queue(w, "team")
        await w.until(
            lambda: w.condition("runs", "Admitted")["message"].startswith("admitted to queue team"),
            within=20,
        )
        assert len(w.running("runs")) == 2

    play(scenario)
