"""What is kept from session to session for nodes that did not change: filters, levels."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence

import attrs
import numpy as np

from gpusched.arrays.columns import Bools, Ints, NodeColumns
from gpusched.cache.gangs import Gang
from gpusched.objects.group import Topology
from gpusched.objects.meta import GangKey
from gpusched.objects.pod import PodClass
from gpusched.placement.memory import Memory
from gpusched.session.by_gang import ByGang
from gpusched.session.hooks import Filter
from gpusched.session.kinds import Kinds
from gpusched.session.node_pools import PoolCache
from gpusched.session.plan import Ask, GangStatus
from gpusched.session.residents import ColumnCache
from gpusched.session.rooms import Rooms
from gpusched.topology.domain import Level, levels_of
from gpusched.topology.verdicts import Verdict, verdicts

Told = tuple[Ask | None, Ask | None, int, float]
"""Admission, reason why it waits, place in its queue and expected start."""
CLASSES_KEPT = 2048
"""Classes whose masks are kept: a few kilobytes each at a thousand nodes."""


@attrs.define
class _Kept:
    epoch: int
    generation: Ints
    refused: list[Bools]


class MaskCache:
    """Filter results by class. Lives as long as the configuration whose filters it keeps.

    What a faulty filter's stand-in said is not kept: ``forget`` is called in its place.
    """

    def __init__(self) -> None:
        self.forget_all()

    def forget_all(self) -> None:
        """Begin anew: a session that broke off may have left half of something here."""
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self.columns = ColumnCache()
        """Counts of pods by node, and domains."""
        self.pools = PoolCache()
        """Nodes of pools, and what gangs hold there."""
        self.memory = Memory()
        """Tables of placement."""
        self.kinds = Kinds()
        """What gangs have in common."""
        self.rooms = Rooms()
        """What running gangs would leave."""
        self.told: ByGang[tuple[Told, GangStatus]] = ByGang()
        """What gangs that wait were told last, and why."""
        self._levels: tuple[object, Ints, tuple[Level, ...]] | None = None
        self._verdicts: tuple[tuple[Level, ...], tuple[Verdict, ...]] | None = None

    def refusals(
        self, pod_class: PodClass, nodes: NodeColumns, filters: Sequence[Filter]
    ) -> list[Bools]:
        """For each filter the rows it refuses, bool, shape (nodes,). Not to be changed."""
        kept = self._kept.get(pod_class.digest)
        if kept is None or kept.epoch != nodes.epoch or len(kept.refused) != len(filters):
            kept = _Kept(
                nodes.epoch,
                nodes.generation,
                [_refused(each, pod_class, nodes, None) for each in filters],
            )
        elif kept.generation is not nodes.generation:
            rows = np.flatnonzero(kept.generation != nodes.generation).tolist()
            if rows:
                for mask, each in zip(kept.refused, filters, strict=True):
                    mask[rows] = _refused(each, pod_class, nodes, rows)
            kept.generation = nodes.generation
        self._kept[pod_class.digest] = kept
        self._kept.move_to_end(pod_class.digest)
        if len(self._kept) > CLASSES_KEPT:
            self._kept.popitem(last=False)
        return kept.refused

    def levels(self, nodes: NodeColumns, topologies: Sequence[Topology]) -> tuple[Level, ...]:
        """Topology levels, worked out again only when a node or a topology changed."""
        seen = (
            nodes.epoch,
            id(nodes.generation),
            tuple((each.uid, each.generation, each.levels) for each in topologies),
        )
        if self._levels is None or self._levels[0] != seen:
            # The array is kept, so that its identity is not given to another.
            self._levels = (seen, nodes.generation, levels_of(nodes.nodes, topologies))
        return self._levels[2]

    def verdicts(self, nodes: NodeColumns, topologies: Sequence[Topology]) -> tuple[Verdict, ...]:
        """What the topologies are to be told, worked out again only when something changed."""
        levels = self.levels(nodes, topologies)
        if self._verdicts is None or self._verdicts[0] is not levels:
            self._verdicts = (levels, verdicts(nodes.nodes, topologies, levels))
        return self._verdicts[1]

    def only(self, waiting: Sequence[Gang], active: Mapping[GangKey, Gang]) -> None:
        """Of gangs that are neither among those that wait nor active nothing need be kept."""
        self.kinds.only(waiting)
        self.told.only(waiting, len(waiting))
        self.rooms.only(active)

    def forget(self, pod_class: PodClass) -> None:
        """Ask the filters again next time."""
        self._kept.pop(pod_class.digest, None)


def _refused(
    each: Filter, pod_class: PodClass, nodes: NodeColumns, rows: list[int] | None
) -> Bools:
    asked = nodes.nodes if rows is None else [nodes.nodes[row] for row in rows]
    allows = each.allows(pod_class, asked)
    if allows is None:
        return np.zeros(len(asked), dtype=np.bool_)
    return ~np.asarray(allows, dtype=np.bool_)
