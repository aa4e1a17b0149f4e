"""Gangs that are evicted, run again and are evicted again: counted, told, and remembered over a restart."""

from __future__ import annotations

import json
import re

import pytest

from gpusched.cli.inspect.explaining.explanation import GangObjects, explain_gang
from gpusched.cli.inspect.explaining.explanation_text import render_explanation
from gpusched.view.gang_views import NOTHING_TOLD, gang_view

GROUPS = "podgroups.scheduling.gpusched.io"
QUEUES = "queues.scheduling.gpusched.io"
POLICY = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}
NO_COUNT = "limits: {evictionWindow: 0s}\n"


def priority(w, name, value):
    """A PriorityClass."""
    head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    w.client.create(
        "priorityclasses.scheduling.k8s.io", {**head, "metadata": {"name": name}, "value": value}
    )


def urgent(w, name, pods, *, run_for="60s"):
    """A gang of high priority that takes whole nodes for a while."""
    w.group(name, minMember=pods, priorityClassName="high")
    return w.job(name, pods, group=name, run_for=run_for)


def running(w, name):
    """How many pods of a gang run; pods are named after it."""
    return sum(
        each["metadata"]["name"].startswith(f"{name}-")
        and not each["metadata"].get("deletionTimestamp")
        and each["status"].get("phase") == "Running"
        for each in w.bound()
    )


def events(w, reason):
    """Kind of object and note of each event of a reason."""
    return [
        (each["involvedObject"]["kind"], each["message"])
        for each in w.client.list("events")
        if each["reason"] == reason
    ]


def metric(daemon, name):
    """Rows of a metric that are not 0, as the text has them."""
    lines = daemon.app.telemetry.render().decode().splitlines()
    return [each for each in lines if each.startswith(name) and not each.endswith(" 0.0")]


def recorded(w, kind, name):
    """Evictions that are recorded on the object of a gang."""
    if kind == "PodGroup":
        return w.client.get(GROUPS, "default", name)["status"].get("evictions") or []
    notes = w.client.get("jobs.batch", "default", name)["metadata"].get("annotations") or {}
    return json.loads(notes.get("gpusched.io/evictions", "{}")).get("evictions") or []


def shown(daemon, name):
    """The gang as the view has it."""
    snapshot = daemon.app.cache.take_snapshot(0.0)
    known = {each.key: each for each in (*snapshot.gangs, *snapshot.placed_gangs.values())}
    (gang,) = (each for key, each in known.items() if key.name == name)
    return gang_view(gang, NOTHING_TOLD, gpu_type_of_node=lambda _: "")


def explained(w, kind, name):
    """What ``gpusched explain`` prints of a gang."""
    plural = GROUPS if kind == "PodGroup" else "jobs.batch"
    owner = w.client.get(plural, "default", name)
    pods = [each for each in w.pods() if each["metadata"]["name"].startswith(f"{name}-")]
    evidence = GangObjects(
        kind=kind, namespace="default", name=name, owner=owner, pods=tuple(pods), events=(),
        now=w.clock.now(),
    )  # fmt: skip
    return render_explanation(explain_gang(evidence))


def work(w, kind, name, pods):
    """A gang of no priority that runs for hours, as a PodGroup or as a Job that waits in a queue."""
    if kind == "PodGroup":
        w.group(name, minMember=pods)
        w.job(name, pods, group=name, podFailurePolicy=POLICY)
    else:
        w.job(name, pods, queue="default")


@pytest.mark.parametrize("kind", ["PodGroup", "Job"])
def test_a_gang_that_is_evicted_again_is_counted_told_and_recorded_over_a_restart(play, kind):
    """Given work that leaves for one urgent gang and, under the next daemon, for another one."""

    async def scenario(w):
        await w.start(nodes=2)
        daemon = w.daemon()
        priority(w, "high", 1000)
        work(w, kind, "train", 2)
        await w.until(lambda: running(w, "train") == 2)
        urgent(w, "first", 2)
        await w.until(lambda: running(w, "first") == 2)
        assert [each["for"] for each in recorded(w, kind, "train")] == ["PodGroup default/first"]
        assert events(w, "EvictedAgain") == []
        assert metric(daemon, "gpusched_repeated_evictions_total") == []
        await w.until(lambda: running(w, "train") == 2, within=300)
        await daemon.stop()

        daemon = w.daemon()
        await w.until(lambda: daemon.leading)
        urgent(w, "second", 2)
        await w.until(lambda: running(w, "second") == 2, within=300)
        past = recorded(w, kind, "train")
        assert [each["for"] for each in past] == [
            "PodGroup default/first",
            "PodGroup default/second",
        ]
        assert {each["action"] for each in past} == {"preempt"}
        assert all(each["gpuSeconds"] > 0 for each in past)
        await w.until(lambda: events(w, "EvictedAgain"))
        ((about, note),) = events(w, "EvictedAgain")
        assert about == kind
        assert note.startswith("evicted 2 times within 1h, which cost ")
        assert "by preempt for PodGroup default/second at " in note
        assert metric(daemon, "gpusched_repeated_evictions_total") == [
            'gpusched_repeated_evictions_total{action="preempt",queue="default"} 1.0'
        ]
        assert metric(daemon, "gpusched_eviction_chains_total") == []
        assert [each.claimant for each in shown(daemon, "train").evictions] == [
            each["for"] for each in past
        ]
        text = explained(w, kind, "train")
        assert re.search(r"evicted +2 times since 2026-\S+, at the cost of [0-9,]+ GPU-sec", text)
        assert re.search(r"ago by preempt for PodGroup default/first", text)
        await daemon.stop()

    play(scenario, limit_s=4000)


def test_a_window_of_zero_switches_it_off(play, tmp_path):
    """Given the same with ``evictionWindow: 0s``, then nothing is recorded and nothing told."""
    file = tmp_path / "gpusched.yaml"
    file.write_text(NO_COUNT)

    async def scenario(w):
        await w.start(nodes=1)
        daemon = w.daemon(config_file=str(file))
        priority(w, "high", 1000)
        work(w, "PodGroup", "train", 1)
        for name in ("first", "second"):
            await w.until(lambda: running(w, "train") == 1, within=300)
            urgent(w, name, 1)
            await w.until(lambda name=name: running(w, name) == 1, within=300)
        assert recorded(w, "PodGroup", "train") == []
        assert events(w, "EvictedAgain") == []
        assert metric(daemon, "gpusched_repeated_evictions_total") == []
        await daemon.stop()

    play(scenario, limit_s=4000)


def test_gangs_that_leave_one_for_the_other_are_a_chain(play):
    """Given three priorities, each in its turn: the second leaves for the third after the first left for it."""

    async def scenario(w):
        await w.start(nodes=1)
        daemon = w.daemon()
        priority(w, "high", 1000)
        priority(w, "higher", 2000)
        work(w, "PodGroup", "train", 1)
        await w.until(lambda: running(w, "train") == 1)
        urgent(w, "first", 1, run_for="10h")
        await w.until(lambda: running(w, "first") == 1)
        w.group("second", minMember=1, priorityClassName="higher")
        w.job("second", 1, group="second")
        await w.until(lambda: running(w, "second") == 1)
        assert metric(daemon, "gpusched_eviction_chains_total") == [
            'gpusched_eviction_chains_total{cycle="false",length="2"} 1.0'
        ]
        assert events(w, "EvictedAgain") == []
        await daemon.stop()

    play(scenario, limit_s=4000)
