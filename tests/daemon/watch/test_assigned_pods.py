"""What ``kubectl describe pod`` shows of pods that were bound: as kube-scheduler's users know it."""

from __future__ import annotations

import pytest

from tests.behaviour.fuzz.foreign_kinds import ANY, SCHEMAS, install
from tests.daemon.adapters.test_native_status import GROUPS, member


def scheduled(w):
    """Notes of events Scheduled by kind and name of what they are about, sorted."""
    found = {}
    for event in w.client.list("events", "default"):
        if event["reason"] == "Scheduled":
            about = event["involvedObject"]
            found.setdefault((about["kind"], about["name"]), []).append(event["message"])
    return {key: sorted(notes) for key, notes in found.items()}


def assigned(w):
    """What each bound pod is to be told."""
    return {
        ("Pod", pod["metadata"]["name"]): [
            f"Successfully assigned default/{pod['metadata']['name']} to {pod['spec']['nodeName']}"
        ]
        for pod in w.bound()
    }


def test_each_pod_of_a_gang_and_each_single_pod_is_told_once(play):
    """The gang's object has what was decided beside; a pod of its own has one event, not two."""

    async def scenario(w):
        await w.start(nodes=4)
        daemon = w.daemon()
        w.gang("a", 3)
        w.pod("lone", gpus=1)
        w.job("single", 1, gpus=1)
        await w.until(lambda: len(w.bound()) == 5)
        await w.clock.sleep(90)
        found = scheduled(w)
        gang = found.pop(("PodGroup", "a"))
        assert len(gang) == 1
        assert gang[0].startswith("3 pods placed")
        assert found == assigned(w)
        await daemon.stop()
        second = w.daemon()
        await w.until(lambda: second.leading)
        await w.clock.sleep(90)
        assert {key: each for key, each in scheduled(w).items() if key[0] == "Pod"} == assigned(w)

    play(scenario)


def test_pods_of_a_native_gang_that_waited_are_told(play, monkeypatch):
    """They have the sentence for which they waited, and where they went; late ones as well."""
    monkeypatch.setitem(SCHEMAS, GROUPS, ("v1alpha3", "PodGroup", True, ANY, ANY))

    async def scenario(w):
        await w.start(nodes=1)
        await install(w, GROUPS)
        w.daemon()
        w.client.create(
            GROUPS,
            {
                "apiVersion": "scheduling.k8s.io/v1alpha3",
                "kind": "PodGroup",
                "metadata": {"name": "g", "namespace": "default"},
                "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
            },
        )
        for number in range(2):
            member(w, "g", number, annotations={"gpusched.io/run-for": "10h"})
        await w.clock.sleep(20)
        assert scheduled(w) == {}
        w.node("late")
        await w.until(lambda: len(w.bound()) == 2)
        w.node("later")
        member(w, "g", 2, annotations={"gpusched.io/run-for": "10h"})
        await w.until(lambda: len(w.bound()) == 3)
        await w.clock.sleep(10)
        found = scheduled(w)
        assert len(found.pop(("PodGroup", "g"))) == 1
        assert found == assigned(w)
        waited = [each for each in w.client.list("events", "default")
                  if each["reason"] == "FailedScheduling"]  # fmt: skip
        assert {each["involvedObject"]["kind"] for each in waited} >= {"Pod", "PodGroup"}

    play(scenario)


@pytest.mark.parametrize("count", [40])
def test_a_binding_that_was_taken_back_is_not_told(play, count):
    """Whoever could not be bound is not told that it was."""

    async def scenario(w):
        await w.start(nodes=count // 8)
        w.daemon(fault=lambda _method, path: "409" if path.endswith("/binding") else "")
        w.gang("a", count, gpus=1)
        await w.clock.sleep(20)
        assert scheduled(w) == {}

    play(scenario)
