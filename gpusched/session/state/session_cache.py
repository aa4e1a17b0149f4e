"""Results cached from session to session for what did not change: filters, levels, statuses."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from gpusched.api.devices.dynamic.slices import ResourceSlice
from gpusched.api.pod.pod import PodClass
from gpusched.api.policy.kinds import Topology
from gpusched.arrays.alike_rows import AlikeRows
from gpusched.arrays.columns import Bools, Ints, NodeColumns
from gpusched.arrays.node_facts import KeptNodeFacts
from gpusched.base.classes import define
from gpusched.cache.gangs.gang import Gang
from gpusched.placement.tree.table_cache import TableCache
from gpusched.session.framework.accounts.gang_lines import KeptLines
from gpusched.session.framework.accounts.node_pools import NodePoolCache
from gpusched.session.framework.hooks import Filter
from gpusched.session.framework.pod_counts import PodCountCache
from gpusched.session.state.cycle_state import CycleState
from gpusched.session.state.equivalence import EquivalenceClasses, GangCache
from gpusched.session.state.nodes.devices.device_cache import DeviceCache
from gpusched.session.state.nodes.gpu_types import GpuTypeCache
from gpusched.session.state.plan import GangStatus, PendingReason
from gpusched.topology.levels import (
    TopologyLevel,
    active_topology,
    topology_levels,
    with_label_levels,
)
from gpusched.topology.published_domains import PublishedDomains
from gpusched.topology.topology_verdicts import TopologyVerdict, topology_verdicts

_ClassKey = tuple[int, tuple[Hashable, ...]]
"""Number of a filter, and what of a class its answers depend on."""
StatusInputs = tuple[PendingReason | None, PendingReason | None, int, float, str]
"""Admission, reason why a gang waits, place in its queue, expected start, and who holds what it lacks."""
FILTER_RESULTS_CACHED_MAX = 8192
"""Results of one filter for classes that are equal in what it reads: a kilobyte each at a thousand nodes."""

SORT_KEYS_CACHED_MAX = 4096


@define
class _CachedFilterResults:
    """Rows that a filter refuses pods of a class, as nodes were at a generation; see ``Filter.reads``."""

    epoch: int
    generation: Ints
    refused: Bools
    reads: tuple[str, ...] | None


class SessionCache:
    """Results of earlier sessions under one configuration.

    What a faulty filter's stand-in answered is not cached: ``forget`` is called for it.
    """

    def __init__(self) -> None:
        self.forget_all()

    def forget_all(self) -> None:
        """Drop everything: a session that broke off may have left half of something here."""
        self._refusals: OrderedDict[_ClassKey, _CachedFilterResults] = OrderedDict()
        self.lines = KeptLines()
        """Gangs by queue and namespace."""
        self.pod_counts = PodCountCache()
        """Counts of pods by node, and domains of node labels."""
        self.node_pools = NodePoolCache()
        """Nodes of node pools, and amounts that gangs hold there."""
        self.gpu_types = GpuTypeCache()
        """Types of nodes' GPUs."""
        self.devices = DeviceCache()
        """Pools of devices, and how many pods fit nodes that are alike."""
        self.node_facts = KeptNodeFacts()
        """What nodes are and offer."""
        self.alike_rows: AlikeRows | None = None
        """Nodes that offered and held the same; a session that goes on with it takes it away."""
        self.tables = TableCache()
        """Tables of nodes that placement sorts by."""
        self.equivalence = EquivalenceClasses()
        """Equivalence classes of gangs that wait."""
        self.sort_keys: dict[Any, Any] = {}
        """Sort keys by themselves: equal ones are one object, which makes comparing orders cheap."""
        self.kept = CycleState()
        """What packages above the session keep from session to session."""
        self.statuses: GangCache[tuple[StatusInputs, GangStatus]] = GangCache()
        """Last status of gangs that wait, with what it was made from."""
        self._domains = PublishedDomains()
        self._levels: tuple[object, object, tuple[TopologyLevel, ...]] | None = None
        self._named_domains = PublishedDomains()
        self._label_levels: (
            tuple[
                tuple[TopologyLevel, ...],
                tuple[tuple[str, ...], int, object],
                tuple[TopologyLevel, ...],
            ]
            | None
        ) = None
        self._verdicts: tuple[tuple[TopologyLevel, ...], tuple[TopologyVerdict, ...]] | None = None

    def refused_rows(
        self, pod_class: PodClass, nodes: NodeColumns, filters: Sequence[Filter]
    ) -> list[Bools]:
        """Rows that each filter refuses, bool, shape (nodes,), read-only."""
        return [
            self._rows_refused_by(number, each, pod_class, nodes)
            for number, each in enumerate(filters)
        ]

    def _rows_refused_by(
        self, number: int, each: Filter, pod_class: PodClass, nodes: NodeColumns
    ) -> Bools:
        key = _class_key(number, each.reads, pod_class)
        known = self._refusals.get(key)
        if known is None or known.epoch != nodes.epoch:
            refused = _refused_rows(each, pod_class, nodes, None)
            known = _CachedFilterResults(nodes.epoch, nodes.generation, refused, each.reads)
        elif known.generation is not nodes.generation:
            rows = np.flatnonzero(known.generation != nodes.generation).tolist()
            if rows:
                known.refused[rows] = _refused_rows(each, pod_class, nodes, rows)
            known.generation = nodes.generation
        self._refusals[key] = known
        self._refusals.move_to_end(key)
        if len(self._refusals) > FILTER_RESULTS_CACHED_MAX:
            self._refusals.popitem(last=False)
        return known.refused

    def take_alike_rows(self) -> AlikeRows | None:
        """Groups of equal nodes for one session, which leaves them when it ends."""
        taken, self.alike_rows = self.alike_rows, None
        return taken

    def topology_levels(
        self,
        nodes: NodeColumns,
        topologies: Sequence[Topology],
        slices: Sequence[ResourceSlice] = (),
    ) -> tuple[TopologyLevel, ...]:
        """Topology levels, worked out again only when a node, a topology, or what slices tell changed."""
        named = active_topology(topologies).levels if topologies else ()
        located = self._domains.with_labels(nodes, slices, [label for _, label in named])
        seen = (
            nodes.epoch,
            id(nodes.generation),
            tuple((each.uid, each.generation, each.levels) for each in topologies),
            id(located),
        )
        if self._levels is None or self._levels[0] != seen:
            # References to what is compared by identity, so that it is not given to another.
            kept = (nodes.generation, located)
            self._levels = (seen, kept, topology_levels(located or nodes.nodes, topologies))
        return self._levels[2]

    def label_levels(
        self,
        nodes: NodeColumns,
        levels: tuple[TopologyLevel, ...],
        labels: tuple[str, ...],
        slices: Sequence[ResourceSlice] = (),
    ) -> tuple[TopologyLevel, ...]:
        """The levels with those of node labels or attributes of devices that gangs name.

        Args:
            nodes: of the session.
            levels: of the cluster, as ``topology_levels`` gave them.
            labels: that gangs name, sorted.
            slices: of the cluster.
        """
        known = self._label_levels
        located = self._named_domains.with_labels(nodes, slices, labels)
        asked = (labels, id(located), located)
        if known is None or known[0] is not levels or known[1][:2] != asked[:2]:
            with_labels = with_label_levels(levels, located or nodes.nodes, labels)
            known = self._label_levels = (levels, asked, with_labels)
        return known[2]

    def topology_verdicts(
        self,
        nodes: NodeColumns,
        topologies: Sequence[Topology],
        slices: Sequence[ResourceSlice] = (),
    ) -> tuple[TopologyVerdict, ...]:
        """Verdict on each Topology, worked out again only when something changed."""
        levels = self.topology_levels(nodes, topologies, slices)
        if self._verdicts is None or self._verdicts[0] is not levels:
            named = active_topology(topologies).levels if topologies else ()
            located = self._domains.with_labels(nodes, slices, [label for _, label in named])
            counted = located or nodes.nodes
            self._verdicts = (levels, topology_verdicts(counted, topologies, levels))
        return self._verdicts[1]

    def keep_only(self, waiting: Sequence[Gang]) -> None:
        """Forget gangs that do not wait."""
        self.equivalence.keep_only(waiting)
        self.statuses.keep_only(waiting, len(waiting))
        if len(self.sort_keys) > SORT_KEYS_CACHED_MAX:
            self.sort_keys.clear()

    def forget(self, pod_class: PodClass) -> None:
        """Call the filters for the class again next time."""
        keys = [
            key
            for key, known in self._refusals.items()
            if key == _class_key(key[0], known.reads, pod_class)
        ]
        for key in keys:
            del self._refusals[key]


def _class_key(number: int, reads: tuple[str, ...] | None, pod_class: PodClass) -> _ClassKey:
    """What of a class the answers of a filter depend on."""
    if reads is None:
        return number, (pod_class.digest,)
    return number, tuple(getattr(pod_class, name) for name in reads)


def _refused_rows(
    each: Filter, pod_class: PodClass, nodes: NodeColumns, rows: list[int] | None
) -> Bools:
    chosen = nodes.nodes if rows is None else [nodes.nodes[row] for row in rows]
    allows = each.allows(pod_class, chosen)
    if allows is None:
        return np.zeros(len(chosen), dtype=np.bool_)
    return ~np.asarray(allows, dtype=np.bool_)
