"""Job: a batch Job as the scheduler sees it, and the pods that it would make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gpusched.api.devices.dynamic.claims import ExtendedRequest
from gpusched.api.gang.eviction_record import NO_EVICTIONS, GangEvictions
from gpusched.api.gang.move_record import MoveRecord
from gpusched.api.gang.turn_record import TurnRecord
from gpusched.api.meta.identity import NO_CREATOR, UID, Creator, ObjectKey, ResourceVersion
from gpusched.api.pod.pod import GangAnnotations, GangMembership, PodClass
from gpusched.base.classes import frozen

DEFAULT_BACKOFF_LIMIT: Final = 6
"""Failures of pods that a Job survives which names no number, as the API server has it."""


@frozen(slots=True, kw_only=True)
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
    extended: tuple[ExtendedRequest, ...] = ()
    """What containers of its pods request of extended resources, without classes."""


@frozen(slots=True, kw_only=True)
class Job:
    """A batch Job, from which a gang may be derived.

    Attributes:
        completions: None for a work queue Job, which has no fixed number.
        succeeded: finished pods, which need no place any more.
        group: the PodGroup that its pods will name; what the Job itself is labelled with does not
            reach them.
        family: the gang of another convention that its pods will name, if they name no PodGroup.
        finished: whether it is Complete or Failed and makes no pods any more.
        ended: when it came to that, seconds since the epoch; 0.0 while it has not.
        role, sub_group: of its pods inside their gang; empty for none.
        failed: why it is Failed, reason and message; empty while it is not.
        failed_indexes: how many of its indexes are given up and make no pods any more.
        backoff_limit: failures of pods that it survives; of each index where ``limit_per_index``.
        ignores_evictions: whether its pod failure policy does not count pods that are evicted.
        template: None unless the Job is suspended, or was started by us.
        admitted: when we started it, seconds since the epoch; 0.0 when we did not.
        seal: as read; whether it fits ``admitted`` is found out in the cache.
        full_parallelism: what its author asked for, where we start it with less; else 0.
        ran_s: seconds from its start to its completion; 0 when it is not complete.
        deadline_s: it is ended so many seconds after it started; 0 when it is not.
        min_parallelism: the least with which it may be started; 0 when it is all or nothing.
        hold: why nothing of it is started until it is released; empty when it is not held.
        scheduler, priority_class: that its pods will name; empty where that cannot be read.
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
    failed: str = ""
    failed_indexes: int = 0
    backoff_limit: int = DEFAULT_BACKOFF_LIMIT
    limit_per_index: bool = False
    ignores_evictions: bool = False
    move: MoveRecord | None = None
    """The last move of the gang, see ``api.gang.move_record``."""
    turn: TurnRecord | None = None
    """Turns that it had; in the cache only with our seal."""
    evictions: GangEvictions = NO_EVICTIONS
    """Evictions of its gang; in the cache only with our seal."""
    strange_keys: tuple[str, ...] = ()
    """What is said of labels and annotations of it, or of its template, that mean nothing."""
    hold: str = ""
    scheduler: str = ""
    priority_class: str = ""
    creator: Creator = NO_CREATOR
    ended: float = 0.0
    role: str = ""
    sub_group: str = ""

    @property
    def key(self) -> ObjectKey:
        """Namespace and name of the Job."""
        return ObjectKey(self.namespace, self.name)

    @property
    def gang_size(self) -> int:
        """Pods that must start together; 1 when the Job's pods are independent."""
        if self.hints.min_member:
            return self.hints.min_member
        if self.completions is None:
            return 1
        if self.indexed or self.completions == self.parallelism:
            left = self.completions - self.succeeded - self.failed_indexes
            return max(1, min(self.parallelism, left))
        return 1
