"""The cluster changes under gangs: rows 8, 19, 21, 22, 24 and 27 of docs/faults.md."""

from __future__ import annotations

import pytest

from gpusched.base import limits
from gpusched.devcluster.control.fault_rules import parse_rules
from gpusched.lab.chaos.stale_replica import StaleReplica

GPU = "nvidia.com/gpu"
GROUPS = "podgroups.scheduling.gpusched.io"


def offer(w, node, gpus):
    """The device plugin says how many GPUs are left."""
    status = {"status": {"allocatable": {GPU: str(gpus)}}}
    w.client.patch("nodes", None, node, status, subresource="status")


def slots(w, name):
    """Numbers of the slots that a pod has."""
    text = w.client.get("pods", "default", name)["metadata"]["annotations"]["gpusched.io/slots"]
    return {int(each) for each in text.split(",")}


# -- rows 21 and 22 ----------------------------------------------------------------------------
@pytest.mark.parametrize("left", [4, 0])
def test_a_node_offers_fewer_gpus_than_its_pods_have(play, left):
    """Given six of eight GPUs in use, when fewer are left, pods stay, none is given, CPU goes on."""

    async def scenario(w):
        await w.start(nodes=1)
        w.daemon()
        notes = {"gpusched.io/run-for": "10h"}
        w.pod("six", gpus=6, annotations=notes)
        await w.until(lambda: len(w.running()) == 1)
        offer(w, "node-0", left)
        w.pod("one", gpus=1, annotations=notes)
        w.pod("none", gpus=0, annotations=notes)
        await w.until(lambda: w.told("one").get("message"))
        await w.until(lambda: w.client.get("pods", "default", "none")["spec"].get("nodeName"))
        await w.clock.sleep(60)
        assert not w.client.get("pods", "default", "one")["spec"].get("nodeName")
        assert w.client.get("pods", "default", "six")["status"]["phase"] == "Running"
        assert [each for each in w.journal if each.path.endswith("/eviction")] == []
        offer(w, "node-0", 8)
        await w.until(lambda: w.client.get("pods", "default", "one")["spec"].get("nodeName"))
        assert not slots(w, "one") & slots(w, "six")

    play(scenario)


# -- row 24 ------------------------------------------------------------------------------------
def test_slots_of_a_pod_that_ends_slowly_are_given_when_it_is_gone(play):
    """Given a pod that takes half a minute to end, nobody gets its GPUs before it is gone."""

    async def scenario(w):
        await w.start(nodes=1)
        w.daemon()
        slow = {"gpusched.io/stop-after": "30s", "gpusched.io/run-for": "10h"}
        w.pod("old", annotations=slow)
        await w.until(lambda: len(w.running()) == 1)
        w.client.delete("pods", "default", "old")
        began = w.clock.monotonic()
        w.pod("new")
        await w.until(lambda: w.client.get("pods", "default", "new")["spec"].get("nodeName"))
        assert w.clock.monotonic() - began >= 29
        assert [pod["metadata"]["name"] for pod in w.pods()] == ["new"]

    play(scenario)


# -- row 27 ------------------------------------------------------------------------------------
def test_a_pod_group_is_deleted_under_its_pods(play):
    """Given members that run and one that waits, the first stay, and the other is told."""

    async def scenario(w):
        await w.start(nodes=2)
        w.daemon()
        w.gang("g", 2)
        await w.until(lambda: len(w.running("g")) == 2)
        w.client.delete(GROUPS, "default", "g")
        w.pod("late", labels={"gpusched.io/pod-group": "g"})
        await w.until(lambda: w.told("late").get("reason") == "InvalidSpec")
        assert "does not exist" in w.told("late")["message"]
        w.node("node-2")
        await w.clock.sleep(180)
        assert len(w.running("g")) == 2
        assert not w.client.get("pods", "default", "late")["spec"].get("nodeName")
        assert [each for each in w.journal if each.path.endswith("/eviction")] == []

    play(scenario)


# -- row 8 -------------------------------------------------------------------------------------
@pytest.mark.parametrize("versions", [1, 10, 60])
def test_a_replica_that_lags_gives_nothing_twice(play, versions):
    """Given lists of the past at the start of a second daemon, no GPU is given twice."""

    async def scenario(w):
        await w.start(nodes=3)
        first = w.daemon()
        w.gang("a", 2)
        await w.until(lambda: len(w.running("a")) == 2)
        first.kill()
        rule = {"name": "lag", "match": {"verbs": ["list"], "resources": ["pods", "nodes"]},
                "fault": {"type": "lag", "versions": versions}}  # fmt: skip
        w.cluster.faults.add(parse_rules([rule]))
        w.gang("b", 2, gpus=4)
        w.daemon()
        await w.clock.sleep(60)
        w.cluster.faults.remove("lag")
        await w.until(lambda: len(w.running("b")) == 2, within=300)
        assert len({pod["spec"]["nodeName"] for pod in w.bound("b")}) == 1

    play(scenario)


def test_a_new_leader_does_not_believe_a_replica_of_before_its_time(play):
    """Given lists without the pod that its predecessor bound, nobody else gets the pod's GPUs."""

    async def scenario(w):
        await w.start(nodes=1)
        w.pod("b")
        await w.clock.sleep(5)
        seen = w.cluster.core.store.version
        w.pod("a", spec={"priorityClassName": "system-cluster-critical"})
        first = w.daemon()
        await w.until(lambda: len(w.bound()) == 1)
        assert w.bound()[0]["metadata"]["name"] == "a"
        first.kill()
        replica = StaleReplica(w.cluster, "gpusched/*", w.cluster.core.store.version - seen)
        second = w.daemon()
        await w.clock.sleep(45)
        assert len(w.bound()) == 1
        assert second.bindings == []
        replica.catch_up()
        w.client.delete("pods", "default", "a")
        await w.until(lambda: [pod["metadata"]["name"] for pod in w.bound()] == ["b"], within=300)

    play(scenario)


def test_a_replica_that_stays_behind_is_believed_in_the_end(play):
    """Given versions that stay below the Lease's, as of another etcd, it waits a minute and goes on."""

    async def scenario(w):
        await w.start(nodes=1)
        w.pod("b")
        await w.clock.sleep(5)
        StaleReplica(w.cluster, "gpusched/*", 1)
        w.daemon()
        await w.until(lambda: len(w.bound()) == 1, within=limits.LIST_BEHIND_MAX_S + 60)

    play(scenario)


# -- row 19 ------------------------------------------------------------------------------------
def test_a_node_goes_under_a_gang_that_was_just_bound(play):
    """Given a gang on two nodes of which one vanishes, it runs whole again on what is left."""

    async def scenario(w):
        await w.start(nodes=3)
        w.daemon()
        w.gang("g", 2)
        await w.until(lambda: len(w.bound("g")) == 2)
        gone = w.bound("g")[0]["spec"]["nodeName"]
        w.client.delete("nodes", None, gone)

        def whole():
            nodes = {pod["spec"]["nodeName"] for pod in w.running("g")}
            return len(nodes) == 2 and gone not in nodes

        await w.until(whole, within=300)

    play(scenario)
