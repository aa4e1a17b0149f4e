"""Which of several Topology objects counts, and what each is to be told about it.

One cluster has one topology. A second object is no error of its nodes, but its author
expects something of it: it is told that it does not count, and where the two disagree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpusched.api.meta.fields import printable_text
from gpusched.api.node.node import Node
from gpusched.api.policy.kinds import Topology
from gpusched.base.classes import frozen
from gpusched.base.limits import DOMAINS_PER_LEVEL_MAX
from gpusched.topology.levels import HOST, TopologyLevel, active_topology

_TOLD_MAX: Final = 16
"""Topologies that do not count of which the nodes are compared; the others are told without."""


@frozen(slots=True, kw_only=True)
class TopologyVerdict:
    """What one Topology is to be told.

    Attributes:
        topology: that is told.
        counts: whether its levels are in force.
        crossed: nodes that it would put into another domain than the one that counts does.
        outside: nodes that are outside its narrower levels because a level has too many domains.
        message: the same, for people.
    """

    topology: Topology
    counts: bool
    message: str
    crossed: int = 0
    outside: int = 0


def topology_verdicts(
    nodes: Sequence[Node], topologies: Sequence[Topology], levels: Sequence[TopologyLevel]
) -> tuple[TopologyVerdict, ...]:
    """One for each topology, in their order.

    Args:
        nodes: in row order.
        topologies: sorted by name.
        levels: of the one that counts.
    """
    if not topologies:
        return ()
    first = active_topology(topologies)
    return tuple(
        _in_force(each, levels)
        if each is first
        else _verdict_beside(each, first, nodes if number <= _TOLD_MAX else ())
        for number, each in enumerate(topologies)
    )


def _in_force(topology: Topology, levels: Sequence[TopologyLevel]) -> TopologyVerdict:
    names = ", ".join(printable_text(level.name) for level in levels)
    message = f"its levels count: {names}"
    full = next((level for level in levels if level.beyond), None)
    if full is None:
        return TopologyVerdict(topology=topology, counts=True, message=message)
    message += f"; {too_many_domains_text(full)}"
    return TopologyVerdict(topology=topology, counts=True, message=message, outside=full.beyond)


def too_many_domains_text(level: TopologyLevel) -> str:
    """Why nodes are outside a level that has more domains than count, for people."""
    return (
        f"level {printable_text(level.name)} has more than {DOMAINS_PER_LEVEL_MAX:,} domains: "
        f"{_nodes(level.beyond)} beyond these are in no domain of it, and no gang that asks for it "
        f"can use them; label wider domains"
    )


def _verdict_beside(topology: Topology, first: Topology, nodes: Sequence[Node]) -> TopologyVerdict:
    rule = "named default counts" if first.name == "default" else "whose name sorts first counts"
    message = f"does not count: of several Topologies the one {rule}, which is {first.name}"
    ours, theirs = dict(first.levels), dict(topology.levels)
    both = [name for name in theirs if name in ours and theirs[name] != ours[name]]
    crossed, example = 0, ""
    for node in nodes:
        for name in both:
            here, there = _domain(node, ours[name]), _domain(node, theirs[name])
            if here is not None and there is not None and here != there:
                crossed += 1
                example = example or (
                    f"node {node.name} is in {printable_text(name)} {printable_text(here)}, "
                    f"and would be in {printable_text(there)}"
                )
                break
    if crossed:
        message += f"; {_nodes(crossed)} would be elsewhere: {example}"
    message += f"; put the levels that are needed into {first.name} and delete this one"
    return TopologyVerdict(topology=topology, counts=False, message=message, crossed=crossed)


def _domain(node: Node, label: str) -> str | None:
    value = node.labels.get(label)
    return node.name if value is None and label == HOST else value


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count:,} nodes"
