"""Slices, classes, claims and taint rules of devices as the watches show them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import attrs

from gpusched.api.devices.dynamic.catalog import NO_DEVICES, DeviceCatalog
from gpusched.api.devices.dynamic.claims import (
    ClaimAllocation,
    ClaimConsumer,
    DeviceClass,
    ResourceClaim,
    ResourceClaimTemplate,
)
from gpusched.api.devices.dynamic.slices import DeviceTaintRule, ResourceSlice
from gpusched.api.devices.published_devices import DeviceSlice, gpu_slice
from gpusched.api.meta.identity import UID, ObjectKey, Rejected
from gpusched.base.classes import frozen
from gpusched.cache.claimable.claim_store import ClaimStore, PoolKey
from gpusched.cache.claimable.volume_stores import VolumeKindStore as ListedKindStore
from gpusched.cache.nodes.device_view import DeviceStore


@frozen(slots=True)
class AssumedClaim:
    """A claim that is being written.

    Attributes:
        uid: of the claim; another one under its name is not meant.
        allocation: that it gets; None where it has one.
        consumers: that it is being reserved for.
    """

    uid: UID
    allocation: ClaimAllocation | None
    consumers: tuple[ClaimConsumer, ...]


class SliceStore(ListedKindStore[ResourceSlice]):
    """ResourceSlices; what they tell of the layout of nodes goes to the nodes.

    Args:
        changed: called after each change.
        layouts: get what a slice says about a node's GPUs.
    """

    def __init__(self, changed: Callable[[], None], layouts: DeviceStore[DeviceSlice]) -> None:
        super().__init__(changed)
        self._layouts = layouts
        self._of_pool: dict[PoolKey, dict[ObjectKey, ResourceSlice]] = {}

    def of_pool(self, pool: PoolKey) -> Collection[ResourceSlice]:
        """Slices of a pool, of every generation, in any order."""
        return self._of_pool.get(pool, {}).values()

    def put(self, key: ObjectKey, item: ResourceSlice | Rejected) -> None:
        """It is there, in this form."""
        self._remove_slice(key)
        if not isinstance(item, Rejected):
            self._of_pool.setdefault((item.driver, item.pool), {})[key] = item
        super().put(key, item)
        self._layouts.put(key, item if isinstance(item, Rejected) else gpu_slice(item))

    def drop(self, key: ObjectKey) -> None:
        """Drop the slice of this key, which is gone."""
        self._remove_slice(key)
        super().drop(key)
        self._layouts.drop(key)

    def _remove_slice(self, key: ObjectKey) -> None:
        known = self.items.get(key)
        if known is not None:
            pool = (known.driver, known.pool)
            del self._of_pool[pool][key]
            if not self._of_pool[pool]:
                del self._of_pool[pool]


class DeviceObjectStores:
    """All kinds of dynamic resource allocation.

    Args:
        changed: called after every change that a decision may depend on.
        layouts: get what slices say about the GPUs of nodes.
    """

    def __init__(self, changed: Callable[[], None], layouts: DeviceStore[DeviceSlice]) -> None:
        self._listener = changed
        self.slices = SliceStore(partial(self._forget, "slices"), layouts)
        self.classes: ListedKindStore[DeviceClass] = ListedKindStore(
            partial(self._forget, "classes")
        )
        self.claims = ClaimStore(partial(self._forget, "claims"))
        self.templates: ListedKindStore[ResourceClaimTemplate] = ListedKindStore(
            partial(self._forget, "templates")
        )
        self.rules: ListedKindStore[DeviceTaintRule] = ListedKindStore(
            partial(self._forget, "taint_rules")
        )
        self.shelves: dict[str, ListedKindStore[Any]] = {
            "ResourceSlice": self.slices,
            "DeviceClass": self.classes,
            "ResourceClaim": self.claims,
            "ResourceClaimTemplate": self.templates,
            "DeviceTaintRule": self.rules,
        }
        """By kind."""
        self.api_version = ""
        """Group and version in which claims are served, empty where they are not."""
        self._assumed: dict[ObjectKey, AssumedClaim] = {}
        self._made: dict[ObjectKey, ResourceClaim] = {}
        """Claims that are being made with devices for extended resources, as they will be."""
        self._claim_keys: list[ObjectKey] = []
        """Sorted keys of the claims, as they were last."""
        self._claims: dict[ObjectKey, ResourceClaim] = {}
        """The claims of the last view."""
        self._reassumed: set[ObjectKey] = set()
        """Claims of which something else is assumed since then."""
        self._changed: set[str] = set()
        self._view = NO_DEVICES

    # -- what is on its way --------------------------------------------------------------------
    def assume_claim(self, key: ObjectKey, assumed: AssumedClaim) -> None:
        """A claim is being given devices, or reserved: no session may give them again."""
        known = self._assumed.get(key)
        if known is not None and known.uid == assumed.uid:
            assumed = attrs.evolve(
                known,
                allocation=known.allocation or assumed.allocation,
                consumers=(*known.consumers, *assumed.consumers),
            )
        self._assumed[key] = assumed
        self._reassumed.add(key)
        self._forget("claims")

    def forget(self, key: ObjectKey, consumer: UID) -> None:
        """That pod's claim is not written after all."""
        known = self._assumed.pop(key, None)
        left = () if known is None else tuple(e for e in known.consumers if e.uid != consumer)
        if known is not None and left:
            self._assumed[key] = attrs.evolve(known, consumers=left)
        self._reassumed.add(key)
        self._forget("claims")

    def assume_made(self, claim: ResourceClaim) -> None:
        """A claim is being made, with these devices: no session may give them again."""
        self._made[claim.key] = claim
        self._reassumed.add(claim.key)
        self._forget("claims")

    def claim_being_made(self, key: ObjectKey) -> ResourceClaim | None:
        """The claim that is being made under a key, as it will be."""
        return self._made.get(key)

    def forget_made(self, key: ObjectKey) -> None:
        """The claim is made, or not made after all."""
        if self._made.pop(key, None) is not None:
            self._reassumed.add(key)
            self._forget("claims")

    def is_assumed(self, key: ObjectKey) -> bool:
        """Whether a claim is being made or written."""
        return key in self._assumed or key in self._made

    def _as_assumed(self, key: ObjectKey, claim: ResourceClaim) -> ResourceClaim:
        assumed = self._assumed[key]
        users = {each.uid for each in claim.reserved_for}
        seen = claim.allocation is not None and all(e.uid in users for e in assumed.consumers)
        if assumed.uid != claim.uid or seen:
            del self._assumed[key]
            return claim
        more = tuple(each for each in assumed.consumers if each.uid not in users)
        return attrs.evolve(
            claim,
            allocation=claim.allocation or assumed.allocation,
            reserved_for=(*claim.reserved_for, *more),
        )

    def _forget(self, part: str) -> None:
        self._changed.add(part)
        self._listener()

    def build_catalog(self) -> DeviceCatalog:
        """This moment; its parts are the same objects until something in them changes."""
        first = bool(self.api_version) and not self._view.served
        if self._changed or first:
            made = {part: self._current_part(part) for part in sorted(self._changed)}
            self._view = attrs.evolve(self._view, served=True, **made)
            self._changed.clear()
        return self._view

    def _current_part(self, part: str) -> Any:
        if part == "slices":
            return tuple(item for _, item in sorted(self.slices.items.items()))
        if part == "taint_rules":
            return tuple(item for _, item in sorted(self.rules.items.items()))
        if part == "classes":
            return MappingProxyType(
                {key.name: item for key, item in sorted(self.classes.items.items())}
            )
        if part == "templates":
            return MappingProxyType(dict(sorted(self.templates.items.items())))
        return MappingProxyType(self._view_of_claims())

    def _view_of_claims(self) -> dict[ObjectKey, ResourceClaim]:
        """Claims by key, in the order of the keys, as they will be."""
        there: Mapping[ObjectKey, ResourceClaim] = self.claims.items
        before = self._claims
        if self._made:
            there = {**self._made, **there}
        changed = self.claims.take_changed() | self._reassumed
        self._reassumed = set()
        if all((key in there) == (key in before) for key in changed):
            claims = before.copy()
        else:
            if len(there) != len(before) or not all(key in there for key in before):
                self._claim_keys = sorted(there)
            claims = {key: before.get(key) or there[key] for key in self._claim_keys}
        for key in changed:
            if key not in there:
                self._assumed.pop(key, None)  # what is gone is not written
            else:
                claims[key] = there[key]
                if key in self._made:
                    claims[key] = _as_made(claims[key], self._made[key])
                elif key in self._assumed:
                    claims[key] = self._as_assumed(key, claims[key])
        self._claims = claims
        return claims


def _as_made(claim: ResourceClaim, made: ResourceClaim) -> ResourceClaim:
    """A claim that is being made, as it will be: the API shows it before its devices are written."""
    if claim.owner != made.owner or claim.allocation is not None:
        return claim
    return attrs.evolve(claim, allocation=made.allocation, reserved_for=made.reserved_for)
