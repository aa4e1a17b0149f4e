"""Sub-groups in sub-groups: each is complete with enough of those in it, in a domain of its own."""

from __future__ import annotations

import pytest

from gpusched.api.gang.pod_group import NO_TOPOLOGY_REQUEST, SubGroup, TopologyRequest
from gpusched.api.pod.pod import PodPhase
from gpusched.testing import entities

RACK, ZONE = TopologyRequest(required="rack"), TopologyRequest(required="zone")


def zones(c, **racks):
    """Racks of so many nodes of one GPU by zone: ``z0=(2, 2)``."""
    for zone, sizes in racks.items():
        for number, size in enumerate(sizes):
            rack = f"{zone}r{number}"
            labels = {"topology.kubernetes.io/zone": zone, "gpusched.io/rack": rack}
            for node in range(size):
                c.node(f"{rack}-{node}", gpus=1, labels=labels)
    return c


def slices(c, count, size, *, least=None, slice_wish=RACK, around=ZONE, pods=None, **group):
    """A gang of slices in one sub-group around them, of which some are needed."""
    parts = [SubGroup(f"s{n}", size, slice_wish, "all") for n in range(count)]
    holder = SubGroup("all", 0, around, min_sub_groups=count if least is None else least)
    c.group("g", sub_groups=(holder, *parts), min_sub_groups=1, **{"min_member": 1} | group)
    for n in range(count):
        c.pods(f"g-s{n}", size if pods is None else pods, group="g", sub_group=f"s{n}", gpus=1)
    return c


def racks_of(c):
    """Racks of the pods that the plan binds, by sub-group."""
    found = {}
    for name, node in c.then.nodes().items():
        found.setdefault(name.split("-")[1], set()).add(node.split("-")[0])
    return found


def test_slices_in_a_rack_each_and_all_in_one_zone(given):
    """The first zone has more GPUs, but only the second one has three racks that hold two pods."""
    c = slices(zones(given, z0=(5, 1), z1=(2, 2, 2)), 3, 2)
    c.when.one_session()
    found = racks_of(c)
    assert sorted(found) == ["s0", "s1", "s2"]
    assert all(len(racks) == 1 for racks in found.values())
    assert {rack[:2] for racks in found.values() for rack in racks} in ({"z0"}, {"z1"})


def test_two_of_three_slices_start_where_no_zone_holds_three(given):
    """Room for five pods in a zone: two slices of two, and never half of the third."""
    c = slices(zones(given, z0=(2, 2, 1), z1=(2, 1)), 3, 2, least=2)
    c.when.one_session()
    found = racks_of(c)
    assert len(c.then.nodes()) == 4
    assert len(found) == 2
    assert {rack[:2] for racks in found.values() for rack in racks} == {"z0"}


def test_slices_that_fit_no_common_zone_start_nothing_and_are_told_why(given):
    """Two zones with room for one slice each."""
    c = slices(zones(given, z0=(2, 1), z1=(2, 1)), 2, 2)
    assert c.when.one_session().binds == ()
    assert c.then.reason("g") == "TopologyUnsatisfiable"
    why = c.then.why("g")
    assert "sub-group all needs 2 of 2 sub-groups complete; 1 can be" in why
    assert "in one zone" in why


def test_four_levels_of_sub_groups(given):
    """A chain of holders, the innermost of which needs one of two."""
    c = zones(given, z0=(2,), z1=(3,))
    groups = [
        SubGroup("a", 0, ZONE, min_sub_groups=1),
        SubGroup("b", 0, NO_TOPOLOGY_REQUEST, "a", min_sub_groups=1),
        SubGroup("c", 0, RACK, "b", min_sub_groups=1),
        SubGroup("x", 3, NO_TOPOLOGY_REQUEST, "c"),
        SubGroup("y", 4, NO_TOPOLOGY_REQUEST, "c"),
    ]
    c.group("g", min_member=1, sub_groups=tuple(groups), min_sub_groups=1)
    c.pods("g-x", 3, group="g", sub_group="x", gpus=1)
    c.pods("g-y", 4, group="g", sub_group="y", gpus=1)
    c.when.one_session()
    assert racks_of(c) == {"x": {"z1r0"}}


