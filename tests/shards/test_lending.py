"""Which nodes a shard asks for, who lends them, and when they go back."""

from __future__ import annotations

import attrs
import msgspec
import pytest

from gpusched.api.affinity.selector import NodeTerm, Requirement, Selector, Taint, Toleration
from gpusched.api.gang.pod_group import TopologyRequest
from gpusched.config.model import DEFAULT, ShardConfig
from gpusched.shards.board import (
    Board,
    MemberNeeds,
    NodeWish,
    ShardEntry,
    decode_board,
    encode_board,
)
from gpusched.shards.layout import ShardLayout
from gpusched.shards.lending import (
    ASKED_AFTER_S,
    ASKED_AGAIN_AFTER_S,
    RETURNED_AFTER_S,
    NodeLending,
    node_wish,
    suits,
)
from gpusched.shards.nodes import ShardNodes
from gpusched.testing import entities
from gpusched.testing.given import Given

NAMES = ("a", "b", "c")
GPU = entities.GPU


def layout(*lend: str) -> ShardLayout:
    """Three shards by the label ``pool``, of which these lend."""
    shards = tuple(
        ShardConfig(name, Selector((Requirement("pool", "In", (name,)),)), name in lend)
        for name in NAMES
    )
    return ShardLayout.from_config(attrs.evolve(DEFAULT, shards=shards))


def lending(*names: str, home: str, lend: str = "abc") -> tuple[NodeLending, list]:
    """Of a daemon of one shard that knows nodes of these names; and the nodes."""
    nodes = ShardNodes(layout(*lend))
    known = [entities.node(name, gpus=8, labels={"pool": name[0]}) for name in names]
    for node in known:
        nodes.takes(node, {home}, (Board(),))
    return NodeLending(nodes), [node for node in known if node.name[0] == home]


def wish(nodes: int, *, since: float = 1.0, lent: int = 0, gang: str = "g") -> NodeWish:
    """For nodes with a GPU."""
    needs = (MemberNeeds(amounts={GPU: 1000}),)
    return NodeWish(gang=gang, since=since, nodes=nodes, lent=lent, members=needs)


def board(idle: dict[str, int], wishes: dict[str, NodeWish], **nodes: str) -> Board:
    """What all see."""
    shards = {name: ShardEntry(idle=idle.get(name, 0), wish=wishes.get(name)) for name in NAMES}
    return Board(shards=shards, nodes={name.replace("_", "-"): to for name, to in nodes.items()})


@pytest.mark.parametrize(
    ("members", "free", "needed"), [(3, 0, 3), (3, 1, 2), (6, 1, 5), (3, 3, 0)]
)
def test_a_gang_asks_for_the_nodes_that_it_lacks(members, free, needed):
    """Members of 8 GPUs, on nodes of 8 GPUs of which some are free."""
    c = Given().nodes(4, gpus=8)
    for number in range(4 - free):
        c.pod(f"runs-{number}", gpus=8, node=f"node-{number}", slots=255, plan="p", scheduled=1.0)
    c.gang("waits", pods=members, gpus=8)
    snapshot = c.cache.take_snapshot(10.0)
    (gang,) = [each for each in snapshot.gangs if each.key.name == "waits"]
    found = node_wish(gang, "g", snapshot.nodes, lent=0)
    assert (found.nodes if found is not None else 0) == needed


def test_gangs_that_lent_nodes_would_not_help_ask_for_none():
    """One that is to be in one rack: nodes of another shard are in none of these."""
    c = Given().nodes(1, gpus=8).gang("waits", pods=3, gpus=8)
    snapshot = c.cache.take_snapshot(10.0)
    gang = attrs.evolve(snapshot.gangs[0], topology=TopologyRequest(required="rack"))
    assert node_wish(gang, "g", snapshot.nodes, lent=0) is None


def test_rules_that_are_too_long_for_the_board_are_not_written():
    """Whoever writes pods could fill it."""
    c = Given().nodes(1, gpus=8).gang("waits", pods=3, gpus=8)
    snapshot = c.cache.take_snapshot(10.0)
    (pod_set,) = snapshot.gangs[0].pod_sets
    terms = (NodeTerm((Requirement("x", "In", tuple("y" * 60 for _ in range(100))),)),)
    pod_class = attrs.evolve(pod_set.pod_class, affinity=terms)
    gang = attrs.evolve(snapshot.gangs[0], pod_sets=(attrs.evolve(pod_set, pod_class=pod_class),))
    assert node_wish(gang, "g", snapshot.nodes, lent=0) is None


