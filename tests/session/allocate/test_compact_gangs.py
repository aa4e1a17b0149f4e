"""Gangs as a whole: the most compact place there is, the proof of it, and words where there is none."""

from __future__ import annotations

import attrs
import pytest

from gpusched.api.gang.pod_group import SubGroup, TopologyRequest
from gpusched.config.model import DEFAULT, PluginChoice, PluginTier
from gpusched.testing.entities import NOW
from gpusched.testing.given import Given

RACK = TopologyRequest(required="rack")


def tree(c: Given, blocks: list[list[int]], *, gpus: int = 8) -> Given:
    """Blocks of racks with so many free nodes each; node names tell block and rack."""
    for block, racks in enumerate(blocks):
        for rack, count in enumerate(racks):
            c.nodes(
                count,
                prefix=f"b{block}-r{rack}",
                gpus=gpus,
                labels={"gpusched.io/block": f"b{block}", "gpusched.io/rack": f"r{rack}"},
            )
    return c


def racks_used(c: Given) -> set[str]:
    """Prefixes of the nodes that were taken."""
    return {name.rsplit("-", 1)[0] for name in c.then.nodes().values()}


def with_topology(**arguments: object) -> Given:
    """A cluster under the shipped policies, the topology plugin with other arguments."""
    tiers = tuple(
        PluginTier(
            tuple(
                PluginChoice("topology", arguments) if each.name == "topology" else each
                for each in tier.plugins
            )
        )
        for tier in DEFAULT.tiers
    )
    return Given(config=attrs.evolve(DEFAULT, tiers=tiers))


def test_fewest_blocks_before_fewest_racks(given: Given) -> None:
    """Six nodes lie in two large racks of two blocks, or in three small ones of one block."""
    c = tree(given, [[4], [4], [2, 2, 2]]).gang("g", pods=6, gpus=8)
    c.when.bound()
    assert racks_used(c) == {"b2-r0", "b2-r1", "b2-r2"}


def test_a_hidden_pair_of_racks_is_found(given: Given) -> None:
    """Largest first would take 5 and then two more racks; 4 and 3 hold all seven."""
    c = tree(given, [[5, 1, 1], [4, 3, 1]]).gang("g", pods=7, gpus=8)
    c.when.bound()
    assert len(racks_used(c)) == 2


def test_the_heuristic_baseline_misses_the_hidden_pair() -> None:
    """Best fit takes the largest rack first, as it keeps no tables; nothing is called optimal then."""
    config = attrs.evolve(DEFAULT, placement=attrs.evolve(DEFAULT.placement, solver="heuristic"))
    c = tree(Given(config=config), [[5, 1, 1], [4, 3, 1]]).gang("g", pods=7, gpus=8)
    c.when.one_session()
    assert len(racks_used(c)) == 3
    (bind,) = c.then.plan.binds
    assert bind.proof != "optimal"


def test_the_proof_goes_with_the_pods_and_into_the_condition(given: Given) -> None:
    """Who asks why it sits where it sits is told that nothing more compact existed."""
    c = tree(given, [[3], [2]]).gang("g", pods=2, gpus=8)
    plan = c.when.bound()
    assert plan.binds[0].proof == "optimal"
    c.when.one_session()
    assert c.then.why("g") == "2 pods placed, 2 needed, no more compact place existed"


def test_status_tells_the_domains_of_every_level(given: Given) -> None:
    """One block, and the two racks in it."""
    c = tree(given, [[2, 2], [1]]).gang("g", pods=3, gpus=8)
    c.when.bound()
    c.when.one_session()
    placement = dict(c.then.status("g").placement)
    assert placement["block"] == "b0"
    assert placement["rack"] == "b0/r0, b0/r1"
    assert len(placement["host"].split(", ")) == 3


def test_ranks_follow_the_racks(given: Given) -> None:
    """Neighbours in a ring are in one rack: ranks change racks once, not back and forth."""
    c = tree(given, [[2, 2]]).gang("g", pods=4, gpus=8)
    c.when.bound()
    nodes = c.then.nodes()
    order = [nodes[f"g-{rank}"].rsplit("-", 1)[0] for rank in range(4)]
    assert order == sorted(order)


