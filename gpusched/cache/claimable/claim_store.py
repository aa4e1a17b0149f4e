"""ResourceClaims in their newest known form, those without devices, and those that have devices of a pool."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from gpusched.api.devices.dynamic.claims import ResourceClaim
from gpusched.api.meta.identity import UID, ObjectKey, Rejected, is_older_version
from gpusched.cache.claimable.volume_stores import VolumeKindStore as ListedKindStore
from gpusched.devices.readiness import has_waited

PoolKey = tuple[str, str]
"""Driver and name of a pool."""


class ClaimStore(ListedKindStore[ResourceClaim]):
    """See the module: what the watch tells may be older than what a write was answered.

    Args:
        changed: called after each change.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        super().__init__(changed)
        self._answered: dict[ObjectKey, ResourceClaim] = {}
        """Claims as answers to writes had them, until the watch has come as far."""
        self._of_pool: dict[PoolKey, set[ObjectKey]] = {}
        self._waits_changed: set[UID] = set()
        self._without_devices: dict[ObjectKey, ResourceClaim] = {}
        self._touched: set[ObjectKey] = set()
        self._extended: dict[tuple[str, UID], ObjectKey] = {}
        """Claims for extended resources, by the namespace and the UID of their pods."""

    def extended_claim(self, namespace: str, pod: UID) -> ResourceClaim | None:
        """The claim that was made for the extended resources of a pod in a namespace."""
        key = self._extended.get((namespace, pod))
        return None if key is None else self.items.get(key)

    def record_made(self, claim: ResourceClaim) -> None:
        """The API server answered that it made the claim, which the watch may not have shown yet."""
        known = self.items.get(claim.key)
        if known is None or known.uid != claim.uid:
            self._enter_claim(claim.key, claim)
            self._answered[claim.key] = claim

    def take_changed(self) -> set[ObjectKey]:
        """Claims that came, changed or went since the last call."""
        found, self._touched = self._touched, set()
        return found

    def take_wait_changes(self) -> Collection[UID]:
        """UIDs of owners of claims whose devices are, or were, being made ready and that changed since the last call."""
        taken, self._waits_changed = self._waits_changed, set()
        return sorted(taken)

    @property
    def without_devices(self) -> Collection[ResourceClaim]:
        """Claims that wait for devices, in any order."""
        return self._without_devices.values()

    def of_pool(self, pool: PoolKey) -> Iterator[ResourceClaim]:
        """Claims that have devices of a pool, in any order."""
        return (self.items[key] for key in self._of_pool.get(pool, ()))

    def awaits_watch(self, key: ObjectKey) -> bool:
        """Whether the watch has not come as far yet as the last answered write of a claim."""
        return key in self._answered

    def record_answer(self, claim: ResourceClaim) -> None:
        """The API server answered a write with the claim in this form."""
        known = self.items.get(claim.key)
        if known is None or known.uid != claim.uid:
            return
        version = claim.resource_version
        if version != known.resource_version and not is_older_version(
            version, known.resource_version
        ):
            self._enter_claim(claim.key, claim)
            self._answered[claim.key] = claim

    def put(self, key: ObjectKey, item: ResourceClaim | Rejected) -> None:
        """The watch shows it in this form."""
        answered = self._answered.get(key)
        if (
            answered is not None
            and answered.uid == item.uid
            and is_older_version(item.resource_version, answered.resource_version)
        ):
            return
        self._answered.pop(key, None)
        self._enter_claim(key, item)

    def drop(self, key: ObjectKey) -> None:
        """Drop the claim of this key, which is gone."""
        self._answered.pop(key, None)
        self._remove_claim(key)
        super().drop(key)

    def _enter_claim(self, key: ObjectKey, item: ResourceClaim | Rejected) -> None:
        self._remove_claim(key)
        if not isinstance(item, Rejected):
            if item.extended:
                self._extended[key.namespace, item.owner] = key
            if item.allocation is None:
                self._without_devices[key] = item
            elif has_waited(item):
                self._waits_changed.add(item.owner)
            for pool in _claim_pools(item):
                self._of_pool.setdefault(pool, set()).add(key)
        super().put(key, item)

    def _remove_claim(self, key: ObjectKey) -> None:
        self._touched.add(key)
        self._without_devices.pop(key, None)
        known = self.items.get(key)
        if known is not None and self._extended.get((key.namespace, known.owner)) == key:
            del self._extended[key.namespace, known.owner]
        if known is not None and has_waited(known):
            self._waits_changed.add(known.owner)
        for pool in () if known is None else _claim_pools(known):
            keys = self._of_pool[pool]
            keys.discard(key)
            if not keys:
                del self._of_pool[pool]


def _claim_pools(claim: ResourceClaim) -> set[PoolKey]:
    if claim.allocation is None:
        return set()
    return {(each.driver, each.pool) for each in claim.allocation.devices}