def test_only_nodes_on_which_a_member_could_be_are_lent():
    """Its selector, affinity, tolerations and requests count."""
    node = entities.node("n", gpus=8, labels={"pool": "a", "type": "h100"})
    assert suits(MemberNeeds(amounts={GPU: 8000}, selector={"type": "h100"}), node)
    assert not suits(MemberNeeds(amounts={GPU: 9000}), node)
    assert not suits(MemberNeeds(selector={"type": "a100"}), node)
    other = NodeTerm((Requirement("type", "In", ("a100",)),))
    assert not suits(MemberNeeds(affinity=(other,)), node)
    assert not suits(MemberNeeds(), attrs.evolve(node, not_ready="it is off"))
    tainted = attrs.evolve(node, taints=(Taint("only", "x", "NoSchedule"),))
    assert not suits(MemberNeeds(), tainted)
    assert suits(MemberNeeds(tolerations=(Toleration("only", "Exists", "", ""),)), tainted)


def test_each_shard_lends_what_those_before_it_do_not():
    """The shards behind the one that asks, in the order of the configuration."""
    both = board({"b": 1, "c": 2}, {"a": wish(2)})
    of_b, idle_b = lending("b-1", home="b")
    of_c, idle_c = lending("c-1", "c-2", home="c")
    assert of_b.pass_on(idle_b, both, {"b"}, 1.0) == ["b-1"]
    assert of_c.pass_on(idle_c, both, {"c"}, 1.0) == ["c-1"]
    assert of_c.pass_on(idle_c[1:], both, {"c"}, 2.0) == [], "it is under way"


def test_too_few_nodes_are_not_lent_at_all():
    """A part of what a gang needs would stand idle."""
    of_b, idle = lending("b-1", "b-2", home="b")
    assert of_b.pass_on(idle, board({"b": 2}, {"a": wish(3)}), {"b"}, 1.0) == []


def test_shards_that_keep_their_nodes_lend_none():
    """Whatever others ask for."""
    of_b, idle = lending("b-1", home="b", lend="ac")
    assert of_b.pass_on(idle, board({}, {"a": wish(1)}), {"b"}, 1.0) == []


@pytest.mark.parametrize(("own_since", "lent"), [(0.5, []), (2.0, ["b-1"])])
def test_the_gang_that_has_waited_longest_comes_first(own_since, lent):
    """A shard with an older gang that lacks nodes lends none."""
    of_b, idle = lending("b-1", home="b")
    of_b.wishes["b"] = wish(3, since=own_since, gang="own")
    assert of_b.pass_on(idle, board({"b": 1}, {"a": wish(1)}), {"b"}, 1.0) == lent


def test_for_nodes_that_are_asked_back_nobody_else_lends():
    """And only idle ones go home before the gang has waited for long."""
    asked = msgspec.structs.replace(wish(2), home=True)
    of_b, idle = lending("b-1", home="b")
    assert of_b.pass_on(idle, board({"b": 1}, {"a": asked}), {"b"}, 1.0) == []
    of_a, (unused, busy) = lending("a-1", "a-2", home="a")
    there = board({}, {"a": asked}, a_1="b", a_2="b")
    assert of_a.call_back([unused, busy], there, frozenset("b"), idle=[unused]) == {"a-1"}
    assert of_a.pass_on([unused], there, {"b"}, 1.0) == ["a-1"]


def test_idle_nodes_stay_where_an_older_gang_asks():
    asked = msgspec.structs.replace(wish(1, since=2.0), home=True)
    of_a, (unused,) = lending("a-1", home="a")
    of_a.wishes["b"] = wish(3, since=1.0, gang="older")
    there = board({}, {"a": asked}, a_1="b")
    assert of_a.call_back([unused], there, frozenset("b"), idle=[unused]) == frozenset()


