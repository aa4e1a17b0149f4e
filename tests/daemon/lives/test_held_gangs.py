"""Gangs that somebody holds by annotation: nothing of them starts, they keep their age, and block nobody."""

from __future__ import annotations

import pytest

GROUPS = "podgroups.scheduling.gpusched.io"
QUEUES = "queues.scheduling.gpusched.io"
PODS = "pods"
JOBS = "jobs.batch"
HOLD = "gpusched.io/hold"


def annotate(w, resource, name, value):
    """Set the annotation, or take it away with None."""
    w.client.patch(resource, "default", name, {"metadata": {"annotations": {HOLD: value}}})


def members(w, group, count=1):
    """Pods of a PodGroup."""
    for number in range(count):
        w.pod(
            f"{group}-{number}",
            labels={"gpusched.io/pod-group": group},
            annotations={"gpusched.io/run-for": "10h"},
        )


def test_a_held_group_waits_and_starts_when_it_is_released(play):
    """Given a hold, then group and pods say who holds them; without it the gang starts."""

    async def scenario(w):
        await w.start(nodes=1)
        w.daemon()
        w.group("a", minMember=1)
        annotate(w, GROUPS, "a", "ana: waits for data")
        members(w, "a")
        await w.until(lambda: w.condition("a").get("reason") == "Held")
        said = w.condition("a")["message"]
        assert said.startswith("PodGroup a is held (ana: waits for data): nothing of it starts")
        assert "gpusched release podgroup a" in said
        await w.until(lambda: w.told("a-0").get("reason") == "Held")
        await w.clock.sleep(600)
        assert not w.bound("a")
        annotate(w, GROUPS, "a", None)
        await w.until(lambda: len(w.running("a")) == 1)

    play(scenario)


def test_a_hold_comes_while_a_gang_waits_and_blocks_nobody(play):
    """Given the first of a StrictFifo queue that waits, when it is held, then the next one starts."""

    async def scenario(w):
        await w.start(nodes=1)
        w.daemon()
        head = {"apiVersion": "scheduling.gpusched.io/v1alpha1", "kind": "Queue"}
        w.client.create(
            QUEUES, {**head, "metadata": {"name": "line"}, "spec": {"ordering": "StrictFifo"}}
        )
        w.group("first", queue="line", minMember=2)
        members(w, "first", 2)
        await w.until(lambda: w.condition("first").get("reason") == "InsufficientResources")
        w.group("second", queue="line", minMember=1)
        members(w, "second")
        await w.until(lambda: "reason" in w.condition("second"))
        await w.clock.sleep(60)
        assert not w.bound("second")
        annotate(w, GROUPS, "first", "by hand")
        await w.until(lambda: len(w.running("second")) == 1)
        assert w.condition("first")["reason"] == "Held"

    play(scenario)


def test_what_runs_goes_on_and_what_is_made_again_waits(play):
    """Given a hold on a gang that runs, then it goes on; its next members wait for the release."""

    async def scenario(w):
        await w.start(nodes=1)
        w.daemon()
        w.group("a", minMember=1)
        members(w, "a")
        await w.until(lambda: len(w.running("a")) == 1)
        annotate(w, GROUPS, "a", "by hand")
        await w.clock.sleep(120)
        assert len(w.running("a")) == 1
        w.client.delete(PODS, "default", "a-0")
        await w.until(lambda: not w.pods("a"))
        members(w, "a")
        await w.until(lambda: w.condition("a").get("reason") == "Held")
        annotate(w, GROUPS, "a", "false")
        await w.until(lambda: len(w.running("a")) == 1)

    play(scenario)


@pytest.mark.parametrize("suspended", [False, True])
def test_a_held_job_is_not_started(play, suspended):
    """Given a Job with pods, or one that would be resumed by its queue, then a hold on it counts."""

    async def scenario(w):
        await w.start(nodes=1)
        w.daemon()
        w.job("a", 1, queue="default", suspend=suspended)
        annotate(w, JOBS, "a", "ana")
        await w.clock.sleep(300)
        assert not w.bound()
        annotate(w, JOBS, "a", None)
        await w.until(lambda: len(w.bound()) == 1)

    play(scenario)


def test_a_held_pod_waits(play):
    """Given a lone pod with the annotation from its template, then it waits until that is gone."""

    async def scenario(w):
        await w.start(nodes=1)
        w.daemon()
        w.pod("p", annotations={HOLD: "true"})
        await w.until(lambda: w.told("p").get("reason") == "Held")
        annotate(w, PODS, "p", None)
        await w.until(lambda: len(w.bound()) == 1)

    play(scenario)
