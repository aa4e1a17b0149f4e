"""Which nodes reach which devices, for claims whose devices pods on several nodes are to use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from gpusched.api.affinity.selector import NodeTerm
from gpusched.api.devices.dynamic.claims import AllocationMode, ClaimAllocation
from gpusched.api.node.node import Node
from gpusched.arrays.columns import Bools
from gpusched.devices.allocator import AllocationOutcome, allocate
from gpusched.devices.inventory import DeviceInventory, NodeDevices, PoolDevice, ReachablePool
from gpusched.devices.requests import ReadyClaim
from gpusched.devices.usage import DeviceUsage

REACHES_MAX: Final = 16
"""Sets of nodes with devices in common that shared claims are tried for."""


class DeviceReaches:
    """Nodes as rows, and the devices that several of them reach.

    Args:
        inventory: of the session.
        nodes: in the order of rows.
    """

    def __init__(self, inventory: DeviceInventory, nodes: Sequence[Node]) -> None:
        self._inventory = inventory
        self._nodes = nodes
        self._terms: dict[tuple[NodeTerm, ...], Bools] = {}

    def rows_of(self, allocation: ClaimAllocation) -> Bools:
        """Rows that may use an allocation, shape (nodes,)."""
        if allocation.nodes is None:
            return np.ones(len(self._nodes), dtype=np.bool_)
        return self._term_rows(allocation.nodes)

    def common_sets(self) -> list[Bools]:
        """Sets of several rows that reach devices in common, and what these sets share; widest first."""
        every = np.ones(len(self._nodes), dtype=np.bool_)
        found: dict[bytes, Bools] = {}
        for reach in self._inventory.wide_reaches():
            rows = every if reach.everywhere else self._term_rows(reach.terms or ())
            for other in (every, *list(found.values())):
                both = rows & other
                if int(both.sum()) > 1 and len(found) < REACHES_MAX:
                    found.setdefault(both.tobytes(), both)
        return sorted(found.values(), key=lambda each: -int(each.sum()))

    def allocate_in_common(
        self, usage: DeviceUsage, claim: ReadyClaim, rows: Bools
    ) -> ClaimAllocation | None:
        """Devices for a claim that all of some rows reach; None where there are none."""
        node = self._nodes[int(rows.argmax())]
        devices = self._inventory.node_devices(node.name, node.labels)
        for part in [devices] if _asks_for_all(claim) else self._reached_by_all(devices, rows):
            found = allocate(self._inventory, usage, part, [claim])
            if found.outcome is AllocationOutcome.ALLOCATED:
                (allocation,) = found.claims
                return allocation if bool(self.rows_of(allocation)[rows].all()) else None
        return None

    def _reached_by_all(self, devices: NodeDevices, rows: Bools) -> Iterator[NodeDevices]:
        """Devices of a node that all of some rows reach: first what the fewest others reach, then more."""
        reached = {
            each: count
            for part in devices.pools
            for each in part.devices
            if (count := self._reach_count(each, rows))
        }
        for most in sorted(set(reached.values())):
            yield NodeDevices(
                devices.node,
                tuple(
                    ReachablePool(
                        part.pool, tuple([e for e in part.devices if 0 < reached.get(e, 0) <= most])
                    )
                    for part in devices.pools
                ),
            )

    def _reach_count(self, device: PoolDevice, rows: Bools) -> int:
        """How many nodes reach a device that all of some rows reach; 0 where not all of them do."""
        if device.device.binds_to_node or device.reach.node:
            return 0
        if device.reach.everywhere:
            return len(self._nodes)
        found = self._term_rows(device.reach.terms or ())
        return int(found.sum()) if found[rows].all() else 0

    def _term_rows(self, terms: tuple[NodeTerm, ...]) -> Bools:
        known = self._terms.get(terms)
        if known is None:
            known = self._terms[terms] = np.array(
                [
                    any(term.matches(node.labels, name=node.name) for term in terms)
                    for node in self._nodes
                ],
                dtype=np.bool_,
            )
        return known


def _asks_for_all(claim: ReadyClaim) -> bool:
    """Whether leaving devices out would change what a claim asks for."""
    return any(
        request.request.mode is AllocationMode.ALL
        for alternatives in claim.requests
        for request in alternatives
    )
