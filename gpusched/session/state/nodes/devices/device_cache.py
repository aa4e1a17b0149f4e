"""What sessions remember of devices: pools made of slices, what is taken of them, and answers about nodes."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Final

import attrs

from gpusched.api.devices.dynamic.catalog import NO_DEVICES, DeviceCatalog
from gpusched.api.devices.dynamic.claims import ResourceClaim
from gpusched.api.meta.identity import UID, ObjectKey
from gpusched.api.node.node import Node
from gpusched.base.classes import define
from gpusched.devices.fit import DeviceAnswers
from gpusched.devices.inventory import DeviceId, DeviceInventory
from gpusched.devices.shortage.causes import RequestShortage
from gpusched.devices.usage import DeviceUsage

_SHORTAGES_MAX: Final = 1_024
"""Questions about shortages whose answers are kept."""


@define(slots=True, eq=False)
class KnownShortages:
    """Why requests find no device as things are when a session begins; good until anything of it changes.

    Attributes:
        inventory: of the devices.
        nodes: of the snapshot, which reach them by name and labels.
        claims: of the snapshot.
        names: of gangs by the UID of their pods.
        holders: names by device; empty until they are asked for.
        found: by what was asked.
        reliefs: sentences on what would help, by what was asked.
    """

    inventory: DeviceInventory
    nodes: Sequence[Node]
    claims: Mapping[ObjectKey, ResourceClaim]
    names: Mapping[UID, str]
    holders: dict[DeviceId, list[str]] = attrs.field(factory=dict)
    found: dict[Hashable, list[RequestShortage]] = attrs.field(factory=dict)
    reliefs: dict[Hashable, str] = attrs.field(factory=dict)


class DeviceCache:
    """What outlives a session: pools made of slices, and how many pods fit nodes that are alike."""

    def __init__(self) -> None:
        self._catalog = NO_DEVICES
        self._inventory: DeviceInventory | None = None
        self._claims: Mapping[ObjectKey, ResourceClaim] = NO_DEVICES.claims
        self._usage: DeviceUsage | None = None
        self._shortages: KnownShortages | None = None
        self.answers = DeviceAnswers()

    def find_inventory(self, catalog: DeviceCatalog) -> DeviceInventory:
        """The inventory of a catalog; the same object for the same slices, classes and rules."""
        known, before = self._inventory, self._catalog
        if (
            known is None
            or before.slices is not catalog.slices
            or before.classes is not catalog.classes
            or before.taint_rules is not catalog.taint_rules
        ):
            known = self._inventory = DeviceInventory(catalog, known)
            self._usage = None
            if before.classes is not catalog.classes:
                self.answers.clear()
        self.answers.trim()
        self._catalog = catalog
        return known

    def known_shortages(
        self,
        inventory: DeviceInventory,
        nodes: Sequence[Node],
        catalog: DeviceCatalog,
        names: Mapping[UID, str],
    ) -> KnownShortages:
        """What was found out about shortages while devices, nodes, claims and names of gangs are these."""
        known = self._shortages
        if (
            known is None
            or known.inventory is not inventory
            or known.nodes != nodes
            or known.claims is not catalog.claims
            or known.names != names
            or len(known.found) + len(known.reliefs) >= _SHORTAGES_MAX
        ):
            known = self._shortages = KnownShortages(inventory, nodes, catalog.claims, names)
        return known

    def claimed_usage(self, catalog: DeviceCatalog) -> DeviceUsage:
        """What allocated claims hold of the devices, for one session to change."""
        inventory, claims = self.find_inventory(catalog), catalog.claims
        before = self._claims if self._usage is not None else NO_DEVICES.claims
        if self._usage is None:
            self._usage = DeviceUsage(inventory)
        if claims is not before:
            _follow_claims(self._usage, before, claims)
        self._claims = claims
        return self._usage.copy()


def _follow_claims(
    usage: DeviceUsage,
    before: Mapping[ObjectKey, ResourceClaim],
    now: Mapping[ObjectKey, ResourceClaim],
) -> None:
    """Take what claims were given since, and give back what they have no longer."""
    for key, claim in now.items():
        old = before.get(key)
        if old is not claim:
            if old is not None and old.allocation is not None:
                usage.add(old.allocation.devices, times=-1)
            if claim.allocation is not None:
                usage.add(claim.allocation.devices)
    for key in before.keys() - now.keys():
        allocation = before[key].allocation
        if allocation is not None:
            usage.add(allocation.devices, times=-1)
