"""PodGroup: a gang as its author describes it, with the status written last."""

from __future__ import annotations

from typing import Final

from gpusched.api.devices.device_match import NO_DEVICE_MATCH, DeviceMatchRequest
from gpusched.api.devices.gpu_types import NO_GPU_TYPE_REQUEST, GpuTypeRequest
from gpusched.api.gang.eviction_record import NO_EVICTIONS, GangEvictions
from gpusched.api.gang.move_record import MoveRecord
from gpusched.api.gang.native_terms import COMPOSITE, TOLD_AS, NativeTerms
from gpusched.api.gang.turn_record import TurnRecord
from gpusched.api.meta.identity import NO_CREATOR, UID, Creator, ObjectKey, ResourceVersion
from gpusched.api.meta.resources import NOTHING, Resources
from gpusched.api.meta.status import Condition
from gpusched.api.queue.queue import DEFAULT_QUEUE
from gpusched.base.classes import frozen


@frozen(slots=True)
class TopologyRequest:
    """Where the pods of a gang may sit. Empty names: no wish."""

    required: str = ""
    preferred: str = ""
    max_wait_ns: int = 0


NO_TOPOLOGY_REQUEST = TopologyRequest()


@frozen(slots=True)
class SubGroup:
    """A part of a gang that starts with its own minimum: of pods, or of the sub-groups in it.

    Attributes:
        min_member: pods that it needs; 0 for one that holds other sub-groups.
        parent: name of the sub-group that it is in, empty at the top.
        min_sub_groups: how many of the sub-groups in it must be complete.
    """

    name: str
    min_member: int
    topology: TopologyRequest
    parent: str = ""
    min_sub_groups: int = 0


EXTRAS: Final = "Extras"
"""Mode of disruption of gangs whose minima are never evicted for others."""


@frozen(slots=True, kw_only=True)
class GangTerms:
    """The terms on which a gang runs: fields of the spec that its ``Gang`` carries as they are.

    A field that is new here reaches the gang without another line of code. Durations are in
    nanoseconds, 0 when not set. Its hash is not kept: terms read back from an old file would have none.

    Attributes:
        preemptible: whether it may be evicted for others; None, as its priority class says. In a
            ``Gang`` that is decided.
        expected_duration_ns: its walltime.
        min_runtime_ns: for so long it is not evicted; 0, as its queue says.
        schedule_timeout_ns: after so long its admission is given back.
        disruption: ``Group`` (evicted as a whole), ``Pod`` (may lose members above its minima) or
            ``Extras`` (may lose those and no others).
        checkpoint_ns: between checkpoints; 0 when work is lost from the start.
        gpu_types: which types of GPUs it takes, and how fast it is on them.
        devices: what the devices of all its members have in common.
    """

    preemptible: bool | None = None
    expected_duration_ns: int = 0
    min_runtime_ns: int = 0
    schedule_timeout_ns: int = 0
    disruption: str = "Pod"
    checkpoint_ns: int = 0
    gpu_types: GpuTypeRequest = NO_GPU_TYPE_REQUEST
    devices: DeviceMatchRequest = NO_DEVICE_MATCH


@frozen(slots=True, kw_only=True)
class PodGroup:
    """A gang as its author describes it, and the status written last.

    Attributes:
        min_task_member: pairs of role and minimum, sorted.
        sub_groups: those that pods name, and those that hold others, in any order.
        min_sub_groups: how many of the sub-groups at the top must be complete.
        terms: on which it runs.
        status: the status object as last seen, as canonical JSON.
        source: empty for our own kind, else the project of its kind: see ``api.foreign.kinds``.
        warning: what of a foreign one is not honoured; empty for nothing.
        move: the last move of the gang, see ``MoveRecord``.
        turn: turns that it had, None for none.
        evictions: the last times that it was made to leave.
        hold: why nothing of it is started until it is released; empty when it is not held.
        native: what only a PodGroup of Kubernetes itself says; None for others.
        strange_keys: what is said of its labels and annotations that mean nothing.
    """

    namespace: str
    name: str
    uid: UID
    resource_version: ResourceVersion
    generation: int
    created: float
    queue: str = DEFAULT_QUEUE
    min_member: int = 1
    min_task_member: tuple[tuple[str, int], ...] = ()
    min_resources: Resources = NOTHING
    priority_class: str = ""
    sub_groups: tuple[SubGroup, ...] = ()
    min_sub_groups: int = 0
    topology: TopologyRequest = NO_TOPOLOGY_REQUEST
    terms: GangTerms = GangTerms()
    phase: str = ""
    conditions: tuple[Condition, ...] = ()
    status: bytes = b"{}"
    deleting: bool = False
    source: str = ""
    warning: str = ""
    move: MoveRecord | None = None
    turn: TurnRecord | None = None
    evictions: GangEvictions = NO_EVICTIONS
    native: NativeTerms | None = None
    strange_keys: tuple[str, ...] = ()
    hold: str = ""
    creator: Creator = NO_CREATOR

    @property
    def key(self) -> ObjectKey:
        """Namespace and name of the PodGroup."""
        return ObjectKey(self.namespace, self.name)

    def condition(self, kind: str) -> Condition | None:
        """The condition of that type, when there is one."""
        return next((each for each in self.conditions if each.type == kind), None)

    @property
    def kind(self) -> str:
        """Kind of the object: PodGroup, or CompositePodGroup."""
        return COMPOSITE if self.native is not None and self.native.composite else "PodGroup"

    def our_condition(self, kind: str) -> Condition | None:
        """What one of our conditions says, whatever type it has on a group of this kind."""
        return self.condition(kind if self.native is None else TOLD_AS[kind])

    @property
    def has_our_conditions(self) -> bool:
        """Whether conditions of ours say on the object where it stands: on our own and native ones."""
        return not self.source or self.native is not None
