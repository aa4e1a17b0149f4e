"""The kinds of which only a few fields matter."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from gpusched.api.affinity.selector import Selector
from gpusched.api.gang.move_record import MoveRecord
from gpusched.api.meta.identity import UID, ObjectKey, ResourceVersion
from gpusched.api.pod.pod import GangAnnotations, GangMembership, PodClass


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


@attrs.frozen(slots=True)
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


@attrs.frozen(slots=True, kw_only=True)
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
class JobTemplate:
    """The pods that a Job of ours would make."""

    pod_class: PodClass
    scheduler: str
    labels: Mapping[str, str]
    priority_class: str
    may_preempt: bool
    role: str
    native: str = ""
    """The PodGroup that ``spec.schedulingGroup`` of its pods names."""


@attrs.frozen(slots=True, kw_only=True)
class Job:
    """A batch Job, from which a gang may be derived.

    Attributes:
        completions: None for a work queue Job, which has no fixed number.
        succeeded: finished pods, which need no place any more.
        group: the PodGroup that its pods will name; what the Job itself is labelled with does not
            reach them.
        family: the gang of another convention that its pods will name, if they name no PodGroup.
        finished: whether it is Complete or Failed and makes no pods any more.
        template: None unless the Job is suspended, or was started by us.
        admitted: when we started it, seconds since the epoch; 0.0 when we did not.
        seal: as read; whether it fits ``admitted`` is found out in the cache.
        full_parallelism: what its author asked for, where we start it with less; else 0.
        ran_s: seconds from its start to its completion; 0 when it is not complete.
        deadline_s: it is ended so many seconds after it started; 0 when it is not.
        min_parallelism: the least with which it may be started; 0 when it is all or nothing.
        controlled: whether another controller than a CronJob made it, which suspends and starts it.
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
    hints: GangAnnotations
    family: GangMembership | None = None
    finished: bool = False
    template: JobTemplate | None = None
    admitted: float = 0.0
    seal: str = ""
    full_parallelism: int = 0
    min_parallelism: int = 0
    controlled: bool = False
    deadline_s: int = 0
    ran_s: int = 0
    move: MoveRecord | None = None
    """The last move of the gang, see ``objects.move``."""

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
