"""Domains between nodes: two nodes share one only when they agree on every wider level too."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from gpusched.arrays.columns import Ints
from gpusched.objects.group import Topology
from gpusched.objects.node import Node

HOST = "kubernetes.io/hostname"
WELL_KNOWN: tuple[tuple[str, str], ...] = (
    ("region", "topology.kubernetes.io/region"),
    ("zone", "topology.kubernetes.io/zone"),
    ("block", "gpusched.io/block"),
    ("rack", "gpusched.io/rack"),
    ("host", HOST),
)
"""Levels that need no Topology object, widest first; those that no node is labelled for fall
away, so that a missing zone label does not hide the racks."""


@attrs.frozen(slots=True, eq=False)
class Level:
    """One level.

    Attributes:
        domain: int64, shape (nodes,): number of the domain of each row, -1 for none.
        names: path of each domain, such as ``zone-a/rack-3``; sorted, so numbers are canonical.
    """

    name: str
    label: str
    domain: Ints
    names: tuple[str, ...]


def levels_of(nodes: Sequence[Node], topologies: Sequence[Topology]) -> tuple[Level, ...]:
    """The levels of these nodes, widest first.

    Args:
        nodes: in row order.
        topologies: sorted by name; the first one counts, else the well-known labels.
    """
    if topologies:
        wanted: Sequence[tuple[str, str]] = topologies[0].levels
    else:
        wanted = [
            (name, label)
            for name, label in WELL_KNOWN
            if label == HOST or any(label in node.labels for node in nodes)
        ]
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
        number = {path: index for index, path in enumerate(names)}
        domain = np.array([-1 if path is None else number[path] for path in paths], dtype=np.int64)
        levels.append(Level(name, label, domain, tuple(names)))
    return tuple(levels)
