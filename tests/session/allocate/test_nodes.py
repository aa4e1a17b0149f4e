"""Which nodes take a pod, which is best, and which slots it gets."""

from __future__ import annotations

import attrs
import pytest

from gpusched.api.affinity.selector import NodeTerm, Requirement, Taint, Toleration
from gpusched.api.gang.pod_group import TopologyRequest
from gpusched.api.meta.identity import ObjectKey, Rejected, RejectedPodUsage, ResourceVersion
from gpusched.api.meta.resources import Resources
from gpusched.api.policy.kinds import Topology
from gpusched.config.model import DEFAULT, PluginChoice, PluginTier
from gpusched.testing.entities import NOW, uid
from gpusched.testing.given import Given

NO = Taint("gpu", "yes", "NoSchedule")


def term(key, operator, *values):
    """A node affinity of one expression."""
    return [NodeTerm((Requirement(key, operator, values),))]


@pytest.mark.parametrize(
    ("node", "spec", "words"),
    [
        ({"taints": [NO]}, {}, "has a taint that it does not tolerate (gpu=yes:NoSchedule)"),
        ({"taints": [Taint("gpu", "yes", "NoExecute")]}, {}, "has a taint"),
        ({"unschedulable": True}, {}, "is cordoned"),
        ({"not_ready": "KubeletStopped"}, {}, "is not ready"),
        (
            {"labels": {"a": "1"}},
            {"node_selector": {"a": "2"}},
            "does not match its node selector (a=2, theirs is 1)",
        ),
        (
            {"labels": {"a": "1"}},
            {"node_selector": {"b": "2"}},
            "(b=2, a label that it does not have)",
        ),
        (
            {"labels": {"a": "1"}},
            {"affinity": term("a", "In", "2", "3")},
            "node affinity (a In 2 3, theirs is 1)",
        ),
        ({"labels": {"a": "1"}}, {"affinity": term("a", "NotIn", "1")}, "node affinity"),
        ({"labels": {"a": "1"}}, {"affinity": term("a", "DoesNotExist")}, "node affinity"),
        ({"labels": {"a": "1"}}, {"affinity": term("b", "Exists")}, "node affinity"),
        ({"labels": {"a": "1"}}, {"affinity": term("a", "Gt", "1")}, "node affinity"),
        ({"labels": {"a": "1"}}, {"affinity": term("a", "Lt", "1")}, "node affinity"),
        ({}, {"affinity": [NodeTerm()]}, "node affinity"),
    ],
)
def test_a_node_that_refuses_is_counted_under_its_reason(given, node, spec, words):
    """The only node is not allowed, and the sentence says why."""
    c = given.node("n", **node).gang("g", pods=1, **spec)
    assert c.when.one_session().binds == ()
    assert c.then.reason("g") == "NoFeasibleNode"
    assert "1 " in c.then.why("g")
    assert words in c.then.why("g")


