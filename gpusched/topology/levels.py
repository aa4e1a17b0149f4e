"""Domains between nodes: two nodes share one only when they agree on every wider level too."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import attrs
import numpy as np

from gpusched.api.node.node import Node
from gpusched.api.policy.kinds import Topology
from gpusched.arrays.columns import Ints
from gpusched.base.classes import frozen
from gpusched.base.limits import DOMAINS_PER_LEVEL_MAX

HOST = "kubernetes.io/hostname"
DEFAULT_NAME: Final = "default"
"""Of several Topology objects the one of this name counts."""
WELL_KNOWN: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("region", ("topology.kubernetes.io/region",)),
    ("zone", ("topology.kubernetes.io/zone",)),
    (
        "core",
        (
            "network.topology.nvidia.com/core",
            "topology.k8s.aws/network-node-layer-1",
            "oci.oraclecloud.com/rdma.hpc_island_id",
        ),
    ),
    (
        "block",
        (
            "gpusched.io/block",
            "network.topology.nvidia.com/spine",
            "cloud.google.com/gce-topology-block",
            "topology.k8s.aws/network-node-layer-2",
            "oci.oraclecloud.com/rdma.network_block_id",
        ),
    ),
    (
        "rack",
        (
            "gpusched.io/rack",
            "network.topology.nvidia.com/leaf",
            "cloud.google.com/gce-topology-subblock",
            "topology.k8s.aws/network-node-layer-3",
            "oci.oraclecloud.com/rdma.local_block_id",
        ),
    ),
    ("clique", ("nvidia.com/gpu.clique", "network.topology.nvidia.com/accelerator")),
    ("host", (HOST,)),
)
"""Levels that need no Topology object, widest first, with the labels that may mark them: the first
that any node has. Levels that no node is labelled for fall away, so that a missing zone label does
not hide the racks. A clique is what one NVLink fabric joins."""
KNOWN = frozenset(name for name, _ in WELL_KNOWN)
"""Names of levels that exist as soon as a node is labelled for them."""


@frozen(slots=True, eq=False)
class TopologyLevel:
    """One level.

    Attributes:
        domain: int64, shape (nodes,): number of the domain of each row, -1 for none.
        names: path of each domain, such as ``zone-a/rack-3``; sorted, so numbers are canonical.
        beyond: nodes whose domain is not among the ``DOMAINS_PER_LEVEL_MAX`` first ones of the
            level: they are in none of it, nor of narrower levels.
        on_request: a node label that is no level of the cluster: it counts for the gangs alone
            that name it.
        crosses: names of levels of which some domains lie in several of its own, and the other
            way round: both cannot be in one tree. Empty for levels of the cluster.
    """

    name: str
    label: str
    domain: Ints
    names: tuple[str, ...]
    beyond: int = 0
    on_request: bool = False
    crosses: frozenset[str] = frozenset()


def active_topology(topologies: Sequence[Topology]) -> Topology:
    """The one that counts: that of the name ``default``, else the first by name.

    Args:
        topologies: sorted by name, at least one.
    """
    return next((each for each in topologies if each.name == DEFAULT_NAME), topologies[0])


def labels_of_level(name: str, topologies: Sequence[Topology]) -> tuple[str, ...]:
    """Node labels of which each makes the level; empty where there is no such level.

    Args:
        name: of the level.
        topologies: sorted by name, as for ``topology_levels``.
    """
    if topologies:
        return tuple(label for each, label in active_topology(topologies).levels if each == name)
    return dict(WELL_KNOWN).get(name, ())


def well_known_levels(labels: Collection[str]) -> list[tuple[str, str]]:
    """Name and node label of each level that exists without a Topology object, widest first.

    Args:
        labels: keys that any node has.
    """
    there = {*labels, HOST}
    return [
        (name, next(label for label in of_level if label in there))
        for name, of_level in WELL_KNOWN
        if not there.isdisjoint(of_level)
    ]


def topology_levels(
    nodes: Sequence[Node], topologies: Sequence[Topology]
) -> tuple[TopologyLevel, ...]:
    """The levels of these nodes, widest first.

    Args:
        nodes: in row order.
        topologies: sorted by name; the one named ``default`` counts, else the first; with none,
            the well-known labels.
    """
    if topologies:
        wanted: Sequence[tuple[str, str]] = active_topology(topologies).levels
    else:
        wanted = well_known_levels({key for node in nodes for key in node.labels})
    paths: list[str | None] = [""] * len(nodes)
    levels = []
    for name, label in wanted:
        for row, node in enumerate(nodes):
            value = node.labels.get(label)
            if value is None and label == HOST:
                value = node.name
            above = paths[row]
            if above is None or value is None:
                paths[row] = None
            else:
                paths[row] = f"{above}/{value}" if above else value
        names = sorted({path for path in paths if path is not None})
        beyond = 0
        if len(names) > DOMAINS_PER_LEVEL_MAX:
            names = names[:DOMAINS_PER_LEVEL_MAX]
            kept = set(names)
            inside = [path if path in kept else None for path in paths]
            beyond = sum(path is not None for path in paths) - sum(
                path is not None for path in inside
            )
            paths = inside
        number = {path: index for index, path in enumerate(names)}
        domain = np.array([-1 if path is None else number[path] for path in paths], dtype=np.int64)
        levels.append(TopologyLevel(name, label, domain, tuple(names), beyond))
    return tuple(levels)


def with_label_levels(
    levels: Sequence[TopologyLevel], nodes: Sequence[Node], labels: Sequence[str]
) -> tuple[TopologyLevel, ...]:
    """The levels, and those of node labels that gangs name although they are no level.

    Nodes of one value are one domain, whatever wider levels say. Each comes behind the last level
    whose domains hold its own. A label that no node has makes no level.

    Args:
        levels: widest first.
        nodes: in row order.
        labels: keys, each once.
    """
    found = list(levels)
    for label in labels:
        values = [node.labels.get(label) for node in nodes]
        names = sorted({value for value in values if value is not None})[:DOMAINS_PER_LEVEL_MAX]
        if not names:
            continue
        number = {value: index for index, value in enumerate(names)}
        domain = np.array(
            [-1 if value is None else number.get(value, -1) for value in values], dtype=np.int64
        )
        beyond = sum(value is not None for value in values) - int(np.count_nonzero(domain >= 0))
        made = TopologyLevel(label, label, domain, tuple(names), beyond, on_request=True)
        wider = [at for at, each in enumerate(found) if _holds_domains_of(each.domain, domain)]
        found.insert(wider[-1] + 1 if wider else 0, made)
    return tuple(
        attrs.evolve(
            each, crosses=frozenset(other.name for other in found if _levels_cross(each, other))
        )
        if each.on_request
        else each
        for each in found
    )


def _levels_cross(one: TopologyLevel, other: TopologyLevel) -> bool:
    return not _holds_domains_of(one.domain, other.domain) and not _holds_domains_of(
        other.domain, one.domain
    )


def _holds_domains_of(wide: Ints, narrow: Ints) -> bool:
    """Whether no domain of the one level is divided by the other.

    Args:
        wide: domain of each row, int64, shape (nodes,), -1 for none: such a node is alone.
        narrow: the same, of the level whose domains are to be whole.
    """
    inside = np.flatnonzero(narrow >= 0)
    alone = np.where(wide < 0, -1 - np.arange(len(wide)), wide)
    pairs = np.unique(np.stack([narrow[inside], alone[inside]]), axis=1)
    return bool(pairs.shape[1] == len(np.unique(narrow[inside])))
