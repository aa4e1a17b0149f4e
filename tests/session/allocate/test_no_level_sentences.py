"""Gangs of several kinds of pods that find no domain of their level: what the sentence is about."""

from __future__ import annotations

import pytest

from gpusched.api.gang.pod_group import TopologyRequest
from gpusched.api.meta.identity import UID, ObjectKey, ResourceVersion
from gpusched.api.policy.kinds import Topology
from gpusched.testing.entities import NOW
from gpusched.testing.given import Given

RACK = TopologyRequest(required="rack")


def racks(c: Given, *gpus: list[int]) -> Given:
    """Racks of nodes with so many GPUs each."""
    for rack, sizes in enumerate(gpus):
        for number, size in enumerate(sizes):
            c.nodes(
                1, prefix=f"r{rack}-{number}", gpus=size, labels={"gpusched.io/rack": f"r{rack}"}
            )
    return c


def mixed(c: Given, *kinds: tuple[int, int]) -> Given:
    """Gang ``g`` of so many pods with so many GPUs, kind by kind."""
    c.group("g", min_member=sum(count for count, _ in kinds), topology=RACK)
    for at, (count, gpus) in enumerate(kinds):
        c.pods(f"g-{at}", count, group="g", gpus=gpus, cpu=0, memory=0)
    return c


def test_the_kind_that_fits_nowhere_is_the_one_told(given: Given) -> None:
    """No node holds 7 GPUs: the two pods of 2, which fit, are not what is missing."""
    c = mixed(racks(given, [4, 4], [4]), (2, 2), (1, 7))
    assert c.when.one_session().binds == ()
    assert c.then.why("g") == (
        "needs 1 pod with 7 nvidia.com/gpu in one rack; best rack r0 has room for 0; "
        "no allowed node offers more than 4 nvidia.com/gpu"
    )


def test_a_rack_never_lacks_what_it_has_room_for(given: Given) -> None:
    """Whatever the mix, the sentence names more than there is room for, or says together."""
    c = mixed(racks(given, [8], [8, 2]), (2, 3), (1, 4))
    assert c.when.one_session().binds == ()
    assert c.then.why("g").startswith("needs 3 pods in one rack; best rack r")
    assert "has room for 2" in c.then.why("g")


def test_one_node_is_one_node(given: Given) -> None:
    """Grammar of a rack with a single node."""
    c = racks(given, [8]).pod("foreign", gpus=8, node="r0-0-0", scheduler="other")
    c.gang("g", pods=1, gpus=8, cpu=0, memory=0, topology=RACK)
    assert c.when.one_session().binds == ()
    assert "of its 1 node 1 lack" in c.then.why("g")


def test_a_gang_that_no_rack_could_ever_hold_is_told_so(given: Given) -> None:
    """Racks of two nodes and of one, for four pods: nobody who leaves would help."""
    c = racks(given, [8, 8], [8]).pod("a", gpus=8, node="r0-0-0", slots=255, plan="p")
    c.gang("g", pods=4, gpus=8, cpu=0, memory=0, topology=RACK)
    assert c.when.one_session().binds == ()
    assert c.then.why("g") == (
        "needs 4 pods with 8 nvidia.com/gpu in one rack; best rack r0 has room for 1; "
        "even empty no rack has room for more than 2"
    )


def test_who_is_in_the_way_is_named_where_a_rack_could_hold_it(given: Given) -> None:
    """The same racks for two pods: one that leaves is enough."""
    c = racks(given, [8, 8], [8]).pod("a", gpus=8, node="r0-0-0", slots=255, plan="p")
    c.gang("g", pods=2, gpus=8, cpu=0, memory=0, topology=RACK)
    assert c.when.one_session().binds == ()
    assert c.then.why("g").endswith("best rack r0 has room for 1 (1 held by default/a)")


def test_a_gang_is_not_told_that_it_holds_its_own_place(given: Given) -> None:
    """A member is lost and its rack is full: who sits there is its sibling, which stays."""
    c = racks(given, [8, 8]).gang("g", pods=1, min_member=2, gpus=8, topology=RACK)
    c.pod("g-9", group="g", gpus=8, node="r0-0-0", slots=255, plan="p", scheduled=NOW)
    c.pod("other", gpus=8, node="r0-1-1", slots=255, plan="p", scheduled=NOW)
    assert c.when.one_session().binds == ()
    assert "default/g" not in c.then.why("g")
    assert "best rack r0 has room for 0" in c.then.why("g")


@pytest.mark.parametrize("names", [("alt", "default"), ("default", "zoo")])
def test_the_topology_named_default_counts(given: Given, names: tuple[str, str]) -> None:
    """A second Topology object, whatever its name, does not take the levels away."""
    c = racks(given, [8, 8])
    for at, name in enumerate(names):
        label = "gpusched.io/rack" if name == "default" else "example.com/row"
        level = "rack" if name == "default" else "row"
        made = Topology(
            name=name, uid=UID(f"t{at}"), resource_version=ResourceVersion(f"{at}"),
            levels=((level, label),),
        )  # fmt: skip
        c.cache.topologies.put(ObjectKey("", name), made)
    c.gang("g", pods=2, gpus=8, topology=RACK)
    c.when.bound()
    assert len(c.then.nodes()) == 2