@pytest.mark.parametrize(
    ("node", "spec"),
    [
        ({"taints": [NO]}, {"tolerations": [Toleration("gpu", "Equal", "yes", "NoSchedule")]}),
        ({"taints": [NO]}, {"tolerations": [Toleration("", "Exists", "", "")]}),
        (
            {"unschedulable": True, "taints": [Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")]},
            {"tolerations": [Toleration("node.kubernetes.io/unschedulable", "Exists", "", "")]},
        ),
        ({"labels": {"a": "2"}}, {"node_selector": {"a": "2"}}),
        ({"labels": {"a": "5"}}, {"affinity": term("a", "Gt", "4")}),
        ({"labels": {"a": "5"}}, {"affinity": term("a", "In", "4", "5")}),
        ({}, {"affinity": [NodeTerm(), NodeTerm(fields=(Requirement("metadata.name", "In", ("n",)),))]}),
    ],
)  # fmt: skip
def test_a_node_that_agrees_takes_the_pod(given, node, spec):
    """The counterparts."""
    c = given.node("n", **node).gang("g", pods=1, **spec)
    c.when.bound()
    assert c.then.nodes() == {"g-0": "n"}


def test_a_change_of_a_node_is_seen_by_the_filters(given):
    """What filters said is kept only as long as the node stays as it is."""
    c = given.nodes(1, unschedulable=True).gang("g", pods=1)
    assert c.when.one_session().binds == ()
    c.node("node-0")
    c.when.bound()
    assert c.then.started() == ["g"]


def test_the_number_of_pods_is_a_resource(given):
    """A node takes as many pods as its kubelet does."""
    c = given.nodes(1, pods=2).gang("g", pods=3, cpu=1)
    assert c.when.one_session().binds == ()
    assert "2 fit now" in c.then.why("g")


def test_a_request_that_no_node_could_meet(given):
    """It is told at once, with the largest that there is."""
    c = given.nodes(2, gpus=4).gang("g", pods=1, gpus=8)
    assert c.when.one_session().binds == ()
    assert c.then.reason("g") == "NoFeasibleNode"
    assert "4 nvidia.com/gpu" in c.then.why("g")


def test_a_cluster_without_nodes(given):
    """It says so."""
    c = given.gang("g", pods=1)
    assert c.when.one_session().binds == ()
    assert "no usable node" in c.then.why("g")


def test_binpack_fills_a_node_before_the_next(given):
    """Whole nodes stay free for large gangs."""
    c = given.nodes(3, gpus=8).pod("a", gpus=2, node="node-1", slots=0b11).gang("g", pods=3, gpus=2)
    c.when.bound()
    assert set(c.then.nodes().values()) == {"node-1"}


def test_spread_takes_the_emptiest():
    """As the argument says."""
    tiers = (
        DEFAULT.tiers[0],
        PluginTier((PluginChoice("predicates"), PluginChoice("nodeorder", {"strategy": "spread"}))),
    )
    c = Given(config=attrs.evolve(DEFAULT, tiers=tiers))
    c.nodes(3, gpus=8).gang("g", pods=3, gpus=2)
    c.when.bound()
    assert sorted(c.then.nodes().values()) == ["node-0", "node-1", "node-2"]


def ordered(strategy):
    """A cluster whose nodes are ordered by a strategy."""
    choice = PluginChoice("nodeorder", {"strategy": strategy})
    tiers = (DEFAULT.tiers[0], PluginTier((PluginChoice("predicates"), choice)))
    return Given(config=attrs.evolve(DEFAULT, tiers=tiers))


@pytest.mark.parametrize(("strategy", "node"), [("binpack", "node-0"), ("fragmentation", "node-1")])
def test_fragmentation_leaves_what_others_typically_ask_for(strategy, node):
    """A pod of one GPU does not break up four where most pods ask for four."""
    c = ordered(strategy).nodes(3, gpus=8)
    c.pod("a", gpus=4, node="node-0", slots=0xF).pod("b", gpus=3, node="node-1", slots=0b111)
    c.pod("x", gpus=4, node="node-2", slots=0xF).pod("y", gpus=4, node="node-2", slots=0xF0)
    c.pod("p", gpus=1)
    c.when.bound()
    assert c.then.nodes()["p"] == node


def test_fragmentation_keeps_cpu_beside_free_gpus():
    """A pod without GPUs goes where the CPU that is left serves no free GPU any more."""
    c = ordered("fragmentation").nodes(1, gpus=8, cpu=16_000).nodes(1, gpus=8, cpu=16_000)
    c.pod("full", gpus=8, cpu=8000, node="node-1", slots=0xFF)
    c.pod("plain", cpu=8000, created=NOW - 60)
    for number in range(4):
        c.pod(f"g{number}", gpus=2, cpu=4000, created=NOW - 50 + number)
    c.when.bound()
    assert c.then.nodes()["plain"] == "node-1"
    assert len([name for name in c.then.nodes() if name.startswith("g")]) == 4


def test_fragmentation_without_gpus_is_binpack():
    """Where nobody asks for GPUs nothing is broken up, and whole nodes stay free."""
    c = ordered("fragmentation").nodes(2, cpu=8000)
    c.pod("a", cpu=2000, node="node-1").pod("p", cpu=1000)
    c.when.bound()
    assert c.then.nodes()["p"] == "node-1"


def test_preference_counts_beside_fragmentation():
    """The node that a pod likes wins where both are equal otherwise."""
    like = [(100, NodeTerm((Requirement("disk", "In", ("ssd",)),)))]
    c = ordered("fragmentation").nodes(1, gpus=8).nodes(1, gpus=8, labels={"disk": "ssd"})
    c.pod("p", gpus=1, preferred=like)
    c.when.bound()
    assert c.then.nodes() == {"p": "node-1"}


def test_pods_without_gpus_avoid_nodes_with_gpus(given):
    """Unless there is no other place."""
    c = given.nodes(1, gpus=8).nodes(1, prefix="cpu", cpu=4000).gang("g", pods=6, cpu=1000)
    c.when.bound()
    places = list(c.then.nodes().values())
    assert (places.count("cpu-1"), places.count("node-0")) == (4, 2)


def test_preferred_affinity_pulls(given):
    """A preference of the pod, as far as room allows."""
    like = [(100, NodeTerm((Requirement("disk", "In", ("ssd",)),)))]
    c = given.nodes(1, labels={"disk": "hdd"}).nodes(1, labels={"disk": "ssd"})
    c.gang("g", pods=1, preferred=like)
    c.when.bound()
    assert c.then.nodes() == {"g-0": "node-1"}


# -- slots ---------------------------------------------------------------------------------
def test_slots_sit_together(given):
    """Four GPUs come from one island, and the broken one is used up first."""
    c = given.nodes(1, gpus=8, layout=[[0, 1, 2, 3], [4, 5, 6, 7]])
    c.pod("a", gpus=1, node="node-0", slots=1 << 5, plan="p")
    c.gang("four", pods=1, gpus=4, priority=1).gang("two", pods=1, gpus=2)
    c.when.bound()
    assert c.then.slots() == {"four-0": (0, 1, 2, 3), "two-0": (4, 6)}


def test_no_slot_is_given_twice(given):
    """Eight pods of one GPU have eight slots."""
    c = given.nodes(1, gpus=8).gang("g", pods=8, gpus=1)
    c.when.bound()
    assert sorted(c.then.slots().values()) == [(n,) for n in range(8)]


def test_pods_without_named_slots_are_believed_at_the_top(given):
    """A foreign pod with two GPUs of which nobody knows the numbers."""
    c = given.nodes(1, gpus=8).pod("x", scheduler="other", gpus=2, node="node-0")
    c.gang("g", pods=1, gpus=6)
    c.when.bound()
    assert c.then.slots() == {"g-0": (0, 1, 2, 3, 4, 5)}


def test_a_rejected_pod_that_is_bound_keeps_its_gpus(given):
    """Its requests are charged, and as many slots as it asks for are not given away."""
    key = ObjectKey("default", "bad")
    c = given.nodes(1, gpus=8, layout=[[0, 1, 2], [3, 4, 5, 6, 7]])
    c.cache.put_pod(
        Rejected(
            kind="Pod",
            key=key,
            uid=uid("Pod", "bad", "default"),
            resource_version=ResourceVersion("1"),
            field="metadata.labels",
            why="too many",
            charge=RejectedPodUsage("node-0", Resources.of({"nvidia.com/gpu": 2000, "pods": 1})),
        )
    )
    c.gang("g", pods=2, gpus=3)
    c.when.bound()
    assert sorted(c.then.slots().values()) == [(0, 1, 2), (3, 4, 5)]


def test_slots_of_a_rejected_pod_stay_its_own(given):
    """Its binding named slots 1 and 4: nobody else gets them."""
    key = ObjectKey("default", "bad")
    c = given.nodes(1, gpus=8, layout=[[0, 1, 2, 3], [4, 5, 6, 7]])
    c.cache.put_pod(
        Rejected(
            kind="Pod",
            key=key,
            uid=uid("Pod", "bad", "default"),
            resource_version=ResourceVersion("1"),
            field="metadata.labels",
            why="too many",
            charge=RejectedPodUsage(
                "node-0", Resources.of({"nvidia.com/gpu": 2000, "pods": 1}), 0b10010
            ),
        )
    )
    c.gang("g", pods=2, gpus=3)
    c.when.bound()
    assert sorted(c.then.slots().values()) == [(0, 2, 3), (5, 6, 7)]


def test_a_conflict_over_a_slot_blocks_both(given):
    """Two pods claim slot 0: as many GPUs as they ask for are gone."""
    cache = Given()
    cache.nodes(1, gpus=4)
    for name in ("a", "b"):
        cache.pod(name, scheduler="other", gpus=1, node="node-0", slots=1)
    cache.gang("g", pods=1, gpus=3)
    assert cache.when.one_session().binds == ()


# -- topology ------------------------------------------------------------------------------
def racks(given, free):
    """Racks r0 and on with so many nodes of eight GPUs each."""
    for number, count in enumerate(free):
        given.nodes(count, gpus=8, rack=f"r{number}")
    return given


def test_required_topology_holds(given):
    """All members in one rack, or the best rack is named with its number."""
    c = racks(given, [2, 3]).gang("g", pods=3, gpus=8, topology=TopologyRequest(required="rack"))
    c.gang("h", pods=4, gpus=8, topology=TopologyRequest(required="rack"))
    c.when.bound()
    assert set(c.then.nodes().values()) == {"node-2", "node-3", "node-4"}
    assert c.then.reason("h") == "TopologyUnsatisfiable"
    assert (
        "needs 4 pods with 8 nvidia.com/gpu, 1 cpu, 1Gi memory in one rack; best rack r0 has room for 2"
        in c.then.why("h")
    )


def test_the_tightest_rack_is_taken(given):
    """A gang of two does not break the rack of three."""
    c = racks(given, [3, 2]).gang("g", pods=2, gpus=8, topology=TopologyRequest(required="rack"))
    c.when.bound()
    assert set(c.then.nodes().values()) == {"node-3", "node-4"}


def test_a_gang_in_part_stays_in_its_rack(given):
    """The rest of it goes where its first member is."""
    c = racks(given, [2, 2]).gang("g", pods=2, gpus=8, topology=TopologyRequest(required="rack"))
    c.pod("g-0", group="g", gpus=8, node="node-2", slots=255, plan="p", scheduled=NOW)
    c.when.bound()
    assert c.then.nodes() == {"g-1": "node-3"}


def test_a_preferred_level_gives_way(given):
    """Without a wait it takes what there is."""
    c = racks(given, [1, 1]).gang("g", pods=2, gpus=8, topology=TopologyRequest(preferred="rack"))
    c.when.bound()
    assert len(c.then.nodes()) == 2


def test_a_preferred_level_is_waited_for(given):
    """Up to maxWait, and then no longer."""
    wish = TopologyRequest(preferred="rack", max_wait_ns=3600 * 10**9)
    c = racks(given, [1, 1]).gang("g", pods=2, gpus=8, topology=wish)
    assert c.when.one_session().binds == ()
    assert c.then.reason("g") == "WaitingForTopology"
    assert "up to 3600 s" in c.then.why("g")
    c.now += 3600
    c.when.bound()
    assert len(c.then.nodes()) == 2


def test_a_preference_that_fits_nowhere_is_a_lack_of_room(given):
    """It does not wait for a rack: there is no room in the whole cluster."""
    c = racks(given, [1, 1]).gang("g", pods=3, gpus=8, topology=TopologyRequest(preferred="rack"))
    assert c.when.one_session().binds == ()
    assert c.then.reason("g") in ("InsufficientResources", "NoFeasibleNode")
    assert "2 fit now" in c.then.why("g")


def test_an_unknown_level_is_named(given):
    """With those that exist."""
    c = racks(given, [1]).gang("g", pods=1, topology=TopologyRequest(required="row"))
    assert c.when.one_session().binds == ()
    assert c.then.why("g") == "topology level 'row' does not exist; levels are: rack, host"


def test_a_level_without_any_node(given):
    """A Topology names a label that no node has."""
    c = given.nodes(1, gpus=8)
    levels = (("row", "example.com/row"), ("host", "kubernetes.io/hostname"))
    c.cache.topologies.put(
        ObjectKey("", "t"),
        Topology(name="t", uid=uid("Topology", "t"), resource_version="1", levels=levels),
    )
    c.gang("g", pods=1, topology=TopologyRequest(required="row"))
    assert c.when.one_session().binds == ()
    assert "no node is labelled for topology level 'row'" in c.then.why("g")


def test_extras_keep_to_a_required_level(given):
    """An elastic member does not leave the rack of its gang."""
    wish = TopologyRequest(required="rack")
    c = racks(given, [1, 1]).gang("g", pods=2, min_member=1, gpus=8, topology=wish)
    c.when.bound()
    assert len(c.then.nodes()) == 1
    c.when.bound()
    assert c.then.plan.binds == ()


def test_nodes_agree_on_every_wider_level(given):
    """Rack r1 of zone a is not rack r1 of zone b."""
    zone = "topology.kubernetes.io/zone"
    c = given.nodes(1, gpus=8, rack="r1", labels={zone: "a"})
    c.nodes(1, gpus=8, rack="r1", labels={zone: "b"})
    c.gang("g", pods=2, gpus=8, topology=TopologyRequest(required="rack"))
    assert c.when.one_session().binds == ()
    assert "best rack a/r1 has room for 1" in c.then.why("g")


def test_each_node_is_counted_once_with_all_that_it_lacks(given: Given) -> None:
    """Given nodes that lack one thing, another, and both, the numbers add up to the nodes."""
    c = given.nodes(1, prefix="busy", gpus=8).nodes(1, prefix="small", gpus=8, cpu=1000)
    c.nodes(2, prefix="both", gpus=8, cpu=1000)
    for name in ("busy-0", "both-2", "both-3"):
        c.pod(f"on-{name}", gpus=8, cpu=0, memory=0, node=name, scheduler="other")
    c.pod("p", gpus=8, cpu=2000, memory=0)
    assert c.when.one_session().binds == ()
    assert c.then.why("p") == (
        "needs 1 pod with 8 nvidia.com/gpu, 2 cpu; none fit now; of 4 nodes: "
        "2 lack free nvidia.com/gpu and have less than 2 cpu in all, "
        "1 has less than 2 cpu in all, 1 lacks free nvidia.com/gpu"
    )


def test_taints_and_labels_beyond_two_are_told_as_others(given: Given) -> None:
    """Given three nodes with three taints, two are named, whichever node comes first."""
    for name in ("c", "a", "b"):
        c = given.nodes(1, prefix=name, gpus=8, taints=[Taint(name, "", "NoSchedule")])
    c.pod("p", gpus=8)
    assert c.when.one_session().binds == ()
    assert "3 have a taint that it does not tolerate (a:NoSchedule, b:NoSchedule and others)" in (
        c.then.why("p")
    )
