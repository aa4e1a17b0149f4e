"""Domains that drivers publish with devices: a level may be read from slices where no label tells it.

A level names a node label; an attribute of devices has the same form (``domain/name``), so that a level
may name one. Nodes whose devices agree on its value are as if they had it as a label. The NVLink domain
(``nvidia.com/gpu.clique``) is known by more names: an attribute ``clique`` or ``cliqueID`` of any
driver, and pools of channels that several nodes reach.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import attrs

from gpusched.api.devices.dynamic.slices import (
    AttributeSchema,
    AttributeValue,
    Device,
    ResourceSlice,
    Version,
)
from gpusched.api.node.node import Node
from gpusched.arrays.columns import Ints, NodeColumns
from gpusched.base.classes import frozen
from gpusched.topology.levels import WELL_KNOWN

CLIQUE_LABEL: Final = "nvidia.com/gpu.clique"
CHANNEL_DRIVER: Final = "compute-domain.nvidia.com"
_CLIQUE_NAMES: Final = frozenset({"clique", "cliqueid"})
_SCHEMAS_MAX: Final = 4_096
"""Sorts of attributes whose labels are remembered."""
_CLIQUE_LABELS: Final = frozenset(next(labels for name, labels in WELL_KNOWN if name == "clique"))

_Values = Mapping[str, frozenset[str]]
"""Values by label."""
_NONE: Final[_Values] = MappingProxyType({})


@frozen(slots=True, eq=False)
class _ReadSlice:
    """What one slice tells: values of all its devices, or of each that says its own nodes."""

    source: ResourceSlice
    values: _Values
    own: tuple[tuple[Device, _Values], ...]


class PublishedDomains:
    """Nodes with labels for what their devices tell; made again only when slices, nodes or levels change."""

    def __init__(self) -> None:
        self._wanted: frozenset[str] = frozenset()
        self._slices: Sequence[ResourceSlice] = ()
        self._read: dict[str, _ReadSlice] = {}
        self._labels: dict[AttributeSchema, tuple[tuple[int, tuple[str, ...]], ...]] = {}
        """Labels that attributes are read as, by name."""
        self._seen: tuple[int, Ints] | None = None
        self._made: Sequence[Node] | None = None

    def with_labels(
        self, nodes: NodeColumns, slices: Sequence[ResourceSlice], labels: Collection[str]
    ) -> Sequence[Node] | None:
        """The nodes, those with more labels of which devices tell a level that they have no label for.

        Args:
            nodes: of the cluster.
            slices: of the cluster.
            labels: of levels that are not known without being named.

        Returns:
            The same object as long as no label changed; None where devices tell nothing.
        """
        if not slices:
            return None
        wanted = frozenset(each for each in labels if "/" in each)
        known = self._seen
        if (
            known is None
            or known[0] != nodes.epoch
            or known[1] is not nodes.generation
            or self._slices is not slices
            or wanted != self._wanted
        ):
            if wanted != self._wanted:
                self._wanted, self._read, self._labels = wanted, {}, {}
            values = self._values_by_node(nodes.nodes, slices)
            made = _with_labels(nodes.nodes, values) if values else None
            if made is None or self._made is None or not _same_labels(made, self._made):
                self._made = made
            self._seen, self._slices = (nodes.epoch, nodes.generation), slices
        return self._made

    def _values_by_node(
        self, nodes: Sequence[Node], slices: Sequence[ResourceSlice]
    ) -> dict[str, dict[str, set[str]]]:
        """Values by node and label."""
        newest: dict[tuple[str, str], int] = {}
        for each in slices:
            key = (each.driver, each.pool)
            newest[key] = max(newest.get(key, each.generation), each.generation)
        before, self._read = self._read, {}
        found: dict[str, dict[str, set[str]]] = {}
        for each in slices:
            known = before.get(each.name)
            if known is None or known.source is not each:
                known = self._read_slice(each)
            self._read[each.name] = known
            if each.generation == newest[each.driver, each.pool]:
                _add_slice(known, nodes, found)
        return found

    def _read_slice(self, part: ResourceSlice) -> _ReadSlice:
        if part.reach is None:
            own = tuple((each, self._read_devices(part, [each])) for each in part.devices)
            return _ReadSlice(part, _NONE, tuple(pair for pair in own if pair[1]))
        return _ReadSlice(part, self._read_devices(part, part.devices), ())

    def _read_devices(self, part: ResourceSlice, devices: Iterable[Device]) -> _Values:
        found: dict[str, set[str]] = {}
        for device in devices:
            for place, labels in self._labels_of(device.schema):
                text = _text(device.attributes[place][1])
                for label in labels:
                    found.setdefault(label, set()).add(text)
        reach = part.reach
        of_several = reach is not None and bool(reach.terms) and not reach.node
        if part.driver == CHANNEL_DRIVER and of_several and CLIQUE_LABEL not in found:
            found[CLIQUE_LABEL] = {part.pool}
        return {label: frozenset(values) for label, values in found.items()} or _NONE

    def _labels_of(self, schema: AttributeSchema) -> tuple[tuple[int, tuple[str, ...]], ...]:
        """Places of the attributes that are read as labels, each with these; most are read as none."""
        known = self._labels.get(schema)
        if known is None:
            if len(self._labels) >= _SCHEMAS_MAX:
                self._labels.clear()
            told = enumerate(map(self._labels_of_attribute, schema.names))
            known = self._labels[schema] = tuple(
                (place, labels) for place, labels in told if labels
            )
        return known

    def _labels_of_attribute(self, attribute: str) -> tuple[str, ...]:
        clique = attribute.rpartition("/")[2].lower() in _CLIQUE_NAMES
        known = (attribute,) if attribute in self._wanted else ()
        return (*known, CLIQUE_LABEL) if clique else known


def _text(value: AttributeValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.text if isinstance(value, Version) else str(value)


def _add_slice(
    read: _ReadSlice, nodes: Sequence[Node], found: dict[str, dict[str, set[str]]]
) -> None:
    parts = [(read.source.reach, read.values)]
    parts += [(device.reach, values) for device, values in read.own]
    for reach, values in parts:
        if not values or reach is None or reach.everywhere:
            continue  # what all nodes reach tells none apart
        if reach.node:
            names = [reach.node]
        else:
            names = [
                node.name
                for node in nodes
                if any(term.matches(node.labels, name=node.name) for term in reach.terms or ())
            ]
        for name in names:
            of_node = found.setdefault(name, {})
            for label, told in values.items():
                of_node.setdefault(label, set()).update(told)


def _with_labels(
    nodes: Sequence[Node], values: Mapping[str, Mapping[str, set[str]]]
) -> Sequence[Node]:
    """Labels of nodes come first, and other labels for the clique than the one that slices stand for."""
    others = _CLIQUE_LABELS - {CLIQUE_LABEL}
    labelled = any(not others.isdisjoint(node.labels) for node in nodes) and not any(
        CLIQUE_LABEL in node.labels for node in nodes
    )
    made = []
    for node in nodes:
        more = {
            label: next(iter(told))
            for label, told in values.get(node.name, {}).items()
            if len(told) == 1
            and label not in node.labels
            and not (labelled and label == CLIQUE_LABEL)
        }
        made.append(attrs.evolve(node, labels={**node.labels, **more}) if more else node)
    return tuple(made)


def _same_labels(one: Sequence[Node], other: Sequence[Node]) -> bool:
    return len(one) == len(other) and all(
        a is b or (a.name == b.name and a.labels == b.labels)
        for a, b in zip(one, other, strict=True)
    )
