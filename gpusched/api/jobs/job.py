"""Job: a batch Job as the scheduler sees it, and the pods that it would make."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from gpusched.api.gang.move_record import MoveRecord
from gpusched.api.meta.identity import UID, ObjectKey, ResourceVersion
from gpusched.api.pod.pod import GangAnnotations, GangMembership, PodClass


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
    """The last move of the gang, see ``api.gang.move_record``."""

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
