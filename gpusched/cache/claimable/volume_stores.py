"""Claims of volumes, volumes and their classes as the watches show them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from gpusched.api.meta.identity import ObjectKey, Rejected
from gpusched.api.volumes.volume import (
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeCatalog,
)
from gpusched.cache.store import KindStore

E = TypeVar("E")


class VolumeKindStore(KindStore[E], Generic[E]):
    """One of these kinds, which tells of every change.

    Args:
        changed: called after each.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        super().__init__()
        self._changed = changed

    def put(self, key: ObjectKey, item: E | Rejected) -> None:
        """It is there, in this form."""
        known: Any = self.items.get(key)
        super().put(key, item)
        if known is None or known != item:
            self._changed()

    def drop(self, key: ObjectKey) -> None:
        """Drop the object of this key, which is gone."""
        super().drop(key)
        self._changed()


class VolumeStores:
    """All of it.

    Args:
        changed: called after every change that a decision may depend on.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self.claims: VolumeKindStore[PersistentVolumeClaim] = VolumeKindStore(self._forget)
        self.volumes: VolumeKindStore[PersistentVolume] = VolumeKindStore(self._forget)
        self.classes: VolumeKindStore[StorageClass] = VolumeKindStore(self._forget)
        self.listeners: list[Callable[[], None]] = [changed]
        """Called after every change."""
        self._view: VolumeCatalog | None = None

    def _forget(self) -> None:
        self._view = None
        for listener in tuple(self.listeners):
            listener()

    def build_catalog(self) -> VolumeCatalog:
        """This moment; the same object until something changes."""
        if self._view is None:
            self._view = VolumeCatalog(
                claims=dict(self.claims.items),
                volumes={key.name: item for key, item in sorted(self.volumes.items.items())},
                classes={key.name: item for key, item in self.classes.items.items()},
            )
        return self._view
