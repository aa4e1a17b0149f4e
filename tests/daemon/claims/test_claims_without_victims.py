"""A gang of several kinds of pods claims room that others' victims leave: it needs none itself."""

from __future__ import annotations

CLASSES = "priorityclasses.scheduling.k8s.io"


def several_kinds(w, name, *, gpus, priority):
    """A gang with one pod of each size."""
    w.group(name, minMember=len(gpus), priorityClassName=priority)
    for number, size in enumerate(gpus):
        w.job(f"{name}-{number}", 1, gpus=size, group=name)


def test_a_gang_of_several_kinds_needs_no_victim_of_its_own(play):
    """The victims of the first leave room for the second: both run, and no daemon breaks."""

    async def scenario(w):
        await w.start(nodes=4)
        w.client.create(
            CLASSES,
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": "high"},
                "value": 1000,
            },
        )
        first = w.daemon()
        w.group("low", minMember=3, disruption={"mode": "Group"})
        w.job("low", 3, group="low")
        w.gang("other", 1)
        await w.until(lambda: len(w.running("low")) == 3 and len(w.running("other")) == 1)
        await first.stop()
        w.group("one", minMember=2, priorityClassName="high")
        w.job("one", 2, group="one")
        await w.clock.sleep(5)
        several_kinds(w, "kinds", gpus=(4, 2), priority="high")
        await w.clock.sleep(5)
        w.daemon()
        await w.until(lambda: len(w.running("one")) == 2 and len(w.running("kinds")) == 2)
        assert len(w.running("other")) == 1

    play(scenario)
