"""NVLink domains and other levels that slices tell, where no node label does."""

from __future__ import annotations

import pytest

from gpusched.api.gang.pod_group import TopologyRequest
from gpusched.api.meta.identity import ObjectKey
from gpusched.api.policy.kinds import Topology
from tests.session.devices.conftest import exactly, gpu

CLIQUE = "clique"
HANDED_OUT = {"name": "channel-0", "attributes": {"type": {"string": "channel"}}}


def gpus_of(clique, count=1):
    """GPUs whose driver tells the NVLink domain that they are in."""
    told = {"cliqueID": {"string": clique}}
    return [
        {"name": f"gpu-{number}", "attributes": {**gpu(number)["attributes"], **told}}
        for number in range(count)
    ]


def nodes_with_gpus(given, devices, cliques, *, tell):
    """One GPU a node, all in one rack; ``tell`` says how a node's domain is told."""
    for number, clique in enumerate(cliques):
        labels = {"gpusched.io/rack": "r", **({"pool": clique} if clique else {})}
        if tell == "label" and clique:
            labels["nvidia.com/gpu.clique"] = clique
        given.node(f"n{number}", labels=labels)
        told = gpus_of(clique) if tell == "attribute" and clique else [gpu(0)]
        devices.on_node(f"n{number}", told)
    if tell == "channels":
        for clique in sorted(set(filter(None, cliques))):
            terms = [{"matchExpressions": [{"key": "pool", "operator": "In", "values": [clique]}]}]
            devices.put(
                "ResourceSlice", f"domain-{clique}",
                spec={
                    "driver": "compute-domain.nvidia.com",
                    "nodeSelector": {"nodeSelectorTerms": terms},
                    "pool": {"name": clique, "generation": 1, "resourceSliceCount": 1},
                    "devices": [HANDED_OUT],
                },
            )  # fmt: skip


def gang(given, devices, name, pods, topology):
    """A gang of pods with one GPU each."""
    given.group(name, min_member=pods, topology=topology)
    for number in range(pods):
        devices.pod(f"{name}-{number}", group=name, template="one", rank=number)


@pytest.mark.parametrize("tell", ["label", "attribute", "channels"])
def test_a_gang_that_requires_a_clique_is_in_one(given, devices, tell):
    """n0 and n1 come first, but only three nodes of clique b are joined."""
    nodes_with_gpus(given, devices, ["a", "b", "a", "b", "b", ""], tell=tell)
    devices.template("one", exactly("g", "gpu"))
    gang(given, devices, "g", 3, TopologyRequest(required=CLIQUE))
    plan = given.when.one_session()
    assert set(given.then.nodes().values()) == {"n1", "n3", "n4"}, given.then.why("g")
    (bound,) = plan.binds
    assert bound.proof == "optimal"


def test_a_clique_that_is_too_small_is_named(given, devices):
    nodes_with_gpus(given, devices, ["a", "b", "a", "b", "b"], tell="attribute")
    devices.template("one", exactly("g", "gpu"))
    gang(given, devices, "g", 4, TopologyRequest(required=CLIQUE))
    given.when.one_session()
    assert given.then.started() == []
    assert "in one clique; best clique r/b has room for 3" in given.then.why("g")


def test_gangs_that_ask_for_nothing_stay_in_one_clique(given, devices):
    """It is a level as others are, between rack and host."""
    nodes_with_gpus(given, devices, ["a", "b", "a", "b"], tell="attribute")
    devices.template("one", exactly("g", "gpu"))
    gang(given, devices, "g", 2, TopologyRequest())
    given.when.one_session()
    assert set(given.then.nodes().values()) in ({"n0", "n2"}, {"n1", "n3"})


def test_the_label_of_a_node_comes_before_what_its_devices_tell(given, devices):
    given.node("n0", labels={"nvidia.com/gpu.clique": "x"})
    given.node("n1", labels={"nvidia.com/gpu.clique": "x"})
    devices.on_node("n0", gpus_of("a"))
    devices.on_node("n1", gpus_of("b"))
    devices.template("one", exactly("g", "gpu"))
    gang(given, devices, "g", 2, TopologyRequest(required=CLIQUE))
    given.when.one_session()
    assert len(given.then.nodes()) == 2


def test_devices_that_disagree_tell_no_domain(given, devices):
    given.nodes(1)
    devices.on_node(
        "node-0", [{**gpus_of("a")[0], "name": "gpu-0"}, {**gpus_of("b")[0], "name": "gpu-1"}]
    )
    devices.template("one", exactly("g", "gpu"))
    gang(given, devices, "g", 2, TopologyRequest(required=CLIQUE))
    given.when.one_session()
    assert given.then.started() == []
    assert "clique" in given.then.why("g")


def test_a_topology_may_name_an_attribute_of_devices(given, devices):
    """A level of the configuration, and one that a gang names itself."""
    for number, plane in enumerate("abab"):
        given.node(f"n{number}")
        attributes = {"plane": {"string": plane}}
        devices.on_node(f"n{number}", [{"name": "gpu-0", "attributes": attributes}])
    devices.template("one", exactly("g", "gpu"))
    gang(given, devices, "asks", 2, TopologyRequest(required="gpu.example.com/plane"))
    given.when.one_session()
    assert set(given.then.nodes().values()) in ({"n0", "n2"}, {"n1", "n3"}), given.then.why("asks")


def test_a_level_of_the_configuration_may_be_an_attribute(given, devices):
    """Four gangs of two fill four planes, wherever the first of each begins."""
    for number, plane in enumerate("abcdabcd"):
        given.node(f"n{number}")
        devices.on_node(
            f"n{number}", [{"name": "gpu", "attributes": {"plane": {"int": ord(plane)}}}]
        )
    levels = (("plane", "gpu.example.com/plane"), ("host", "kubernetes.io/hostname"))
    made = Topology(name="t", uid="t", resource_version="1", levels=levels)
    given.cache.topologies.put(ObjectKey("", "t"), made)
    devices.template("one", exactly("g", "gpu"))
    for name in "wxyz":
        gang(given, devices, name, 2, TopologyRequest(required="plane"))
    given.when.one_session()
    nodes = given.then.nodes()
    assert len(nodes) == 8
    assert all(int(nodes[f"{name}-0"][1]) % 4 == int(nodes[f"{name}-1"][1]) % 4 for name in "wxyz")


def test_what_slices_tell_later_counts_from_then_on(given, devices):
    nodes_with_gpus(given, devices, ["a", "b", "a"], tell="")
    devices.template("one", exactly("g", "gpu"))
    gang(given, devices, "g", 2, TopologyRequest(required=CLIQUE))
    given.when.one_session()
    assert given.then.started() == []
    for number, clique in enumerate("aba"):
        devices.on_node(f"n{number}", gpus_of(clique))
    given.when.one_session()
    assert set(given.then.nodes().values()) == {"n0", "n2"}, given.then.why("g")
