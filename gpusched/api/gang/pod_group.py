"""PodGroup: a gang as its author describes it, with the status written last."""

from __future__ import annotations

import attrs

from gpusched.api.gang.move_record import MoveRecord
from gpusched.api.meta.identity import UID, ObjectKey, ResourceVersion
from gpusched.api.meta.resources import Resources
from gpusched.api.meta.status import Condition


@attrs.frozen(slots=True)
class TopologyRequest:
    """Where the pods of a gang may sit. Empty names: no wish."""

    required: str = ""
    preferred: str = ""
    max_wait_ns: int = 0


NO_TOPOLOGY_REQUEST = TopologyRequest()


@attrs.frozen(slots=True)
class SubGroup:
    """A part of a gang that starts with its own minimum."""

    name: str
    min_member: int
    topology: TopologyRequest


@attrs.frozen(slots=True, kw_only=True)
class PodGroup:
    """A gang as its author describes it, and the status we wrote last.

    Attributes:
        min_task_member: pairs of role and minimum, sorted.
        disruption: ``Group`` (evicted as a whole) or ``Pod`` (may lose members above its minima).
        checkpoint_ns: nanoseconds between checkpoints; 0 when work is lost from the start.
        status: the status object as last seen, as canonical JSON.
        source: empty for our own kind, else whose kind it is: see ``adapters.kinds``.
        remark: what of a foreign one is not honoured; empty for nothing.
    """

    namespace: str
    name: str
    uid: UID
    resource_version: ResourceVersion
    generation: int
    created: float
    queue: str
    min_member: int
    min_task_member: tuple[tuple[str, int], ...]
    min_resources: Resources
    priority_class: str
    preemptible: bool | None
    sub_groups: tuple[SubGroup, ...]
    min_sub_groups: int
    topology: TopologyRequest
    expected_duration_ns: int
    min_runtime_ns: int
    schedule_timeout_ns: int
    phase: str
    conditions: tuple[Condition, ...]
    status: bytes
    deleting: bool
    disruption: str = "Pod"
    checkpoint_ns: int = 0
    source: str = ""
    remark: str = ""
    move: MoveRecord | None = None
    """The last move of the gang, see ``objects.move``."""

    @property
    def key(self) -> ObjectKey:
        """Namespace and name."""
        return ObjectKey(self.namespace, self.name)

    def condition(self, kind: str) -> Condition | None:
        """The condition of that type, when there is one."""
        return next((each for each in self.conditions if each.type == kind), None)
