"""Namespace, PriorityClass, ResourceQuota, PodDisruptionBudget and Topology: what binds gangs of many."""

from __future__ import annotations

from collections.abc import Mapping

from gpusched.api.affinity.selector import Selector
from gpusched.api.meta.identity import UID, ResourceVersion
from gpusched.base.classes import frozen


@frozen(slots=True, kw_only=True)
class Topology:
    """Levels, widest first: pairs of level name and node label; and its status as last seen."""

    name: str
    uid: UID
    resource_version: ResourceVersion
    levels: tuple[tuple[str, str], ...]
    generation: int = 0
    status: bytes = b"{}"


@frozen(slots=True, kw_only=True)
class Namespace:
    """A namespace; its queue label holds for all that it contains."""

    name: str
    uid: UID
    resource_version: ResourceVersion
    labels: Mapping[str, str]
    queue: str


@frozen(slots=True, kw_only=True)
class PriorityClass:
    """A priority by name.

    Attributes:
        preemptible: what its gangs are unless they say so themselves; None when not said.
    """

    name: str
    uid: UID
    resource_version: ResourceVersion
    value: int
    preemption_policy: str
    preemptible: bool | None = None


@frozen(slots=True)
class QuotaScope:
    """Which priority classes a quota counts: an operator of ``scopeSelector`` and its values."""

    operator: str
    values: tuple[str, ...] = ()

    def selects(self, name: str) -> bool:
        """Whether a pod of that class meets it; for an operator of the future it does."""
        if self.operator == "In":
            return name in self.values
        if self.operator == "NotIn":
            return name not in self.values
        return self.operator != "DoesNotExist"


@frozen(slots=True, kw_only=True)
class ResourceQuota:
    """A ResourceQuota, as far as it limits priority classes.

    Attributes:
        classes: terms of its scopes about priority classes, ANDed; none when it is about others.
        left: what it still admits, by its own names (``pods``, ``requests.cpu``), in base units.
    """

    namespace: str
    name: str
    uid: UID
    resource_version: ResourceVersion
    classes: tuple[QuotaScope, ...]
    left: tuple[tuple[str, int], ...]

    def selects(self, name: str) -> bool:
        """Whether it counts pods because of this priority class."""
        return bool(self.classes) and all(term.selects(name) for term in self.classes)


@frozen(slots=True, kw_only=True)
class DisruptionBudget:
    """A PodDisruptionBudget: how many more evictions the API would allow now."""

    namespace: str
    name: str
    uid: UID
    resource_version: ResourceVersion
    selector: Selector | None
    disruptions_allowed: int
