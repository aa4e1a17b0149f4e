"""The session's nodes as problems of placement see them: levels, and rows that are spared."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.api.meta.units import unit_of
from gpusched.arrays.columns import Bools, Ints
from gpusched.arrays.node_usage import NodeUsage
from gpusched.cache.gangs.gang import Gang
from gpusched.placement.model.problem import DomainLevel
from gpusched.session.framework.hooks import SpareNodes
from gpusched.session.state.nodes.slot_states import KeptSlotStates, SlotStates
from gpusched.session.state.nodes.tightness import Tightness
from gpusched.session.state.nodes.tracked_array import Rows, TrackedArray
from gpusched.topology.levels import HOST
from gpusched.topology.levels import TopologyLevel as Labelled
from gpusched.topology.slot_costs import SlotTables


class ClusterMap:
    """Levels, free slots and spared nodes of one session, up to date.

    Args:
        node_usage: usage of the session's nodes.
        labelled: levels, widest first.
        spares: nodes that policies spare.
        kept: what the sessions before found of free slots.
    """

    def __init__(
        self,
        node_usage: NodeUsage,
        labelled: Sequence[Labelled],
        spares: Sequence[SpareNodes],
        kept: KeptSlotStates,
    ) -> None:
        self._node_usage = node_usage
        self._labelled = labelled
        self._spares = spares
        self._states = SlotStates(node_usage, kept)
        self._made: dict[str, DomainLevel] = {}
        self._free: dict[tuple[bytes, tuple[str, ...], bool], TrackedArray] = {}

    def problem_levels(self, *names: str) -> tuple[DomainLevel, ...]:
        """Levels of problems, widest first: all but hosts, and those of these names anyway.

        Labels that are no level of the cluster are among them only by name; then levels are left
        out whose domains cross theirs.
        """
        chosen = [
            each
            for each in self._labelled
            if each.name in names
            or (each.label != HOST and len(each.names) and not each.on_request)
        ]
        crossed = {name for each in chosen for name in each.crosses}.difference(names)
        return tuple(self._build_level(each) for each in chosen if each.name not in crossed)

    def _build_level(self, labelled: Labelled) -> DomainLevel:
        made = self._made.get(labelled.name)
        if made is None:
            real = len(labelled.names)
            domain = labelled.domain.copy()
            nowhere = np.flatnonzero(domain < 0)
            domain[nowhere] = real + np.arange(len(nowhere))
            domain.setflags(write=False)
            made = self._made[labelled.name] = DomainLevel(
                name=labelled.name, domain=domain, real=real
            )
        return made

    def pods_by_free_slots(self, size: int = 1, rows: Sequence[int] | None = None) -> Ints | None:
        """Pods of so many slots that the free slots of nodes suffice for, int64, shape (rows,).

        Of all nodes where no rows are given. Very many on nodes that have no slots; None as ``slot_states``. Read-only.
        """
        return None if self._node_usage.later else self._states.count_pods_left(size, rows)

    def slot_states(self) -> tuple[Ints | None, SlotTables | None]:
        """The state of each node's free slots, shape (nodes,), and what it costs to take some.

        None for both while pipelining: which slots will be free is not known.
        """
        return (None, None) if self._node_usage.later else self._states.current_states()

    @cached_property
    def _tightness(self) -> Tightness:
        return Tightness(self._node_usage, self.problem_levels())

    def domain_tightness(self) -> Ints:
        """Free GPUs of each node's domains in coarse steps, int64, shape (nodes,); less is tighter."""
        return self._tightness.current_steps()

    def free_amounts(self, columns: Ints, slotted: tuple[str, ...]) -> Ints:
        """Free amounts of some resources, int64, shape (nodes, columns), read-only, none negative.

        Args:
            columns: of the resources, ascending.
            slotted: kinds of GPUs of which no more count as free than there are free slots: what
                is there by amounts may be taken by number.
        """
        key = (columns.tobytes(), slotted, self._node_usage.later)
        followed = self._free.get(key)
        if followed is None:
            followed = self._free[key] = TrackedArray(
                self._node_usage, lambda rows: self._free_of(rows, columns, slotted)
            )
        return followed.current_values()

    def _free_of(self, rows: Rows, columns: Ints, slotted: Sequence[str]) -> Ints:
        free: Ints = np.maximum(self._node_usage.free_amounts(rows, columns), 0)
        left = self.pods_by_free_slots() if slotted else None
        if left is not None:
            by_name = self._node_usage.nodes.columns
            for name in slotted:
                # A share takes none of its kind's amount, which is then not among the columns.
                for column in np.flatnonzero(columns == by_name.get(name, -1)).tolist():
                    free[:, column] = np.minimum(free[:, column], left[rows] * unit_of(name))
        return free

    def spared_rows(self, gang: Gang) -> Bools | None:
        """Rows spared for other gangs, on which the gang may not start; None for none.

        Nodes are spared for gangs that run in their domain; pods without GPUs may use them,
        too.
        """
        if (
            not self._spares
            or gang.placed
            or not any(pod_set.pod_class.gpu for pod_set in gang.pod_sets)
        ):
            return None
        nodes = self._node_usage.nodes
        columns = [nodes.columns[name] for name in gpu_resources().names if name in nodes.columns]
        has = nodes.allocatable[:, columns].sum(axis=1) > 0
        empty = np.flatnonzero(has & ~(self._node_usage.used[:, columns] > 0).any(axis=1))
        spared = np.zeros(len(nodes), dtype=np.bool_)
        for spare in self._spares:
            level = next((each for each in self._labelled if each.name == spare.level), None)
            if level is not None:
                spared[_last_rows_of_each_domain(level.domain[empty], empty, spare.nodes)] = True
        return spared


def _last_rows_of_each_domain(domains: Ints, rows: Ints, count: int) -> Ints:
    """The last rows of each domain, so many of each; none without a domain."""
    chosen: list[int] = []
    for domain in np.unique(domains[domains >= 0]).tolist():
        chosen += rows[domains == domain][-count:].tolist() if count else []
    return np.array(chosen, dtype=np.int64)
