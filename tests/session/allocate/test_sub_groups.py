"""Sub-groups start with their minimum or not at all, each in its own domain, in any order."""

from __future__ import annotations

import pytest

from gpusched.api.gang.pod_group import NO_TOPOLOGY_REQUEST, SubGroup, TopologyRequest
from gpusched.api.pod.pod import PodPhase
from gpusched.testing import entities

IN_ONE_RACK = TopologyRequest(required="rack")


def racks(c, *sizes, gpus=1):
    """One rack for each size, with so many nodes."""
    for number, size in enumerate(sizes):
        c.nodes(size, gpus=gpus, rack=f"r{number}", prefix=f"r{number}")
    return c


def parted(
    c, name, parts, *, wish=NO_TOPOLOGY_REQUEST, least=None, topology=NO_TOPOLOGY_REQUEST, **pods
):
    """A gang with sub-groups of so many pods of one GPU, all of which each needs."""
    c.group(
        name,
        min_member=pods.pop("min_member", 1),
        sub_groups=tuple(SubGroup(part, count, wish) for part, count in parts.items()),
        min_sub_groups=len(parts) if least is None else least,
        topology=topology,
    )
    for part, count in parts.items():
        c.pods(f"{name}-{part}", count, group=name, sub_group=part, gpus=1)
    return c


def rack_of(c):
    """Racks of the pods that the plan binds, by sub-group."""
    found = {}
    for name, node in c.then.nodes().items():
        found.setdefault(name.split("-")[1], set()).add(node.split("-")[0])
    return found


@pytest.mark.parametrize("names", [("x", "y"), ("y", "x")])
def test_each_sub_group_has_its_rack_whatever_the_order(given, names):
    """Two pods in the rack with two nodes, one in the other: the only way that works is found."""
    first, second = names
    c = parted(racks(given, 2, 1), "g", {first: 2, second: 1}, wish=IN_ONE_RACK)
    c.when.one_session()
    assert rack_of(c) == {first: {"r0"}, second: {"r1"}}


def test_a_gang_starts_with_enough_sub_groups_and_never_with_half_of_one(given):
    """Room for five pods of three pairs, of which two are needed: four are bound."""
    c = parted(given.nodes(5, gpus=1), "g", {"a": 2, "b": 2, "c": 2}, least=2)
    c.when.one_session()
    assert len(c.then.nodes()) == 4
    counts = {}
    for name in c.then.nodes():
        counts[name.split("-")[1]] = counts.get(name.split("-")[1], 0) + 1
    assert sorted(counts.values()) == [2, 2]


def test_too_few_complete_sub_groups_start_nothing(given):
    """The sentence names the sub-group that finds no room."""
    c = parted(racks(given, 2, 1), "g", {"a": 2, "b": 2}, wish=IN_ONE_RACK)
    assert c.when.one_session().binds == ()
    assert c.then.reason("g") == "TopologyUnsatisfiable"
    assert "needs 2 of 2 sub-groups complete; 1 can be" in c.then.why("g")
    assert "2 pods in one rack" in c.then.why("g")


def test_the_gangs_own_domain_holds_all_its_sub_groups(given):
    """Racks in two zones: both sub-groups must be in one zone, each in one rack."""
    c = given
    for zone, rack, count in (("z0", "a", 2), ("z0", "b", 2), ("z1", "c", 3), ("z1", "d", 1)):
        labels = {"topology.kubernetes.io/zone": zone, "gpusched.io/rack": rack}
        c.nodes(count, gpus=1, labels=labels, prefix=rack)
    zone = TopologyRequest(required="zone")
    parted(c, "g", {"x": 2, "y": 2}, wish=IN_ONE_RACK, topology=zone)
    c.when.one_session()
    assert rack_of(c) in ({"x": {"a"}, "y": {"b"}}, {"x": {"b"}, "y": {"a"}})


def test_members_beyond_the_sub_groups_count_towards_the_minimum(given):
    """Two sub-groups of one and a minimum of three: any third member is needed too."""
    c = parted(given.nodes(2, gpus=1), "g", {"a": 1, "b": 1}, min_member=3)
    c.pod("g-more-0", group="g", gpus=1)
    assert c.when.one_session().binds == ()
    c.nodes(1, gpus=1)
    c.when.one_session()
    assert len(c.then.nodes()) == 3


def test_a_lost_member_returns_to_the_rack_of_its_sub_group(given):
    """A replacement joins its sub-group's survivors, though another rack is emptier."""
    c = racks(given, 2, 3)
    parted(c, "g", {"a": 2}, wish=IN_ONE_RACK)
    c.pod(
        "g-a-0", group="g", sub_group="a", gpus=1, node="r0-0", slots=1, plan="p",
        phase=PodPhase.RUNNING, scheduled=entities.BORN,
    )  # fmt: skip
    c.when.one_session()
    assert c.then.nodes() == {"g-a-1": "r0-1"}


def test_a_name_that_the_group_does_not_know_is_told(given):
    """A pod that names another sub-group is a mistake somebody must hear of."""
    c = parted(given.nodes(4, gpus=1), "g", {"a": 1})
    c.pod("g-b-0", group="g", sub_group="b", gpus=1)
    c.when.one_session()
    assert "sub-group 'b'" in c.then.why("g")


def test_the_rack_that_comes_nearest_is_named(given):
    """No rack holds three at all: the roomiest is named, and what else binds the sub-groups."""
    c = racks(given, 2, 1)
    parts = (SubGroup("a", 3, IN_ONE_RACK),)
    c.group("g", min_member=3, sub_groups=parts, min_sub_groups=1)
    c.pods("g-a", 3, group="g", sub_group="a", gpus=1)
    assert c.when.one_session().binds == ()
    assert "sub-group a finds no room for 3 pods in one rack; best rack r0 has room for 2" in (
        c.then.why("g")
    )


@pytest.mark.parametrize(("nodes", "least"), [(2, 3), (2, 4), (3, 4)])
def test_a_minimum_above_those_of_the_sub_groups_is_what_is_told(given, nodes, least):
    """Room for both sub-groups but not for minMember: no sub-group is said to find no room."""
    parts = (SubGroup("a", 1, NO_TOPOLOGY_REQUEST), SubGroup("b", 1, NO_TOPOLOGY_REQUEST))
    c = given.nodes(nodes, gpus=1)
    c.group("g", min_member=least, sub_groups=parts, min_sub_groups=2)
    for part in "ab":
        c.pods(f"g-{part}", 2, group="g", sub_group=part, gpus=1)
    assert c.when.one_session().binds == ()
    why = c.then.why("g")
    assert why.startswith(f"needs {least} pods together; its sub-groups find room with 2 pods")
    assert f"there is no room for {least - 2} more" in why
    assert "sub-group b" not in why
