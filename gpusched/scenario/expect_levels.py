"""Domains of nodes at a level, from the labels of Node objects and from Topology objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gpusched.scenario.expect_index import Index
from gpusched.topology.domain import DEFAULT_NAME, HOST, WELL_KNOWN

NODE: Final = "node"
NONE: Final = "(no domain)"


def domains(level: str, nodes: Sequence[str], index: Index) -> list[str]:
    """Paths of the domains that nodes are in, each once; ``NONE`` for nodes without one.

    Args:
        level: ``node``, the name of a level, or a label of nodes.
        nodes: by name.
        index: where Node and Topology objects are.
    """
    if level in (NODE, "host"):
        return sorted(set(nodes))
    labels = _labels(level, index)
    there = index.objects.get("Node", {})
    found = set()
    for name in nodes:
        mine: dict[str, Any] = dict(there.get(("", name), {}).get("metadata", {}).get("labels", {}))
        mine.setdefault(HOST, name)
        path = [_first(mine, choice) for choice in labels]
        found.add(NONE if None in path else "/".join(str(part) for part in path))
    return sorted(found)


def no_domain(paths: Sequence[str]) -> bool:
    """Whether a node among them has none."""
    return NONE in paths


def _labels(level: str, index: Index) -> list[tuple[str, ...]]:
    """Labels that must agree, widest first; several where any of them may mark the level."""
    known = index.objects.get("Topology", {})
    chosen = known.get(("", DEFAULT_NAME)) or (known[min(known)] if known else None)
    if chosen is not None:
        levels = [(each["name"], each["nodeLabel"]) for each in chosen["spec"].get("levels", ())]
        for place, (name, label) in enumerate(levels):
            if level in (name, label):
                return [(each,) for _, each in levels[: place + 1]]
    there = {
        key
        for node in index.objects.get("Node", {}).values()
        for key in node["metadata"].get("labels", {})
    }
    wider: list[tuple[str, ...]] = []
    for name, marks in WELL_KNOWN:
        if level == name or level in marks:
            return [*wider, marks if level == name else (level,)]
        if not there.isdisjoint(marks):
            wider.append(marks)
    return [(level,)]


def _first(labels: dict[str, Any], choice: tuple[str, ...]) -> Any:
    return next((labels[each] for each in choice if each in labels), None)
