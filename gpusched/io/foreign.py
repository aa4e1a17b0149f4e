"""Where groups and queues of other projects are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar
from urllib.parse import quote

from gpusched.io.bind_calls import own_group_path
from gpusched.objects.adapters.kinds import Served
from gpusched.objects.group import PodGroup
from gpusched.objects.meta import GangKey, ObjectKey

E_co = TypeVar("E_co", covariant=True)


class Shelf(Protocol[E_co]):
    """Entities of one kind."""

    @property
    def items(self) -> Mapping[ObjectKey, E_co]:
        """By key."""


class ServedKinds(Protocol):
    """Where groups and queues of other projects are."""

    @property
    def served(self) -> Mapping[tuple[str, str], Served]:
        """By kind and source."""


class ServedCache(Protocol):
    """What the API showed last, and where."""

    @property
    def groups(self) -> Shelf[PodGroup]:
        """All PodGroups."""

    @property
    def foreign(self) -> ServedKinds:
        """Where groups and queues of other projects are."""


def group_path(cache: ServedCache, gang: GangKey) -> str:
    """Where the API has a gang's PodGroup."""
    group = cache.groups.items.get(ObjectKey(gang.namespace, gang.name))
    served = cache.foreign.served.get(("PodGroup", group.source)) if group is not None else None
    if served is None:
        return own_group_path(gang)
    return served.object_path(quote(gang.namespace), quote(gang.name))
