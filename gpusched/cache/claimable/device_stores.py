"""Slices, classes, claims and taint rules of devices as the watches show them."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from gpusched.api.devices.dynamic.catalog import NO_DEVICES, DeviceCatalog
from gpusched.api.devices.dynamic.claims import (
    DeviceClass,
    ResourceClaim,
    ResourceClaimTemplate,
)
from gpusched.api.devices.dynamic.slices import DeviceTaintRule, ResourceSlice
from gpusched.api.devices.published_devices import DeviceSlice, gpu_slice
from gpusched.api.meta.identity import ObjectKey, Rejected
from gpusched.cache.claimable.volume_stores import VolumeKindStore as ListedKindStore
from gpusched.cache.nodes.device_view import DeviceStore


class SliceStore(ListedKindStore[ResourceSlice]):
    """ResourceSlices; what they tell of the layout of nodes goes to the nodes.

    Args:
        changed: called after each change.
        layouts: get what a slice says about a node's GPUs.
    """

    def __init__(self, changed: Callable[[], None], layouts: DeviceStore[DeviceSlice]) -> None:
        super().__init__(changed)
        self._layouts = layouts

    def put(self, key: ObjectKey, item: ResourceSlice | Rejected) -> None:
        """It is there, in this form."""
        super().put(key, item)
        self._layouts.put(key, item if isinstance(item, Rejected) else gpu_slice(item))

    def drop(self, key: ObjectKey) -> None:
        """Drop the slice of this key, which is gone."""
        super().drop(key)
        self._layouts.drop(key)


class DeviceObjectStores:
    """All kinds of dynamic resource allocation.

    Args:
        changed: called after every change that a decision may depend on.
        layouts: get what slices say about the GPUs of nodes.
    """

    def __init__(self, changed: Callable[[], None], layouts: DeviceStore[DeviceSlice]) -> None:
        self._listener = changed
        self.slices = SliceStore(self._forget, layouts)
        self.classes: ListedKindStore[DeviceClass] = ListedKindStore(self._forget)
        self.claims: ListedKindStore[ResourceClaim] = ListedKindStore(self._forget)
        self.templates: ListedKindStore[ResourceClaimTemplate] = ListedKindStore(self._forget)
        self.rules: ListedKindStore[DeviceTaintRule] = ListedKindStore(self._forget)
        self.shelves: dict[str, ListedKindStore[Any]] = {
            "ResourceSlice": self.slices,
            "DeviceClass": self.classes,
            "ResourceClaim": self.claims,
            "ResourceClaimTemplate": self.templates,
            "DeviceTaintRule": self.rules,
        }
        """By kind."""
        self._view: DeviceCatalog | None = NO_DEVICES

    def _forget(self) -> None:
        self._view = None
        self._listener()

    def view(self) -> DeviceCatalog:
        """This moment; the same object until something changes."""
        if self._view is None:
            self._view = DeviceCatalog(
                slices=tuple(item for _, item in sorted(self.slices.items.items())),
                classes=MappingProxyType(
                    {key.name: item for key, item in sorted(self.classes.items.items())}
                ),
                claims=MappingProxyType(dict(sorted(self.claims.items.items()))),
                templates=MappingProxyType(dict(sorted(self.templates.items.items()))),
                taint_rules=tuple(item for _, item in sorted(self.rules.items.items())),
                served=True,
            )
        return self._view