def test_a_lost_member_returns_to_its_rack_and_its_zone(given):
    """Of two slices that ran one lost a pod; another zone has more room."""
    c = slices(zones(given, z0=(2, 2, 1), z1=(4, 4)), 2, 2)
    for name, node in (("s0-0", "z0r0-0"), ("s0-1", "z0r0-1"), ("s1-0", "z0r1-0")):
        c.pod(
            f"g-{name}", group="g", sub_group=name[:2], gpus=1, node=node, slots=1, plan="p",
            phase=PodPhase.RUNNING, scheduled=entities.BORN,
        )  # fmt: skip
    c.when.one_session()
    assert c.then.nodes() == {"g-s1-1": "z0r1-1"}


def test_a_further_slice_joins_as_a_whole_and_in_the_zone(given):
    """Two of three are needed and fit first; the third fits too, in the same zone only."""
    c = slices(zones(given, z0=(2, 2, 2), z1=(2, 2)), 3, 2, least=2)
    c.when.one_session()
    found = racks_of(c)
    assert sorted(found) == ["s0", "s1", "s2"]
    assert {rack[:2] for racks in found.values() for rack in racks} == {"z0"}


@pytest.mark.parametrize("nested", [False, True])
def test_a_level_that_no_node_is_labelled_for_is_told(given, nested):
    """A sub-group that must be in one rack starts nowhere while there are no racks."""
    parts = (SubGroup("a", 2, NO_TOPOLOGY_REQUEST if nested else RACK, "h" if nested else ""),)
    holders = (SubGroup("h", 0, RACK, min_sub_groups=1),) if nested else ()
    c = given.nodes(4, gpus=1)
    c.group("g", min_member=2, sub_groups=(*holders, *parts), min_sub_groups=1)
    c.pods("g-a", 2, group="g", sub_group="a", gpus=1)
    assert c.when.one_session().binds == ()
    assert "no node is labelled for topology level 'rack'" in c.then.why("g")


def test_a_sub_group_that_needs_more_than_there_are_in_it_never_starts(given):
    """Of three groups that an inner one needs two exist, with all their pods: a third may come."""
    parts = [SubGroup("all", 0, NO_TOPOLOGY_REQUEST, min_sub_groups=3)]
    parts += [SubGroup(f"s{n}", 2, NO_TOPOLOGY_REQUEST, "all") for n in range(2)]
    c = given.nodes(8, gpus=1)
    c.group("g", min_member=1, sub_groups=tuple(parts), min_sub_groups=1)
    for n in range(2):
        c.pods(f"g-s{n}", 2, group="g", sub_group=f"s{n}", gpus=1)
    assert c.when.one_session().binds == ()
    assert "sub-group all needs 3 sub-groups complete; 2 exist" in c.then.why("g")


def test_room_waits_for_a_member_of_a_slice_that_nobody_made_again_yet(given):
    """Two slices of two run with one pod lost: its rack keeps a GPU, though others ask for it."""
    c = zones(given, z0=(2, 2))
    parts = [SubGroup("all", 0, ZONE, min_sub_groups=2)]
    parts += [SubGroup(f"s{n}", 2, RACK, "all") for n in range(2)]
    c.group("g", min_member=4, sub_groups=tuple(parts), min_sub_groups=1, phase="Running")
    for name, node in (("s0-0", "z0r0-0"), ("s0-1", "z0r0-1"), ("s1-0", "z0r1-0")):
        c.pod(
            f"g-{name}", group="g", sub_group=name[:2], gpus=1, node=node, slots=1, plan="p",
            phase=PodPhase.RUNNING, scheduled=entities.BORN,
        )  # fmt: skip
    c.gang("other", pods=1, gpus=1)
    assert c.when.one_session().binds == ()
