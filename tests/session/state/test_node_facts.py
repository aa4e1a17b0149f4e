"""What nodes are and offer is worked out once, and anew when a node changes."""

from __future__ import annotations

import numpy as np

from gpusched.arrays.columns import NodeColumns
from gpusched.arrays.node_facts import KeptNodeFacts, NodeFacts
from gpusched.testing.given import Given


def assert_facts(facts: NodeFacts, nodes: NodeColumns) -> None:
    """The facts are those that the nodes say one by one."""
    usable = [not node.not_ready and not node.unschedulable for node in nodes.nodes]
    assert facts.usable.tolist() == usable
    assert [node.name for node in facts.usable_nodes] == [
        node.name for node, use in zip(nodes.nodes, usable, strict=True) if use
    ]
    assert facts.offered == np.array(nodes.allocatable)[usable].sum(axis=0).tolist()
    assert facts.some_avoided == any(node.avoided for node in nodes.nodes)
    assert list(facts.numa_rows) == [
        row for row, node in enumerate(nodes.nodes) if node.cells is not None
    ]


def test_facts_are_kept_while_no_node_changes():
    """When pods come and go, then facts are the same object; when a node is cordoned or comes, they are others."""
    c = Given().nodes(4, gpus=8)
    kept = KeptNodeFacts()
    first = kept.find(c.cache.take_snapshot(0.0).nodes)
    assert_facts(first, c.cache.take_snapshot(0.0).nodes)
    c.pod("runs", gpus=2, node="node-1")
    assert kept.find(c.cache.take_snapshot(1.0).nodes) is first
    for change in ({"unschedulable": True}, {"gpus": 4}):
        c.node("node-2", **{"gpus": 8, **change})
        nodes = c.cache.take_snapshot(2.0).nodes
        assert not first.are_of(nodes)
        assert_facts(kept.find(nodes), nodes)
    c.node("node-9", gpus=2)
    nodes = c.cache.take_snapshot(3.0).nodes
    assert_facts(kept.find(nodes), nodes)