def test_what_is_not_used_goes_back_and_is_not_asked_for_again():
    """A minute later, and for ten minutes."""
    of_a, _ = lending("a-1", "b-1", home="a")
    there = board({}, {}, b_1="a")
    node = entities.node("b-1", gpus=8, labels={"pool": "b"})
    c = Given().nodes(1, gpus=8).gang("waits", pods=3, gpus=8)
    snapshot = c.cache.take_snapshot(100.0)
    gang = snapshot.gangs[0]

    def ask(now: float) -> bool:
        at = attrs.evolve(snapshot, now=now)
        of_a.ask("a", [(gang, "g")], {gang.key: 0.0}, at, there)
        return "a" in of_a.wishes

    assert not ask(ASKED_AFTER_S - 1)
    assert ask(100.0)
    assert of_a.pass_on([node], there, {"a"}, 100.0) == []
    assert of_a.pass_on([node], there, {"a"}, 100.0 + RETURNED_AFTER_S) == ["b-1"]
    assert of_a.nodes.given == {"b-1": "b"}
    assert of_a.nodes.rows(there, {"a"}, 161.0) == {}
    assert not ask(200.0)
    assert ask(100.0 + RETURNED_AFTER_S + ASKED_AGAIN_AFTER_S)


def test_a_node_that_is_lent_again_has_its_time_again():
    """What stood idle before it went back does not count."""
    of_a, _ = lending("a-1", "b-1", home="a")
    there = board({}, {}, b_1="a")
    node = entities.node("b-1", gpus=8, labels={"pool": "b"})
    assert of_a.pass_on([node], there, {"a"}, 100.0) == []
    assert of_a.pass_on([node], there, {"a"}, 100.0 + RETURNED_AFTER_S) == ["b-1"]
    of_a.nodes.note_board(there, board({}, {}))
    assert of_a.pass_on([], board({}, {}), {"a"}, 200.0) == []
    assert of_a.pass_on([node], there, {"a"}, 300.0) == []
    assert of_a.pass_on([node], there, {"a"}, 300.0 + RETURNED_AFTER_S) == ["b-1"]


def test_nothing_is_lent_by_who_does_not_hold_the_shard():
    """What is written of nodes in other shards stays as it is."""
    of_b, _ = lending("a-1", "b-1", home="b")
    of_b.nodes.given["a-1"] = "b"
    there = board({}, {}, b_1="c")
    assert of_b.nodes.rows(there, {"b"}, 1.0) == {"b-1": "c"}


def test_a_node_is_taken_by_the_shard_that_the_board_names():
    """And by nobody while it is passed on, or while a board that names another may have been written."""
    nodes = ShardNodes(layout())
    node = entities.node("b-1", gpus=8, labels={"pool": "b"})
    lent = board({}, {}, b_1="a")
    assert nodes.takes(node, {"b"}, (Board(),))
    assert nodes.takes(node, {"a"}, (lent,))
    assert not nodes.takes(node, {"b"}, (lent,))
    assert not nodes.takes(node, {"b"}, (Board(), lent))
    nodes.given["b-1"] = "a"
    assert not nodes.takes(node, {"b"}, (Board(),))


def test_rows_of_nodes_that_are_gone_or_at_home_are_taken_off():
    """A minute after nobody has seen the node."""
    nodes = ShardNodes(layout())
    nodes.takes(entities.node("a-1", gpus=8, labels={"pool": "a"}), {"a"}, (Board(),))
    there = board({}, {}, a_1="a", b_1="a")
    assert nodes.rows(there, {"a"}, 1.0) == {"b-1": "a"}
    assert nodes.rows(there, {"a"}, 60.0) == {"b-1": "a"}
    assert nodes.rows(there, {"a"}, 61.0) == {}


def test_a_board_with_lent_nodes_is_not_read_by_daemons_that_know_none():
    """They would write it without them, and two shards would use one node."""
    assert '"format":1' in encode_board(Board())
    lent = board({}, {"a": wish(1)}, b_1="a")
    assert '"format":2' in encode_board(lent)
    assert decode_board(encode_board(lent)) == lent


def test_shards_that_lend_are_another_layout():
    """All daemons must agree on it."""
    assert layout().digest != layout("a").digest