def test_ranks_of_several_pods_a_node_are_neighbours(given: Given) -> None:
    """Eight pods of two GPUs on two nodes: 0 to 3 on one of them, 4 to 7 on the other."""
    c = tree(given, [[2]]).gang("g", pods=8, gpus=2)
    c.when.bound()
    nodes = c.then.nodes()
    assert len({nodes[f"g-{rank}"] for rank in range(4)}) == 1
    assert len({nodes[f"g-{rank}"] for rank in range(4, 8)}) == 1


def test_unlabelled_nodes_are_the_last_choice(given: Given) -> None:
    """Nobody knows where they are; but they are better than nothing."""
    c = tree(given.nodes(2, prefix="lost", gpus=8), [[2]]).gang("g", pods=2, gpus=8)
    c.gang("h", pods=2, gpus=8)
    c.when.bound()
    nodes = c.then.nodes()
    assert {nodes["g-0"], nodes["g-1"]} & {"lost-0", "lost-1"} == set()
    assert {nodes["h-0"], nodes["h-1"]} == {"lost-0", "lost-1"}


def test_unlabelled_nodes_never_satisfy_a_required_level(given: Given) -> None:
    """A node without the label is in no rack at all."""
    c = tree(given.nodes(2, prefix="lost", gpus=8), [[1]])
    c.gang("g", pods=2, gpus=8, topology=RACK)
    assert c.when.one_session().binds == ()
    assert c.then.reason("g") == "TopologyUnsatisfiable"
    assert "best rack b0/r0 has room for 1" in c.then.why("g")


def test_who_holds_the_best_domain_is_named(given: Given) -> None:
    """The sentence of the contract: level, need, best domain, what it has, who has the rest."""
    c = tree(given, [[2], [1]]).gang("llm-7", pods=1, gpus=8, namespace="team-b", topology=RACK)
    c.pod("llm-7-0", group="llm-7", namespace="team-b", gpus=8, node="b0-r0-0", slots=255,
          plan="p", scheduled=NOW)  # fmt: skip
    c.gang("g", pods=2, gpus=8, cpu=0, memory=0, topology=RACK)
    assert c.when.one_session().binds == ()
    assert c.then.why("g") == (
        "needs 2 pods with 8 nvidia.com/gpu in one rack; "
        "best rack b0/r0 has room for 1 (1 held by team-b/llm-7)"
    )


def test_room_to_grow_decides_between_racks(given: Given) -> None:
    """Two may start, four would like to: the rack with room for four is the better one."""
    c = tree(given, [[2], [4]]).gang("g", pods=4, min_member=2, gpus=8, topology=RACK)
    c.when.bound()
    assert racks_used(c) == {"b1-r0"}
    assert len(c.then.nodes()) == 4


def test_the_narrowest_level_that_works(given: Given) -> None:
    """Preferred rack: no rack holds three nodes, one block does."""
    c = tree(given, [[2], [2, 2]])
    c.gang("g", pods=3, gpus=8, topology=TopologyRequest(preferred="rack"))
    c.when.bound()
    assert {name[:2] for name in racks_used(c)} == {"b1"}


def test_spare_nodes_are_for_those_who_run_there() -> None:
    """A rack of three lends two; the third replaces a lost node of the gang that runs there."""
    c = tree(with_topology(spareLevel="rack", spareNodes=1), [[3]])
    c.gang("big", pods=3, gpus=8).gang("g", pods=2, gpus=8)
    c.when.bound()
    assert c.then.started() == ["g"]
    left = ({"b0-r0-0", "b0-r0-1", "b0-r0-2"} - set(c.then.nodes().values())).pop()
    c.gone("big-0").gone("big-1").gone("big-2")
    c.gone("g-1").pod("g-2", group="g", gpus=8, rank=1)
    c.when.bound()
    assert set(c.then.nodes().values()) <= {"b0-r0-0", "b0-r0-1", "b0-r0-2"}
    assert left


def test_compactness_can_be_left_to_those_who_ask() -> None:
    """``compact: requested``: others take nodes one by one, the fullest first."""
    c = tree(with_topology(compact="requested"), [[1], [2]])
    c.pod("old", gpus=1, node="b0-r0-0", slots=1)
    c.gang("g", pods=2, gpus=7, cpu=0)
    c.when.bound()
    assert "b0-r0-0" in c.then.nodes().values()


