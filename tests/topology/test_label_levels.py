"""Node labels that gangs name as a level although no Topology names them."""

from __future__ import annotations

import pytest

from gpusched.api.gang.pod_group import TopologyRequest
from gpusched.testing import invariants
from gpusched.testing.given import Given

CAGE = "topology.example.com/cage"


@pytest.fixture
def c():
    """A cluster whose invariants hold in the end."""
    made = Given()
    yield made
    assert invariants.check(made.objects(), now=made.now) == []


def in_one(label, *, preferred=""):
    """The request for one domain of a node label."""
    return TopologyRequest(required=label, preferred=preferred)


def nodes(c, gpus=1, **cages):
    """Nodes by cage, as many as said, in racks as their names say: ``a1_r0``."""
    for name, value in cages.items():
        labels = {"gpusched.io/rack": name.partition("_")[2]} | ({CAGE: value} if value else {})
        c.node(name, gpus=gpus, labels=labels)


def test_nodes_of_one_value_are_one_domain(c):
    """Given cages of two and of three nodes, a gang of three goes to the larger one."""
    nodes(c, n0_r0="a", n1_r0="a", n2_r1="b", n3_r1="b", n4_r1="b")
    c.gang("g", pods=3, gpus=1, topology=in_one(CAGE))
    then = c.when.one_session()
    assert set(c.then.nodes().values()) == {"n2_r1", "n3_r1", "n4_r1"}, then


def test_a_label_may_cross_the_levels_of_the_cluster(c):
    """Given a cage of nodes of two racks, a gang may use it across the racks, and only it."""
    nodes(c, n0_r0="a", n1_r0="b", n2_r1="b", n3_r1="a")
    c.gang("g", pods=2, gpus=1, topology=in_one(CAGE))
    c.when.one_session()
    assert set(c.then.nodes().values()) in ({"n0_r0", "n3_r1"}, {"n1_r0", "n2_r1"})


def test_two_levels_that_cross_are_refused_with_both_names(c):
    """One domain of each at once cannot be said in a tree."""
    nodes(c, n0_r0="a", n1_r0="b", n2_r1="b", n3_r1="a")
    c.gang("g", pods=1, gpus=1, topology=in_one(CAGE, preferred="rack"))
    c.when.one_session()
    assert c.then.reason("g") == "InvalidSpec"
    assert f"{CAGE} and rack divide each other's domains" in c.then.why("g")


def test_the_largest_domain_is_named_where_none_is_large_enough(c):
    """A node without the label is in no domain."""
    nodes(c, n0_r0="a", n1_r0="a", n2_r1="b", n3_r1="")
    c.gang("g", pods=3, gpus=1, topology=in_one(CAGE))
    c.when.one_session()
    assert c.then.reason("g") == "TopologyUnsatisfiable"
    assert f"in one {CAGE}; best {CAGE} a has room for 2" in c.then.why("g")


def test_a_label_that_no_node_has_is_no_level(c):
    """The levels that exist are named, not labels that others ask for."""
    nodes(c, n0_r0="a", n1_r0="a")
    c.gang("g", pods=2, gpus=1, topology=in_one("topology.example.com/row"))
    c.gang("h", pods=2, gpus=1, topology=in_one(CAGE))
    c.when.one_session()
    assert c.then.reason("g") == "TopologyUnsatisfiable"
    assert c.then.why("g") == (
        "no node has the label 'topology.example.com/row', nor is it a topology level; "
        "levels are: rack, host"
    )
    assert c.then.started() == ["h"]


def test_other_gangs_are_placed_as_if_nobody_named_the_label(c):
    """Given a gang that fits no cage, another's places do not depend on cages."""
    for number in range(8):
        c.node(f"n{number}", gpus=1, labels={CAGE: "ab"[number % 2], "gpusched.io/rack": "r"})
    c.gang("free", pods=4, gpus=1)
    c.when.one_session()
    before = c.then.nodes()
    again = Given()
    for number in range(8):
        again.node(f"n{number}", gpus=1, labels={CAGE: "ab"[number % 2], "gpusched.io/rack": "r"})
    again.gang("free", pods=4, gpus=1)
    again.gang("needy", pods=9, gpus=1, topology=in_one(CAGE))
    again.when.one_session()
    assert again.then.nodes() == before
    assert len(before) == 4
