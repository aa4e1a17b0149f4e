"""What every part of the embedded server shares: store, kinds, clock and seeded randomness."""

from __future__ import annotations

import uuid
from typing import Final

from gpusched.base.clock import Clock
from gpusched.devcluster.apimachinery.seeded_random import SeededDraws
from gpusched.devcluster.apimachinery.times import rfc3339
from gpusched.devcluster.apiserver.admission_attributes import PolicyAdmission
from gpusched.devcluster.registry.gangs.features import OFF, GangFeatures
from gpusched.devcluster.registry.kinds import Registry
from gpusched.devcluster.storage.change_feed import ChangeFeed
from gpusched.devcluster.storage.store import Store

_SUFFIX_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH: Final = 5


class ServerState:
    """The shared state. Draws are keyed by object, so that uses do not shift one another.

    Attributes:
        records: whether plain creates begin a record of field managers (``managedFields``).
        policies: asked about every write of a known user; None until the cluster is built.
        gangs: what is served of Kubernetes' own gangs.
    """

    policies: PolicyAdmission | None = None

    def __init__(
        self,
        *,
        store: Store,
        registry: Registry,
        clock: Clock,
        seed: int,
        gangs: GangFeatures = OFF,
    ) -> None:
        self.store = store
        self.registry = registry
        self.clock = clock
        self.records = True
        self.gangs = gangs
        self._uids = SeededDraws(seed, "uid")
        self._names = SeededDraws(seed, "name")
        self._following: dict[str, ChangeFeed] = {}
        self._second = -1
        self._second_text = ""

    def time_text(self) -> str:
        """Return now as the API writes times: RFC 3339 in whole seconds."""
        second = int(self.clock.now())
        if second != self._second:
            self._second = second
            self._second_text = rfc3339(second)
        return self._second_text

    def following(self, storage: str) -> ChangeFeed:
        """Return the change feed of the collection of a storage name."""
        found = self._following.get(storage)
        if found is None:
            found = self._following[storage] = ChangeFeed(self.store.collection(storage))
        return found

    def new_uid(self, about: str) -> str:
        """Return the next uid of what ``about`` names: another one at each call."""
        return str(uuid.UUID(int=self._uids.next(about), version=4))

    def name_from(self, prefix: str, *, place: str) -> str:
        """Return ``prefix`` with five characters that form no words, the next ones of a place."""
        room = 63 - _SUFFIX_LENGTH
        drawn = self._names.next(f"{place}/{prefix}")
        suffix = ""
        for _ in range(_SUFFIX_LENGTH):
            drawn, index = divmod(drawn, len(_SUFFIX_ALPHABET))
            suffix += _SUFFIX_ALPHABET[index]
        return prefix[:room] + suffix