def test_sub_groups_have_racks_and_the_gang_a_block(given: Given) -> None:
    """Two tensor-parallel groups, each in one rack, both in the only block that has two such."""
    c = tree(given, [[4], [2, 2], [1, 1, 1, 1]])
    parts = tuple(SubGroup(name, 2, RACK) for name in ("a", "b"))
    c.group("g", min_member=4, sub_groups=parts, min_sub_groups=2,
            topology=TopologyRequest(required="block"))  # fmt: skip
    for name in ("a", "b"):
        c.pods(f"g-{name}", 2, group="g", sub_group=name, gpus=8)
    c.group("h", min_member=2, topology=RACK).pods("h", 2, group="h", gpus=8)
    c.when.bound()
    nodes = c.then.nodes()
    for name in ("a", "b"):
        assert len({nodes[f"g-{name}-{i}"].rsplit("-", 1)[0] for i in range(2)}) == 1
    assert len({nodes[f"g-{name}-{i}"][:2] for name in ("a", "b") for i in range(2)}) == 1


@pytest.mark.parametrize("gpus", [3, 5, 7])
def test_odd_requests_are_placed_and_never_twice(given: Given, gpus: int) -> None:
    """Pods of 3, 5 and 7 GPUs leave rests that nobody else gets."""
    c = tree(given, [[2]]).gang("g", pods=2, gpus=gpus)
    plan = c.when.bound()
    taken: dict[str, int] = {}
    for bind in plan.binds[0].binds:
        assert bind.slots.bit_count() == gpus
        assert not taken.get(bind.node, 0) & bind.slots
        taken[bind.node] = taken.get(bind.node, 0) | bind.slots


CLOUDS = {
    "one": ("cloud.google.com/gce-topology-block", "cloud.google.com/gce-topology-subblock"),
    "two": ("topology.k8s.aws/network-node-layer-2", "topology.k8s.aws/network-node-layer-3"),
    "three": (
        "oci.oraclecloud.com/rdma.network_block_id",
        "oci.oraclecloud.com/rdma.local_block_id",
    ),
    "own": ("network.topology.nvidia.com/spine", "network.topology.nvidia.com/leaf"),
}


@pytest.mark.parametrize("cloud", CLOUDS)
def test_labels_of_clouds_are_blocks_and_racks(given: Given, cloud: str) -> None:
    """No Topology object is needed: required and preferred levels work by their labels."""
    block, rack = CLOUDS[cloud]
    for number in range(4):
        labels = {block: f"b{number // 2}", rack: f"r{number}"}
        given.nodes(2, prefix=f"n{number}", gpus=8, labels=labels)
    given.gang("g", pods=2, gpus=8, topology=RACK)
    given.gang("h", pods=3, gpus=8, topology=TopologyRequest(required="block"))
    given.when.bound()
    nodes = given.then.nodes()
    assert len({nodes[f"g-{rank}"][:2] for rank in range(2)}) == 1
    assert len({int(nodes[f"h-{rank}"][1]) // 2 for rank in range(3)}) == 1


def test_a_clique_is_a_level(given: Given) -> None:
    """Trays of one NVLink domain, by the label of the GPU operator."""
    for clique in ("c1", "c2"):
        labels = {"gpusched.io/rack": "r", "nvidia.com/gpu.clique": clique}
        given.nodes(2, prefix=clique, gpus=4, labels=labels)
    given.gang("g", pods=2, gpus=4, topology=TopologyRequest(required="clique"))
    given.when.bound()
    assert len({name[:2] for name in given.then.nodes().values()}) == 1


def test_a_known_level_that_no_node_is_labelled_for(given: Given) -> None:
    """The last rack label is gone: that is the cluster's affair, not a mistake of the gang."""
    given.nodes(2, gpus=8).gang("g", pods=2, gpus=8, topology=RACK)
    assert given.when.one_session().binds == ()
    assert given.then.reason("g") == "TopologyUnsatisfiable"
    assert given.then.why("g") == (
        "no node is labelled for topology level 'rack': label nodes with gpusched.io/rack or "
        "network.topology.nvidia.com/leaf, or name another level"
    )
