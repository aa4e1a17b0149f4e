"""What is kept from session to session for nodes that did not change: filters, levels."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import attrs
import numpy as np

from gpusched.api.meta.identity import GangKey
from gpusched.api.meta.resources import Resources
from gpusched.api.pod.pod import PodClass
from gpusched.api.policy.kinds import Topology
from gpusched.arrays.columns import Bools, Ints, NodeColumns
from gpusched.cache.gangs.gang import Gang
from gpusched.placement.tree.table_cache import TableCache
from gpusched.session.framework.hooks import Filter
from gpusched.session.framework.node_pools import NodePoolCache
from gpusched.session.framework.pod_counts import PodCountCache
from gpusched.session.state.equivalence import EquivalenceClasses, GangCache
from gpusched.session.state.plan import GangStatus, PendingReason
from gpusched.topology.levels import TopologyLevel, topology_levels
from gpusched.topology.topology_verdicts import TopologyVerdict, topology_verdicts


@attrs.frozen(slots=True, eq=False)
class GangUsage:
    """Of one gang.

    Attributes:
        rows: of its members, int64, shape (members,).
        amounts: int64, shape (members, resources).
        charged: the same for the accounts of queues.
    """

    rows: Ints
    amounts: Ints
    charged: Resources


class GangUsageCache:
    """By gang, see the module. Not for members that share GPUs: what those leave depends on others."""

    def __init__(self) -> None:
        self._epoch = -1
        self._of: GangCache[GangUsage | Literal[False]] = GangCache()

    def of(
        self, gang: Gang, nodes: NodeColumns, make: Callable[[], GangUsage | None]
    ) -> GangUsage | None:
        """The room of all its members; made when it is not known for these rows."""
        if self._epoch != nodes.epoch:
            self._epoch = nodes.epoch
            self._of.clear()
        known = self._of.get(gang)
        if known is None:
            known = make() or False
            self._of.put(gang, known)
        return known or None

    def only(self, gangs: Mapping[GangKey, Gang]) -> None:
        """Of all others nothing need be known any more."""
        self._of.only(gangs.values(), len(gangs))


StatusInputs = tuple[PendingReason | None, PendingReason | None, int, float]
"""Admission, reason why it waits, place in its queue and expected start."""
CLASSES_KEPT = 2048
"""Classes whose masks are kept: a few kilobytes each at a thousand nodes."""


@attrs.define
class _CachedFilterResults:
    epoch: int
    generation: Ints
    refused: list[Bools]


class SessionCache:
    """Filter results by class. Lives as long as the configuration whose filters it keeps.

    What a faulty filter's stand-in said is not kept: ``forget`` is called in its place.
    """

    def __init__(self) -> None:
        self.forget_all()

    def forget_all(self) -> None:
        """Begin anew: a session that broke off may have left half of something here."""
        self._kept: OrderedDict[str, _CachedFilterResults] = OrderedDict()
        self.columns = PodCountCache()
        """Counts of pods by node, and domains."""
        self.pools = NodePoolCache()
        """Nodes of pools, and what gangs hold there."""
        self.memory = TableCache()
        """Tables of placement."""
        self.kinds = EquivalenceClasses()
        """What gangs have in common."""
        self.rooms = GangUsageCache()
        """What running gangs would leave."""
        self.told: GangCache[tuple[StatusInputs, GangStatus]] = GangCache()
        """What gangs that wait were told last, and why."""
        self._levels: tuple[object, Ints, tuple[TopologyLevel, ...]] | None = None
        self._verdicts: tuple[tuple[TopologyLevel, ...], tuple[TopologyVerdict, ...]] | None = None

    def refusals(
        self, pod_class: PodClass, nodes: NodeColumns, filters: Sequence[Filter]
    ) -> list[Bools]:
        """For each filter the rows it refuses, bool, shape (nodes,). Not to be changed."""
        kept = self._kept.get(pod_class.digest)
        if kept is None or kept.epoch != nodes.epoch or len(kept.refused) != len(filters):
            kept = _CachedFilterResults(
                nodes.epoch,
                nodes.generation,
                [_refused_rows(each, pod_class, nodes, None) for each in filters],
            )
        elif kept.generation is not nodes.generation:
            rows = np.flatnonzero(kept.generation != nodes.generation).tolist()
            if rows:
                for mask, each in zip(kept.refused, filters, strict=True):
                    mask[rows] = _refused_rows(each, pod_class, nodes, rows)
            kept.generation = nodes.generation
        self._kept[pod_class.digest] = kept
        self._kept.move_to_end(pod_class.digest)
        if len(self._kept) > CLASSES_KEPT:
            self._kept.popitem(last=False)
        return kept.refused

    def levels(
        self, nodes: NodeColumns, topologies: Sequence[Topology]
    ) -> tuple[TopologyLevel, ...]:
        """Topology levels, worked out again only when a node or a topology changed."""
        seen = (
            nodes.epoch,
            id(nodes.generation),
            tuple((each.uid, each.generation, each.levels) for each in topologies),
        )
        if self._levels is None or self._levels[0] != seen:
            # The array is kept, so that its identity is not given to another.
            self._levels = (seen, nodes.generation, topology_levels(nodes.nodes, topologies))
        return self._levels[2]

    def verdicts(
        self, nodes: NodeColumns, topologies: Sequence[Topology]
    ) -> tuple[TopologyVerdict, ...]:
        """What the topologies are to be told, worked out again only when something changed."""
        levels = self.levels(nodes, topologies)
        if self._verdicts is None or self._verdicts[0] is not levels:
            self._verdicts = (levels, topology_verdicts(nodes.nodes, topologies, levels))
        return self._verdicts[1]

    def only(self, waiting: Sequence[Gang], active: Mapping[GangKey, Gang]) -> None:
        """Of gangs that are neither among those that wait nor active nothing need be kept."""
        self.kinds.only(waiting)
        self.told.only(waiting, len(waiting))
        self.rooms.only(active)

    def forget(self, pod_class: PodClass) -> None:
        """Ask the filters again next time."""
        self._kept.pop(pod_class.digest, None)


def _refused_rows(
    each: Filter, pod_class: PodClass, nodes: NodeColumns, rows: list[int] | None
) -> Bools:
    asked = nodes.nodes if rows is None else [nodes.nodes[row] for row in rows]
    allows = each.allows(pod_class, asked)
    if allows is None:
        return np.zeros(len(asked), dtype=np.bool_)
    return ~np.asarray(allows, dtype=np.bool_)
