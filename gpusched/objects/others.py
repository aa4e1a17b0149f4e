"""The kinds of which only a few fields matter."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from gpusched.objects.meta import UID, ObjectKey, ResourceVersion
from gpusched.objects.pod import GangHints
from gpusched.objects.selector import Selector


@attrs.frozen(slots=True, kw_only=True)
class Namespace:
    """A namespace; its queue label holds for all that it contains."""

    name: str
    uid: UID
    resource_version: ResourceVersion
    labels: Mapping[str, str]
    queue: str


@attrs.frozen(slots=True, kw_only=True)
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


@attrs.frozen(slots=True, kw_only=True)
class DisruptionBudget:
    """A PodDisruptionBudget: how many more evictions the API would allow now."""

    namespace: str
    name: str
    uid: UID
    resource_version: ResourceVersion
    selector: Selector | None
    disruptions_allowed: int


@attrs.frozen(slots=True, kw_only=True)
class Job:
    """A batch Job, from which a gang may be derived.

    Attributes:
        completions: None for a work queue Job, which has no fixed number.
        succeeded: finished pods, which need no place any more.
    """

    namespace: str
    name: str
    uid: UID
    resource_version: ResourceVersion
    created: float
    parallelism: int
    completions: int | None
    indexed: bool
    suspended: bool
    succeeded: int
    queue: str
    group: str
    hints: GangHints

    @property
    def key(self) -> ObjectKey:
        """Namespace and name."""
        return ObjectKey(self.namespace, self.name)

    @property
    def gang_size(self) -> int:
        """Pods that must start together; 1 when the Job's pods are independent."""
        if self.hints.min_member:
            return self.hints.min_member
        if self.completions is None:
            return 1
        if self.indexed or self.completions == self.parallelism:
            return max(1, min(self.parallelism, self.completions - self.succeeded))
        return 1
