"""Hooks of shipped policies that raise for one gang: it is set aside alone, and told."""

from __future__ import annotations

import pytest
from gpusched_plugins.queues import quota
from gpusched_plugins.queues.fairshare import queue_order, shares

from tests.daemon.containment.test_containment import condition, events, metric

pytestmark = pytest.mark.contains

QUEUES = "queues.scheduling.gpusched.io"


class Planted(RuntimeError):
    """What the tests plant."""


def for_one_gang(function, name):
    """The function, which raises where an argument is the gang of that name."""

    def planted(*args, **how):
        if any(getattr(getattr(each, "key", None), "name", "") == name for each in args):
            raise Planted(f"for {name}")
        return function(*args, **how)

    return planted


HOOKS = [
    pytest.param((quota.NodePoolCaps, "room"), id="quota_check"),
    pytest.param((queue_order.QueueOrder, "key"), id="queue_turn"),
]


@pytest.mark.parametrize("alone_s", [0, 60], ids=["together", "alone first"])
@pytest.mark.parametrize("queues", [("a", "a"), ("a", "b")], ids=["one queue", "two queues"])
@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_that_raises_for_one_gang_costs_nobody_else(
    play, monkeypatch, hook, queues, alone_s
):
    """Whatever came first: the gang is told, and others start at once, equal ones too."""
    owner, name = hook
    monkeypatch.setattr(owner, name, for_one_gang(vars(owner)[name], "bad"))

    async def scenario(w):
        await w.start(nodes=4)
        daemon = w.daemon()
        await w.until(lambda: daemon.leading)
        for queue in ("a", "b"):
            w.client.create(
                QUEUES,
                {
                    "apiVersion": "scheduling.gpusched.io/v1alpha1",
                    "kind": "Queue",
                    "metadata": {"name": queue},
                    "spec": {"capability": {"cpu": "1000"}},  # without one it needs no check
                },
            )
        w.group("bad", minMember=1, queue=queues[0])
        w.job("bad", 1, group="bad", queue=queues[0])
        await w.clock.sleep(alone_s)
        for number in range(2):
            w.group(f"good-{number}", minMember=1, queue=queues[1])
            w.job(f"good-{number}", 1, group=f"good-{number}", queue=queues[1])
            await w.until(lambda n=number: w.running(f"good-{n}"), within=5)
            await w.clock.sleep(10)
        if alone_s and owner is queue_order.QueueOrder:
            assert w.running("bad"), "alone it needs no order"
            return
        assert not w.running("bad")
        assert condition(w, "bad")["reason"] == "SchedulerError"
        assert "Planted: for bad" in condition(w, "bad")["message"]
        assert events(w, "SchedulerError", "bad")
        assert metric(daemon, "set_aside_objects") == {("gang",): 1}
        assert daemon.app.readiness()[1] == "leader; degraded: 1 objects set aside after faults"

    play(scenario)


def test_shares_that_cannot_be_computed_stop_nobody(play, monkeypatch):
    """Gangs start in the order of everything else, and an operator is told what is missing."""

    def planted(*_args, **_how):
        raise Planted("for everybody")

    monkeypatch.setattr(shares.Shares, "_divide", planted)

    async def scenario(w):
        await w.start(nodes=4)
        daemon = w.daemon()
        await w.until(lambda: daemon.leading)
        for number in range(3):
            w.group(f"g-{number}", minMember=1)
            w.job(f"g-{number}", 1, group=f"g-{number}")
        await w.until(lambda: all(w.running(f"g-{n}") for n in range(3)), within=10)
        w.group("late", minMember=1)
        w.job("late", 1, group="late")
        await w.until(lambda: w.running("late"), within=10)
        assert "no fairshare.queue_turn after a fault" in daemon.app.readiness()[1]
        assert metric(daemon, "degraded") == {("fairshare.queue_turn",): 1}
        ((_, told),) = events(w, "SchedulerDegraded")
        assert "sessions go without fairshare.queue_turn" in told
        monkeypatch.undo()

    play(scenario)
