"""What watchers of native groups see of a preemption: events, nominations and conditions."""

from __future__ import annotations

import json

import pytest

from gpusched.devcluster.registry.gangs.features import all_gates
from tests.daemon.adapters.native_gang_player import CONDITION, Player

VERSIONS = {"v1alpha2": "1.36", "v1beta1": "1.37"}


@pytest.fixture(params=VERSIONS)
def version(request):
    """Of native groups."""
    return request.param


async def started(w, version, **nodes):
    """A cluster with these nodes and GPUs, and a daemon."""
    await w.start(nodes=0, gangs=all_gates(VERSIONS[version]))
    player = Player(w, version)
    await player.prepare({"nodes": nodes})
    w.daemon()
    await w.until(lambda: w.daemons[0].leading)
    return player


def written(w, name):
    """Each status that a daemon wrote to a pod, in order: eviction replaces what it said before."""
    path = f"/pods/{name}/status"
    return [json.loads(write.body)["status"] for write in w.journal if write.path.endswith(path)]


def events(w, kind, name):
    """Reasons of the events about an object, with the apiVersion that they give."""
    return {
        (each["reason"], each["involvedObject"].get("apiVersion"))
        for each in w.client.list("events", "default")
        if (each["involvedObject"]["kind"], each["involvedObject"]["name"]) == (kind, name)
    }


def disruptions(w, name):
    """Status and reason of each condition DisruptionTarget that was written to a pod."""
    return [
        (each["status"], each["reason"])
        for status in written(w, name)
        for each in status.get("conditions", ())
        if each["type"] == "DisruptionTarget"
    ]


def nominations(w, name):
    """Nodes for which a pod was nominated."""
    return [status["nominatedNodeName"] for status in written(w, name)
            if status.get("nominatedNodeName")]  # fmt: skip


def test_a_preemption_is_told_as_kubernetes_tells_it(play, version):
    """Given a gang of higher priority, victims, nominees and both groups say what controllers watch."""

    async def scenario(w):
        player = await started(w, version, n1=2, n2=2)
        mode = "PodGroup"
        player.group("low", 4, priorityClass="low", disruptionMode=mode)
        player.pods("low-0..3", group="low", priorityClass="low")
        await w.until(lambda: len(w.running()) == 4)
        await w.clock.sleep(10)
        api = f"scheduling.k8s.io/{version}"
        assert ("Scheduled", api) in events(w, "PodGroup", "low")
        player.group("wide", 9, priorityClass="low")
        player.pods("wide-0..8", group="wide", priorityClass="low")
        await w.until(lambda: ("FailedScheduling", api) in events(w, "PodGroup", "wide"))
        assert {reason for reason, _ in events(w, "Pod", "wide-0")} == {"FailedScheduling"}
        player.group("high", 4, priorityClass="high")
        player.pods("high-0..3", group="high", priorityClass="high")
        await w.until(lambda: "high-0" in {pod["metadata"]["name"] for pod in w.running()})
        bound = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in w.bound()}
        for number in range(4):
            assert disruptions(w, f"low-{number}") == [("True", "PreemptionByScheduler")]
            assert nominations(w, f"high-{number}") == [bound[f"high-{number}"]]
            assert ("Preempted", "v1") in events(w, "Pod", f"low-{number}")
        await w.clock.sleep(10)
        assert ("Preempted", api) in events(w, "PodGroup", "low")
        told = player.conditions("low")
        target = told["DisruptionTarget"]
        assert (target["status"], target["reason"]) == ("True", "PreemptionByScheduler")
        assert told[CONDITION[version]]["status"] == "True"
        assert told["gpusched.io/Scheduled"]["status"] == "False"

    play(scenario)


def test_a_group_that_loses_an_extra_is_not_disrupted(play, version):
    """Given three members of which two are needed, the one that leaves says so, and not the group."""

    async def scenario(w):
        player = await started(w, version, n1=3)
        player.group("low", 2, priorityClass="low", disruptionMode="Pod")
        player.pods("low-0..2", group="low", priorityClass="low")
        await w.until(lambda: len(w.running()) == 3)
        player.pods("high", priorityClass="high")
        await w.until(lambda: "high" in {pod["metadata"]["name"] for pod in w.bound()})
        left = {f"low-{n}" for n in range(3)} - {p["metadata"]["name"] for p in w.running()}
        assert [disruptions(w, name) for name in left] == [[("True", "PreemptionByScheduler")]]
        await w.clock.sleep(20)
        assert "DisruptionTarget" not in player.conditions("low")
        assert player.conditions("low")["gpusched.io/Scheduled"]["status"] == "True"
        api = f"scheduling.k8s.io/{version}"
        assert ("Preempted", api) in events(w, "PodGroup", "low")

    play(scenario)
