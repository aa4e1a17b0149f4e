"""Rows of nodes with what is known of their inside: the layout that counts, NUMA zones, refusals.

A node as the API has it is kept beside the node that placement sees, because what others publish
about it, or the catalogue, may change without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, TypeVar

import attrs

from gpusched.api.devices.gpu_layout import GpuLayout, GpuLayoutCatalog
from gpusched.api.devices.numa import NumaTopology
from gpusched.api.devices.published_devices import DeviceSlice, NumaZones
from gpusched.api.devices.slots import slot_ranges
from gpusched.api.meta.identity import ObjectKey, Rejected
from gpusched.api.meta.resources import NOTHING, Resources
from gpusched.api.node.node import Node
from gpusched.api.pod.pod import Pod
from gpusched.cache.nodes.kubelet_refusals import KubeletRefusals
from gpusched.cache.nodes.rows import NodeColumnRows
from gpusched.cache.store import KindStore
from gpusched.topology.layout_choice import LayoutIssue, choose_layout
from gpusched.topology.numa_admission import build_numa_topology
from gpusched.topology.published_layout import layout_from_devices

E = TypeVar("E")
_NO_CATALOGUE: Final = GpuLayoutCatalog()


def _nothing(_node: Node) -> Resources:
    return NOTHING


_SHARED_MAX: Final = 4096
"""Distinct layouts and amounts that are remembered to be shared; no cluster has so many."""


class DeviceStore(KindStore[E], Generic[E]):
    """Objects about the inside of nodes.

    Args:
        node_of: the name of the node that an object is about, empty for none.
        changed: told the name of a node of which something changed.
    """

    def __init__(self, node_of: Callable[[Any], str], changed: Callable[[str], None]) -> None:
        super().__init__()
        self._node_of = node_of
        self._changed = changed
        self._of_node: dict[str, set[ObjectKey]] = {}

    def put(self, key: ObjectKey, item: E | Rejected) -> None:
        """It is there, in this form; one that cannot be believed says nothing."""
        known = self.items.get(key)
        if known == item:
            return
        before = self._remove_entry(key)
        super().put(key, item)
        after = "" if isinstance(item, Rejected) else self._node_of(item)
        if after:
            self._of_node.setdefault(after, set()).add(key)
        for name in sorted({before, after} - {""}):
            self._changed(name)

    def drop(self, key: ObjectKey) -> None:
        """Drop the object of this key, which is gone."""
        before = self._remove_entry(key)
        super().drop(key)
        if before:
            self._changed(before)

    def entries_of_node(self, node: str) -> list[E]:
        """All about one node, sorted by key."""
        return [self.items[key] for key in sorted(self._of_node.get(node, ()))]

    def _remove_entry(self, key: ObjectKey) -> str:
        known = self.items.get(key)
        name = "" if known is None else self._node_of(known)
        if name:
            self._of_node[name].discard(key)
            if not self._of_node[name]:
                del self._of_node[name]
        return name


class DeviceNodeRows(NodeColumnRows):
    """See the module.

    Args:
        changed: called when a node may have changed without its object.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        super().__init__()
        self._listener = changed
        self._catalogue = _NO_CATALOGUE
        self._plain: dict[str, Node] = {}
        self._doubts: dict[str, tuple[LayoutIssue, ...]] = {}
        self._layouts: dict[GpuLayout, GpuLayout] = {}
        self._offers: dict[Resources, Resources] = {}
        self._refusals = KubeletRefusals()
        self._takes_node: Callable[[Node], bool] = lambda _node: True
        self._closes_node: Callable[[str], bool] = lambda _name: False
        self._forget_node: Callable[[str], None] = lambda _name: None
        self.other_nodes: dict[str, Node] = {}
        """Nodes on which nothing is placed here, as others decide about them."""
        self.devices_only: Callable[[Node], Resources] = _nothing
        """What a node has of extended resources as devices only."""
        self.slices: DeviceStore[DeviceSlice] = DeviceStore(
            lambda each: each.node, self._mark_changed
        )
        self.zones: DeviceStore[NumaZones] = DeviceStore(lambda each: each.name, self._mark_changed)
        self.shelves: dict[str, DeviceStore[Any]] = {"NodeResourceTopology": self.zones}
        """By kind."""
        self.on_doubt: list[Callable[[Node, tuple[LayoutIssue, ...], bool], None]] = []
        """Told of each node as it is shown of which something cannot be believed, and whether
        that is new."""

    @property
    def catalogue(self) -> GpuLayoutCatalog:
        """Where layouts come from."""
        return self._catalogue

    def use_catalogue(self, catalogue: GpuLayoutCatalog) -> None:
        """Layouts by product and by name come from here now."""
        if catalogue == self._catalogue:
            return
        self._catalogue = catalogue
        for node in list(self._plain.values()):
            self.put_node(node)
        self._listener()

    def all_names(self) -> list[str]:
        """Names of all nodes, of others too, sorted."""
        return sorted((*self.node_names(), *self.other_nodes))

    def find_any(self, name: str) -> Node | None:
        """The node of that name, whoever decides about it."""
        return self.get(name) or self.other_nodes.get(name)

    def use_part(
        self,
        takes: Callable[[Node], bool],
        closes: Callable[[str], bool],
        forget: Callable[[str], None],
    ) -> None:
        """Other nodes than before are decided about here: those that are taken.

        Args:
            takes: whether a node is, as it is now.
            closes: whether nothing new is placed on the node of a name.
            forget: told of a node that is gone.
        """
        self._takes_node, self._closes_node, self._forget_node = takes, closes, forget
        for node in [*self._plain.values(), *self.other_nodes.values()]:
            self.put_node(node)

    def look_again(self, names: Iterable[str]) -> None:
        """Whether nodes of these names are decided about here may have changed."""
        for name in names:
            node = self._plain.get(name) or self.other_nodes.get(name)
            if node is not None:
                self.put_node(node)

    def put_node(self, node: Node) -> None:
        """A node appeared or changed."""
        if not self._takes_node(node):
            self._drop_row(node.name)
            self.other_nodes[node.name] = node
            return
        self.other_nodes.pop(node.name, None)
        self._plain[node.name] = node
        super().put_node(self._visible_node(node))

    def take_heartbeat(self, node: Node) -> bool:
        """Whether nothing but its version is another than before, which is taken: rows stay as they are."""
        known = self._plain.get(node.name)
        version = node.resource_version
        if known is None or node != (same := attrs.evolve(known, resource_version=version)):
            return False
        self._plain[node.name] = same  # which shares its labels with the row
        self._nodes[node.name] = attrs.evolve(self._nodes[node.name], resource_version=version)
        return True

    def drop_node(self, name: str) -> None:
        """A node is gone."""
        self._forget_node(name)
        self.other_nodes.pop(name, None)
        self._drop_row(name)

    def _drop_row(self, name: str) -> None:
        self._plain.pop(name, None)
        self._doubts.pop(name, None)
        super().drop_node(name)

    def note_refused_pod(self, pod: Pod) -> None:
        """A pod of ours was seen, that a kubelet may have refused."""
        self._refusals.note_pod(pod)

    def rows_at(self, now: float) -> DeviceNodeRows:
        """The rows as they are at this time, seconds since the epoch."""
        for name in self._refusals.node_names():
            known = self.get(name)
            avoided = self._refusals.avoided_requests(name, now)
            if known is not None and known.avoided != avoided:
                super().put_node(attrs.evolve(known, avoided=avoided))
        return self

    def show_again(self, names: Iterable[str] | None) -> None:
        """What nodes have as devices only has changed; None for all nodes."""
        for name in list(self._plain) if names is None else names:
            self._mark_changed(name)

    def _mark_changed(self, name: str) -> None:
        """Something about a node changed."""
        node = self._plain.get(name)
        if node is None:
            return
        known, seen = self.get(name), self._visible_node(node)
        if seen != known:
            super().put_node(seen)
            self._listener()

    def _visible_node(self, node: Node) -> Node:
        """The node with what counts."""
        slices = self.slices.entries_of_node(node.name)
        layout, doubts = choose_layout(
            node, self._catalogue, layout_from_devices(slices) if slices else None
        )
        self._tell_doubts(node, doubts)
        if max(len(self._layouts), len(self._offers)) > _SHARED_MAX:
            self._layouts.clear()
            self._offers.clear()
        layout = self._layouts.setdefault(layout, layout)  # nodes that are alike share them
        served = self.devices_only(node)
        offer = node.allocatable.replaced_by(served) if served else node.allocatable
        offer = self._offers.setdefault(offer, offer)
        known = self.get(node.name)
        return attrs.evolve(
            node,
            allocatable=offer,
            unschedulable=node.unschedulable or self._closes_node(node.name),
            layout=layout.islands,
            numa=layout.numa,
            cells=None if served else self._numa_cells(node, layout),
            avoided=known.avoided if known is not None else (),
            devices_only=tuple(name for name, _ in served.items),
        )

    def _numa_cells(self, node: Node, layout: GpuLayout) -> NumaTopology | None:
        about = self.zones.entries_of_node(node.name)
        return (
            build_numa_topology(about[0], layout, slot_ranges(node.allocatable)) if about else None
        )

    def _tell_doubts(self, node: Node, doubts: tuple[LayoutIssue, ...]) -> None:
        new = self._doubts.get(node.name, ()) != doubts
        if doubts:
            self._doubts[node.name] = doubts
            for listener in self.on_doubt:
                listener(node, doubts, new)
        else:
            self._doubts.pop(node.name, None)
