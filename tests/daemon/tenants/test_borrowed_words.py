"""A tenant who speaks in the words of other projects, of other namespaces, or of nodes that are not there."""

from __future__ import annotations

import pytest

from tests.behaviour.fuzz.foreign_kinds import ANY, SCHEMAS, install
from tests.daemon.conftest import pod_spec
from tests.daemon.tenants.tenants import tenant

NATIVE = "podgroups.scheduling.k8s.io"
VOLCANO = "podgroups.scheduling.volcano.sh"
GANG = {"schedulingPolicy": {"gang": {"minCount": 1}}}
FAR = "2099-01-01T00:00:00Z"


def uids(w, group):
    """UIDs of the pods of a group."""
    return {pod["metadata"]["uid"] for pod in w.pods(group)}


@pytest.mark.parametrize(
    "spec",
    [
        {"priority": 2**31 - 1},
        {"priority": 999_999_999},
        {"priorityClassName": "system-node-critical"},
        {"priorityClassName": "system-node-critical", "priority": 2_000_001_000},
    ],
    ids=str,
)
def test_a_native_group_that_gives_itself_a_priority_evicts_nobody(play, monkeypatch, spec):
    """Its pods carry none: the gang of another namespace runs on, and it waits for room."""
    monkeypatch.setitem(SCHEMAS, NATIVE, ("v1beta1", "PodGroup", True, ANY, ANY))

    async def scenario(w):
        await w.start(nodes=1)
        await install(w, NATIVE)
        mallory = await tenant(w, "mallory")
        daemon = w.daemon()
        w.gang("honest", 1)
        await w.until(lambda: len(w.running("honest")) == 1)
        before = uids(w, "honest")
        w.client.create(
            NATIVE,
            {
                "apiVersion": "scheduling.k8s.io/v1beta1",
                "kind": "PodGroup",
                "metadata": {"name": "greedy", "namespace": "mallory"},
                "spec": {**GANG, **spec},
            },
        )
        await mallory.pod("p", gpus=8, labels={"gpusched.io/pod-group": "greedy"})
        await w.clock.sleep(60)
        assert uids(w, "honest") == before
        assert len(w.running("honest")) == 1
        assert not w.client.get("pods", "mallory", "p")["spec"].get("nodeName")
        assert daemon.app.readiness() == (True, "leader")

    play(scenario)


def test_no_pod_joins_a_gang_of_another_namespace(play):
    """By a name with a namespace in front of it, in every key that names a gang."""
    keys = [
        "gpusched.io/pod-group", "scheduling.k8s.io/group-name", "pod-group-name",
        "scheduling.x-k8s.io/pod-group", "scheduling.volcano.sh/group-name",
    ]  # fmt: skip

    async def scenario(w):
        await w.start(nodes=4)
        mallory = await tenant(w, "mallory")
        w.daemon()
        w.group("honest", minMember=3)
        w.job("honest", 2, group="honest")
        for number, key in enumerate(keys):
            for place in ("labels", "annotations"):
                for value in ("default/honest", "../default/honest", "honest"):
                    meta = {"name": f"p-{number}-{place[0]}-{len(value)}", place: {key: value}}
                    body = {
                        "apiVersion": "v1", "kind": "Pod",
                        "metadata": {**meta, "namespace": "mallory"}, "spec": pod_spec(0),
                    }  # fmt: skip
                    await mallory.try_to("POST", mallory.path("pods"), body)
        assert len(w.client.list("pods", "mallory")) >= 20
        await w.clock.sleep(20)
        assert w.bound("honest") == []
        assert "needs 3 pods" in w.condition("honest")["message"]

    play(scenario)


def test_a_volcano_group_that_says_it_runs_is_not_believed(play):
    """A gang of two with one pod: forged counts and phases neither start it nor keep others from nodes."""

    async def scenario(w):
        await w.start(nodes=2)
        await install(w, VOLCANO)
        mallory = await tenant(w, "mallory")
        daemon = w.daemon()
        told = {"type": "Scheduled", "status": "True", "reason": "Scheduled", "message": "x" * 5000}
        w.client.create(
            VOLCANO,
            {
                "apiVersion": "scheduling.volcano.sh/v1beta1",
                "kind": "PodGroup",
                "metadata": {"name": "v", "namespace": "mallory"},
                "spec": {
                    "minMember": 2, "queue": "default",
                    "priorityClassName": "system-cluster-critical",
                },
                "status": {
                    "phase": "Running", "running": 2**31 - 1, "succeeded": -4,
                    "conditions": [{**told, "lastTransitionTime": FAR, "transitionID": "9"}] * 50,
                },
            },
        )  # fmt: skip
        await mallory.pod("p", gpus=8, annotations={"scheduling.k8s.io/group-name": "v"})
        await w.clock.sleep(10)
        assert w.client.list("pods", "mallory")[0]["spec"].get("nodeName") is None
        w.gang("honest", 2)
        await w.until(lambda: len(w.running("honest")) == 2, within=5)
        status = w.client.get(VOLCANO, "mallory", "v")["status"]
        assert status["phase"] != "Running"
        assert status["conditions"][0]["status"] == "False"
        assert daemon.app.readiness() == (True, "leader")

    play(scenario)


def test_pods_on_nodes_that_are_not_there_cost_nobody_a_place(play):
    """A hundred and fifty nodes that somebody made up."""

    async def scenario(w):
        await w.start(nodes=2)
        mallory = await tenant(w, "mallory")
        daemon = w.daemon()
        for number in range(150):
            await mallory.pod(f"p-{number}", gpus=8, spec={"nodeName": f"no-such-{number}"})
        w.gang("honest", 2)
        await w.until(lambda: len(w.running("honest")) == 2, within=5)
        w.gang("huge", 3)
        await w.until(lambda: "even empty they have room" in w.condition("huge").get("message", ""))
        assert "of 2 nodes" in w.condition("huge")["message"]
        assert daemon.app.readiness() == (True, "leader")

    play(scenario)
